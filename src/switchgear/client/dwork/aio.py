"""`AsyncDworkClient`: the dwork client for asyncio."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from switchgear.client.dwork.address import DEFAULT_URL, DworkAddress
from switchgear.client.dwork.dealer_socket import DealerSocket
from switchgear.client.dwork.records import ServerStatus, Stolen, TaskRecord, text_of
from switchgear.client.dwork.request_flows import Flow, Names, RequestFlows, TaskLike, WaitUntil
from switchgear.client.flow_runner import perform_async
from switchgear.client.sockets import DEFAULT_TIMEOUT_SECONDS
from switchgear.client.zeromq_sockets import CurveKeys
from switchgear.errors import ServerUnreachable

__all__ = ["AsyncDworkClient"]

T = TypeVar("T")


class AsyncDworkClient:
    """Creates tasks on a dwork server, and steals and completes them.  Tasks of one event loop may share it.

    It is `DworkClient` for asyncio, with the same methods. A cancelled request may have been executed; tasks that
    arrive for a cancelled Steal are returned by the next one, or go back to the server with `close`.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        location: str | bytes = "",
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        keys: CurveKeys | None = None,
    ) -> None:
        """`location` is the name under which tasks are stolen, by default that of this host.

        `timeout_seconds` is how long the server may take to answer, connecting included.  `keys` are for a server
        that encrypts.  Raises ConfigError.
        """
        self._address = DworkAddress.parse(url)
        if keys is not None:
            keys.check(1, "server")
        self._keys = keys
        self._requests = RequestFlows(self._address, location or socket.gethostname(), timeout_seconds, time.monotonic)
        self._dealer: DealerSocket | None = None
        self._is_closed = False
        self._changed: asyncio.Future[None] | None = None  # set while flows wait for a change

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect.  Tasks that were stolen stay with this location; see `exit` and `transfer`.  May be called
        again."""
        self._is_closed = True
        dealer, self._dealer = self._dealer, None
        if dealer is None:
            return
        loop = asyncio.get_running_loop()
        for descriptor in dealer.descriptors:
            loop.remove_reader(descriptor)
        self._requests.give_back_surplus()
        await asyncio.to_thread(dealer.close)  # it may wait until the last words have left

    @property
    def location(self) -> str:
        """The name under which tasks are stolen."""
        return text_of(self._requests.location)

    # --- those who produce ---

    async def create(self, tasks: str | bytes | Iterable[TaskLike], after: Names = ()) -> int:
        """Create one task, or all of an iterable; returns how many."""
        return await self._perform(self._requests.create(tasks, after))

    # --- those who work ---

    async def steal(self, n: int = 1, wait_seconds: float = 0.0, *, lease_seconds: float = 0.0) -> Stolen:
        """Take up to `n` tasks."""
        return await self._perform(self._requests.steal_with_reason(n, wait_seconds, lease_seconds))

    async def complete(self, names: Names, error: str | bytes | None = None) -> tuple[str, ...]:
        """Report tasks as done or, with `error`, as failed; returns those that the server does not know."""
        return await self._perform(self._requests.complete(names, error))

    async def transfer(self, names: Names, after: Names = ()) -> tuple[str, ...]:
        """Give tasks back, to be done after others; returns those that were not with this location."""
        return await self._perform(self._requests.transfer(names, after))

    async def heartbeat(self, *, lease_seconds: float = 0.0) -> None:
        """Renew the lease of this location, so that it keeps its tasks."""
        await self._perform(self._requests.heartbeat(lease_seconds))

    async def exit(self, location: str | bytes | None = None) -> bool:
        """Put all tasks of a location, by default our own, back into the queue; False if the server knew of none."""
        return await self._perform(self._requests.exit(location))

    # --- those who look ---

    async def status(self) -> ServerStatus:
        """How many tasks there are."""
        return await self._perform(self._requests.status())

    async def lookup(self, name: str | bytes) -> TaskRecord | None:
        """The record of a task; None if the server does not know it."""
        return await self._perform(self._requests.lookup(name))

    async def tasks(self) -> AsyncIterator[TaskRecord]:
        """All tasks that the server knows, finished ones as long as it remembers them."""
        cursor = 0
        while True:
            records, cursor = await self._perform(self._requests.page(cursor))
            for record in records:
                yield record
            if not cursor:
                return

    async def speaks_more(self) -> bool:
        """Whether the server has the extensions to the original dwork."""
        return await self._perform(self._requests.speaks_more())

    def unreachable(self, seconds: float) -> ServerUnreachable:
        """The error for a server that was silent for this long, with the reason as far as it is known."""
        return self._requests.unreachable(seconds)

    # --- the driver ---

    async def _perform(self, flow: Flow[T]) -> T:
        """Run a flow to its end; returns its result or raises its exception."""
        self._open()
        return await perform_async(flow, self._until)

    def _open(self) -> None:
        if self._dealer is not None:
            return
        if self._is_closed:
            raise RuntimeError("the client is closed")
        self._dealer = DealerSocket(self._address, self._keys, self._requests.pending_requests)
        loop = asyncio.get_running_loop()
        for descriptor in self._dealer.descriptors:
            loop.add_reader(descriptor, self._pump)

    def _pump(self) -> None:
        if self._dealer is not None and self._dealer.pump() and self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _until(self, step: WaitUntil) -> bool:
        while True:
            self._pump()
            if step.condition():
                return True
            left = step.deadline - time.monotonic()
            if left <= 0:
                return False
            if self._changed is None or self._changed.done():
                self._changed = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await asyncio.shield(self._changed)  # others may wait for it too
