"""`GearmanSource`: this server as a worker of another Gearman server.

From a server of ours jobs come by credits, and what cannot be run is handed back.  From any other they are grabbed one
after the other; only the end of the connection gives a job back there.
"""

from __future__ import annotations

import asyncio
from typing import Final

from switchgear.access.tokens import read_token_file
from switchgear.backoff import ReconnectBackoff
from switchgear.client.address import ServerAddress
from switchgear.client.connection_security import ConnectionSecurity
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, Outcome
from switchgear.client.gearman.packets import name_bytes, name_text
from switchgear.client.gearman.worker_connection import WorkerConnection
from switchgear.client.gearman.worker_events import JobAssigned, JobRevoked, RefusedByServer, WorkerEvent
from switchgear.client.gearman.worker_protocol import WorkerIntroduction
from switchgear.config import ListenUrl
from switchgear.errors import ConfigError, ServerRefused
from switchgear.forwarding.source import ForwardedEnd, ForwardedJob, ForwardingFactory, ForwardingSource
from switchgear.net.hub import Hub

__all__ = ["GearmanSource", "GearmanSourceFactory"]

MOST_PAUSE_SECONDS: Final = 10.0  # between two attempts to connect


class ForwardedGearmanJob(ForwardedJob):
    """A job that a Gearman server has assigned."""

    def __init__(self, connection: WorkerConnection[ForwardedGearmanJob], assignment: AssignedJob) -> None:
        super().__init__(name_bytes(assignment.function), name_bytes(assignment.unique), assignment.payload)
        self.handle = assignment.handle
        self._connection = connection

    @property
    def _is_assigned(self) -> bool:
        return self._connection.jobs.get(self.handle) is self

    def give_back(self) -> None:
        """Let another worker have it; a plain server only gives it to one when it loses the connection."""
        if self._is_assigned:
            if self._connection.protocol.release(self.handle):
                del self._connection.jobs[self.handle]
                self._connection.flush_soon()
            else:
                self._connection.abort("its jobs are given back, because there are no workers for them")

    def report_progress(self, numerator: int, denominator: int) -> None:
        if self._is_assigned:
            self._connection.protocol.progress(self.handle, numerator, denominator)
            self._connection.flush_soon()

    def report_data(self, data: bytes) -> None:
        if self._is_assigned:
            self._connection.protocol.data(self.handle, data)
            self._connection.flush_soon()

    def report_warning(self, data: bytes) -> None:
        if self._is_assigned:
            self._connection.protocol.warning(self.handle, data)
            self._connection.flush_soon()

    def report_end(self, end: ForwardedEnd) -> None:
        if self._is_assigned:
            del self._connection.jobs[self.handle]
            protocol = self._connection.protocol
            outcome: Outcome = Complete(end.result) if end.is_done else Fail(name_text(end.error))
            protocol.report(self.handle, protocol.within_limits(outcome))
            self._connection.flush_soon()


class FunctionConnection:
    """The connection by which jobs of one function come.  Its protocol grabs one job after the other, or has credit."""

    def __init__(self, source: GearmanSource, function: bytes) -> None:
        self.credit = 0  # how many more jobs are taken
        self._source = source
        name = name_text(function)
        self.connection = WorkerConnection[ForwardedGearmanJob](
            source.upstream,
            WorkerIntroduction(source.name, {name: 0.0}, lease_seconds=0.0),
            self,
            ReconnectBackoff(most_seconds=MOST_PAUSE_SECONDS),
        )
        self.task = asyncio.get_running_loop().create_task(self.connection.run())

    @property
    def is_unused(self) -> bool:
        """Whether it holds no job, and none may be on its way."""
        return not (self.connection.jobs or self.connection.protocol.grabbing)

    def set_credit(self, credit: int) -> None:
        self.credit = credit
        self.connection.protocol.set_room(credit)
        self.connection.flush_soon()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    # --- WorkerConnectionOwner ---

    def on_connected(self, connection: WorkerConnection[ForwardedGearmanJob], *, again: bool) -> None:
        self._source.note_connected()
        self.set_credit(self.credit)

    def on_event(self, connection: WorkerConnection[ForwardedGearmanJob], event: WorkerEvent) -> None:
        if isinstance(event, JobAssigned) and self._source.is_overfull:
            connection.abort("it gives more jobs than it was asked for")
        elif isinstance(event, JobAssigned):
            forwarded = ForwardedGearmanJob(connection, event.assignment)
            connection.jobs[forwarded.handle] = forwarded
            self.credit = max(0, self.credit - 1)
            self._source.take(forwarded)
        elif isinstance(event, JobRevoked):
            revoked = connection.jobs.pop(event.handle, None)
            if revoked is not None:
                connection.protocol.release(event.handle)
                self._source.drop(revoked, cancel=True)
        elif isinstance(event, RefusedByServer):
            self._source.note_refused(event.error)

    def after_events(self) -> None:
        self.connection.protocol.set_room(self.credit)

    async def on_disconnected(
        self,
        connection: WorkerConnection[ForwardedGearmanJob],
        jobs: list[ForwardedGearmanJob],
        problem: str,
        retry_seconds: float,
    ) -> None:
        self._source.note_lost(problem)
        for forwarded in jobs:
            self._source.drop(forwarded)


class GearmanSource(ForwardingSource):
    """The connections to a Gearman server, as a worker: one for each function.

    With one for all, jobs of a function without an idle worker could not be left at the server while others are taken:
    gearmand takes away the jobs that a worker holds when it withdraws their function.
    """

    protocol = "Gearman"

    def __init__(self, url: ListenUrl, hub: Hub) -> None:
        super().__init__(url, hub)
        self.upstream = upstream_address(url)
        self._connections: dict[bytes, FunctionConnection] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return any(each.connection.subscribed for each in self._connections.values())

    async def run(self) -> None:
        try:
            await self._stopped.wait()
        finally:
            connections = list(self._connections.values())
            self._connections.clear()
            await asyncio.gather(*(each.close() for each in connections))

    def offer(self, rooms: dict[bytes, int]) -> None:
        for name, room in rooms.items():
            if name not in self._connections and not self._is_closing:
                self._connections[name] = FunctionConnection(self, name)
            self._connections[name].set_credit(room)
        for name in [name for name in self._connections if name not in rooms]:
            unserved = self._connections[name]
            unserved.set_credit(0)
            if unserved.is_unused and not self._is_closing:
                del self._connections[name]
                self._closing.add(task := self._loop.create_task(unserved.close()))
                task.add_done_callback(self._closing.discard)

    def give_back(self, forwarded: list[ForwardedJob]) -> None:
        for each in forwarded:
            if isinstance(each, ForwardedGearmanJob):
                each.give_back()
                self.drop(each)

    async def say_goodbye(self) -> None:
        connections = [each.connection for each in self._connections.values()]
        for connection in connections:
            for handle in list(connection.jobs):
                if connection.protocol.release(handle):
                    del connection.jobs[handle]
            connection.stop()
        await asyncio.gather(*(connection.confirm_reports() for connection in connections))

    def note_refused(self, error: ServerRefused) -> None:
        """The server has answered with an error, such as to the result of a job that it has given to another."""
        self.hub.telemetry.emit("forwarding_refused", url=self.address, error=str(error))


def upstream_address(url: ListenUrl) -> ServerAddress:
    """The server that a URL names, with its options for TLS and the token; raises ConfigError."""
    files = {name: url.text(name) for name in ("ca_file", "cert_file", "key_file")}
    try:
        token = read_token_file(url.text("token_file")) if url.text("token_file") else ""
        security = ConnectionSecurity(ca_setting="ca_file", cert_setting="cert_file", **files).with_token(token)
        address = ServerAddress(url.host, url.port, url.uses_tls, security)
        address.tls_context()
        assert address.token == token  # raises if others could read it on its way
    except ConfigError as error:
        raise ConfigError(f"listen: {url}: {error}") from None
    return address


class GearmanSourceFactory(ForwardingFactory):
    """Opens sources with the scheme `gearman-worker`."""

    source = GearmanSource
