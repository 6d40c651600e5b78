"""The requests of a dwork client as flows (generators without I/O), for the blocking and the asyncio driver.

There are two drivers, `blocking.py` and `aio.py`, and one of everything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from switchgear.client.dwork.address import DworkAddress
from switchgear.client.dwork.pending_requests import DworkRequest, PendingRequests
from switchgear.client.dwork.records import (
    NewTask,
    ServerStatus,
    Stolen,
    TaskRecord,
    bytes_of,
    text_of,
)
from switchgear.errors import ServerRefused, ServerUnreachable
from switchgear.protocols.dwork.messages import Query, QueryType, Task

__all__ = ["Flow", "Names", "RequestFlows", "TaskLike", "WaitUntil", "names_of"]

T = TypeVar("T")

TASKS_PER_MESSAGE: Final = 1000
BYTES_PER_MESSAGE: Final = 4 * 1024 * 1024  # or a little more; servers refuse messages that are too long
MESSAGES_IN_FLIGHT: Final = 8  # of one request that is cut into several

TaskLike = str | bytes | NewTask | tuple[str | bytes, Iterable[str | bytes]]
Names = str | bytes | Iterable[str | bytes]


class WaitUntil(NamedTuple):
    """Wait until a condition is true, or until a deadline; the driver sends back whether it is true."""

    condition: Callable[[], bool]
    deadline: float


Flow = Generator[WaitUntil, bool, T]


class RequestFlows:
    """All flows of a client.  `timeout_seconds` is for the answer to one message, connecting included."""

    def __init__(
        self,
        address: DworkAddress,
        location: str | bytes,
        timeout_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.address = address
        self.location = bytes_of(location)
        self.timeout_seconds = timeout_seconds
        self.pending_requests = PendingRequests(clock)
        self._clock = clock
        self._speaks_more: bool | None = None  # whether the server knows more than the original; None: not asked yet

    # --- those who produce ---

    def create(self, tasks: str | bytes | Iterable[TaskLike], after: Names) -> Flow[int]:
        """Create tasks, each after those named with it and those in `after`; returns how many."""
        common = tuple(names_of(after))
        given = (tasks,) if isinstance(tasks, str | bytes) else tasks
        messages = (self._task_message(task, common) for task in given)
        created = 0
        pending: deque[DworkRequest] = deque()
        try:
            for batch in batches(messages):
                most_pending = MESSAGES_IN_FLIGHT - 1
                if pending and any(task.predecessors for task in batch) and not (yield from self.speaks_more()):
                    most_pending = 0  # the original server may take messages in another order than they were sent
                while len(pending) > most_pending:
                    yield from self._answer(pending.popleft())
                pending.append(self.pending_requests.ask(Query(QueryType.CREATE, batch)))
                created += len(batch)
            while pending:
                yield from self._answer(pending.popleft())
        finally:
            for request in pending:
                self.pending_requests.forget(request)
        return created

    def _task_message(self, task: TaskLike, common: tuple[bytes, ...]) -> Task:
        if isinstance(task, str | bytes):
            return Task(bytes_of(task), self.location, common)
        trace = task.trace.encode() if isinstance(task, NewTask) else b""
        name, after = (task.name, task.after) if isinstance(task, NewTask) else task
        return Task(bytes_of(name), self.location, (*names_of(after), *common), trace=trace)

    # --- those who work ---

    def steal(self, n: int, wait_seconds: float, lease_seconds: float) -> Flow[Stolen]:
        """Take up to this many tasks, if there are any within the time."""
        surplus = self.pending_requests.surplus
        if surplus and n > 0:
            return Stolen(tuple(Stolen.task_of(surplus.popleft()) for _ in range(min(n, len(surplus)))))
        query = Query(
            QueryType.STEAL,
            n=None if n == 1 else n,
            location=self.location,
            wait_ms=int(wait_seconds * 1000) or None,
            lease_ms=int(lease_seconds * 1000) or None,
        )
        answer = yield from self._ask(query, wait_seconds)
        return Stolen(tuple(map(Stolen.task_of, answer.tasks)), answer.type == QueryType.EXIT)

    def steal_with_reason(self, n: int, wait_seconds: float, lease_seconds: float) -> Flow[Stolen]:
        """Like `steal`; if no task is left, also how many tasks cannot be done."""
        stolen = yield from self.steal(n, wait_seconds, lease_seconds)
        if not stolen.all_done or n == 0:
            return stolen
        try:
            status = yield from self.status()
        except (ServerUnreachable, ServerRefused):  # what was asked for is answered already
            return stolen
        return replace(stolen, stuck=max(0, status.active - status.ready))

    def complete(self, names: Names, error: str | bytes | None) -> Flow[tuple[str, ...]]:
        """Report tasks as done, or as failed; returns those that the server does not know as unfinished."""
        reason = None if error is None else bytes_of(error)
        tasks = (Task(name, self.location, error=reason) for name in names_of(names))
        unknown: list[str] = []
        for batch in batches(tasks):
            request = self.pending_requests.ask(Query(QueryType.COMPLETE, batch, location=self.location))
            answer = yield from self._answer(request)
            if answer.type != QueryType.NOT_FOUND:
                continue
            for task in answer.tasks or batch:
                if not request.is_repeated or not (yield from self._has_ended(task.name, error is None)):
                    unknown.append(text_of(task.name))
        return tuple(unknown)

    def _has_ended(self, name: bytes, well: bool) -> Flow[bool]:
        """Whether a task has ended because we reported its end before, and the answer was lost."""
        record = yield from self.lookup(name)
        return record is not None and record.state == ("done" if well else "failed")

    def transfer(self, names: Names, after: Names) -> Flow[tuple[str, ...]]:
        """Give tasks back, to be done after others; returns those that were not ours."""
        predecessors = tuple(names_of(after))
        tasks = (Task(name, self.location, predecessors) for name in dict.fromkeys(names_of(names)))
        unknown: list[str] = []
        for batch in batches(tasks):
            answer = yield from self._ask(Query(QueryType.TRANSFER, batch, location=self.location))
            if answer.type == QueryType.NOT_FOUND:  # and nothing was done
                missing = {task.name for task in answer.tasks or batch}
                unknown += map(text_of, missing)
                rest = [task for task in batch if task.name not in missing]
                if rest:
                    yield from self._ask(Query(QueryType.TRANSFER, rest, location=self.location))
        return tuple(unknown)

    def heartbeat(self, lease_seconds: float) -> Flow[None]:
        """Renew the lease for `lease_seconds`."""
        query = Query(QueryType.STEAL, n=0, location=self.location, lease_ms=int(lease_seconds * 1000) or None)
        yield from self._ask(query)

    def exit(self, location: str | bytes | None) -> Flow[bool]:
        """Tell the server that a worker is gone; False if it knew of none."""
        where = self.location if location is None else bytes_of(location)
        return (yield from self._ask(Query(QueryType.EXIT, location=where))).type == QueryType.OK

    # --- those who look ---

    def status(self) -> Flow[ServerStatus]:
        """The status of the server."""
        return ServerStatus.of((yield from self._ask(Query(QueryType.OK))))

    def lookup(self, name: str | bytes) -> Flow[TaskRecord | None]:
        """The record of a task; None if the server does not know it."""
        answer = yield from self._ask(Query(QueryType.LOOKUP, name=bytes_of(name)))
        if answer.type != QueryType.OK:
            return None
        return TaskRecord.of(answer.tasks[0] if answer.tasks else Task(bytes_of(name)), answer.location)

    def page(self, cursor: int) -> Flow[tuple[list[TaskRecord], int]]:
        """A page of all tasks that the server knows, and the start of the next page; 0 if there is none."""
        answer = yield from self._ask(Query(QueryType.LIST, cursor=cursor or None))
        return [TaskRecord.of(task) for task in answer.tasks], answer.cursor or 0

    def speaks_more(self) -> Flow[bool]:
        """Whether the server has the extensions to the original dwork: failures, waiting, leases, lookups, lists."""
        if self._speaks_more is None:
            request = self.pending_requests.ask(Query(QueryType.LOOKUP, name=b"\0"))
            answer = yield from self._reply(request, 0.0)
            self._speaks_more = answer.type != QueryType.ERROR or answer.reason is not None
        return self._speaks_more

    # --- requests and answers ---

    def give_back_surplus(self) -> None:
        """Give back tasks of Steals that were given up; the answer is not waited for."""
        surplus = self.pending_requests.surplus
        if surplus:
            tasks = [Task(task.name, self.location) for task in surplus]
            surplus.clear()
            self.pending_requests.ask(Query(QueryType.TRANSFER, tasks, location=self.location))

    def _ask(self, query: Query, extra_seconds: float = 0.0) -> Flow[Query]:
        return (yield from self._answer(self.pending_requests.ask(query), extra_seconds))

    def _answer(self, request: DworkRequest, extra_seconds: float = 0.0) -> Flow[Query]:
        """The answer to a request; raises ServerRefused, or ServerUnreachable if there is none in time."""
        yield from self._reply(request, extra_seconds)
        return request.result()

    def _reply(self, request: DworkRequest, extra_seconds: float) -> Flow[Query]:
        deadline = self._clock() + self.timeout_seconds + extra_seconds
        try:
            if not (yield WaitUntil(request.is_answered, deadline)):
                raise self.unreachable(self.timeout_seconds)
        finally:
            if request.answer is None:
                self.pending_requests.forget(request)
        assert request.answer is not None
        return request.answer

    def unreachable(self, seconds: float) -> ServerUnreachable:
        """The error for a server that did not answer in time."""
        what = "no answer from" if self.pending_requests.is_connected else "cannot connect to"
        problem = f" ({self.pending_requests.problem})" if self.pending_requests.problem else ""
        return ServerUnreachable(f"{what} {self.address} within {seconds:g} s{problem}")


def names_of(names: Names) -> Iterable[bytes]:
    """One name, or several, as they are sent."""
    return (bytes_of(names),) if isinstance(names, str | bytes) else map(bytes_of, names)


def batches(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Tasks that go into one message."""
    batch: list[Task] = []
    size = 0
    for task in tasks:
        batch.append(task)
        size += len(task.name) + len(task.error or b"") + sum(map(len, task.predecessors))
        if len(batch) >= TASKS_PER_MESSAGE or size >= BYTES_PER_MESSAGE:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch
