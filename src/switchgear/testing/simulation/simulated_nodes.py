"""`SimulatedNodes`: several engines, each the owner of some partitions of functions, on one database.

A seed determines everything. Nodes join, leave, are killed, freeze for longer than their lease and go on, and lose
their connection to the database, with commits left behind that arrive later. They let go of functions that others wait
for. Their clocks differ. Checked are: what was
acknowledged is stored for ever, no job is handed out after its end was acknowledged, or by a node that does not own it,
a key has one unfinished job, all engines are intact, and when all faults have passed every job ends.

Nodes work for each other over links that are slow and break. Jobs wait for jobs of other nodes (`simulated_edges`):
none runs before its predecessors have ended as it requires, and none waits for ever when they have. Clients submit at
any node, and workers of any node run the jobs of all (`simulated_relay`): a submission that was acknowledged is stored
once, whichever owner has answered, a report counts for the start that it is about, and an acknowledged one is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from switchgear.engine.engine import SubmitOptions
from switchgear.engine.function_placement import is_copy
from switchgear.model import (
    DONE,
    FINAL_STATES,
    SECOND_US,
    WAITING,
    EdgePolicy,
    Job,
)
from switchgear.partitions import FREE, partition_of
from switchgear.states import UNSUCCESSFUL_STATES
from switchgear.testing.clock import START_US
from switchgear.testing.invariants import broken, check_engine
from switchgear.testing.simulation.owners_database import CommitMessage, OwnersDatabase
from switchgear.testing.simulation.simulated_cluster import SimulationFailed
from switchgear.testing.simulation.simulated_edges import SimulatedLinks
from switchgear.testing.simulation.simulated_node import LEASE_SECONDS, SimulatedNode
from switchgear.testing.simulation.store import Row

__all__ = ["SimulatedNodes", "simulate_nodes"]

DEFAULT_STEPS: Final = 250
CHECK_EVERY: Final = 5  # steps
NODE_NAMES: Final = ("ada", "bob", "cleo")


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
        # or accept submissions of other nodes, or acknowledge their reports, before that is stored, or do not look
        # which start a report is about.
        self.accepts_too_early = False
        self.reports_too_early = False
        self.forgets_starts = False
        self.submitted_options: dict[int, SubmitOptions] = {}  # by id, of submissions to functions of other nodes
        self.reported = 0  # reports of workers of other nodes that were taken
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
        changed = (each for each in node.engine.changed if not is_copy(each))
        own = next((each for each in (*node.ended, *changed) if each.id == job_id and each.finished_us), None)
        state = self.database.rows[job_id].state if own is None else own.state
        if state is DONE:
            return
        if policy not in (EdgePolicy.RUN, EdgePolicy.ERROR) or (own is None and job_id not in self.ended_once):
            broken(f"{node} hands out {job}, whose predecessor {job_id} is {state.name} ({policy.name})")

    def check_report(self, node: SimulatedNode, job_id: int, start: int, present: int) -> None:
        """A report of another node's worker was taken: it was on the present start."""
        self.reported += 1
        if start != present:
            broken(f"{node} took a report on start {start} of job {job_id}, which is in start {present}")

    def check_acknowledged_report(self, node: SimulatedNode, job_id: int) -> None:
        """The end of a job that a worker of this node has reported was acknowledged."""
        if job_id not in self.ended_once:
            broken(f"{node} was told that the end of job {job_id} is stored, which it is not")

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
        for _ in range(rng.randrange(4)):
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
        elif draw < 0.105:
            node.retry()
        elif draw < 0.11:
            node.let_go()
        elif draw < 0.2:
            node.edges.look()
        elif draw < 0.3:
            node.look()
        elif draw < 0.37:
            node.beat()
        elif draw < 0.42:
            node.edges.look_after()
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
        for node in self.nodes:
            if node.edges.submissions:
                broken(f"{node} has submissions that no owner has answered: {sorted(node.edges.submissions)}")
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
        node.edges.look_after()
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
