"""`SimulatedNodes`: several engines, each the owner of some partitions of functions, on one database.

A seed determines everything. Nodes join, leave, are killed, freeze for longer than their lease and go on, and lose
their connection to the database, with commits left behind that arrive later. Their clocks differ. Clients submit at the
owner of a function, and workers work there. Checked are: what was acknowledged is stored for ever, no job is handed out
after its end was acknowledged, or by a node that does not own it, a key has one unfinished job, all engines are intact,
and when all faults have passed every job ends.

Jobs wait for jobs of other nodes, over links that are slow and break (`simulated_edges`): none runs before its
predecessors have ended as it requires, and none waits for ever when they have. Clients and workers know the owner.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from switchgear.engine.engine import Engine, EngineSettings, SubmitOptions
from switchgear.engine.handover import LetGo
from switchgear.errors import Refused
from switchgear.model import (
    DONE,
    FINAL_STATES,
    NORMAL,
    RUNNING,
    SECOND_US,
    WAITING,
    Delivery,
    EdgePolicy,
    Job,
    Worker,
)
from switchgear.partitions import FREE, NodeWatch, partition_of
from switchgear.testing.clock import START_US
from switchgear.testing.invariants import broken, check_engine
from switchgear.testing.recording_peer import RecordingPeer
from switchgear.testing.simulation.owners_database import CommitMessage, OwnersDatabase
from switchgear.testing.simulation.simulated_cluster import SimulationFailed
from switchgear.testing.simulation.simulated_edges import SimulatedEdges, SimulatedLinks
from switchgear.testing.simulation.store import Row

__all__ = ["SimulatedNode", "SimulatedNodes", "simulate_nodes"]

DEFAULT_STEPS: Final = 250
UNSUCCESSFUL_STATES: Final = FINAL_STATES - {DONE}
CHECK_EVERY: Final = 5  # steps
LEASE_SECONDS: Final = 3.0
RELIABLE_PART: Final = 0.75  # as in storage/postgres_fence.py
FUNCTION_NAMES: Final = tuple(b"function %d" % number for number in range(5))
NODE_NAMES: Final = ("ada", "bob", "cleo")


class PendingCommit:
    """What a node has sent to the database, and what it may say when that is stored."""

    def __init__(self, message: CommitMessage, jobs: list[Job], sent_s: float) -> None:
        self.message = message
        self.jobs = jobs
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
        self.edges = SimulatedEdges(self)
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
        for name in FUNCTION_NAMES:
            if partition_of(name) in partitions:
                self.engine.can_do(self.worker, self.engine.function_named(name))
        self.stage()

    def hand_over(self, partitions: tuple[int, ...]) -> None:
        """Let go of these partitions, and free them in the commit of their last changes."""
        self.stage()
        functions = [
            function for function in self.engine.functions.values() if partition_of(function.name) in partitions
        ]
        self.owned.difference_update(partitions)
        for function in functions:
            self.edges.function_goes(function)
        known = LetGo()
        for _ in self.engine.let_go(functions, known):
            pass
        self.stage()
        for _, job in known.runs:
            self.told_runs.pop(job.id, None)  # its late report is refused
        self.frees = partitions
        self.begin_commit()

    # --- commits ---

    def stage(self) -> None:
        """Copy what has changed, as the next commit of this node is going to store it."""
        jobs, _ = self.engine.take_changes()
        for job in jobs:
            job.revision += 1
            self.staged[job.id] = Row(job)
            self.staged_jobs[job.id] = job
            if job.finished_us:
                self.ended.append(job)

    def begin_commit(self) -> None:
        """Send everything that is staged."""
        self.stage()
        if self.in_flight is not None or not (self.staged or self.frees):
            return
        message = self.world.message(self, self.staged, self.frees)
        self.in_flight = PendingCommit(message, list(self.staged_jobs.values()), self.now_s)
        self.staged, self.staged_jobs, self.frees = {}, {}, ()
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
        self.in_flight = PendingCommit(message, pending.jobs, sent_s)
        self.world.database.on_its_way.append(message)

    def tell(self, pending: PendingCommit) -> None:
        """Say what may be said now that the commit is stored."""
        for row in pending.message.rows.values():
            self.world.acknowledged.add(row.id)
            self.edges.stored(row.id)
            if row.state in FINAL_STATES:
                self.world.acknowledged_ends.add(row.id)
        for job in pending.jobs:
            if job.worker is self.worker and job.state is RUNNING and job.id not in self.told_runs:
                self.hand_out(job)

    def hand_out(self, job: Job) -> None:
        """Tell the worker to run a job."""
        self.world.check_hand_out(self, job)
        self.told_runs[job.id] = job

    # --- clients and workers ---

    def submit(self) -> None:
        world = self.world
        name = world.rng.choice(FUNCTION_NAMES)
        if not self.owns(name) or self.is_leaving:
            return
        unique = b"key %d" % world.rng.randrange(8) if world.rng.random() < 0.4 else b""
        options = None
        if world.rng.random() < 0.2:
            options = SubmitOptions(run_at_us=world.now_us + world.rng.randrange(5) * SECOND_US)
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
        if job is not None and not self.engine.start_must_be_kept(job):
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
        for name in FUNCTION_NAMES:
            if self.owns(name):
                self.engine.can_do(worker, self.engine.function_named(name))
        return worker


class SimulatedNodes:
    """The database and all nodes."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        self.rng = Random(seed)
        self._say = say
        self.step = 0
        self.now_s = 0.0
        self.attempts = self.rng.choice((0, 3))
        self.failing = self.rng.choice((0.0, 0.2))
        self.links = SimulatedLinks(self)
        self.ended_once: set[int] = set()  # jobs whose end was stored
        self.database = OwnersDatabase()
        self.nodes: list[SimulatedNode] = []
        self.acknowledged: set[int] = set()
        self.acknowledged_ends: set[int] = set()
        # Defects that must be detected: nodes speak although their lease has lapsed, evict others too early, go on with
        # the same epoch after they have connected again, or with the same ids after they have claimed partitions.
        self.ignores_lapse = False
        self.impatience_s = 0.0
        self.reuses_epoch = False
        self.reuses_ids = False
        # or do not ask again when a predecessor has another owner, or take unknown jobs for done.
        self.forgets_owners = False
        self.trusts_in_ignorance = False
        self.started = 0  # nodes, so far
        self.check_every = CHECK_EVERY  # steps
        self._last_message = 0
        self.start(NODE_NAMES[0])

    @property
    def now_us(self) -> int:
        """The wall clock, which all nodes share."""
        return START_US + round(self.now_s * SECOND_US)

    def say(self, text: str) -> None:
        if self._say is not None:
            self._say(f"{self.step:4}  {self.now_s:9.3f} s  {text}")

    def message(self, node: SimulatedNode, rows: dict[int, Row], frees: tuple[int, ...]) -> CommitMessage:
        self._last_message += 1
        arrives_s = self.now_s + self.rng.choice((0.0, 0.0, 0.0, 0.1, 1.5 * LEASE_SECONDS))
        return CommitMessage(self._last_message, node.id, node.epoch, rows, frees, arrives_s)

    # --- nodes come and go ---

    def start(self, name: str) -> None:
        self.started += 1
        node = SimulatedNode(self, name)
        self.nodes.append(node)
        self.say(f"{node} joins")

    def exit(self, node: SimulatedNode) -> None:
        """The process of a node ends, by itself or not."""
        self.say(f"{node} ends")
        self.nodes.remove(node)
        node.engine.shutdown()

    # --- checks ---

    def check_hand_out(self, node: SimulatedNode, job: Job) -> None:
        """A job that has ended is not run again, and no node hands out what is not its own."""
        if job.id in self.acknowledged_ends:
            broken(f"{node} hands out {job}, whose end was acknowledged")
        for job_id, policy in zip(job.predecessors, job.edges or bytes(len(job.predecessors)), strict=True):
            self.check_predecessor(node, job, job_id, EdgePolicy(policy))
        owner = self.database.partitions[partition_of(job.function.name)]
        if owner.node_id != node.id:
            broken(f"{node} hands out {job}, which node {owner.node_id} owns")

    def check_predecessor(self, node: SimulatedNode, job: Job, job_id: int, policy: EdgePolicy) -> None:
        """A job runs after its predecessors are done, or have ended, if that is enough."""
        own = next(
            (each for each in (*node.ended, *node.engine.changed) if each.id == job_id and each.finished_us), None
        )
        state = self.database.rows[job_id].state if own is None else own.state
        if state is DONE:
            return
        if policy not in (EdgePolicy.RUN, EdgePolicy.ERROR) or (own is None and job_id not in self.ended_once):
            broken(f"{node} hands out {job}, whose predecessor {job_id} is {state.name} ({policy.name})")

    def check(self) -> None:
        """Everything acknowledged is stored, and all engines are intact."""
        lost = self.acknowledged - self.database.rows.keys()
        if lost:
            broken(f"acknowledged, and not stored: {sorted(lost)}")
        for job_id in self.acknowledged_ends:
            if self.database.rows[job_id].state not in FINAL_STATES:
                broken(f"the end of job {job_id} was acknowledged, and it is {self.database.rows[job_id].state.name}")
        for node in self.nodes:
            check_engine(node.engine, {*node.ended, *node.engine.changed})

    # --- what happens ---

    def act(self) -> None:
        """Something that happens to some node."""
        rng = self.rng
        self.now_s += rng.choice((0.0, 0.01, 0.05, 0.1, 0.1, 0.4))
        draw = rng.random()
        if draw < 0.02:
            missing = [name for name in NODE_NAMES if all(node.name != name for node in self.nodes)]
            if missing:
                self.start(rng.choice(missing))
            return
        if draw < 0.35:
            self.deliver()
        if draw < 0.5:
            self.links.deliver()
        for node in rng.sample(self.nodes, len(self.nodes)):
            if self.now_s >= node.frozen_until_s:
                node.engine.advance(self.now_us)
                self.choose(node, rng.random())

    def choose(self, node: SimulatedNode, draw: float) -> None:
        """Something that one running node does."""
        if draw < 0.01:
            self.say(f"{node} is killed")
            self.exit(node)
        elif draw < 0.025:
            seconds = self.rng.choice((0.3, 1.0, 1.3)) * LEASE_SECONDS
            self.say(f"{node} is frozen for {seconds:g} s")
            node.frozen_until_s = self.now_s + seconds
        elif draw < 0.04:
            self.cut(node)
        elif draw < 0.07:
            node.is_cut_off = False
        elif draw < 0.075:
            self.leave(node)
        elif draw < 0.085:
            node.lose_worker()
        elif draw < 0.1:
            self.links.break_one()
        elif draw < 0.11:
            node.retry()
        elif draw < 0.2:
            node.edges.look()
        elif draw < 0.3:
            node.look()
        elif draw < 0.4:
            node.beat()
        elif draw < 0.6:
            node.submit()
        elif draw < 0.7:
            node.work()
        elif draw < 0.8:
            node.report()
        elif node.in_flight is not None:
            node.end_commit()
        else:
            node.begin_commit()

    def cut(self, node: SimulatedNode) -> None:
        """The connection to the database is lost; what was sent may still arrive."""
        self.say(f"{node} is cut off")
        node.is_cut_off = True
        if node.in_flight is not None and node.in_flight.answer is None:
            node.in_flight.is_lost = True

    def leave(self, node: SimulatedNode) -> None:
        if not node.is_cut_off and not node.is_leaving and node.id in self.database.nodes:
            self.say(f"{node} leaves")
            node.is_leaving = True
            self.database.leaves(node.id)

    def deliver(self) -> None:
        """A message arrives at the database."""
        waiting = [message for message in self.database.on_its_way if message.arrives_s <= self.now_s]
        if not waiting:
            return
        message = self.rng.choice(waiting)
        self.database.on_its_way.remove(message)
        is_stored = self.database.commit(message)
        if is_stored:
            self.ended_once.update(row.id for row in message.rows.values() if row.state in FINAL_STATES)
        for node in self.nodes:
            pending = node.in_flight
            if pending is not None and pending.message is message and not pending.is_lost:
                if self.rng.random() < 0.1:
                    pending.is_lost = True  # the answer, with the connection
                else:
                    pending.answer = is_stored

    def finish(self) -> None:
        """All faults pass; every job must end."""
        for node in self.nodes:
            node.is_cut_off = False
            node.frozen_until_s = 0.0
        for round_number in range(200):
            self.now_s += 0.3
            if all(node.is_leaving for node in self.nodes):
                self.start(NODE_NAMES[0])  # as a supervisor does
            for _ in range(len(self.database.on_its_way)):
                self.deliver()
            for _ in range(len(self.links.waiting)):
                self.links.deliver()
            for node in list(self.nodes):
                self.finish_some(node)
            if round_number % self.check_every == 0:
                self.check()
        self.check()
        for row in self.database.rows.values():
            if row.state not in FINAL_STATES and not self.waits_in_vain(row):
                broken(f"job {row.id} of {row.function_name!r} did not end: {row.state.name}")
        for number, owner in enumerate(self.database.partitions):
            if owner.node_id == FREE:
                broken(f"nobody owns partition {number}")

    def waits_in_vain(self, row: Row) -> bool:
        """Whether a job waits for one that was unsuccessful, directly or not, until that is retried."""
        if row.state is not WAITING:
            return False
        policies = row.fields["edges"] or bytes(len(row.fields["predecessors"]))
        for job_id, policy in zip(row.fields["predecessors"], policies, strict=True):
            other = self.database.rows[job_id]
            if (policy == EdgePolicy.WAIT and other.state in UNSUCCESSFUL_STATES) or self.waits_in_vain(other):
                return True
        return False

    def finish_some(self, node: SimulatedNode) -> None:
        """A quiet turn of a node."""
        node.engine.advance(self.now_us)
        for act in (node.end_commit if node.in_flight is not None else node.look, node.beat):
            act()
            if node not in self.nodes:
                return
        if node.is_leaving and not node.owned and node.in_flight is None and not node.staged:
            self.database.remove(node.id)
            self.exit(node)
            return
        for job_id in sorted(node.edges.entries):
            node.edges.look_at(job_id)
        for _ in range(5):
            node.work()
            node.report()
        node.begin_commit()


def simulate_nodes(
    seed: int,
    steps: int = DEFAULT_STEPS,
    say: Callable[[str], None] | None = None,
    defect: Callable[[SimulatedNodes], None] | None = None,
    check_every: int = CHECK_EVERY,
) -> SimulatedNodes:
    """Simulate one run to its end; raises SimulationFailed. `defect` changes the nodes, to show that it is detected."""
    world = SimulatedNodes(seed, say)
    world.check_every = check_every
    if defect is not None:
        defect(world)
    action = "begin"
    try:
        for step in range(1, steps + 1):
            world.step = step
            action = "a step"
            world.act()
            if step % check_every == 0:
                world.check()
        action = "the end"
        world.finish()
    except Exception as error:
        raise SimulationFailed(seed, steps, world.step, action, error, options=" --nodes") from error
    return world
