"""`SimulatedNode`: one of several engines on a simulated database, with its clients and workers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.engine.function_placement import is_copy
from switchgear.engine.handover import HandedOver
from switchgear.errors import Refused
from switchgear.model import FINAL_STATES, NORMAL, RUNNING, SECOND_US, Cause, Delivery, EdgePolicy, Job, Worker
from switchgear.net.owners.messages import Assign, Message
from switchgear.partitions import NodeWatch, partition_of
from switchgear.states import UNSUCCESSFUL_STATES
from switchgear.testing.recording_peer import RecordingPeer
from switchgear.testing.simulation.owners_database import CommitMessage
from switchgear.testing.simulation.simulated_relay import SimulatedRelay
from switchgear.testing.simulation.store import Row

if TYPE_CHECKING:
    from switchgear.testing.simulation.simulated_nodes import SimulatedNodes

__all__ = ["FUNCTION_NAMES", "LEASE_SECONDS", "SimulatedNode"]

LEASE_SECONDS: Final = 3.0
RELIABLE_PART: Final = 0.75  # as in storage/postgres_fence.py
FUNCTION_NAMES: Final = tuple(b"function %d" % number for number in range(5))


# A message to another node, which tells of changes that are not stored yet: the node, the number of the link, and what.
HeldAnswer = tuple[int, int, Message]


class PendingCommit:
    """What a node has sent to the database, and what it may say when that is stored."""

    def __init__(self, message: CommitMessage, jobs: list[Job], answers: list[HeldAnswer], sent_s: float) -> None:
        self.message = message
        self.jobs = jobs
        self.answers = answers
        self.sent_s = sent_s
        self.answer: bool | None = None  # whether it was stored
        self.is_lost = False  # the connection was lost before the answer came


class SimulatedNode:
    """One node: an engine, and what it knows of its lease."""

    def __init__(self, world: SimulatedNodes, name: str) -> None:
        self.world = world
        self.name = name
        self.id = world.database.join(name, LEASE_SECONDS)
        self.epoch = 1
        self.clock_offset_s = world.rng.uniform(-1e6, 1e6)
        self.engine = Engine(EngineSettings(attempts=world.attempts))
        self.engine.reports_changes = True
        self.edges = SimulatedRelay(self)
        self.engine.placement = self.edges
        self.engine.advance(world.now_us)
        self.watch = NodeWatch()
        self.owned: set[int] = set()
        self.certain_until_s = self.now_s + RELIABLE_PART * LEASE_SECONDS
        self.frozen_until_s = 0.0  # by the clock of the world
        self.is_cut_off = False
        self.is_leaving = False
        self.staged: dict[int, Row] = {}
        self.staged_jobs: dict[int, Job] = {}
        self.answers: list[HeldAnswer] = []  # to other nodes, for the next commit
        self.ended: list[Job] = []  # whose ends are not stored yet
        self.in_flight: PendingCommit | None = None
        self.frees: tuple[int, ...] = ()
        self.worker = self.engine.add_worker(RecordingPeer(), "simulated")
        self.told_runs: dict[int, Job] = {}  # jobs that the worker was told to run

    def __repr__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def now_s(self) -> float:
        """This node's own monotonic clock."""
        return self.world.now_s + self.clock_offset_s

    @property
    def must_be_silent(self) -> bool:
        """Whether another node may own its partitions by now."""
        return self.now_s > self.certain_until_s and not self.world.ignores_lapse

    def owns(self, function_name: bytes) -> bool:
        return partition_of(function_name) in self.owned

    # --- ownership ---

    def beat(self) -> None:
        """Give a sign of life, on a connection that has nothing else to do."""
        if self.is_cut_off or self.in_flight is not None:
            return
        sent_s = self.now_s
        if self.world.database.beat(self.id, self.epoch):
            self.certain_until_s = sent_s + RELIABLE_PART * LEASE_SECONDS
        else:
            self.world.exit(self)

    def look(self) -> None:
        """Look at the others, and do what follows from that."""
        database = self.world.database
        if self.is_cut_off:
            self.watch.could_not_look()
            return
        if self.in_flight is not None:
            return
        nodes = list(database.nodes.values())
        self.watch.look(nodes, self.now_s)
        plan = self.watch.plan(self.id, nodes, list(database.partitions), self.now_s + self.world.impatience_s)
        for dead in plan.evict:
            evicted = database.evict(self.id, self.epoch, dead)
            if evicted is None:
                self.world.exit(self)
                return
            if evicted:
                self.world.say(f"{self} evicted {dead.name} ({dead.id})")
        if plan.claim:
            taken = database.claim(self.id, self.epoch, plan.claim)
            if taken is None:
                self.world.exit(self)
                return
            self.adopt(taken)
        if plan.hand_over:
            self.hand_over(plan.hand_over)

    def adopt(self, partitions: list[int]) -> None:
        """Restore the jobs of these partitions beside those of the others."""
        if not partitions:
            return
        self.engine.advance(self.world.now_us)
        self.edges.drop_functions(partitions)
        self.owned.update(partitions)
        # Jobs that are submitted here from now on must have higher ids than those of earlier owners.
        if not self.world.reuses_ids or self.engine.next_job_id == 1:
            self.engine.next_job_id = self.world.database.reserve_ids()
        rows = self.world.database.rows.values()
        mine = [row for row in rows if partition_of(row.function_name) in partitions and row.state not in FINAL_STATES]
        mine.sort(key=lambda row: row.id)
        self.engine.advance(self.world.now_us)
        for function in self.engine.functions.values():
            if self.owns(function.name):
                self.edges.function_comes(function)
        self.engine.restore([row.to_job(self.engine.function_named(row.function_name)) for row in mine], {}, 0)
        self.register(self.worker)
        self.stage()

    def register(self, worker: Worker) -> None:
        """The worker runs jobs of all functions, whichever node owns them."""
        for name in FUNCTION_NAMES:
            self.engine.can_do(worker, self.engine.function_named(name))

    def let_go(self) -> None:
        """Let go of a function, as when it is placed elsewhere: whoever its partition belongs to restores it."""
        names = [name for name in FUNCTION_NAMES if self.owns(name)]
        if names and not self.is_cut_off and self.in_flight is None:
            name = self.world.rng.choice(names)
            self.world.say(f"{self} lets go of {name!r}")
            self.hand_over((partition_of(name),))

    def hand_over(self, partitions: tuple[int, ...]) -> None:
        """Let go of these partitions, and free them in the commit of their last changes."""
        self.stage()
        functions = [
            function for function in self.engine.functions.values() if partition_of(function.name) in partitions
        ]
        self.owned.difference_update(partitions)
        for function in functions:
            self.edges.function_goes(function)
        known = HandedOver()
        for _ in self.engine.hand_over(functions, known):
            pass
        self.stage()
        self.register(self.worker)
        for worker, job in known.runs:
            if worker is self.worker:
                self.told_runs.pop(job.id, None)  # its late report is refused
            else:
                worker.peer.revoke(worker, job, Cause.TIMED_OUT)
        self.frees = partitions
        self.begin_commit()

    # --- commits ---

    def stage(self) -> None:
        """Copy what has changed, as the next commit of this node is going to store it."""
        jobs, _ = self.engine.take_changes()
        for job in jobs:
            if is_copy(job):
                if job.finished_us:
                    self.engine.drop_contents(job)
                continue
            job.revision += 1
            self.staged[job.id] = Row(job)
            self.staged_jobs[job.id] = job
            if job.finished_us:
                self.ended.append(job)

    def begin_commit(self) -> None:
        """Send everything that is staged."""
        self.stage()
        if self.in_flight is not None:
            return
        if not (self.staged or self.frees):
            if not self.must_be_silent:
                answers, self.answers = self.answers, []
                self.send_answers(answers)
            return
        message = self.world.message(self, self.staged, self.frees)
        self.in_flight = PendingCommit(message, list(self.staged_jobs.values()), self.answers, self.now_s)
        self.staged, self.staged_jobs, self.frees, self.answers = {}, {}, (), []
        if self.is_cut_off:
            self.in_flight.is_lost = True
        else:
            self.world.database.on_its_way.append(message)

    def end_commit(self) -> None:
        """Handle the answer of the database, or connect again if the connection was lost."""
        pending = self.in_flight
        assert pending is not None
        if pending.is_lost:
            if not self.is_cut_off:
                self.send_again(pending)
            return
        if pending.answer is None:
            return
        self.in_flight = None
        if not pending.answer:
            self.world.exit(self)
            return
        self.certain_until_s = max(self.certain_until_s, pending.sent_s + RELIABLE_PART * LEASE_SECONDS)
        if self.must_be_silent:
            # The answer came late: another node may have taken over since.
            self.beat()
            if self.must_be_silent or self not in self.world.nodes:
                self.in_flight = pending if self in self.world.nodes else None
                return
        for job in pending.jobs:
            job.kept = True
        self.tell(pending)
        stored = {job.id for job in pending.jobs}
        for job in [job for job in self.ended if job.id in stored and job.id not in self.staged]:
            self.ended.remove(job)
            self.engine.drop_contents(job)

    def send_again(self, pending: PendingCommit) -> None:
        """Begin a new epoch, so that the message left behind cannot be stored any more, and send what it had."""
        sent_s = self.now_s
        if not self.world.reuses_epoch:
            self.epoch = self.world.database.renew(self.id)
            if not self.epoch:
                self.world.exit(self)
                return
        self.certain_until_s = sent_s + RELIABLE_PART * LEASE_SECONDS
        stored = self.world.database.rows
        rows = {
            job_id: row
            for job_id, row in pending.message.rows.items()
            if job_id not in stored or stored[job_id].fields["revision"] < row.fields["revision"]
        }
        is_freed = all(self.world.database.partitions[number].node_id != self.id for number in pending.message.frees)
        message = self.world.message(self, rows, () if is_freed else pending.message.frees)
        self.in_flight = PendingCommit(message, pending.jobs, pending.answers, sent_s)
        self.world.database.on_its_way.append(message)

    def tell(self, pending: PendingCommit) -> None:
        """Say what may be said now that the commit is stored."""
        for row in pending.message.rows.values():
            self.world.acknowledged.add(row.id)
            self.edges.stored(row.id)
            if row.state in FINAL_STATES:
                self.world.acknowledged_ends.add(row.id)
        for job in pending.jobs:
            if job.has_details and job.unsent and job.id not in self.staged:
                self.engine.start_is_kept(job)
            if job.worker is self.worker and job.state is RUNNING and job.id not in self.told_runs:
                self.hand_out(job)
        self.send_answers(pending.answers)

    def say_when_stored(self, link: tuple[int, int], message: Message) -> None:
        """Send a message to another node after the next commit."""
        self.answers.append((*link, message))

    def send_answers(self, answers: list[HeldAnswer]) -> None:
        """Everything that these messages tell of is stored."""
        for receiver, link, message in answers:
            if self.world.links.number(self.id, receiver) != link:
                continue  # the link is lost, and another one is in its place
            if isinstance(message, Assign):
                job = self.engine.job(message.id)
                if job is not None and not is_copy(job):
                    self.world.check_hand_out(self, job)
            self.world.links.send(self.id, receiver, "message", 0, message)

    def has_unstored(self, job_id: int) -> bool:
        """Whether something about this job of this node is not stored yet."""
        in_flight = () if self.in_flight is None else self.in_flight.message.rows
        return job_id in self.staged or job_id in in_flight or any(job.id == job_id for job in self.ended)

    def hand_out(self, job: Job) -> None:
        """Tell the worker to run a job."""
        if not is_copy(job):
            self.world.check_hand_out(self, job)
        self.told_runs[job.id] = job

    # --- clients and workers ---

    def submit(self) -> None:
        world = self.world
        name = world.rng.choice(FUNCTION_NAMES)
        if self.is_leaving or self.engine.next_job_id == 1:  # it has no ids of its own yet
            return
        unique = b"key %d" % world.rng.randrange(8) if world.rng.random() < 0.4 else b""
        options = None
        if world.rng.random() < 0.2:
            options = SubmitOptions(run_at_us=world.now_us + world.rng.randrange(5) * SECOND_US)
        if world.rng.random() < 0.2:
            options = options or SubmitOptions()
            options.timeout_us = SECOND_US // 2
        if world.rng.random() < 0.5:
            options = self.add_predecessors(options or SubmitOptions())
        self.engine.submit(name, unique, b"x", NORMAL, Delivery.HANDLE, None, options)

    def add_predecessors(self, options: SubmitOptions) -> SubmitOptions:
        """Let a new job wait for some others, of any node."""
        world = self.world
        known = sorted(world.acknowledged)[-20:]
        options.predecessors = tuple(world.rng.sample(known, min(len(known), world.rng.randrange(4))))
        options.edges = bytes(world.rng.choice(list(EdgePolicy)) for _ in options.predecessors)
        return options

    def retry(self) -> None:
        """Run an unsuccessful job again, as its row says."""
        if self.is_cut_off or self.is_leaving:
            return
        waiting = {job.id for job in self.ended} | self.staged_jobs.keys()
        rows = [
            row
            for row in self.world.database.rows.values()
            if row.state in UNSUCCESSFUL_STATES and self.owns(row.function_name) and row.id not in waiting
        ]
        if rows and self.in_flight is None:
            row = self.world.rng.choice(rows)
            if not self.engine.has_job(row.id):
                with suppress(Refused):
                    self.engine.retry(row.to_job(self.engine.function_named(row.function_name)))
                    self.world.acknowledged_ends.discard(row.id)

    def work(self) -> None:
        job = self.engine.take(self.worker)
        if job is not None and (is_copy(job) or not self.engine.start_must_be_kept(job)):
            if self.must_be_silent:
                self.engine.release(self.worker, job.id)
            else:
                self.hand_out(job)

    def report(self) -> None:
        """The worker reports on a job."""
        for job_id, job in list(self.told_runs.items()):
            if self.world.rng.random() < 0.5:
                del self.told_runs[job_id]
                if self.engine.job(job_id) is not job or job.worker is not self.worker:
                    continue
                if self.world.rng.random() < self.world.failing:
                    self.engine.fail(self.worker, job_id, 1, b"failed")
                else:
                    self.engine.complete(self.worker, job_id, b"")

    def lose_worker(self) -> None:
        """The worker is gone, and another one comes."""
        self.told_runs.clear()
        self.engine.remove_worker(self.worker)
        self.worker = self.new_worker()

    def new_worker(self) -> Worker:
        worker = self.engine.add_worker(RecordingPeer(), "simulated")
        self.register(worker)
        return worker
