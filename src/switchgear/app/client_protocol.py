"""An app's side of the conversation with a server, without the connection.

It begins with a greeting: our option is asked for, and an echo after it.  A server of ours agrees to the option; any
other refuses it, or says nothing, and then the echo comes back.  So it is known what kind of server it is before the
first job is submitted, at the price of one round trip per connection.

A server of ours is sent SUBMIT_JOB_OPTIONS, WATCH and CONTROL; any other only what every Gearman server knows, and
whoever asks for more is told so (`ExtensionRequired`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import msgspec

from switchgear.app.job_subscribers import JobSubscribers
from switchgear.app.job_updates import UNKNOWN, JobSubscriber
from switchgear.app.submit_request import SubmitRequest
from switchgear.client.client_protocol import FINAL_NEWS, ClientProtocol, EventHandler, PendingRequest
from switchgear.client.connection import LARGEST_PACKET_BYTES
from switchgear.client.request_builders import SUBMIT, control_request
from switchgear.errors import ClientError, ExtensionRequired, ServerRefused, ServerUnreachable
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.codec import request as packet_of
from switchgear.protocols.gearman.messages import Packet

__all__ = ["AppProtocol", "AppRequest", "ControlRequest", "PendingSubmission", "SubscribeRequest"]

OPTION: Final = b"switchgear"
PACKET_BYTES: Final = b"packet_bytes"  # the option by which a server of ours tells how much it takes at once
CREATED: Final = int(Packet.JOB_CREATED)
# Questions that change nothing may be asked again when a connection is cut before the answer.
HARMLESS_VERBS: Final = frozenset({"server", "functions", "workers", "jobs", "job", "states", "explain", "schedules"})

_CUT: Final = "the connection to {server} was lost before it answered; the job may have been taken or not"


class AppRequest(PendingRequest):
    """A question that knows how to put itself, once it is known what kind of server is asked."""

    may_repeat = False  # asking twice does no harm
    on_lost: Callable[[], bool] | None = None  # asks again after a cut; whether it will

    def names_job(self) -> str:
        """The handle of a job that the server has to know for this; empty if there is none."""
        return ""

    @abstractmethod
    def put(self, conversation: AppProtocol) -> None:
        """Ask it; raises ExtensionRequired."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """There will be no answer."""


class PendingSubmission(AppRequest):
    """Submit some jobs: one, or a batch.  The answer is a list: a handle, or the refusal, for each."""

    def __init__(self, requests: list[SubmitRequest], followers: list[JobSubscriber | None]) -> None:
        self.future: Future[list[str | Exception]] = Future()
        self._requests = requests
        self._followers = followers
        self._taken: list[str | Exception] = []
        self._conversation: AppProtocol

    def names_job(self) -> str:
        return next((str(handle) for request in self._requests for handle in request.options.get("after") or ()), "")

    def put(self, conversation: AppProtocol) -> None:
        self._conversation = conversation
        packets: list[bytes] = []
        for request in self._requests:  # all or none: a request that the server cannot do is found before one is sent
            packets.append(conversation.submission(request))
        for packet in packets:
            conversation.ask(packet, self)

    def answer(self, kind: int, body: bytes) -> bool:
        if kind != CREATED:
            self._note(ClientError(f"{self._conversation.server} answered a submission with a packet {kind}"))
            return False
        number = len(self._taken)
        follower = self._followers[number]
        if follower is not None:
            self._conversation.follow_submitted(body, self._requests[number], follower)
        self._note(body.decode(errors="surrogateescape"))
        return False

    def refuse(self, error: Exception) -> None:
        self._note(error)

    def lose(self, error: ServerUnreachable) -> None:
        self._note(ServerUnreachable(_CUT.format(server=self._conversation.server)))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def _note(self, outcome: str | Exception) -> None:
        self._taken.append(outcome)
        if len(self._taken) == len(self._requests) and not self.future.done():
            self.future.set_result(self._taken)


class SingleRequest(AppRequest):
    """A question with one packet as its answer."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()

    def refuse(self, error: Exception) -> None:
        self.fail(error)

    def lose(self, error: ServerUnreachable) -> None:
        if not (self.may_repeat and self.on_lost is not None and self.on_lost()):
            self.fail(error)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def succeed(self, value: Any) -> None:
        """This is the answer."""
        if not self.future.done():
            self.future.set_result(value)


class ControlRequest(SingleRequest):
    """A verb of CONTROL."""

    def __init__(self, verb: str, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.verb = verb
        self.may_repeat = verb in HARMLESS_VERBS
        self._handle = arguments.get("handle") or ""
        self._packet = control_request(verb, arguments)

    def names_job(self) -> str:
        return str(self._handle)

    def put(self, conversation: AppProtocol) -> None:
        conversation.require_switchgear(_WANTED.get(self.verb, self.verb))
        conversation.ask(self._packet, self)

    def answer(self, kind: int, body: bytes) -> bool:
        try:
            self.succeed(msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            self.fail(ClientError(f"the server answered {self.verb} with something that is not JSON: {error}"))
        return False


class SubscribeRequest(SingleRequest):
    """Follow a job that was submitted before.  The answer is the word for its state."""

    may_repeat = True

    def __init__(self, handle: str, follower: JobSubscriber) -> None:
        super().__init__()
        self.handle = handle
        self.follower = follower
        self._conversation: AppProtocol

    def names_job(self) -> str:
        return self.handle

    def put(self, conversation: AppProtocol) -> None:
        conversation.require_switchgear("the result of a job by its handle")
        self._conversation = conversation
        conversation.ask(packet_of(Packet.WATCH, self.handle.encode(errors="surrogateescape")), self)

    def answer(self, kind: int, body: bytes) -> bool:
        handle, _, state = body.partition(b"\0")
        if state != UNKNOWN.encode():
            self.follower.begin_again()
            self.follower.survives_cuts = True
            self.follower.place = self._conversation.place
            self._conversation.follow_watched(handle, self.follower)
        self.succeed(state.decode(errors="replace"))
        return False


class AppProtocol(ClientProtocol):
    """With one server, over one connection."""

    def __init__(self, server: str, on_ready: Callable[[], None] = lambda: None) -> None:
        """`server` is what it is called in messages; `on_ready` is called when its kind is known."""
        super().__init__()
        self.server = server
        self.place = 0  # the number of the place where it is
        self.is_ready = False
        self.is_switchgear = False
        self.packet_bytes = LARGEST_PACKET_BYTES  # the most that it takes, as far as is known
        self._on_ready = on_ready
        self._audiences: dict[bytes, JobSubscribers] = {}
        self._last_wishes: tuple[dict[str, Any], str, bool | None, bool] | None = None
        self._last_text = b""  # what was sent for them

    def greet(self) -> None:
        """Find out what kind of server this is."""
        # A server that does not know the option may also not answer it, so the echo decides.
        self.outgoing.append(packet_of(Packet.OPTION_REQ, OPTION))
        self.outgoing.append(packet_of(Packet.OPTION_REQ, b"exceptions"))
        self.outgoing.append(packet_of(Packet.OPTION_REQ, PACKET_BYTES))
        self.ask(packet_of(Packet.ECHO_REQ, OPTION), _ServerGreeting(self))

    def greeted(self, is_switchgear: bool) -> None:
        """It is known."""
        self.is_switchgear = is_switchgear
        self.is_ready = True
        self._on_ready()

    def require_switchgear(self, *what: str) -> None:
        """Raises ExtensionRequired unless this is a server of ours."""
        if not self.is_switchgear:
            *first, last = what
            subject = f"{', '.join(first)} and {last}" if first else last
            verb = "need" if first or last == "retries" else "needs"
            raise ExtensionRequired(f"{subject} {verb} a Switchgear server; {self.server} is a plain Gearman server")

    # --- submitting ---

    def submission(self, request: SubmitRequest) -> bytes:
        """The packet that submits this; raises ExtensionRequired, or ServerRefused if it is too large."""
        if not self.is_switchgear:
            return self._plain_submission(request)
        text = self._last_text
        last = self._last_wishes
        if (
            last is None
            or request.options is not last[0]  # the same object: requests of many jobs share it
            or request.run_at
            or request.priority != last[1]
            or request.durable is not last[2]
            or request.watch is not last[3]
        ):
            text = self._text_of_options(request)
        packet = packet_of(Packet.SUBMIT_JOB_OPTIONS, request.function, request.unique, text, request.payload)
        if len(packet) > self.packet_bytes:  # it would hang up, and on others too who use this connection
            what = f"the arguments take {len(request.payload)} bytes"
            raise ServerRefused("ARGUMENT_TOO_LARGE", f"{what}, and {self.server} takes at most {self.packet_bytes}")
        return packet

    def _text_of_options(self, request: SubmitRequest) -> bytes:
        options = {**request.options, "priority": request.priority}
        if request.run_at:
            options["run_at"] = request.run_at
        if request.durable is False:
            options["wait"] = True
        elif request.watch:
            options["watch"] = True
        text = msgspec.json.encode(options)
        if not request.run_at:
            self._last_wishes = request.options, request.priority, request.durable, request.watch
            self._last_text = text
        return text

    def _plain_submission(self, request: SubmitRequest) -> bytes:
        if request.needs:
            self.require_switchgear(*request.needs)
        if not request.run_at:
            kind = SUBMIT[request.priority, self._is_background(request)]
            return packet_of(kind, request.function, request.unique, request.payload)
        if request.durable is False:
            self.require_switchgear("a job for later that is not durable")
        if request.priority != "normal":
            self.require_switchgear(f"a job for later of {request.priority} priority")
        # Whole seconds are all this packet can say; a little late is better than early.
        moment = b"%d" % math.ceil(request.run_at)
        return packet_of(Packet.SUBMIT_JOB_EPOCH, request.function, request.unique, moment, request.payload)

    def _is_background(self, request: SubmitRequest) -> bool:
        """For a plain server: it sends results only to those who stay, and keeps only jobs of those who leave."""
        return bool(request.durable) or not request.watch or bool(request.run_at)

    def follow_submitted(self, handle: bytes, request: SubmitRequest, follower: JobSubscriber) -> None:
        """A job that was just taken."""
        follower.place = self.place
        if self.is_switchgear:
            follower.survives_cuts = request.durable is not False
            self._join_audience(handle, follower, adds_copy=request.durable is False)
        elif self._is_background(request):
            text = f"the result of a background job needs a Switchgear server; {self.server} is a plain Gearman server"
            follower.give_up(ExtensionRequired(text))
        else:
            self.follow(handle, follower)

    # --- news ---

    def follow_watched(self, handle: bytes, follower: JobSubscriber) -> None:
        """A job that is watched."""
        self._join_audience(handle, follower, adds_copy=False)

    def _join_audience(self, handle: bytes, follower: JobSubscriber, *, adds_copy: bool) -> None:
        audience = self._audiences.get(handle)
        if audience is None:
            audience = self._audiences[handle] = JobSubscribers()
        audience.add(follower, adds_copy=adds_copy)

    def pass_on(self, kind: int, handle: bytes, data: bytes) -> None:
        if not self.is_switchgear:
            super().pass_on(kind, handle, data)
            return
        audience = self._audiences.get(handle)
        if audience is not None:
            if kind in FINAL_NEWS:
                del self._audiences[handle]
            audience.hear(kind, data)

    def take_followers(self) -> list[tuple[bytes, EventHandler]]:
        audiences, self._audiences = self._audiences, {}
        followers = [(handle, follower) for handle, audience in audiences.items() for follower in audience.members()]
        return super().take_followers() + followers


class _ServerGreeting(PendingRequest):
    """Everything that is said until the echo comes back."""

    takes_errors = True

    def __init__(self, conversation: AppProtocol) -> None:
        self._conversation = conversation
        self._agreed = False

    def answer(self, kind: int, body: bytes) -> bool:
        if kind == Packet.OPTION_RES:
            option, _, value = body.partition(b"\0")
            self._agreed = self._agreed or option.lower() == OPTION
            if option == PACKET_BYTES:
                self._conversation.packet_bytes = whole_number(value) or self._conversation.packet_bytes
            return True
        if kind == Packet.ECHO_RES:
            self._conversation.greeted(self._agreed)
            return False
        return True

    def refuse(self, error: Exception) -> None:
        """Only a cut can be the end of it, and whoever connects finds that out by itself."""


_WANTED: Final = {
    "job": "the status of a job",
    "cancel": "cancelling a job",
    "retry": "retrying a job",
    "explain": "an explanation",
    "jobs": "a list of jobs",
    "states": "the states of jobs",
    "pause": "pausing a task",
    "resume": "resuming a task",
    "limit": "a limit",
    "schedule": "a schedule",
    "schedules": "a list of schedules",
    "unschedule": "a schedule",
    "pause_schedule": "a schedule",
    "resume_schedule": "a schedule",
    "run_schedule": "a schedule",
    "server": "a description of the server",
    "functions": "a list of functions",
    "workers": "a list of workers",
}
