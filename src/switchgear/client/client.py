"""Submit jobs to a Gearman server, wait for them, ask about them.

What every Gearman server can do is asked for with packets that every Gearman server knows.  The packets of our own are
used only where nothing else says it; a server that does not know them is found out on a connection of its own, because
such a server hangs up, and jobs that are waited for must not go down with the question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Self, Unpack

from switchgear.client.address import DEFAULT_URL, ServerAddress
from switchgear.client.connection import DEFAULT_TIMEOUT_SECONDS, GearmanConnection, refusal
from switchgear.client.request_builders import (
    UNKNOWN_EXTENSION,
    ExtendedOptions,
    JobStatus,
    admin_request,
    control_answer,
    control_request,
    name_of,
    refusal_in_line,
    refuse_extensions,
    status_answer,
    submission_request,
    text_of,
)
from switchgear.client.submitted_job import WORK_PACKETS, Submission, update_of
from switchgear.errors import ServerRefused, ServerUnreachable
from switchgear.protocols.gearman.codec import TEXT, request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["JOB_NOT_FOUND", "UNKNOWN_EXTENSION", "Client", "JobStatus"]

JOB_NOT_FOUND: Final = "JOB_NOT_FOUND"  # the server's code


class Client:
    """A connection to one server, made when it is first needed and again after it was lost.

    Not for use by several threads at once.
    """

    def __init__(self, url: str = DEFAULT_URL, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """`timeout_seconds` is for connecting and for answers that need no job to run."""
        self.address = ServerAddress.parse(url)
        self.timeout_seconds = timeout_seconds
        self._connection: GearmanConnection | None = None
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
        **wishes: Unpack[ExtendedOptions],
    ) -> Submission:
        """Submit a job, and return when the server has taken it; raises ServerRefused or ServerUnreachable.

        Unfinished jobs of a function with equal `unique` are one job.  `at` is when it may start, `expires` when it is
        too late to start, in seconds since the epoch.  `attempts` is how often it may be started, 0 for any number.
        `after` are handles of jobs that have to be done first.  For the others see `ExtendedOptions`.  Of all these
        only `unique`, `priority`, `background`, and `at` for a background job of normal priority work with every
        Gearman server.
        """
        packet, is_extension = submission_request(
            function,
            payload,
            unique=unique,
            priority=priority,
            background=background,
            at=at,
            expires=expires,
            run_timeout_seconds=run_timeout_seconds,
            attempts=attempts,
            after=after,
            name=name,
            wishes=wishes,
        )
        if is_extension:
            self._require_extensions()
        return self._submit(packet, background)

    def _submit(self, packet: bytes, background: bool) -> Submission:
        if not background:
            self._ask_for_exceptions()
        handle = self._ask(packet, Packet.JOB_CREATED)
        submission = Submission(text_of(handle), background=background, read_more=self._read_more)
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
        body = self._ask(request(Packet.GET_STATUS, name_of(handle, "handle")), Packet.STATUS_RES)
        return status_answer(body, self.address)

    def echo(self, data: bytes = b"") -> bytes:
        """The same, after the server has dealt with everything sent before."""
        return self._ask(request(Packet.ECHO_REQ, data), Packet.ECHO_RES)

    def admin(self, line: str) -> list[str]:
        """The lines of the answer to a command of the text protocol; raises ServerRefused if it is an error."""
        packet, has_many_lines = admin_request(line)
        answer = [text_of(self._ask(packet, TEXT))]
        error = refusal_in_line(answer[0])
        if error is not None:
            raise error
        if not has_many_lines:
            return answer
        while answer[-1] != ".":
            answer.append(text_of(self._answer(TEXT)))
        return answer[:-1]

    def control(self, verb: str, **arguments: Any) -> Any:
        """What only our own server can be asked; arguments of None are left out.  See docs/protocols/gearman.md."""
        self._require_extensions()
        return control_answer(self._ask(control_request(verb, arguments), Packet.CONTROL_RES), self.address)

    def _require_extensions(self) -> None:
        """Find out, once, whether the server knows our packets; raises ServerRefused if not."""
        if self._has_extensions:
            return
        with GearmanConnection(self.address.host, self.address.port, self.timeout_seconds) as probe:
            probe.send(b"version\r\n")
            probe.receive_answer()  # a server that takes no connection now is not to be mistaken for an ignorant one
            probe.send(control_request("server", {}))
            try:
                kind, body = probe.receive_answer()
            except ServerUnreachable as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise  # slow, not ignorant
                kind, body = Packet.ERROR, b"INVALID_COMMAND"
        refuse_extensions(kind, body, self.address)
        self._has_extensions = True

    # --- the conversation ---

    def _ask(self, packet: bytes, expected: int) -> bytes:
        """Send a request and return the body of its answer."""
        if self._connection is None:
            self._connection = GearmanConnection(self.address.host, self.address.port, self.timeout_seconds)
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
