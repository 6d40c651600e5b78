"""A worker's side of one connection: bytes in, events out, and bytes to send.  No I/O.

Between our worker and our server, jobs flow by credits.  The worker says how many jobs it has room for (CREDIT), the
server pushes as many (JOB_PUSH), and a report travels in one write with the credit for the next job.  Whether the
server knows that is asked first (OPTION_REQ); one that does not is served by the protocol's own dance: ask for a job,
told that there is none say that we sleep, woken ask again.

A job whose arguments refer to other jobs arrives in two steps: their results are fetched (WATCH) before it is
announced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import msgspec

from switchgear.app.job_execution import AssignedJob, Complete, Fail, Outcome, RetryLater, Stopped
from switchgear.app.worker.server_events import (
    Arrived,
    Event,
    QueuesSeen,
    RefusedByServer,
    ReportAccepted,
    Revoked,
    Subscribed,
    Unrunnable,
)
from switchgear.client.connection import LARGEST_PACKET_BYTES, refusal
from switchgear.errors import PeerError
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.codec import FOREIGN_MAGIC, RESPONSE, TEXT, Decoder, request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["AppWorkerProtocol", "WorkerIntroduction"]

OPTION: Final = b"switchgear"
PACKET_BYTES: Final = b"packet_bytes"  # the option by which a server of ours tells how much it takes at once
ENVELOPE_BYTES: Final = 256  # of a result: its header, and the handle of its job
QUEUE_ERROR: Final = "QUEUE_ERROR"  # the server's code when its store cannot be read
TIMED_OUT: Final = "timed_out"
GONE_REASONS: Final = frozenset({TIMED_OUT, "held_back"})  # after these a report would be taken for a lie
_FINAL_STATES: Final = frozenset({"done", "failed", "cancelled", "expired"})
_ALIVE: Final = b"alive"
_DONE: Final = b"done"


@dataclass(frozen=True, slots=True)
class WorkerIntroduction:
    """What a worker says of itself on each connection."""

    name: str
    functions: Mapping[str, float]  # longest run of each in seconds, 0 for no limit
    declarations: Sequence[tuple[str, Mapping[str, Any]]] = ()  # limits and schedules that the server is to know first
    lease_seconds: float = 15.0
    references: Callable[[str, bytes], list[str]] = lambda function, payload: []


class _Phase(Enum):
    ASKING_WHO = auto()  # whether the server knows our extensions
    DECLARING = auto()
    SERVING = auto()


@dataclass(slots=True)
class _AwaitedAnswer:
    """A job whose arguments are not all there yet."""

    assignment: AssignedJob
    missing: set[str]
    results: dict[str, bytes | None] = field(default_factory=dict)


class AppWorkerProtocol:
    """One connection's worth of talk.  A new connection needs a new one."""

    def __init__(self, introduction: WorkerIntroduction) -> None:
        self.extended = False
        self.granted = 0  # credits that the server should still have of ours
        self.asking = False  # a question for a job is on its way, so one may come; plain servers only
        self.packet_bytes = LARGEST_PACKET_BYTES  # the most that the server takes, as far as is known
        self._introduction = introduction
        self._lease = b"%d" % round(introduction.lease_seconds * 1000)
        self._phase = _Phase.ASKING_WHO
        self._awake = True  # a plain server has not told us to sleep, or has woken us
        self._room = 0
        self._undeclared: list[str] = []  # what was declared and not answered yet
        self._awaiting: dict[str, _AwaitedAnswer] = {}  # by the job's handle
        self._fetching: dict[str, list[str]] = {}  # by the handle of a job whose result is wanted: who wants it
        self._fetches_again = False  # with the next beat
        self._cancelled: set[str] = set()  # jobs that stay ours until we report them
        self._gone: set[str] = set()  # jobs that are not ours any more, although they still run
        self._decoder = Decoder(RESPONSE, LARGEST_PACKET_BYTES)
        self._events: list[Event] = []
        self._out: list[bytes] = [
            request(Packet.OPTION_REQ, OPTION),
            request(Packet.SET_CLIENT_ID, _bytes(introduction.name)),
        ]

    # --- what goes out ---

    def take_output(self) -> bytes:
        """Everything that is to be sent now."""
        out, self._out = b"".join(self._out), []
        return out

    @property
    def has_output(self) -> bool:
        """Whether there is something to send."""
        return bool(self._out)

    @property
    def subscribed(self) -> bool:
        """Whether jobs may come."""
        return self._phase is _Phase.SERVING

    @property
    def occupied(self) -> int:
        """Jobs that have come but wait for their arguments."""
        return len(self._awaiting)

    @property
    def sleeps(self) -> bool:
        """Whether a plain server had nothing for us when it was last asked."""
        return self.subscribed and not self.extended and not self._awake

    def set_room(self, room: int) -> None:
        """There is room for so many more jobs."""
        self._room = max(0, room)
        if not self.subscribed:
            return
        if not self.extended:
            self._ask()
        elif self._room != self.granted:
            self._send(Packet.CREDIT, b"%d" % (self._room - self.granted), self._lease)
            self.granted = self._room

    def within_limits(self, outcome: Outcome) -> Outcome:
        """The outcome, or a failure in place of a result that the server would hang up on: all jobs that came over this
        connection would be lost with it."""
        if isinstance(outcome, Complete) and len(outcome.result) > self.packet_bytes - ENVELOPE_BYTES:
            size = f"the result has {len(outcome.result)} bytes, and the server takes at most {self.packet_bytes}"
            return Fail(f"ResultError: {size}\n\nThe task has returned, but its result could not be sent.")
        return outcome

    def report(self, handle: str, outcome: Outcome) -> bool:
        """Tell how a job ended; False if that is nobody's business any more."""
        if handle in self._gone:
            self._gone.discard(handle)
            return False
        name = _bytes(handle)
        if handle in self._cancelled:
            self._cancelled.discard(handle)
            self._send(Packet.WORK_FAIL, name)  # whatever it says, it frees us
        elif isinstance(outcome, Complete):
            self._send(Packet.WORK_COMPLETE, name, outcome.result)
        elif isinstance(outcome, RetryLater) and self.extended:
            delay, limit = b"%d" % math.ceil(outcome.delay_seconds * 1000), b"%d" % outcome.attempts_limit
            self._send(Packet.RETRY_LATER, name, delay, limit, _bytes(outcome.error))
        elif isinstance(outcome, Stopped):
            return self._report_stopped(handle, outcome.reason)
        else:
            self._send(Packet.WORK_EXCEPTION, name, _bytes(outcome.error))
        return True

    def _report_stopped(self, handle: str, reason: str) -> bool:
        """A job that we have stopped ourselves."""
        if reason != TIMED_OUT:
            return self.hand_back(handle)
        if self.extended:
            return False  # time limits are the server's business, and it will come to the same conclusion
        self._send(Packet.WORK_EXCEPTION, _bytes(handle), b"TimeoutError: it took too long, and was stopped")
        return True

    def hand_back(self, handle: str) -> bool:
        """Return a job unharmed; False if that cannot be said, and only the end of the connection would say it."""
        if handle in self._gone:
            self._gone.discard(handle)
            return True
        if handle in self._cancelled:
            self._cancelled.discard(handle)
            self._send(Packet.WORK_FAIL, _bytes(handle))
            return True
        if not self.extended:
            return False
        self._send(Packet.HAND_BACK, _bytes(handle))
        return True

    def forget(self, handle: str) -> None:
        """A job was revoked that we had reported already: the two have crossed."""
        self._gone.discard(handle)
        self._cancelled.discard(handle)

    def hand_back_waiting(self) -> None:
        """Return what has come and not been announced yet."""
        for handle in list(self._awaiting):
            del self._awaiting[handle]
            self.hand_back(handle)

    def progress(self, handle: str, done: int, total: int, message: str) -> None:
        """Tell how far a job is."""
        if handle in self._gone or handle in self._cancelled:
            return
        figures = (_bytes(handle), b"%d" % done, b"%d" % total)
        if self.extended:
            self._send(Packet.WORK_PROGRESS, *figures, _bytes(message))
        else:
            self._send(Packet.WORK_STATUS, *figures)

    def beat(self) -> None:
        """Renew the lease, and have the server show that it lives."""
        self._send(Packet.ECHO_REQ, _ALIVE)
        if self._fetches_again:
            self._fetches_again = False
            for wanted in self._fetching:
                self._send(Packet.WATCH, _bytes(wanted))

    def settle(self) -> None:
        """Ask for an event when the server has dealt with all of this."""
        self._send(Packet.ECHO_REQ, _DONE)

    def look_at_queues(self) -> None:
        """Ask for an event that tells how many jobs are ready; for servers with our extensions."""
        self._send(Packet.CONTROL, b"functions", b"{}")

    def _send(self, kind: Packet, *arguments: bytes) -> None:
        self._out.append(request(kind, *arguments))

    def _ask(self) -> None:
        if self._room > 0 and self._awake and not self.asking:
            self.asking = True
            self._send(Packet.GRAB_JOB_UNIQ)

    # --- what comes in ---

    def receive(self, data: bytes) -> list[Event]:
        """What these bytes say; raises PeerError if it cannot be understood."""
        for kind, body in self._decoder.feed(data):
            handler = _ON_PACKET.get(kind)
            if handler is not None:  # what a server may say to clients is not for us
                handler(self, body)
        if self._decoder.failure is not None:
            raise self._decoder.failure
        events, self._events = self._events, []
        return events

    def _on_option(self, body: bytes) -> None:
        option, _, value = body.partition(b"\0")
        if option == PACKET_BYTES:
            self.packet_bytes = _number(value)
        elif self._phase is _Phase.ASKING_WHO:
            self.extended = True
            self._send(Packet.OPTION_REQ, PACKET_BYTES)
            self._announce()
            for verb, arguments in self._introduction.declarations:
                self._undeclared.append(f"{verb} {arguments.get('name') or arguments.get('function') or ''}".strip())
                self._send(Packet.CONTROL, _bytes(verb), msgspec.json.encode(arguments))
            self._phase = _Phase.DECLARING
            self._serve_when_declared()

    def _on_error(self, body: bytes) -> None:
        error = refusal(body)
        if self._phase is _Phase.ASKING_WHO:
            self._serve_plainly()
        elif self._undeclared:
            self._events.append(RefusedByServer(error, self._undeclared.pop(0)))
            self._serve_when_declared()
        elif self._fetching and error.code == QUEUE_ERROR:
            self._fetches_again = True  # the jobs are ours, and wait
            self._events.append(RefusedByServer(error, "results of other jobs"))
        else:
            self._events.append(RefusedByServer(error))

    def _serve_plainly(self) -> None:
        self._announce()
        self._serve_when_declared()

    def _announce(self) -> None:
        for function, timeout_seconds in self._introduction.functions.items():
            # At its limit a plain server would queue the job again, for ever; there we watch over it ourselves.
            if timeout_seconds and self.extended:
                self._send(Packet.CAN_DO_TIMEOUT, _bytes(function), b"%d" % math.ceil(timeout_seconds * 1000))
            else:
                self._send(Packet.CAN_DO, _bytes(function))

    def _serve_when_declared(self) -> None:
        if not self._undeclared:
            self._phase = _Phase.SERVING
            self._events.append(Subscribed(self.extended))
            self.set_room(self._room)

    def _on_control(self, body: bytes) -> None:
        if self._undeclared:
            self._undeclared.pop(0)
            self._serve_when_declared()
            return
        ours = self._introduction.functions
        try:
            found = msgspec.json.decode(body, type=list[dict[str, Any]])
            rows = [row for row in found if isinstance(row["name"], str) and row["name"] in ours]
            ready = sum(int(row["ready"]) for row in rows if not row.get("paused"))
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise PeerError(f"an answer about functions that cannot be read: {error}") from error
        self._events.append(QueuesSeen(ready))

    def _on_echo(self, body: bytes) -> None:
        if self._phase is _Phase.ASKING_WHO:
            self._serve_plainly()  # it has passed over our question
        if body == _DONE:
            self._events.append(ReportAccepted())

    def _on_nonsense(self, body: bytes) -> None:
        raise PeerError("something that is not an answer")

    # --- jobs ---

    def _on_push(self, body: bytes) -> None:
        handle, function, unique, attempt, losses, limit, timeout_ms, payload = _fields(body, 8)
        if self.granted:
            self.granted -= 1
        self._take(
            AssignedJob(
                _text(handle),
                _text(function),
                payload,
                unique.decode(errors="replace") if unique else "",
                _number(attempt),
                _number(losses),
                _number(limit),
                _number(timeout_ms) / 1000,
            )
        )

    def _on_assign(self, body: bytes) -> None:
        handle, function, unique, payload = _fields(body, 4)
        self.asking = False
        self._take(AssignedJob(_text(handle), _text(function), payload, unique.decode(errors="replace")))

    def _on_no_job(self, body: bytes) -> None:
        self.asking = False
        self._awake = False  # whatever has woken us before this was answered by the question
        self._send(Packet.PRE_SLEEP)

    def _on_noop(self, body: bytes) -> None:
        self._awake = True

    def _on_revoke(self, body: bytes) -> None:
        raw, reason = _fields(body, 2)
        handle, word = _text(raw), _text(reason)
        if self._awaiting.pop(handle, None) is not None:  # nobody has heard of it yet
            if word not in GONE_REASONS:
                self._send(Packet.WORK_FAIL, raw)
            return
        if word in GONE_REASONS:
            self._gone.add(handle)
        else:
            self._cancelled.add(handle)
        self._events.append(Revoked(handle, word))

    def _take(self, assignment: AssignedJob) -> None:
        self._gone.discard(assignment.handle)  # it was ours before, and is again
        self._cancelled.discard(assignment.handle)
        timeout_seconds = self._introduction.functions.get(assignment.function)
        if timeout_seconds is None:
            self._refuse(assignment, f"LookupError: this worker has no task {assignment.function}")
            return
        if timeout_seconds and not assignment.timeout_seconds:
            assignment = msgspec.structs.replace(assignment, timeout_seconds=timeout_seconds)
        references = self._introduction.references(assignment.function, assignment.payload)
        if not references:
            self._events.append(Arrived(assignment))
        elif not self.extended:
            self._refuse(
                assignment,
                "NotSupported: the arguments are results of other jobs, and a plain Gearman server does not keep them",
            )
        else:
            self._fetch(assignment, references)

    def _refuse(self, assignment: AssignedJob, error: str) -> None:
        self.report(assignment.handle, Fail(error))
        self._events.append(Unrunnable(assignment, error))

    # --- results of other jobs ---

    def _fetch(self, assignment: AssignedJob, references: Sequence[str]) -> None:
        self._awaiting[assignment.handle] = _AwaitedAnswer(assignment, set(references))
        for wanted in dict.fromkeys(references):
            if wanted not in self._fetching:
                self._fetching[wanted] = []
                self._send(Packet.WATCH, _bytes(wanted))
            self._fetching[wanted].append(assignment.handle)

    def _on_watch(self, body: bytes) -> None:
        raw, word = _fields(body, 2)
        wanted, state = _text(raw), _text(word)
        if state in _FINAL_STATES:
            return  # its end follows
        for handle in self._fetching.pop(wanted, ()):
            awaiting = self._awaiting.pop(handle, None)
            if awaiting is None:
                continue
            if state == "unknown":
                error = f"LookupError: an argument is the result of {wanted}, and the server does not know that job"
            else:
                error = f"LookupError: an argument is the result of {wanted}, and that job is {state}"
            self._refuse(awaiting.assignment, error)

    def _on_complete(self, body: bytes) -> None:
        wanted, result = _fields(body, 2)
        self._fetched(_text(wanted), result)

    def _on_ended(self, body: bytes) -> None:
        self._fetched(_text(_fields(body, 4)[0]), None)

    def _fetched(self, wanted: str, result: bytes | None) -> None:
        for handle in self._fetching.pop(wanted, ()):
            awaiting = self._awaiting.get(handle)
            if awaiting is None or wanted not in awaiting.missing:
                continue
            awaiting.missing.discard(wanted)
            awaiting.results[wanted] = result
            if not awaiting.missing:
                del self._awaiting[handle]
                self._events.append(Arrived(msgspec.structs.replace(awaiting.assignment, results=awaiting.results)))


_ON_PACKET: Final[dict[int, Callable[[AppWorkerProtocol, bytes], None]]] = {
    Packet.OPTION_RES: AppWorkerProtocol._on_option,
    Packet.ERROR: AppWorkerProtocol._on_error,
    Packet.CONTROL_RES: AppWorkerProtocol._on_control,
    Packet.ECHO_RES: AppWorkerProtocol._on_echo,
    Packet.JOB_PUSH: AppWorkerProtocol._on_push,
    Packet.JOB_ASSIGN_UNIQ: AppWorkerProtocol._on_assign,
    Packet.NO_JOB: AppWorkerProtocol._on_no_job,
    Packet.NOOP: AppWorkerProtocol._on_noop,
    Packet.REVOKE: AppWorkerProtocol._on_revoke,
    Packet.WATCH_RES: AppWorkerProtocol._on_watch,
    Packet.WORK_COMPLETE: AppWorkerProtocol._on_complete,
    Packet.JOB_ENDED: AppWorkerProtocol._on_ended,
    TEXT: AppWorkerProtocol._on_nonsense,
    FOREIGN_MAGIC: AppWorkerProtocol._on_nonsense,
}


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _fields(body: bytes, count: int) -> list[bytes]:
    fields = body.split(b"\0", count - 1)
    if len(fields) != count:
        raise PeerError(f"a packet of {len(fields)} fields where there should be {count}")
    return fields


def _number(text: bytes) -> int:
    if text == b"0":
        return 0
    number = whole_number(text)
    if number is None:
        raise PeerError(f"{text[:100]!r} where there should be a number")
    return number
