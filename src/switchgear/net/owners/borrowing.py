"""`Borrowing`: gets jobs from the nodes that own them for idle workers of this node, and passes the reports back.

The node tells each owner how many more jobs of a function it has idle workers for. A job that comes is entered into
the engine as a copy under the same id, with one attempt, which is never stored; what the worker reports about the copy
goes to the owner, with the number of the start. A copy that no worker has begun within `WAIT_SECONDS` is given back:
its worker has taken another job, and a worker of another node may be idle.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from switchgear.engine.placement import BORROWED, is_foreign
from switchgear.errors import Refused
from switchgear.model import CANCELLED, DONE, QUEUED_STATES, Delivery, Function, Job, Peer, Worker
from switchgear.net.hub import Hub
from switchgear.net.owners.messages import (
    OPTIONS,
    Assign,
    Data,
    Done,
    Failed,
    Give,
    Lost,
    Progress,
    RetryWanted,
    Revoke,
    Room,
    Warn,
)
from switchgear.net.owners.relay import Relay, RelayLink

__all__ = ["Borrowing"]

TICK_SECONDS: Final = 0.05
WAIT_SECONDS: Final = 0.5
REPEAT_TICKS: Final = 20
NOTHING_TOLD: Final = (None, 0)
# The options of a job that matter where it runs.
COPIED: Final = frozenset(("timeout_us", "reducer", "key", "requires", "label", "trace"))


class Borrowed:
    """A job of another node that this one has."""

    __slots__ = ("copy", "link", "since_s", "start")

    def __init__(self, link: RelayLink, copy: Job, start: int, since_s: float) -> None:
        self.link = link
        self.copy = copy
        self.start = start
        self.since_s = since_s


class Borrowing(Peer):
    """Borrows jobs from the owners of functions that workers of this node serve."""

    def __init__(self, hub: Hub, relay: Relay) -> None:
        super().__init__()
        self._hub = hub
        self._engine = hub.engine
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self._borrowed: dict[int, Borrowed] = {}
        self._told: dict[bytes, tuple[RelayLink | None, int]] = {}  # the room that an owner was told last
        self._seen: dict[tuple[RelayLink, bytes], int] = {}
        self._ended: Counter[bytes] = Counter()
        self._ended_before: Counter[bytes] = Counter()
        self._is_offer_due = False
        self._tick_number = 0
        self._ticks: asyncio.TimerHandle | None = None
        self.is_stopping = False
        self.count = 0  # jobs that were borrowed

    def start(self) -> None:
        """Begin to request jobs from other nodes, and repeat that at intervals."""
        self._tick()

    def close(self) -> None:
        """Request no more jobs from other nodes."""
        if self._ticks is not None:
            self._ticks.cancel()

    @property
    def borrowed_count(self) -> int:
        """How many jobs of other nodes this one has at the moment."""
        return len(self._borrowed)

    # --- how many ---

    def _tick(self) -> None:
        self._ticks = self._loop.call_later(TICK_SECONDS, self._tick)
        self._ended_before, self._ended = self._ended, Counter()
        self._tick_number += 1
        if self._tick_number % REPEAT_TICKS == 0:
            self._told = dict.fromkeys(self._told, NOTHING_TOLD)  # an owner may not have been ready when it was told
        before_s = self._loop.time() - WAIT_SECONDS
        late = [
            each for each in self._borrowed.values() if each.since_s < before_s and each.copy.state in QUEUED_STATES
        ]
        if late:
            self._hub.begin_turn()
            for borrowed in late:
                self._give_back(borrowed)
        self._offer()

    def offer_soon(self) -> None:
        """Tell the owners what there is room for, after everything that happens in this turn."""
        if not self._is_offer_due:
            self._is_offer_due = True
            self._loop.call_soon(self._offer)

    def _offer(self) -> None:
        self._is_offer_due = False
        rooms: dict[bytes, tuple[RelayLink, int]] = {}
        for function in self._engine.functions.values():
            if function.workers and is_foreign(function):
                link = self._relay.links.get(self._relay.partition_of(function.name))
                if link is not None:
                    rooms[function.name] = (link, self._room(function))
        told = self._told
        for name, (link, room) in rooms.items():
            if told.get(name) != (link, room):
                link.send(Room(name, room, self._seen.get((link, name), 0)))
        for name, (link, _) in told.items():
            if name not in rooms and link is not None:
                link.send(Room(name, -1, 0))
        self._told = dict(rooms)

    def _room(self, function: Function) -> int:
        """How many more jobs of a function would be started soon."""
        if self.is_stopping or not self._engine.handing_out:
            return 0
        idle = sum(map(idle_slots, function.workers))
        lately = max(self._ended[function.name], self._ended_before[function.name])
        return max(0, idle + lately - function.ready)

    # --- from the owner ---

    def assigned(self, link: RelayLink, message: Assign) -> None:
        """Enter a copy of a job that an owner has assigned."""
        engine = self._engine
        place = (link, message.function)
        self._seen[place] = self._seen.get(place, 0) + 1
        self._told.pop(message.function, None)  # the owner has one credit less
        try:
            function = engine.function_named(message.function)
        except Refused:
            link.send(Give(message.id, message.start))
            return
        if not is_foreign(function) or engine.has_job(message.id) or self.is_stopping:
            link.send(Give(message.id, message.start))
            return
        copy = Job(
            message.id,
            function,
            message.unique,
            message.payload,
            message.priority,
            Delivery.WAIT,
            message.created_us,
        )
        for name, value in zip(OPTIONS, message.details, strict=False):
            if name in COPIED and value:
                setattr(copy, name, value)
        copy.requires = b""  # decided by the owner
        copy.origin = BORROWED
        copy.has_details = True
        self._borrowed[copy.id] = Borrowed(link, copy, message.start, self._loop.time())
        self.count += 1
        engine.borrow(copy, self)
        self.offer_soon()

    def revoked(self, message: Revoke) -> None:
        """The owner does not want the result of a job any more."""
        borrowed = self._borrowed.get(message.id)
        if borrowed is not None:
            self._give_back(borrowed)

    def _give_back(self, borrowed: Borrowed) -> None:
        borrowed.link.send(Give(borrowed.copy.id, borrowed.start))
        self._drop(borrowed)

    def _drop(self, borrowed: Borrowed) -> None:
        """End a copy here; its worker is told to stop, and has lost this start: a late report of it is refused."""
        engine, copy = self._engine, borrowed.copy
        self._borrowed.pop(copy.id, None)
        if engine.job(copy.id) is copy:
            worker = copy.worker
            engine.cancel(copy)
            if worker is not None:
                engine.complete(worker, copy.id, b"")  # frees the worker

    def link_lost(self, link: RelayLink) -> None:
        """The owner has requeued what this node had borrowed of it."""
        for borrowed in [each for each in self._borrowed.values() if each.link is link]:
            self._drop(borrowed)
        self._told = {name: told for name, told in self._told.items() if told[0] is not link}
        for place in [place for place in self._seen if place[0] is link]:
            del self._seen[place]

    def drop_functions(self, is_concerned: Callable[[bytes], bool]) -> None:
        """Drop the copies of functions that this node is going to own itself."""
        for borrowed in [each for each in self._borrowed.values() if is_concerned(each.copy.function.name)]:
            self._give_back(borrowed)

    # --- called by the engine, which must not be called back ---

    def job_progress(self, job: Job) -> None:
        borrowed = self._borrowed.get(job.id)
        if borrowed is not None:
            figures = (job.numerator, job.denominator, job.time_left_s, job.progress_text, job.message)
            borrowed.link.send(Progress(job.id, *figures))

    def job_data(self, job: Job, data: bytes) -> None:
        borrowed = self._borrowed.get(job.id)
        if borrowed is not None:
            borrowed.link.send(Data(job.id, data))

    def job_warning(self, job: Job, data: bytes) -> None:
        borrowed = self._borrowed.get(job.id)
        if borrowed is not None:
            borrowed.link.send(Warn(job.id, data))

    def job_finished(self, job: Job) -> None:
        self._ended[job.function.name] += 1
        self.offer_soon()
        retry = self._relay.retries.pop(job.id, None)
        borrowed = self._borrowed.pop(job.id, None)
        if borrowed is None:
            return
        send, start = borrowed.link.send, borrowed.start
        if retry is not None or not (job.is_dead or job.state is CANCELLED):
            # The worker has reported: whatever it is sent next says that the report is stored.
            self._relay.await_report(job, start, borrowed.link)
        if retry is not None:
            send(RetryWanted(job.id, start, retry.delay_us, retry.error, retry.attempts_limit))
        elif job.state is DONE:
            send(Done(job.id, start, job.result))
        elif job.is_dead:
            send(Lost(job.id, start))
        elif job.state is CANCELLED:
            send(Give(job.id, start))
        else:
            send(Failed(job.id, start, job.result_code, job.error, job.result))


def idle_slots(worker: Worker) -> int:
    """How many jobs a worker would start at once."""
    return worker.credits or int(worker.asleep or not worker.running)
