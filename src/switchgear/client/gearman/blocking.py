"""`Client`: submits jobs to a Gearman server, waits for them, and asks about them, by blocking.

Functions that every Gearman server has use its standard packets. Extension packets are used only where there is no
other way. Whether a server knows them is tried on a separate connection, because a server that does not know them may
close it, and that must not lose jobs that are waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self, Unpack, cast

from switchgear.client.address import DEFAULT_URL, HttpServerAddress, ServerAddress
from switchgear.client.cluster_nodes import server_at
from switchgear.client.gearman.client_protocol import ClientProtocol
from switchgear.client.gearman.client_requests import (
    EXTENSION_PROBE,
    JobStatus,
    admin_request,
    check_echo,
    check_extensions,
    status_of,
)
from switchgear.client.gearman.connection import GearmanConnection
from switchgear.client.gearman.error_codes import INVALID_COMMAND
from switchgear.client.gearman.packets import validated_name
from switchgear.client.gearman.pending_requests import (
    ControlRequest,
    PacketRequest,
    PendingRequest,
    PendingSubmission,
    SingleRequest,
    TextRequest,
)
from switchgear.client.gearman.submit_request import ExtendedOptions, requested
from switchgear.client.gearman.submitted_job import Submission
from switchgear.client.sockets import DEFAULT_TIMEOUT_SECONDS
from switchgear.errors import ServerRefused, ServerUnreachable
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["Client"]


class Client:
    """A connection to one server, made when it is first needed and again after it was lost.

    Not for use by several threads at once.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS, token: str | None = None
    ) -> None:
        """`timeout_seconds` is for connecting and for answers that need no job to run.

        `token` identifies the client; default: SWITCHGEAR_TOKEN or SWITCHGEAR_TOKEN_FILE in the environment.
        """
        self._server = server_at(url, token)
        self.address = self._server if isinstance(self._server, ServerAddress) else self._server.nodes[0]
        self.timeout_seconds = timeout_seconds
        self._connection: GearmanConnection | None = None
        self._protocol = ClientProtocol(str(self.address))
        self._has_exceptions = False  # the server was asked on this connection to give reasons of failures
        self._has_extensions = isinstance(self.address, HttpServerAddress)  # which only our servers have

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect.  The server drops jobs that only this client waits for, unless they run already."""
        self._disconnect(ServerUnreachable("the client was closed"))

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
        timeout: float = 0.0,
        attempts_limit: int | None = None,
        after: Iterable[str] = (),
        name: str = "",
        **extended: Unpack[ExtendedOptions],
    ) -> Submission:
        """Submit a job, and return when the server has taken it; raises ServerRefused or ServerUnreachable.

        Unfinished jobs of a function with equal `unique` are one job.  `at` is when it may start, `expires` when it is
        too late to start, in seconds since the epoch.  `timeout` is how many seconds one attempt may take, and
        `attempts_limit` how often the job may be started, 0 for any number.  `after` are handles of jobs that have to
        be done first.  For the others see `ExtendedOptions`.  Of all these only `unique`, `priority`, `background`, and
        `at` for a background job of normal priority work with every Gearman server.
        """
        job = requested(
            function,
            payload,
            unique=unique,
            priority=priority,
            background=background,
            at=at,
            expires=expires,
            timeout=timeout,
            attempts_limit=attempts_limit,
            after=after,
            name=name,
            extended=extended,
        )
        if not job.fits_plain_packets:
            self._require_extensions()
        if not background:
            self._ask_for_exceptions()
        submission = Submission(background=background, read_more=self._read_more)
        pending = PendingSubmission([job], [None if background else submission])
        self._connect()
        pending.send(self._protocol)
        self._wait_for(pending)
        (outcome,) = pending.future.result()
        if isinstance(outcome, Exception):
            raise outcome
        submission.handle = outcome
        return submission

    def _ask_for_exceptions(self) -> None:
        """Request WORK_EXCEPTION packets, so that failures come with their reasons."""
        if self._has_exceptions and self._connection is not None:
            return
        try:
            self._ask(request(Packet.OPTION_REQ, b"exceptions"), PacketRequest(Packet.OPTION_RES))
        except ServerRefused:
            pass  # then they come without
        self._has_exceptions = True

    # --- asking ---

    def status(self, handle: str) -> JobStatus:
        """Whether the server knows this job, whether it runs, and how far it is."""
        packet = request(Packet.GET_STATUS, validated_name(handle, "handle"))
        return status_of(self._ask(packet, PacketRequest(Packet.STATUS_RES)), self.address)

    def echo(self, data: bytes = b"") -> bytes:
        """The same data, after the server has handled everything sent before."""
        return cast(bytes, self._ask(request(Packet.ECHO_REQ, data), PacketRequest(Packet.ECHO_RES)))

    def admin(self, line: str) -> list[str]:
        """The lines of the answer to a command of the text protocol; raises ServerRefused if it is an error."""
        packet, has_many_lines = admin_request(line)
        return cast(list[str], self._ask(packet, TextRequest(has_many_lines)))

    def control(self, verb: str, **arguments: Any) -> Any:
        """The answer to a CONTROL request, which needs a Switchgear server; arguments of None are left out.

        The verbs are listed in docs/verbs.md.  If servers that own functions together have not all answered, what is
        missing is logged, and is in `incomplete` until the next request.
        """
        self._require_extensions()
        self._connect()
        pending = ControlRequest(verb, arguments)
        pending.send(self._protocol)
        self._wait_for(pending)
        self.incomplete = pending.incomplete
        return pending.future.result()

    def _require_extensions(self) -> None:
        """Find out, once, whether the server knows our extensions; raises ServerRefused if not."""
        if self._has_extensions:
            return
        self._locate()
        with GearmanConnection.to(self.address, self.timeout_seconds) as probe:
            probe.send(request(Packet.ECHO_REQ, b"?"))
            # Otherwise a server that takes no connections now would seem to lack extensions.
            check_echo(*probe.receive_answer())
            probe.send(EXTENSION_PROBE)
            try:
                kind, body = probe.receive_answer()
            except ServerUnreachable as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise  # the server is slow, and may know them
                kind, body = Packet.ERROR, INVALID_COMMAND.encode()
        check_extensions(kind, body, self.address)
        self._has_extensions = True

    # --- the connection ---

    def _connect(self) -> None:
        if self._connection is None:
            self._locate()
            self._connection = GearmanConnection.to(self.address, self.timeout_seconds)
            self._protocol = ClientProtocol(str(self.address))
            self._has_exceptions = False

    def _locate(self) -> None:
        """Find a node to connect to, if there are several and none is connected."""
        if self._connection is None and not isinstance(self._server, ServerAddress):
            self.address = self._server.address()

    def _ask(self, packet: bytes, pending: SingleRequest) -> Any:
        """Send a request, and return its answer or raise its error."""
        self._connect()
        self._protocol.send_request(packet, pending)
        self._wait_for(pending)
        return pending.future.result()

    def _wait_for(self, pending: PendingRequest) -> None:
        """Send what is to be sent, and read until the request is answered; raises ServerUnreachable."""
        connection = self._connection
        assert connection is not None
        future = cast(SingleRequest, pending).future
        try:
            connection.send(self._protocol.take_outgoing())
            packets, deadline = -1, 0.0
            while not future.done():
                if self._protocol.packets_received != packets:  # the timeout is for each packet of an answer
                    packets, deadline = self._protocol.packets_received, connection.answer_deadline()
                self._receive(connection, deadline)
        except TimeoutError as error:
            problem = connection.no_answer()
            self._disconnect(problem)
            raise problem from error
        except ServerUnreachable as error:
            self._disconnect(error)
            raise
        except BaseException:
            # The answer is still to come, and would be taken for the answer to the next request.
            self._disconnect(ServerUnreachable(f"the conversation with {self.address} was interrupted"))
            raise

    def _receive(self, connection: GearmanConnection, deadline: float | None) -> None:
        data = connection.receive_bytes(deadline)
        try:
            self._protocol.receive(data)
        except ServerUnreachable as error:
            raise ServerUnreachable(f"{self.address}: {error}") from error

    def _read_more(self, deadline: float | None) -> None:
        """Read and handle the next packets; raises TimeoutError."""
        if self._connection is None:
            return  # all submissions know already
        try:
            self._receive(self._connection, deadline)
        except ServerUnreachable as error:
            self._disconnect(error)
            return
        refused, self._protocol.unexpected_error = self._protocol.unexpected_error, None
        if refused is not None:
            raise refused

    def _disconnect(self, error: ServerUnreachable) -> None:
        """Close the connection, and tell every request and submission on it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            self._protocol.connection_lost(error)
