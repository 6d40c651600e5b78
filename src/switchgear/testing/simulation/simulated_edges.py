"""`SimulatedEdges`: what the jobs of one simulated node wait for at the others, over links that are slow and break.

It follows the rules of `net.owners.foreign_edges`: the owner of a predecessor is asked to tell of its end, what the job
has become is read in the database after its answer, and everything begins anew when the owner changes or the link
breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from switchgear.engine.function_placement import FOREIGN_LIMIT, FunctionPlacement
from switchgear.model import DONE, FINAL_STATES, Function, Job
from switchgear.net.owners.messages import Message
from switchgear.partitions import partition_of

if TYPE_CHECKING:
    from switchgear.testing.simulation.simulated_node import SimulatedNode
    from switchgear.testing.simulation.simulated_nodes import SimulatedNodes

__all__ = ["LinkMessage", "SimulatedEdges", "SimulatedLinks"]


class LinkMessage(NamedTuple):
    """A message from one node to another."""

    sender: int
    receiver: int
    word: str  # await, found, ended, retried; message: see `body`
    job_id: int
    link: int  # the number of the link between the two that it was sent over
    body: Message | None = None


class SimulatedLinks:
    """All links: messages arrive in their order, late, or not at all, and then the link is broken."""

    def __init__(self, world: SimulatedNodes) -> None:
        self._world = world
        self._numbers: dict[frozenset[int], int] = {}
        self.waiting: list[LinkMessage] = []

    def number(self, one: int, other: int) -> int:
        """The number of the present link between two nodes."""
        return self._numbers.get(frozenset((one, other)), 0)

    def send(self, sender: int, receiver: int, word: str, job_id: int, body: Message | None = None) -> None:
        self.waiting.append(LinkMessage(sender, receiver, word, job_id, self.number(sender, receiver), body))

    def break_one(self) -> None:
        """The link of some message is lost, with all messages that are on their way."""
        if self.waiting:
            message = self._world.rng.choice(self.waiting)
            pair = frozenset((message.sender, message.receiver))
            self._numbers[pair] = self._numbers.get(pair, 0) + 1

    def deliver(self) -> None:
        """The first message that is on its way arrives, unless its receiver is frozen or its link is lost."""
        for place, message in enumerate(self.waiting):
            node = next((node for node in self._world.nodes if node.id == message.receiver), None)
            if node is not None and self._world.now_s < node.frozen_until_s:
                continue
            del self.waiting[place]
            if node is not None and message.link == self.number(message.sender, message.receiver):
                node.engine.advance(self._world.now_us)
                node.edges.received(message)
            return


class EdgeEntry:
    """A predecessor that this node does not have."""

    def __init__(self) -> None:
        self.owner = 0  # the node that was asked
        self.link = 0
        self.is_confirmed = False


class SimulatedEdges(FunctionPlacement):
    """The predecessors of one node's jobs at other nodes, and those of its jobs that others wait for."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._world = node.world
        self._links = node.world.links
        self._foreign = node.engine.foreign_predecessors
        self.entries: dict[int, EdgeEntry] = {}
        self.awaited: dict[int, dict[int, int]] = {}  # by job, the nodes that wait for it, and the numbers of the links
        self._retried: set[int] = set()

    # --- for the engine ---

    def is_ours(self, name: bytes) -> bool:
        return self._node.owns(name)

    def await_job(self, job_id: int) -> None:
        self.entries.setdefault(job_id, EdgeEntry())

    def job_retried(self, job: Job) -> None:
        self._retried.add(job.id)

    def owner_of_predecessor(self, job_id: int) -> str:
        return ""

    # --- as the node whose jobs wait ---

    def look(self) -> None:
        """Look at one predecessor."""
        if self.entries and not self._node.is_cut_off:
            self.look_at(self._world.rng.choice(sorted(self.entries)))

    def look_at(self, job_id: int) -> None:
        """Read how a predecessor is, and do what follows from that."""
        entry = self.entries[job_id]
        node, foreign = self._node, self._foreign
        if foreign.is_own(job_id):
            foreign.has_come(job_id)
            del self.entries[job_id]
            return
        if not foreign.is_awaited(job_id):
            foreign.forget(job_id)
            del self.entries[job_id]
            return
        if any(job.id == job_id for job in (*node.ended, *node.engine.changed)) or job_id in node.staged:
            return  # its end is being stored
        row = self._world.database.rows[job_id]
        if row.state is DONE or self._world.trusts_in_ignorance:
            foreign.is_done(job_id)
            del self.entries[job_id]
            return
        has_failed = row.state in FINAL_STATES
        if node.owns(row.function_name):
            if has_failed:
                foreign.has_failed(row.to_job(Function(row.function_name)))
                del self.entries[job_id]
            return
        owner = self._world.database.partitions[partition_of(row.function_name)].node_id
        link = self._links.number(node.id, owner)
        if (entry.owner, entry.link) != (owner, link) and not (self._world.forgets_owners and entry.owner):
            if entry.is_confirmed:
                foreign.is_unfinished(job_id)
            entry.owner, entry.link, entry.is_confirmed = owner, link, False
        if entry.is_confirmed:
            if has_failed:
                foreign.has_failed(row.to_job(Function(row.function_name)))
        elif owner:
            self._links.send(node.id, owner, "await", job_id)

    def received(self, message: LinkMessage) -> None:
        """Handle a message of another node."""
        if message.word == "await":
            self._asked(message)
            return
        entry = self.entries.get(message.job_id)
        if entry is None or entry.owner != message.sender or entry.link != message.link:
            return
        if message.word == "found":
            entry.is_confirmed = True
        elif message.word == "retried":
            self._foreign.is_unfinished(message.job_id)

    # --- as the owner of predecessors ---

    def _asked(self, message: LinkMessage) -> None:
        job = self._node.engine.job(message.job_id)
        if job is not None and self._foreign.is_own(message.job_id):
            self._foreign.must_be_kept(job)
        elif not self._node.is_cut_off:
            row = self._world.database.rows.get(message.job_id)
            if row is None or not self._node.owns(row.function_name) or row.state not in FINAL_STATES:
                return
        else:
            return
        self.awaited.setdefault(message.job_id, {})[message.sender] = message.link
        self._links.send(self._node.id, message.sender, "found", message.job_id)

    def stored(self, job_id: int) -> None:
        """A change of this node's job is stored: tell the nodes that wait for it."""
        if job_id in self._retried:
            self._retried.discard(job_id)
            for receiver in self.awaited.get(job_id, ()):
                self._links.send(self._node.id, receiver, "retried", job_id)

    # --- functions come and go ---

    def function_comes(self, function: Function) -> None:
        """This node owns the function from now on."""
        function.limits = [0] * 3

    def function_goes(self, function: Function) -> None:
        """Another node will own the function."""
        function.limits = [FOREIGN_LIMIT] * 3
