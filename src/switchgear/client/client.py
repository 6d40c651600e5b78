"""Submit jobs to a Gearman server, wait for them, ask about them.

What every Gearman server can do is asked for with packets that every Gearman server knows.  The packets of our own are
used only where nothing else says it; a server that does not know them is found out on a connection of its own, because
such a server hangs up, and jobs that are waited for must not go down with the question.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import msgspec

from switchgear.client.address import DEFAULT_URL, ServerAddress
from switchgear.client.connection import DEFAULT_TIMEOUT_SECONDS, Connection, refusal
from switchgear.client.submission import WORK_PACKETS, Submission, update_of
from switchgear.errors import ClientError, ServerRefused, ServerUnreachable
from switchgear.model import PRIORITY_NAMES
from switchgear.protocols.gearman.codec import TEXT, request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["JOB_NOT_FOUND", "UNKNOWN_EXTENSION", "Client", "JobStatus"]

UNKNOWN_EXTENSION: Final = "UNKNOWN_EXTENSION"  # the code of our own when a server does not know our packets

JOB_NOT_FOUND: Final = "JOB_NOT_FOUND"  # the server's code

# By priority and whether it is for the background.
_SUBMIT: Final = {
    ("high", False): Packet.SUBMIT_JOB_HIGH,
    ("normal", False): Packet.SUBMIT_JOB,
    ("low", False): Packet.SUBMIT_JOB_LOW,
    ("high", True): Packet.SUBMIT_JOB_HIGH_BG,
    ("normal", True): Packet.SUBMIT_JOB_BG,
    ("low", True): Packet.SUBMIT_JOB_LOW_BG,
}
_LONG_ANSWERS: Final = frozenset({"status", "prioritystatus", "workers", "show"})


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What GET_STATUS tells.  A server that does not know a job may have finished it, or never had it."""

    known: bool
    running: bool
    numerator: int
    denominator: int


class Client:
    """A connection to one server, made when it is first needed and again after it was lost.

    Not for use by several threads at once.
    """

    def __init__(self, url: str = DEFAULT_URL, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """`timeout_seconds` is for connecting and for answers that need no job to run."""
        self.address = ServerAddress.parse(url)
        self.timeout_seconds = timeout_seconds
        self._connection: Connection | None = None
        self._hears_exceptions = False  # on this connection
        self._has_extensions = False
        # A client that submits one unique key twice hears everything twice: so the first hears the first copy.
        self._waiting: dict[bytes, deque[Submission]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up.  Jobs that only this client waits for are dropped by the server, unless they run already."""
        self._drop(ServerUnreachable("the client was closed"))

    # --- submitting ---

    def submit(
        self,
        function: str | bytes,
        payload: bytes = b"",
        *,
        unique: str | bytes = b"",
        priority: str = "normal",
        background: bool = False,
        at: float | datetime | None = None,
        expires: float | datetime | None = None,
        run_timeout_seconds: float = 0.0,
        attempts: int | None = None,
        after: Iterable[str] = (),
        name: str = "",
    ) -> Submission:
        """Submit a job, and return when the server has taken it; raises ServerRefused or ServerUnreachable.

        Unfinished jobs of a function with equal `unique` are one job.  `at` is when it may start, `expires` when it is
        too late to start, in seconds since the epoch.  `attempts` is how often it may be started, 0 for any number.
        `after` are handles of jobs that have to be done first.  Of these only `unique`, `priority`, `background`,
        and `at` for a background job of normal priority work with every Gearman server.
        """
        if priority not in PRIORITY_NAMES:
            raise ValueError(f"priority is one of {', '.join(PRIORITY_NAMES)}, not {priority!r}")
        run_at = _epoch_seconds(at)
        options = _without_defaults(
            run_at=run_at,
            expires_at=_epoch_seconds(expires),
            timeout=run_timeout_seconds,
            attempts=attempts,
            after=list(after),
            name=name,
        )
        names = (_name(function, "function"), _name(unique, "unique"))
        if not options:
            packet = request(_SUBMIT[priority, background], *names, payload)
        elif options.keys() == {"run_at"} and background and priority == "normal":
            # Whole seconds are all this packet can say; a little late is better than early.
            packet = request(Packet.SUBMIT_JOB_EPOCH, *names, b"%d" % math.ceil(run_at), payload)
        else:
            self._require_extensions()
            options |= {"wait": not background, "priority": priority}
            packet = request(Packet.SUBMIT_JOB_OPTIONS, *names, msgspec.json.encode(options), payload)
        return self._submit(packet, background)

    def _submit(self, packet: bytes, background: bool) -> Submission:
        if not background:
            self._ask_for_exceptions()
        handle = self._ask(packet, Packet.JOB_CREATED)
        submission = Submission(_text(handle), background=background, read_more=self._read_more)
        if not background:
            self._waiting.setdefault(handle, deque()).append(submission)
        return submission

    def _ask_for_exceptions(self) -> None:
        """Have failures come with their reasons."""
        if self._hears_exceptions and self._connection is not None:
            return
        try:
            self._ask(request(Packet.OPTION_REQ, b"exceptions"), Packet.OPTION_RES)
        except ServerRefused:
            pass  # then they come without
        self._hears_exceptions = True

    # --- asking ---

    def status(self, handle: str) -> JobStatus:
        """Whether the server knows this job, whether it runs, and how far it is."""
        body = self._ask(request(Packet.GET_STATUS, _name(handle, "handle")), Packet.STATUS_RES)
        fields = body.split(b"\0")
        if len(fields) != 5:
            raise ClientError(f"{self.address} answered with a status of {len(fields)} fields")
        known, running, numerator, denominator = (int(field) if field.isdigit() else 0 for field in fields[1:])
        return JobStatus(bool(known), bool(running), numerator, denominator)

    def echo(self, data: bytes = b"") -> bytes:
        """The same, after the server has dealt with everything sent before."""
        return self._ask(request(Packet.ECHO_REQ, data), Packet.ECHO_RES)

    def admin(self, line: str) -> list[str]:
        """The lines of the answer to a command of the text protocol; raises ServerRefused if it is an error."""
        if "\n" in line or "\r" in line:
            raise ValueError("a command of the text protocol is one line")
        words = line.lower().split()
        has_many_lines = bool(words) and words[0] in _LONG_ANSWERS
        answer = [_text(self._ask(line.encode() + b"\r\n", TEXT))]
        if answer[0].startswith("ERR ") and "\t" not in answer[0]:
            code, _, text = answer[0].removeprefix("ERR ").partition(" ")
            raise ServerRefused(code, text.replace("+", " "))
        if not has_many_lines:
            return answer
        while answer[-1] != ".":
            answer.append(_text(self._answer(TEXT)))
        return answer[:-1]

    def control(self, verb: str, **arguments: Any) -> Any:
        """What only our own server can be asked; arguments of None are left out.  See docs/protocols/gearman.md."""
        self._require_extensions()
        given = {name: value for name, value in arguments.items() if value is not None}
        body = self._ask(request(Packet.CONTROL, _name(verb, "verb"), msgspec.json.encode(given)), Packet.CONTROL_RES)
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise ClientError(f"{self.address} answered with something that is not JSON: {error}") from error

    def _require_extensions(self) -> None:
        """Find out, once, whether the server knows our packets; raises ServerRefused if not."""
        if self._has_extensions:
            return
        with Connection(self.address.host, self.address.port, self.timeout_seconds) as probe:
            probe.send(b"version\r\n")
            probe.receive_answer()  # a server that takes no connection now is not to be mistaken for an ignorant one
            probe.send(request(Packet.CONTROL, b"server", b"{}"))
            try:
                kind, body = probe.receive_answer()
            except ServerUnreachable as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise  # slow, not ignorant
                kind, body = Packet.ERROR, b"INVALID_COMMAND"
        if kind == Packet.ERROR and body.startswith(b"INVALID_COMMAND"):
            text = f"{self.address} is a Gearman server that does not know the extension packets of switchgear"
            raise ServerRefused(UNKNOWN_EXTENSION, text)
        self._has_extensions = True

    # --- the conversation ---

    def _ask(self, packet: bytes, expected: int) -> bytes:
        """Send a request and return the body of its answer."""
        if self._connection is None:
            self._connection = Connection(self.address.host, self.address.port, self.timeout_seconds)
            self._hears_exceptions = False
        try:
            self._connection.send(packet)
        except ServerUnreachable as error:
            self._drop(error)
            raise
        return self._answer(expected)

    def _answer(self, expected: int) -> bytes:
        assert self._connection is not None
        try:
            while True:
                kind, body = self._connection.receive_answer()
                if kind == expected:
                    return body
                if kind == Packet.ERROR:
                    raise refusal(body)
                self._hear(kind, body)
        except ServerRefused:
            raise  # an answer like any other: the conversation goes on
        except ServerUnreachable as error:
            self._drop(error)
            raise
        except BaseException:
            # Interrupted: the answer is still to come, and would be taken for the answer to the next question.
            self._drop(ServerUnreachable(f"the conversation with {self.address} was interrupted"))
            raise

    def _read_more(self, deadline: float | None) -> None:
        """Take one packet and pass it on; raises TimeoutError."""
        if self._connection is None:
            return  # then all submissions have been told
        try:
            kind, body = self._connection.receive(deadline)
        except ServerUnreachable as error:
            self._drop(error)
            return
        if kind == Packet.ERROR:
            raise refusal(body)
        self._hear(kind, body)

    def _hear(self, kind: int, body: bytes) -> None:
        if kind not in WORK_PACKETS:
            return  # nothing we asked for, and nothing that changes what we know
        handle, update = update_of(kind, body)
        submissions = self._waiting.get(handle)
        if not submissions:
            return
        submission = submissions.popleft()
        submission.hear(update)
        if not update.is_final:
            submissions.append(submission)
        elif not submissions:
            del self._waiting[handle]

    def _drop(self, error: ServerUnreachable) -> None:
        """The connection is over, and with it every wait."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        waiting, self._waiting = self._waiting, {}
        for submissions in waiting.values():
            for submission in submissions:
                submission.lose(error)


def _without_defaults(**options: Any) -> dict[str, Any]:
    """What was asked for; zero attempts is something to ask for, while other zeros mean nothing."""
    return {name: value for name, value in options.items() if value or (name == "attempts" and value is not None)}


def _epoch_seconds(moment: float | datetime | None) -> float:
    if isinstance(moment, datetime):
        return moment.timestamp()
    return moment or 0.0


def _name(value: str | bytes, what: str) -> bytes:
    encoded = value.encode(errors="surrogateescape") if isinstance(value, str) else value
    if b"\0" in encoded:
        raise ValueError(f"a {what} cannot contain a NUL byte")
    return encoded


def _text(value: bytes) -> str:
    """Names as text, so that they come back as the same bytes."""
    return value.decode(errors="surrogateescape")
