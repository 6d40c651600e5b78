"""`BorrowedJobs`: gets jobs from the nodes that own them for idle workers of this node, and passes the reports back.

The node tells each owner how many more jobs of a function it has idle workers for, by kinds of workers
(`worker_kinds`). A job that comes is entered into the engine as a copy under the same id, with one attempt, which is
never stored; it requires what the job requires. What the worker reports about the copy goes to the owner, with the
number of the start. A copy that no worker has begun within `WAIT_SECONDS` is given back: its worker has taken another
job, and a worker of another node may be idle.

If the owner is lost, the runs go on (`runs_without_owner`), and are claimed at the next owner.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from switchgear.engine.function_placement import BORROWED, is_foreign
from switchgear.errors import Refused
from switchgear.model import CANCELLED, DONE, QUEUED_STATES, Delivery, Function, Job, Peer, Worker
from switchgear.net.hub import Hub
from switchgear.net.owners.messages import (
    OPTIONS,
    AboutRuns,
    Assign,
    ClaimsWanted,
    Data,
    Done,
    Failed,
    Give,
    Lost,
    Offered,
    Progress,
    RetryWanted,
    Room,
    RunClaimed,
    RunMoves,
    Warn,
    options_of,
)
from switchgear.net.owners.node_claims import RUN_OPTIONS
from switchgear.net.owners.relay import Relay, RelayLink
from switchgear.net.owners.runs_without_owner import Borrowed, RunsWithoutOwner
from switchgear.net.owners.worker_kinds import PLAIN, kinds_of

__all__ = ["BorrowedJobs"]

TICK_SECONDS: Final = 0.05
WAIT_SECONDS: Final = 0.5
REPEAT_TICKS: Final = 20
Place = tuple[bytes, bytes]  # a function and a kind of its workers
Told = tuple[RelayLink, int, Offered | None]
OUT_OF_DATE: Final = -2  # what an owner was told is to be told again
NONE: Final[dict[int, Any]] = {}


class BorrowedJobs(Peer):
    """Borrows jobs from the owners of functions that workers of this node serve."""

    def __init__(self, hub: Hub, relay: Relay) -> None:
        super().__init__()
        self._hub = hub
        self._engine = hub.engine
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self.without_owner = RunsWithoutOwner(relay, self._drop_run)
        self._borrowed: dict[int, Borrowed] = {}
        self._waiting: dict[Place, dict[int, Borrowed]] = {}  # those that no worker may have begun yet
        self._begun: dict[Place, dict[int, Borrowed]] = {}  # those of workers with resources that were begun
        self._told: dict[Place, Told] = {}  # what an owner was told last
        self._seen: dict[tuple[RelayLink, Place], int] = {}
        self._ended: Counter[Place] = Counter()
        self._ended_before: Counter[Place] = Counter()
        self._is_offer_due = False
        self._tick_number = 0
        self._ticks: asyncio.TimerHandle | None = None
        self.is_stopping = False
        self._is_restored: Callable[[bytes], bool] | None = None  # functions that this node restores at the moment
        self.count = 0  # jobs that were borrowed

    def start(self) -> None:
        """Begin to request jobs from other nodes, and repeat that at intervals."""
        self._tick()

    def close(self) -> None:
        """Request no more jobs from other nodes."""
        if self._ticks is not None:
            self._ticks.cancel()

    # --- how many ---

    def _tick(self) -> None:
        self._ticks = self._loop.call_later(TICK_SECONDS, self._tick)
        self._ended_before, self._ended = self._ended, Counter()
        self._tick_number += 1
        if self._tick_number % REPEAT_TICKS == 0:
            # An owner may not have been ready when it was told.
            self._told = {place: (told[0], OUT_OF_DATE, None) for place, told in self._told.items()}
        before_s = self._loop.time() - WAIT_SECONDS
        late = [
            each
            for place in list(self._waiting)
            for each in self._still_waiting(place).values()
            if each.since_s < before_s
        ]
        if late:
            self._hub.begin_turn()
            for borrowed in late:
                self._give_back(borrowed)
        if self.without_owner.is_late(self._loop.time()):
            self._hub.begin_turn()
            self.without_owner.give_up(self._loop.time())
        self._offer()

    def offer_soon(self) -> None:
        """Tell the owners what there is room for, after everything that happens in this turn."""
        if not self._is_offer_due:
            self._is_offer_due = True
            self._loop.call_soon(self._offer)

    def _offer(self) -> None:
        self._is_offer_due = False
        self.without_owner.claim(self._loop.time())
        rooms: dict[Place, Told] = {}
        for function in self._engine.functions.values():
            if function.workers and is_foreign(function):
                self._add_places(rooms, function)
        told = self._told
        for place, room in rooms.items():
            if told.get(place) != room:
                link, count, offered = room
                link.send(Room(place[0], count, self._seen.get((link, place), 0), place[1], offered))
        for place, (link, _, _) in told.items():
            if place not in rooms:
                link.send(Room(place[0], -1, 0, place[1]))
                if place[1].isdigit():
                    self._seen.pop((link, place), None)  # this worker will not be there again
        self._told = rooms

    def _add_places(self, rooms: dict[Place, Told], function: Function) -> None:
        """What the owner of a function is told, or those of its shards: each is offered its share of the workers, and
        one at least, so that a shard without jobs does not keep workers from the others for long."""
        relay = self._relay
        shards = relay.divided.shards
        names = [name for name in shards.names(function.name) if not relay.is_ours(name)]
        if not names:
            if not shards.has_queue(function.name) or shards.base_of(function.name) != function.name:
                return  # it has no jobs, or its workers have registered for the divided function
            names = [function.name]
        for name in names:
            link = relay.links.get(relay.partition_of(name))
            if link is not None:
                self._add_rooms(rooms, function, link, name, len(names))

    def _add_rooms(
        self, rooms: dict[Place, Told], function: Function, link: RelayLink, name_at_owner: bytes, shares: int
    ) -> None:
        """How many more jobs of a function each kind of its workers would start soon."""
        kinds = kinds_of(function)
        stops = self.is_stopping or not self._engine.handing_out
        for name, kind in kinds.items():
            place = (name_at_owner, name)
            waiting = function.ready if len(kinds) == 1 else len(self._still_waiting(place))
            lately = max(self._ended[place], self._ended_before[place])
            offered = None
            if name != PLAIN or kind.count > 1:
                offered = kind.offered(function, [each.copy for each in self._begun.get(place, NONE).values()])
            rooms[place] = (link, 0 if stops else max(0, -(-kind.idle // shares) + lately - waiting), offered)

    def _still_waiting(self, place: Place) -> dict[int, Borrowed]:
        """The copies of a kind that no worker has begun."""
        waiting = self._waiting.get(place)
        if waiting is None:
            return NONE
        begun = [each for each in waiting.values() if each.copy.state not in QUEUED_STATES]
        for each in begun:
            del waiting[each.copy.id]
            if each.kind.isdigit() and each.copy.id in self._borrowed:
                self._begun.setdefault(place, {})[each.copy.id] = each
        if not waiting:
            del self._waiting[place]
        return waiting

    def function_at_owner(self, job_id: int) -> bytes | None:
        """The name of the function that a borrowed job has at its owner."""
        borrowed = self._borrowed.get(job_id)
        return None if borrowed is None else borrowed.assign.function

    # --- from the owner ---

    def assigned(self, link: RelayLink, message: Assign) -> None:
        """Enter a copy of a job that an owner has assigned."""
        engine = self._engine
        place = (message.function, message.kind)
        self._seen[link, place] = self._seen.get((link, place), 0) + 1
        self._told[place] = (link, OUT_OF_DATE, None)  # the owner has one credit less
        try:
            function = engine.function_named(self._relay.told_name(message.function))
        except Refused:
            link.send(Give(message.id, message.start))
            return
        # The last owner may have sent it before it lost the function.
        if (
            not is_foreign(function)
            or engine.has_job(message.id)
            or self.is_stopping
            or self._restores(message.function)
        ):
            link.send(Give(message.id, message.start))
            return
        copy = self._copy(message, function)
        borrowed = Borrowed(link, copy, message, self._loop.time())
        self._borrowed[copy.id] = self._waiting.setdefault(place, {})[copy.id] = borrowed
        self.count += 1
        engine.borrow(copy, self)
        self.offer_soon()

    def told_of_run(self, link: RelayLink, message: AboutRuns) -> None:
        """Handle a message of an owner about a run."""
        if isinstance(message, Assign):
            self.assigned(link, message)
        elif isinstance(message, ClaimsWanted):
            for each in list(self._borrowed.values()):
                partition = self._relay.partition_of(each.assign.function)
                if each.link is not link and message.partitions >> partition & 1:
                    self._owner_lost(each)
            self.without_owner.claim_all(link, message.partitions, self._loop.time())
        elif isinstance(message, RunClaimed):
            self.without_owner.answered(link, message)
        else:
            borrowed = self._borrowed.get(message.id)
            if borrowed is None or borrowed.link is not link:
                return
            if isinstance(message, RunMoves):
                self._owner_lost(borrowed)
            else:  # the owner does not want the result any more
                self._give_back(borrowed)

    def _give_back(self, borrowed: Borrowed) -> None:
        if borrowed.link is not None:
            borrowed.link.send(Give(borrowed.copy.id, borrowed.start))
        self._drop(borrowed)

    def _drop_run(self, borrowed: Borrowed) -> None:
        """The run was claimed in vain."""
        self._hub.begin_turn()
        if borrowed.on_answer is None:
            self._drop(borrowed)
            return
        self._forget(borrowed.copy)
        worker = self._engine.adopted_runs.take_out(borrowed.copy)  # the answer tells the worker
        if worker is not None:
            self._engine.adopted_runs.end_aside(borrowed.copy, worker)
        borrowed.answer(goes_on=False)

    def _drop(self, borrowed: Borrowed) -> None:
        """End a copy here; its worker is told to stop, and has lost this start: a late report of it is refused."""
        engine, copy = self._engine, borrowed.copy
        self._forget(copy)
        if engine.job(copy.id) is copy:
            worker = copy.worker
            engine.cancel(copy)
            if worker is not None:
                engine.complete(worker, copy.id, b"")  # frees the worker

    def _owner_lost(self, borrowed: Borrowed) -> None:
        """The owner is gone: another one may let the run go on, if there is one, and nothing of its result is lost."""
        if borrowed.link is None:
            return
        if not borrowed.can_go_on or self.is_stopping:
            self._drop(borrowed)
        else:
            borrowed.link = None
            self.without_owner.add(borrowed, self._loop.time())

    def _forget(self, copy: Job) -> Borrowed | None:
        borrowed = self._borrowed.pop(copy.id, None)
        if borrowed is not None:
            place = (borrowed.assign.function, borrowed.kind)
            for copies in (self._waiting, self._begun):
                some = copies.get(place)
                if some is not None and some.pop(copy.id, None) is not None and not some:
                    del copies[place]
        return borrowed

    def link_lost(self, link: RelayLink) -> None:
        """The owner is gone, or has requeued what this node had borrowed of it."""
        for borrowed in [each for each in self._borrowed.values() if each.link is link]:
            self._owner_lost(borrowed)
        self.without_owner.link_lost(link)
        self._told = {name: told for name, told in self._told.items() if told[0] is not link}
        for seen in [seen for seen in self._seen if seen[0] is link]:
            del self._seen[seen]

    def begin_restoring(self, is_concerned: Callable[[bytes], bool]) -> None:
        """This node is going to own these functions itself: what workers report waits from now on, and no copy of a job
        is entered any more."""
        self._is_restored = is_concerned
        for borrowed in [each for each in self._borrowed.values() if is_concerned(each.assign.function)]:
            self._owner_lost(borrowed)

    def end_restoring(self) -> None:
        """The functions are this node's, or could not be restored."""
        self._is_restored = None

    def _restores(self, function: bytes) -> bool:
        return self._is_restored is not None and self._is_restored(function)

    def take_out(self) -> list[Borrowed]:
        """Remove the copies of the functions that are going to be restored, and return those that workers of this node
        run: they go on as its own jobs. Until `taken` is called for it, what the worker of a copy reports is noted."""
        concerned = self._restores
        runs = self.without_owner.take_ended(concerned)
        for borrowed in [each for each in self._borrowed.values() if concerned(each.assign.function)]:
            borrowed.worker = self._engine.adopted_runs.take_out(borrowed.copy)
            self.without_owner.forget(borrowed.copy.id)
            runs.append(borrowed)
        return runs

    def taken(self, borrowed: Borrowed) -> None:
        """The worker has the job itself from now on, or has lost it."""
        self._forget(borrowed.copy)
        if borrowed.worker is not None:
            self._engine.adopted_runs.end_aside(borrowed.copy, borrowed.worker)

    def go_on(self, worker: Worker, job: Job) -> bool:
        """Let a worker of this node go on with a job that is another node's from now on; False if that cannot be."""
        if self.is_stopping or not worker.alive or job.collected_bytes:
            return False
        details = options_of(job, is_lent=True)
        payload, start = job.payload or b"", job.start_number
        assign = Assign(
            job.id,
            start,
            job.function.name,
            job.unique,
            payload,
            job.priority,
            job.created_us,
            job.timeout_us,
            job.attempts,
            details,
            PLAIN,
            job.delivery,
        )
        self._enter_run(worker, assign)
        return True

    def resume(self, worker: Worker, job: Job, attempt: int, on_answer: Callable[[bool], object]) -> None:
        """A worker that had lost its connection still runs a job of another node, as the database has the job."""
        engine = self._engine
        serves = self._relay.told_name(job.function.name) in {each.name for each in worker.order}
        if self.is_stopping or not serves or engine.has_job(job.id) or self._restores(job.function.name):
            self._hub.soon(lambda: on_answer(False))
            return
        job.count_past_starts()
        details = options_of(job, is_lent=True)
        assign = Assign(
            job.id,
            job.start_number,
            job.function.name,
            job.unique,
            b"",
            job.priority,
            job.created_us,
            job.timeout_us,
            attempt,
            details,
            PLAIN,
            job.delivery,
        )
        self._enter_run(worker, assign).on_answer = on_answer

    def _enter_run(self, worker: Worker, assign: Assign) -> Borrowed:
        """Enter a run without an owner, to be claimed at the next one."""
        copy = self._copy(assign, self._engine.function_named(self._relay.told_name(assign.function)))
        borrowed = self._borrowed[copy.id] = Borrowed(None, copy, assign, 0.0)
        self._engine.adopted_runs.enter_copy(copy, worker, self)
        self.without_owner.add(borrowed, self._loop.time())
        self.offer_soon()
        return borrowed

    def _copy(self, assign: Assign, function: Function) -> Job:
        copy = Job(
            assign.id,
            function,
            assign.unique,
            assign.payload,
            assign.priority,
            Delivery.WAIT,
            assign.created_us,
        )
        for name, value in zip(OPTIONS, assign.details, strict=False):
            if name in RUN_OPTIONS and value:
                setattr(copy, name, value)
        copy.origin = BORROWED
        copy.has_details = True
        copy.own_details().starts = assign.start  # workers name the start, also to the next owner
        return copy

    # --- called by the engine, which must not be called back ---

    def job_progress(self, job: Job) -> None:
        borrowed = self._borrowed.get(job.id)
        if borrowed is not None:
            figures = (job.numerator, job.denominator, job.time_left_s, job.progress_text, job.message)
            borrowed.send(Progress(job.id, *figures))

    def job_data(self, job: Job, data: bytes) -> None:
        borrowed = self._borrowed.get(job.id)
        if borrowed is not None:
            borrowed.has_sent_data = True
            borrowed.send(Data(job.id, data))

    def job_warning(self, job: Job, data: bytes) -> None:
        borrowed = self._borrowed.get(job.id)
        if borrowed is not None:
            borrowed.send(Warn(job.id, data))

    def job_finished(self, job: Job) -> None:
        self.offer_soon()
        retry = self._relay.retries.pop(job.id, None)
        borrowed = self._forget(job)
        if borrowed is None:
            return
        self._ended[borrowed.assign.function, borrowed.kind] += 1
        start = borrowed.start
        is_report = retry is not None or not (job.is_dead or job.state is CANCELLED)
        if is_report:
            # The worker has reported: whatever it is sent next says that the report is stored.
            self._relay.await_report(job, start, borrowed.link)
        elif borrowed.link is None:
            self.without_owner.forget(job.id)  # nobody claims it, so it is requeued
            return
        if retry is not None:
            borrowed.send(RetryWanted(job.id, start, retry.delay_us, retry.error, retry.attempts_limit))
        elif job.state is DONE:
            borrowed.send(Done(job.id, start, job.result))
        elif job.is_dead:
            borrowed.send(Lost(job.id, start))
        elif job.state is CANCELLED:
            borrowed.send(Give(job.id, start))
        else:
            borrowed.send(Failed(job.id, start, job.result_code, job.error, job.result))
