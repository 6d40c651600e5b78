"""`DworkClient`: the dwork client that blocks."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

from switchgear.client.dwork.address import DEFAULT_URL, DworkAddress
from switchgear.client.dwork.dealer_socket import DealerSocket
from switchgear.client.dwork.records import ServerStatus, Stolen, TaskRecord, text_of
from switchgear.client.dwork.request_flows import Flow, Names, RequestFlows, TaskLike, WaitUntil
from switchgear.client.flow_runner import perform
from switchgear.client.sockets import DEFAULT_TIMEOUT_SECONDS
from switchgear.client.zeromq_sockets import CurveKeys

__all__ = ["DworkClient"]

T = TypeVar("T")


class DworkClient:
    """Creates tasks on a dwork server, and steals and completes them.  Not for use by several threads at once.

    The server is connected to in the background, and again if the connection is lost; what was asked and not answered
    is then asked again, in such a way that no task is lost or created twice.  Every method raises ServerUnreachable if
    there is no answer in time, and ServerRefused if the answer is an error.

    What is marked with a star is not known to the original server, dhub.
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
        address = DworkAddress.parse(url)
        if keys is not None:
            keys.check(1, "server")
        self._requests = RequestFlows(address, location or socket.gethostname(), timeout_seconds, time.monotonic)
        self._dealer = DealerSocket(address, keys, self._requests.pending_requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect.  Tasks that were stolen stay with this location; see `exit` and `transfer`.  May be called
        again."""
        self._requests.give_back_surplus()
        self._dealer.close()

    @property
    def location(self) -> str:
        """The name under which tasks are stolen."""
        return text_of(self._requests.location)

    # --- those who produce ---

    def create(self, tasks: str | bytes | Iterable[TaskLike], after: Names = ()) -> int:
        """Create one task, or all of an iterable, and return how many when the server has them.

        A task is a name, a pair of a name and the names of its predecessors, or a `NewTask`.  All of them wait for
        those in `after` too.  A predecessor that the server does not know counts as done, so it has to be created
        first; earlier in the same iterable will do.  Of a task that is there already, only predecessors are added.
        """
        return self._perform(self._requests.create(tasks, after))

    # --- those who work ---

    def steal(self, n: int = 1, wait_seconds: float = 0.0, *, lease_seconds: float = 0.0) -> Stolen:
        """Take up to `n` tasks.  They are this location's until it completes or transfers them, or exits.

        With `wait_seconds` * the server answers when there is a task, or after that time. With `lease_seconds` * it
        gives the tasks of this location to others if the location is silent for this long; see `heartbeat`.

        If the answer is lost with the connection, its tasks stay with this location, which does not know of them, until
        its lease ends or it exits.
        """
        return self._perform(self._requests.steal_with_reason(n, wait_seconds, lease_seconds))

    def complete(self, names: Names, error: str | bytes | None = None) -> tuple[str, ...]:
        """Report one task or several as done or, with `error` *, as failed: then their successors keep waiting.

        Returns the names of those that the server * does not know as unfinished tasks, or not as ours if they failed.
        """
        return self._perform(self._requests.complete(names, error))

    def transfer(self, names: Names, after: Names = ()) -> tuple[str, ...]:
        """Give back one task or several, to be done after others, which have to be there.

        Returns the names of those that were not with this location *; with those, nothing is done.
        """
        return self._perform(self._requests.transfer(names, after))

    def heartbeat(self, *, lease_seconds: float = 0.0) -> None:
        """Renew the lease of this location, so that it keeps its tasks."""
        self._perform(self._requests.heartbeat(lease_seconds))

    def exit(self, location: str | bytes | None = None) -> bool:
        """Put all tasks of a location, by default our own, back into the queue; False if the server knew of none."""
        return self._perform(self._requests.exit(location))

    # --- those who look ---

    def status(self) -> ServerStatus:
        """How many tasks there are."""
        return self._perform(self._requests.status())

    def lookup(self, name: str | bytes) -> TaskRecord | None:
        """The record of a task *; None if the server does not know it."""
        return self._perform(self._requests.lookup(name))

    def tasks(self) -> Iterator[TaskRecord]:
        """All tasks that the server knows *, finished ones as long as it remembers them."""
        cursor = 0
        while True:
            records, cursor = self._perform(self._requests.page(cursor))
            yield from records
            if not cursor:
                return

    def speaks_more(self) -> bool:
        """Whether the server has the extensions, which are marked with a star."""
        return self._perform(self._requests.speaks_more())

    # --- the driver ---

    def _perform(self, flow: Flow[T]) -> T:
        """Run a flow to its end; returns its result or raises its exception."""
        if self._dealer.is_closed:
            raise RuntimeError("the client is closed")
        return perform(flow, self._until)

    def _until(self, step: WaitUntil) -> bool:
        while True:
            self._dealer.pump()
            if step.condition():
                return True
            left = step.deadline - time.monotonic()
            if left <= 0:
                return False
            self._dealer.poll(left)
