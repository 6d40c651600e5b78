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
    "PARTITIONS",
    "NodeLease",
    "NodeWatch",
    "OwnershipPlan",
    "PartitionOwner",
    "partition_of",
    "preferred_node",
]

PARTITIONS: Final = 64

FREE: Final = 0  # as the owner of a partition: nobody

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


@lru_cache(maxsize=4096)
def _weight(partition: int, name: str) -> bytes:
    return blake2b(b"%d %s" % (partition, name.encode()), digest_size=8).digest()


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
