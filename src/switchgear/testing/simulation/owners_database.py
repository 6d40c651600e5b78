"""`OwnersDatabase`: the database of several simulated nodes, with their fences and late or lost messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from switchgear.model import FINAL_STATES
from switchgear.partitions import FREE, PARTITIONS, NodeLease, PartitionOwner
from switchgear.testing.invariants import broken
from switchgear.testing.simulation.store import Row

__all__ = ["CommitMessage", "OwnersDatabase"]

IDS_PER_BLOCK = 1 << 24


class CommitMessage(NamedTuple):
    """A transaction on its way to the database."""

    number: int
    node_id: int
    epoch: int
    rows: dict[int, Row]
    frees: tuple[int, ...]  # partitions that the node hands over with these changes
    arrives_s: float  # not before this moment


class OwnersDatabase:
    """The rows of nodes, partitions and jobs. Each method is a transaction."""

    def __init__(self) -> None:
        self.nodes: dict[int, NodeLease] = {}
        self.partitions = [PartitionOwner(FREE, 0)] * PARTITIONS
        self.rows: dict[int, Row] = {}
        self.on_its_way: list[CommitMessage] = []
        self.checks_fence = True  # a defect if it does not
        self._last_node_id = 0
        self._blocks = 0

    # --- nodes and partitions ---

    def join(self, name: str, lease_seconds: float) -> int:
        """A new node; returns its id."""
        self._last_node_id += 1
        node_id = self._last_node_id
        self.nodes[node_id] = NodeLease(node_id, name, 1, 1, lease_seconds)
        return node_id

    def reserve_ids(self) -> int:
        """The first of a block of job ids that no other node uses; it is above all that were reserved before."""
        self._blocks += 1
        return self._blocks * IDS_PER_BLOCK

    def beat(self, node_id: int, epoch: int) -> bool:
        """Whether the node was not evicted; that it asks is a sign of life."""
        node = self.nodes.get(node_id)
        if node is None or node.epoch != epoch:
            return False
        self.nodes[node_id] = node._replace(beat=node.beat + 1)
        return True

    def renew(self, node_id: int) -> int:
        """The next epoch of a node that has connected again; 0 if it was evicted."""
        node = self.nodes.get(node_id)
        if node is None:
            return 0
        self.nodes[node_id] = node._replace(epoch=node.epoch + 1, beat=node.beat + 1)
        return node.epoch + 1

    def leaves(self, node_id: int) -> None:
        """Note that a node claims nothing more."""
        self.nodes[node_id] = self.nodes[node_id]._replace(is_leaving=True)

    def claim(self, node_id: int, epoch: int, partitions: Iterable[int]) -> list[int] | None:
        """The partitions that were free and belong to the node from now on; None if it was evicted."""
        if not self.beat(node_id, epoch):
            return None
        taken = [number for number in partitions if self.partitions[number].node_id == FREE]
        self._change(taken, node_id)
        return taken

    def evict(self, node_id: int, epoch: int, seen: NodeLease) -> bool | None:
        """Evict a node if it is as it was seen; None if the one that asks was evicted itself."""
        if not self.beat(node_id, epoch):
            return None
        if self.nodes.get(seen.id) != seen:
            return False
        self.remove(seen.id)
        return True

    def remove(self, node_id: int) -> None:
        """Remove a node, and free its partitions."""
        del self.nodes[node_id]
        self._change([number for number, owner in enumerate(self.partitions) if owner.node_id == node_id], FREE)

    def _change(self, partitions: Iterable[int], node_id: int) -> None:
        for number in partitions:
            self.partitions[number] = PartitionOwner(node_id, self.partitions[number].epoch + 1)

    # --- jobs ---

    def commit(self, message: CommitMessage) -> bool:
        """Store the rows, if the node was not evicted and has not connected again since."""
        if not self.beat(message.node_id, message.epoch) and self.checks_fence:
            return False
        for job_id, row in message.rows.items():
            known = self.rows.get(job_id)
            if known is not None and known.fields["revision"] >= row.fields["revision"]:
                broken(f"job {job_id} was stored with revision {row.fields['revision']} a second time")
            self.rows[job_id] = row
        for number in message.frees:
            if self.partitions[number].node_id != message.node_id:
                broken(f"node {message.node_id} handed over partition {number}, which it did not own")
        self._change(message.frees, FREE)
        self.check_unique_keys()
        return True

    def check_unique_keys(self) -> None:
        """No two unfinished jobs of a function have the same key."""
        holders: dict[tuple[bytes, bytes], int] = {}
        for row in self.rows.values():
            key = row.born[0]
            if key and row.state not in FINAL_STATES:
                other = holders.setdefault((row.function_name, key), row.id)
                if other != row.id:
                    broken(f"jobs {other} and {row.id} have the same key {key!r}")
