"""`WmpSource`: this server as a worker of another WMP manager, directly or behind devices."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from switchgear.client.wmp.address import ManagerAddress
from switchgear.client.wmp.aio import AsyncJobFunction, AsyncWmpWorker
from switchgear.client.wmp.worker_base import GiveBack, WmpWorkerObserver
from switchgear.client.wmp.worker_protocol import WmpJob
from switchgear.client.zeromq_sockets import CurveKeys
from switchgear.config import ListenUrl
from switchgear.errors import ConfigError, JobFailed
from switchgear.forwarding.source import ForwardedEnd, ForwardedJob, ForwardingFactory, ForwardingSource
from switchgear.model import Job
from switchgear.net.hub import Hub

__all__ = ["WmpSource", "WmpSourceFactory"]

_NO_ROLE: Final = "switchgear-forwarding"  # a worker has a role from the start; nobody has jobs of this one


class ForwardedWmpJob(ForwardedJob):
    """A job that a manager has given."""

    def __init__(self, job: WmpJob) -> None:
        super().__init__(job.role.encode(errors="surrogateescape"), b"", job.payload)
        self.end: asyncio.Future[ForwardedEnd] = asyncio.get_running_loop().create_future()
        self._wmp_job = job

    def report_progress(self, numerator: int, denominator: int) -> None:
        self._wmp_job.progress(numerator, denominator)

    def report_end(self, end: ForwardedEnd) -> None:
        if not self.end.done():
            self.end.set_result(end)


class ForwardingWmpWorker(AsyncWmpWorker):
    """A worker whose roles change, and whose jobs all go to one function."""

    def __init__(self, source: WmpSource, url: ListenUrl, keys: CurveKeys | None) -> None:
        self._source = source
        address = str(ManagerAddress(url.host, url.port))
        super().__init__(
            address,
            {_NO_ROLE: source.forward},
            source.slots,
            identity=source.name,
            keys=keys,
            observer=ConnectionNotes(source),
        )
        self.offer(())

    def offer(self, roles: tuple[bytes, ...]) -> None:
        """Take jobs of these roles, and no others."""
        self._protocol.offer(dict.fromkeys(roles, 1), time.monotonic())
        self._changed.set()

    @property
    def is_connected(self) -> bool:
        return any(connection.is_connected for connection in self._connections)

    def _function_of(self, job: WmpJob) -> AsyncJobFunction:
        return self._source.forward


class ConnectionNotes(WmpWorkerObserver):
    """Tells operators of lost and new connections."""

    def __init__(self, source: WmpSource) -> None:
        self._source = source

    def connected(self, manager: ManagerAddress) -> None:
        self._source.note_connected()

    def disconnected(self, manager: ManagerAddress) -> None:
        self._source.note_lost("the connection was lost")


class WmpSource(ForwardingSource):
    """The connection to a WMP manager, as a worker."""

    protocol = "WMP"

    def __init__(self, url: ListenUrl, hub: Hub) -> None:
        super().__init__(url, hub)
        self.collects_data = True  # a manager is sent a result in one piece
        self._roles: tuple[bytes, ...] = ()
        self._worker = ForwardingWmpWorker(self, url, _keys(url))
        self._is_leaving = False

    @property
    def is_connected(self) -> bool:
        return self._worker.is_connected

    async def run(self) -> None:
        await self._worker.run(handle_signals=False)

    def offer(self, rooms: dict[bytes, int]) -> None:
        roles = tuple(sorted(name for name, room in rooms.items() if room))
        if roles != self._roles:
            self._roles = roles
            self._worker.offer(roles)

    def give_back(self, forwarded: list[ForwardedJob]) -> None:
        for each in forwarded:
            self.drop(each)
            if isinstance(each, ForwardedWmpJob) and not each.end.done():
                each.end.set_exception(GiveBack())

    async def say_goodbye(self) -> None:
        self._is_leaving = True
        self._worker.stop(0.0)
        if self._task is not None:
            await self._task

    async def forward(self, job: WmpJob) -> bytes:
        """Have a job of the manager run here; it is given back if this server stops first."""
        forwarded = ForwardedWmpJob(job)
        self.take(forwarded)
        try:
            end = await forwarded.end
        except asyncio.CancelledError:
            self.drop(forwarded, cancel=job.cancelled.is_set() and not self._is_leaving)
            if self._is_leaving:
                raise GiveBack from None
            raise
        if end.is_done:
            return end.result
        text = end.error or b"failed"
        raise JobFailed(text.decode(errors="replace"), text)

    def _end_of(self, job: Job) -> ForwardedEnd:
        end = ForwardedEnd(job)
        if end.is_done:
            end.result = job.whole_result
        return end


class WmpSourceFactory(ForwardingFactory):
    """Opens sources with the scheme `wmp-worker`."""

    source = WmpSource


def _keys(url: ListenUrl) -> CurveKeys | None:
    server_key_file, key_file = url.text("server_key_file"), url.text("key_file")
    if key_file and not server_key_file:
        raise ConfigError(f"listen: {url}: key_file needs server_key_file, the public key of the manager")
    return CurveKeys.load(server_key_file, key_file) if server_key_file else None
