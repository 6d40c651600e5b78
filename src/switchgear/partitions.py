"""Partitions of functions: which partition a function belongs to, which node should own a partition, and what a node
should do about that now.

Everything here is pure. A node reads the rows of nodes and partitions (`NodeLease`, `PartitionOwner`), tells its
`NodeWatch` what it read and the time of its own monotonic clock, and carries out the `OwnershipPlan` that it gets. Each
step of the plan is a transaction that fails if the rows are no longer what the plan was made for, so two nodes with
different views cannot both own a partition (docs/decisions/037-partition-owners.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

__all__ = [
    "FREE",
    "MOST_SHARDS",
    "PARTITIONS",
    "NodeLease",
    "NodeWatch",
    "OwnershipPlan",
    "PartitionOwner",
    "ShardCount",
    "Shards",
    "partition_of",
    "preferred_node",
    "shard_name",
    "shard_number",
    "spread_over_nodes",
]

PARTITIONS: Final = 64

FREE: Final = 0  # as the owner of a partition: nobody

MOST_SHARDS: Final = 64  # of one function

# So many partitions move away from a node at the same time: each of them is without an owner for a moment.
MOST_HANDED_OVER: Final = 4


class NodeLease(NamedTuple):
    """A node as its row describes it."""

    id: int  # of one process; a node that is started again has another one
    name: str  # stays the same
    epoch: int
    beat: int
    lease_seconds: float
    process: str = ""  # for other processes of the same machine
    is_leaving: bool = False  # it claims nothing, and hands over what it has


class PartitionOwner(NamedTuple):
    """Which node owns a partition."""

    node_id: int
    epoch: int  # raised with each change of the owner


class OwnershipPlan(NamedTuple):
    """The changes that a node should make now: nodes to evict, partitions to claim and to hand over."""

    evict: tuple[NodeLease, ...]  # nodes that are dead, as they were seen
    claim: tuple[int, ...]  # free partitions that belong to this node
    hand_over: tuple[int, ...]  # partitions of this node that belong to another one


def partition_of(function: bytes, overrides: Mapping[bytes, int] | None = None) -> int:
    """The partition of a new function. An existing one has its partition in its row."""
    if overrides:
        partition = overrides.get(function)
        if partition is not None:
            return partition
    return int.from_bytes(blake2b(function, digest_size=8).digest(), "big") % PARTITIONS


def preferred_node(partition: int, names: Iterable[str]) -> str:
    """The name of the node that should own a partition, by rendezvous hashing; empty if there are no nodes.

    A node that joins only takes partitions, and those of a node that leaves are all that moves.
    """
    return max(names, key=lambda name: (_weight(partition, name), name), default="")


def spread_over_nodes(count: int, owners: Sequence[PartitionOwner], first: int) -> list[int]:
    """So many partitions, of different nodes as far as there are nodes; `first` is one of them."""
    by_node: dict[int, list[int]] = {}
    for place in range(PARTITIONS):
        partition = (first + place) % PARTITIONS  # the first node is the owner of the first partition
        by_node.setdefault(owners[partition].node_id, []).append(partition)
    if len(by_node) > 1:
        by_node.pop(FREE, None)
    nodes = list(by_node.values())
    rounds = (nodes[number % len(nodes)] for number in range(count))
    return [partitions[number // len(nodes) % len(partitions)] for number, partitions in enumerate(rounds)]


@lru_cache(maxsize=4096)
def _weight(partition: int, name: str) -> bytes:
    return blake2b(b"%d %s" % (partition, name.encode()), digest_size=8).digest()


class ShardCount(NamedTuple):
    """How many shards a function has, and has had at most; 1: it is not divided."""

    now: int
    most: int


def shard_name(function: bytes, number: int) -> bytes:
    """The name of a shard; they are counted from 1."""
    return b"%b#%d" % (function, number)


def shard_number(unique: bytes, count: int) -> int:
    """The shard that has the jobs with this unique key."""
    return int.from_bytes(blake2b(unique, digest_size=8, person=b"shard").digest(), "big") % count + 1


class Shards:
    """Functions that are divided into shards, each of which is a function of its own with a queue and an owner.

    A divided function has no queue: its jobs are those of its shards. The names of shards that it had earlier stand for
    the function itself, so a job that is submitted to one by a node that does not know yet is not lost.
    """

    def __init__(self, counts: Mapping[bytes, ShardCount]) -> None:
        self.counts = counts

    def names(self, function: bytes) -> list[bytes]:
        """The names of the shards of a function; empty if it is not divided."""
        count = self.counts.get(function)
        if count is None or count.now <= 1:
            return []
        return [shard_name(function, number) for number in range(1, count.now + 1)]

    def base_of(self, name: bytes) -> bytes:
        """The function that this is a shard of, or was; otherwise the name itself."""
        return self._split(name)[0]

    def has_queue(self, name: bytes) -> bool:
        """Whether jobs can be of this function: it is not divided, nor the name of a shard that is none any more."""
        counts = self.counts
        if not counts:
            return True
        count = counts.get(name)
        if count is not None:
            return count.now <= 1
        base, number = self._split(name)
        return not number or (counts[base].now > 1 and number <= counts[base].now)

    def queue_for(self, name: bytes, number: int) -> bytes:
        """The name of the function that has the jobs of this one, if it is divided those of its shard `number`."""
        if self.has_queue(name):
            return name
        base = self.base_of(name)
        count = self.counts[base].now
        return base if count <= 1 else shard_name(base, (number - 1) % count + 1)

    def _split(self, name: bytes) -> tuple[bytes, int]:
        """A function and the number of its shard; 0: it is none."""
        base, _, digits = name.rpartition(b"#")
        count = self.counts.get(base) if self.counts else None
        if count is None or not digits.isdigit() or digits[:1] == b"0" or len(digits) > 2 or int(digits) > count.most:
            return name, 0
        return base, int(digits)


class _SeenNode(NamedTuple):
    """The last state of another node that this one has seen."""

    epoch: int
    beat: int
    changed_s: float  # when the epoch or the beat was first seen with these values
    since_s: float  # when the node was first seen


class NodeWatch:
    """Which nodes are alive, and what this node should do, as far as this node can tell by its own clock."""

    def __init__(self, has_ended: Callable[[str], bool] = lambda process: False) -> None:
        """`has_ended` tells whether a process (`NodeLease.process`) is known to have ended."""
        self._has_ended = has_ended
        self._seen: dict[int, _SeenNode] = {}

    def look(self, nodes: Iterable[NodeLease], now_s: float) -> None:
        """Note what the rows of the nodes say at this moment of the monotonic clock."""
        seen: dict[int, _SeenNode] = {}
        for node in nodes:
            known = self._seen.get(node.id)
            if known is None:
                known = _SeenNode(node.epoch, node.beat, now_s, now_s)
            elif (known.epoch, known.beat) != (node.epoch, node.beat):
                known = _SeenNode(node.epoch, node.beat, now_s, known.since_s)
            seen[node.id] = known
        self._seen = seen

    def could_not_look(self) -> None:
        """The rows could not be read: other nodes may have been unable to write theirs, so the count begins anew."""
        self._seen = {}

    def is_dead(self, node: NodeLease, now_s: float, own_lease_seconds: float = 0.0) -> bool:
        """Whether the node gave no sign of life for a whole lease, or its process has ended."""
        if self._has_ended(node.process):
            return True
        known = self._seen.get(node.id)
        if known is None or (known.epoch, known.beat) != (node.epoch, node.beat):
            return False
        return now_s - known.changed_s > max(node.lease_seconds, own_lease_seconds)

    def silent_seconds(self, node: NodeLease, now_s: float) -> float:
        """How long ago the node gave its last sign of life that this node has seen."""
        known = self._seen.get(node.id)
        return 0.0 if known is None else max(0.0, now_s - known.changed_s)

    def is_steady(self, node: NodeLease, now_s: float) -> bool:
        """Whether the node has been there for a whole lease, so that it is worth moving partitions to it."""
        known = self._seen.get(node.id)
        return known is not None and now_s - known.since_s >= node.lease_seconds

    def plan(
        self, own_id: int, nodes: Collection[NodeLease], partitions: Sequence[PartitionOwner], now_s: float
    ) -> OwnershipPlan:
        """What the node with this id should do, after `look` with the same rows."""
        own = next((node for node in nodes if node.id == own_id), None)
        if own is None:
            return OwnershipPlan((), (), ())
        dead = tuple(node for node in nodes if node.id != own_id and self.is_dead(node, now_s, own.lease_seconds))
        dead_ids = {node.id for node in dead}
        # Of several with the same name one counts, for every node the same: they are lives of one node, and all but one
        # will be evicted.
        live = {node.name: node for node in sorted(nodes) if node.id not in dead_ids and not node.is_leaving}
        claim: list[int] = []
        hand_over: list[int] = []
        moving = 0
        for partition, owner in enumerate(partitions):
            if owner.node_id not in (FREE, own_id):
                continue
            preferred = live.get(preferred_node(partition, live))
            if owner.node_id == FREE:
                if preferred is not None and preferred.id == own_id:
                    claim.append(partition)
                else:
                    moving += 1
            elif preferred is None:
                if own.is_leaving:
                    hand_over.append(partition)
            elif preferred.id != own_id and (own.is_leaving or self.is_steady(preferred, now_s)):
                hand_over.append(partition)
        if not own.is_leaving:
            del hand_over[max(0, MOST_HANDED_OVER - moving) :]
        return OwnershipPlan(dead, tuple(claim), tuple(hand_over))
