"""`SimulatedCluster`: the server, store, clients and workers of one simulation, and its steps, commits and crashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from switchgear.engine.dependencies import policy_of
from switchgear.engine.engine import Engine, EngineSettings
from switchgear.engine.state import FUNCTION_ORDERS
from switchgear.errors import Refused
from switchgear.model import BEST_FIRST, READY, RUNNING, SECOND_US, WAITING, Cause, EdgePolicy, Function, Job, Worker
from switchgear.refusals import REFUSED_STORAGE
from switchgear.testing.clock import START_US
from switchgear.testing.invariants import BrokenInvariant, broken, check_engine, is_being_offered, is_being_read
from switchgear.testing.simulation.actors import Asks, SimulatedClient, SimulatedWorker
from switchgear.testing.simulation.history import HistoryChecker
from switchgear.testing.simulation.limits import ALL_RESOURCES, ALL_TAGS, LimitWatch
from switchgear.testing.simulation.store import SimulatedStore
from switchgear.testing.simulation.told_facts import ToldFacts

__all__ = ["DEFAULT_STEPS", "SimulatedCluster", "SimulationFailed", "simulate"]

DEFAULT_STEPS: Final = 150
FUNCTION_NAMES: Final = (b"mail", b"resize", b"index", b"report")


class SimulationFailed(AssertionError):
    """A run that broke an invariant; the text has the command that replays it."""

    def __init__(
        self,
        seed: int,
        steps: int,
        step: int,
        action: str,
        reason: BaseException,
        check_every: int = 1,
        options: str = "",
    ) -> None:
        self.seed = seed
        self.step = step
        command = f"python -m switchgear.testing.simulation --seed {seed} --steps {steps} --verbose{options}"
        if check_every > 1:
            command += f" --check-every {check_every}"  # more checks may detect more, but do not change the run
        kind = "" if isinstance(reason, BrokenInvariant) else f"{type(reason).__name__}: "
        super().__init__(f"seed {seed}, step {step} ({action}): {kind}{reason}\nreplay it with: {command}")


def simulate(
    seed: int, steps: int = DEFAULT_STEPS, say: Callable[[str], None] | None = None, check_every: int = 1
) -> SimulatedCluster:
    """Simulate one run to its end; raises SimulationFailed.

    Most of the time is spent on checking the whole engine after each step. With `check_every` that is done only after
    every so many steps; the moves of jobs, the promises and the ends are checked in any case.
    """
    from switchgear.testing.simulation.actions import action_weights, choose_action  # they import this module, too

    world = SimulatedCluster(seed, say)
    world.check_every = check_every
    weights = action_weights(world.rng)
    action = "begin"
    try:
        for step in range(1, steps + 1):
            world.step = step
            act = choose_action(world, weights)
            action = act.__name__
            world.log_action(action)
            if len(world.engine.sliced_work):  # a turn of its own, and units for what the action begins
                world.engine.advance(world.now_us)
                world.finish_step()
                world.engine.sliced_work.allow_turn()
            world.engine.speaker = world.told.operator  # unless the action says who it is
            act(world)
            world.engine.speaker = None
            world.finish_step()
        action = "the end"
        world.finish_everything()
    except Exception as error:
        raise SimulationFailed(seed, steps, world.step, action, error, check_every) from error
    return world


class SimulatedCluster:
    """One server, its store, its clients and its workers."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        self.rng = rng = Random(seed)
        self.say = say
        self.step = 0
        self.check_every = 1
        self.looks = 0  # checks after steps
        self.events = 0  # steps, and the moves of jobs that they caused
        self.now_us = START_US
        self.span_us = 0  # time that has really passed, however the clock was set
        self.settings = EngineSettings(
            attempts=rng.choice((0, 1, 2, 3)),
            wakeups=rng.choice((0, 1, 1, 2)),
            function_order=rng.choice(FUNCTION_ORDERS),
            jobs=rng.choice((0, 0, 25)),
            jobs_per_function=rng.choice((0, 0, 8)),
            jobs_per_worker=rng.choice((0, 3, 1000)),
            unanswered_wakeup_us=rng.choice((SECOND_US, SECOND_US // 10)),
            warning_bytes=8,
            collected_bytes=rng.choice((12, 1000)),
        )
        self.let_down_at_once = (1000, 1, 2)[seed % 3]
        self.units_per_policy_step = (1, 450, 150)[seed // 3 % 3]  # of the five hundred in a turn
        self.units_per_turn = (0, 0, 0, 2)[seed // 7 % 4]  # 0: as many as usual
        self.links_later = seed // 5 % 2 == 0  # jobs are linked to their further predecessors over several turns
        # Workers often want a retry or give a job back, and some crashes come right after they were answered.
        self.has_hesitant_workers = seed // 2 % 2 == 0
        self.crash_is_next = False
        self.segment_jobs = (0, 1, 2, 3)[seed % 4]  # 0: no job is packed
        self.key_mask = (-1, 0)[seed % 2]  # 0: all keys have the same hash
        self.function_names = FUNCTION_NAMES[: rng.randint(1, len(FUNCTION_NAMES))]
        if self.segment_jobs > 1:
            self.function_names = self.function_names[:1]  # for longer queues
        self.released_first = {name for name in self.function_names if rng.random() < 0.4}
        self.has_policy = rng.random() < 0.2
        self.policy_asked: set[Function] = set()
        self.store = SimulatedStore()
        self.store_fails = False
        self.history = HistoryChecker()
        self.limits = LimitWatch()
        self.told = ToldFacts(self.settings.jobs_per_function)
        self.batch_in_flight = 0
        self.clients: list[SimulatedClient] = []
        self.client_count = 0
        self.workers: list[SimulatedWorker] = []
        self.ended_jobs: dict[int, Job] = {}  # since the last start, as the engine left them; some are retried
        self.reserved_ids: list[int] = []
        self.reads: dict[int, Job] = {}  # jobs whose payloads are being read
        self.pledges: list[Job] = []  # submissions whose answer waits for the next commit
        self.pledges_in_flight: list[Job] = []
        self.lonely_since_us: dict[Function, int] = {}  # see check_neglect
        self.restored: dict[Function, int] = {}
        self.crashes = 0
        self.schedule_count = 0
        self.start_server()

    # --- output ---

    def log_action(self, action: str) -> None:
        if self.say is not None:
            self.say(f"{self.step:4}  {(self.now_us - START_US) / SECOND_US:12.3f} s  {action}")

    def tell(self, text: str) -> None:
        if self.say is not None:
            self.say(f"{'':24}{text}")

    # --- the server ---

    def start_server(self) -> None:
        """Start a new engine with the contents of the store."""
        self.engine = Engine(self.settings)
        self.limits = LimitWatch()  # all buckets are full
        self.engine.reports_changes = self.engine.is_durable = True
        self.engine.transitions.failures_per_turn = self.let_down_at_once
        self.engine.administration.units_per_step = self.units_per_policy_step
        if self.links_later:
            self.engine.predecessor_commands.most_at_once = 0
        if self.units_per_turn:
            self.engine.sliced_work.units_per_turn = self.units_per_turn
            self.engine.sliced_work.allow_turn()
        if self.segment_jobs:
            self.engine.packed_queues.segment_jobs = self.segment_jobs
            self.engine.packed_queues.head_jobs = 1
            self.engine.packed_queues.pack_from = 2
            self.engine.packed_queues.key_mask = self.key_mask
        self.engine.advance(self.now_us)
        for name in sorted(self.released_first):
            self.engine.function_named(name).released_first = True
        if self.has_policy:
            self.engine.wake_policy = self.whom_to_wake
        jobs, lengths = self.store.load(self.engine, plain_apart=bool(self.segment_jobs))
        self.history.restored(lengths, jobs)
        self.restored = {}
        for job in jobs:
            self.restored[job.function] = self.restored.get(job.function, 0) + 1

    def whom_to_wake(self, job: Job, workers: Sequence[Worker]) -> Iterable[Worker]:
        """A wake policy with random choices, good or bad; it may leave a job waiting, but is asked again."""
        self.policy_asked.add(job.function)
        if job.state is not READY:
            broken(f"somebody was to be woken for {job}")
        if self.rng.random() < 0.1:
            raise LookupError("no such worker")
        known = list(self.engine.workers.values())
        return [self.rng.choice((*workers, *known)) for _ in range(self.rng.randrange(4))]

    def crash(self, *, in_flight_is_kept: bool) -> None:
        """Crash the server with all its connections, and start it again."""
        self.crashes += 1
        self.store.crash(in_flight_is_kept=in_flight_is_kept)
        self.history.crashed(self.store)
        self.told.crashed(self.store)
        for gone in (self.clients, self.workers, self.ended_jobs, self.pledges, self.pledges_in_flight):
            gone.clear()
        self.reserved_ids.clear()
        self.reads.clear()
        self.lonely_since_us.clear()
        self.store_fails = False
        self.start_server()

    # --- time ---

    def pass_time(self, span_us: int) -> None:
        self.now_us += span_us
        self.span_us += span_us
        self.engine.advance(self.now_us)

    def set_clock(self, delta_us: int) -> None:
        next_us: int | None = self.now_us
        while next_us is not None and next_us <= self.now_us:  # some of it may take several turns
            self.engine.advance(self.now_us)
            next_us = self.engine.next_deadline_us
        self.finish_step()  # due deadlines were logged with the old time
        self.now_us += delta_us
        self.engine.clock_moved(delta_us)
        self.engine.advance(self.now_us)

    # --- commits and reads ---

    def stage(self) -> None:
        self.store.stage(self.engine)

    def put_away(self) -> None:
        if self.segment_jobs:
            self.engine.pack(self.engine.functions.values())

    def begin_reads(self) -> None:
        """Start to read the payloads that the engine wants, as the hub does."""
        for job in self.engine.take_wanted_payloads():
            if job.state is not READY or job.payload is not None:
                self.engine.payload_arrivals.offer(job.function, 1)
            else:
                self.reads[job.id] = job

    def finish_reads(self) -> bool:
        """Deliver all wanted payloads; returns whether there were any."""
        self.begin_reads()
        reads, self.reads = self.reads, {}
        for job in reads.values():
            self.engine.payload_arrivals.arrived(job, self.store.payload_of(job.id) or b"")
            self.engine.payload_arrivals.offer(job.function, 1)
        return bool(reads)

    def begin_commit(self) -> None:
        self.stage()
        self.store.begin_commit()
        self.batch_in_flight = self.engine.close_batch()
        self.pledges_in_flight, self.pledges = self.pledges, []

    def end_commit(self) -> None:
        """Complete a commit, and send the promises."""
        self.stage()
        newer = self.store.staged.rows
        self.history.kept(row for row in self.store.end_commit(self.engine) if row.id not in newer)
        self.put_away()
        self.engine.batch_is_stored(self.batch_in_flight)
        self.told.commit_is_done(self.engine.stored_batch)
        self.history.promised.update(job.id for job in self.pledges_in_flight)
        self.pledges_in_flight = []
        if self.store_fails:
            self.tell("the store works again")
            self.store_fails = False
            self.engine.refusal = None
            self.engine.start_handing_out()

    def fail_commit(self) -> None:
        """Fail a commit: withdraw submissions that were not confirmed, the newest first, as the hub does."""
        self.store_fails = True
        self.engine.refusal = Refused(REFUSED_STORAGE, "storage failed")
        self.engine.stop_handing_out()
        self.stage()
        self.store.fail_commit()
        withdrawn = [job for job in reversed(list(self.store.staged.jobs.values())) if self.engine.withdraw(job)]
        self.tell(f"withdrawn: {withdrawn}")
        self.store.unstage(withdrawn)
        for job in withdrawn:
            self.engine.drop_contents(job)
        pledges = self.pledges_in_flight + self.pledges
        self.pledges = [job for job in pledges if not job.withdrawn]
        self.pledges_in_flight = []

    # --- after each step ---

    def finish_step(self) -> None:
        """Check the effects of a step, and all invariants."""
        self.told.step_ends(self.engine.stored_batch)
        self.begin_reads()
        moves = self.history.observe(self.engine, self.store)
        self.events += 1 + len(moves)
        self.limits.observe(moves, self)
        for job, cause in moves:
            if self.say is not None:
                self.tell(f"{job} {cause.name}")
            if job.finished_us and not job.leaves_nothing:  # a job that leaves nothing cannot be found
                self.ended_jobs[job.id] = job
        self.looks += 1
        if self.looks % self.check_every == 0:
            check_engine(self.engine, {*self.store.unstored_ends(), *self.engine.changed})
        self.check_counts()
        self.check_workers()
        self.check_clients()
        self.check_neglect(moves)
        if self.step % 16 == 0:
            self.history.still_known(self.store, self.engine)

    def check_counts(self) -> None:
        for function in self.engine.functions.values():
            came = function.submitted + self.restored.get(function, 0)
            left = function.done + function.failed + function.cancelled + function.expired
            if came - left != function.total:
                broken(f"{function}: {came} came, {left} ended, and there are {function.total}")

    def check_workers(self) -> None:
        """Each worker knows its tickets and timers, and none of them is overdue."""
        for worker in self.workers:
            known = list((worker.worker.tickets or {}).items())
            if [number for number, _ in known] != worker.tickets:
                broken(f"{worker} has tickets {worker.tickets}; the engine has {known}")
            if list(worker.timers or ()) != list(worker.set_timers):
                broken(f"{worker} has {len(worker.set_timers)} timers, and others are set")
            if any(span_us < self.span_us for span_us in worker.set_timers.values()):
                broken(f"{worker} was not called when a timer had run out")
            if worker.worker.alive and any(until_us < self.engine.now_us for _, until_us in known):
                broken(f"{worker} was not told that it waited in vain: it has tickets {known}")

    def check_clients(self) -> None:
        for client in self.clients:
            if client.expects.keys() != client.subscriptions.keys():
                broken(f"{client} expects news of {sorted(client.expects)}, will get {sorted(client.subscriptions)}")
            for job_id, times in client.expects.items():
                watchers = self.engine.jobs[job_id].subscribers or []
                if watchers.count(client) != times:
                    broken(f"{client} will be told {watchers.count(client)} times of job {job_id}, not {times}")

    def check_neglect(self, moves: list[tuple[Job, Cause]]) -> None:
        """No job stays ready for long while a worker sleeps that could run it, unless jobs are taken or others
        woken."""
        stirred = {job.function for job, cause in moves if cause is Cause.TAKEN} | self.policy_asked
        self.policy_asked.clear()
        for worker in self.workers:
            stirred.update(worker.woken)
            worker.woken = []
        for function in self.engine.functions.values():
            idle = (
                self.engine.dispatcher.chooser.has_work(function)
                and self.has_idle_sleeper(function)
                and not is_being_offered(self.engine, function)
            )
            if not idle or function in stirred:
                self.lonely_since_us.pop(function, None)
            if idle:
                since_us = self.lonely_since_us.setdefault(function, self.span_us)
                if self.span_us - since_us > self.settings.unanswered_wakeup_us:
                    broken(f"{function} has ready jobs and sleeping workers, and nobody is woken")

    def has_idle_sleeper(self, function: Function) -> bool:
        """Whether a worker sleeps that takes one of the function's ready jobs."""
        has_work_for, offers = self.engine.dispatcher.chooser.has_work_for, self.engine.limiters.offers
        waiters = function.by_priority
        return any(has_work_for(function, worker) for worker in function.sleepers) or (
            waiters is not None
            and not (function.unloaded is not None and is_being_read(function))
            and any(
                offers(function, priority, worker) for priority in BEST_FIRST for worker in waiters.sleepers[priority]
            )
        )

    # --- the end ---

    def finish_everything(self) -> None:
        """With a working store and healthy workers, every job that can run does."""
        self.log_action("the end: all workers are replaced by good ones")
        self.recover()
        helpers = [self.add_worker(asks, self.function_names) for asks in Asks]
        for helper in helpers:
            self.engine.describe_worker(helper.worker, ALL_TAGS, ALL_RESOURCES)
        for _ in range(10_000):
            self.let_work(helpers)
            self.finish_step()
            next_us = self.next_event_us()
            if next_us is None:
                break
            self.pass_time(max(0, next_us - self.now_us))
            self.finish_step()
        else:
            broken(f"the jobs do not come to an end: {list(self.engine.unfinished_jobs())[:5]}")
        self.check_what_is_left()

    def recover(self) -> None:
        if self.store.in_flight is None:
            self.begin_commit()
        self.end_commit()
        self.engine.refusal = None
        for schedule in list(self.engine.schedules.values()):
            self.engine.remove_schedule(schedule)  # otherwise the run would not end
        self.settings.jobs_per_worker = 0
        for function in self.engine.functions.values():
            self.engine.resume(function)
        self.engine.start_handing_out()
        self.engine.sliced_work.allow_turn()
        for worker in self.workers:
            if worker.worker.alive:
                self.engine.remove_worker(worker.worker)
        self.workers.clear()
        self.finish_step()

    def let_work(self, helpers: list[SimulatedWorker]) -> None:
        """Let every worker run its jobs until there are no more."""
        busy = True
        while busy:
            busy = self.finish_reads()
            for helper in helpers:
                if helper.asks is Asks.PUSH:
                    if not helper.worker.credits:
                        self.engine.grant(helper.worker, 2)
                elif not helper.asleep:
                    while (job := self.engine.take(helper.worker)) is not None:
                        helper.receive(job)
                    if helper.asks is Asks.SLEEP:
                        helper.asleep = self.engine.sleep(helper.worker)
                moves = self.history.observe(self.engine, self.store)
                self.events += 1 + len(moves)
                self.limits.observe(moves, self)
                for job_id in list(helper.holds):
                    if self.engine.complete(helper.worker, job_id, b"done") is None:
                        broken(f"{helper} could not complete job {job_id}")
                    helper.put_down(job_id)
                    busy = True
            self.begin_reads()
            busy = busy or bool(self.reads)

    def next_event_us(self) -> int | None:
        """When an unfinished job will next change by itself."""
        failed_dependency = self.engine.dependencies.failed_dependency
        jobs = self.engine.unfinished_jobs()
        timed = any(job.state is not WAITING or job.expires_us or failed_dependency(job) for job in jobs)
        timed = timed or bool(self.engine.dependencies.unneeded)
        has_more = timed or self.engine.pending_failures or len(self.engine.sliced_work)
        return self.engine.next_deadline_us if has_more else None

    def check_what_is_left(self) -> None:
        """Only jobs are left that wait for an unsuccessful job, as their edges say, or for such a job."""
        self.begin_commit()
        self.end_commit()
        self.history.still_known(self.store, self.engine)
        unsuccessful = self.engine.dependencies.unsuccessful
        stuck: set[int] = set()
        left = {job.id: job for job in self.engine.unfinished_jobs()}

        def is_stuck(job: Job) -> bool:
            waits_on = [p for p in job.predecessors if policy_of(job, p) == EdgePolicy.WAIT]
            return any(p in unsuccessful for p in waits_on) or any(p in stuck for p in job.predecessors)

        while newly := [job for job in left.values() if is_stuck(job)]:
            for job in newly:
                stuck.add(left.pop(job.id).id)
        if left:
            broken(f"could run, and were not: {list(left.values())}")
        for row in self.store.committed.values():
            if row.state is RUNNING:
                broken(f"job {row.id} is kept as running")
        self.history.crashed(self.store)

    # --- actors ---

    def add_worker(
        self,
        asks: Asks,
        function_names: tuple[bytes, ...],
        timeout_us: int = 0,
        priorities: tuple[int, ...] = (),
    ) -> SimulatedWorker:
        peer = SimulatedWorker(asks, self)
        peer.worker = self.engine.add_worker(peer, "simulated")
        peer.worker.identity = peer
        self.workers.append(peer)
        for name in function_names:
            self.engine.can_do(peer.worker, self.engine.function_named(name), timeout_us, priorities)
        return peer

    def add_client(self) -> SimulatedClient:
        self.client_count += 1
        client = SimulatedClient(self.client_count, self)
        self.clients.append(client)
        return client
