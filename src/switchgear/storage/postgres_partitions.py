"""`PostgresPartitions`: which partitions of functions this node owns, in a PostgreSQL that several nodes share.

The row of this node in `sg_node` stands for it (`postgres_fence` says how), and `sg_partition` says which node owns
each partition. What to do is decided elsewhere (`switchgear.partitions`); each method here is one transaction, which
changes nothing if the rows are not as they were seen. See docs/decisions/037-partition-owners.md for the order of
locks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from switchgear.errors import StorageError
from switchgear.partitions import PARTITIONS, NodeLease, PartitionOwner, ShardCount
from switchgear.storage.postgres_connection import NOT_AS_EXPECTED, PostgresConnection, PostgresRefusal, Step
from switchgear.storage.postgres_fence import PostgresFence, signed, update_impatiently
from switchgear.storage.postgres_rows import bigint, integer_array, integers
from switchgear.storage.postgres_schema import STATEMENTS
from switchgear.storage.process_identity import process_identity
from switchgear.version import VERSION

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

__all__ = ["ClusterView", "PostgresPartitions", "StoredForOwner"]


class StoredForOwner(NamedTuple):
    """Jobs that a node has stored for the owner of their partition, which has to take them."""

    id: int
    partition: int
    jobs: list[int]


class ClusterView(NamedTuple):
    """All nodes that may own partitions, and all partitions, as they were a moment later."""

    nodes: list[NodeLease]
    partitions: list[PartitionOwner]  # by number
    overrides: dict[bytes, int]  # the partitions of functions that were placed by operators
    inbox: list[StoredForOwner]  # of the partitions that this node owns, the first rows
    shards: dict[bytes, ShardCount]  # of functions that are divided, or were


class PostgresPartitions(PostgresFence):
    """The node, and its partitions. All methods share the connection that commits are written to."""

    def __init__(
        self, connection: PostgresConnection, shown_url: str, lease_seconds: float, name: str, address: str = ""
    ) -> None:
        super().__init__(connection, shown_url, lease_seconds)
        self.node_id = secrets.randbits(62) + 1
        self.name = name
        self.address = address
        self.owned: dict[int, int] = {}  # the epoch of each partition that this node owns

    async def join(self) -> None:
        """Enter this node, which owns nothing yet."""
        sent_s = time.monotonic()
        texts = [text.encode() for text in (self.name, self.address, VERSION)]
        lease_ms = bigint(int(self.lease_seconds * 1000))
        parameters = (bigint(self.node_id), *texts, lease_ms, process_identity().encode())
        (result,) = await self._connection.run([(STATEMENTS["join_node"], parameters)])
        if not result.ntuples:
            raise StorageError(f"a server owns all jobs in {self._shown_url}, so no other can own some of them")
        self.epoch = 1
        self.beat_succeeded(sent_s)

    def fence(self) -> Step:
        return STATEMENTS["node_fence"], (bigint(self.node_id), bigint(self.epoch))

    async def renew(self) -> None:
        sent_s = time.monotonic()
        step = (STATEMENTS["renew_node"], (bigint(self.node_id),))
        (result,) = await update_impatiently(self._connection, [step], STATEMENTS["terminate_frozen"])
        if not result.ntuples:
            raise self.fenced()
        self.epoch = signed(result, 0)
        self.beat_succeeded(sent_s)

    async def look(self) -> ClusterView:
        """All nodes and partitions as they are now."""
        steps: list[Step] = [(STATEMENTS[name], ()) for name in ("node_leases", "partitions", "places", "shards")]
        steps.append((STATEMENTS["inbox"], (integer_array(sorted(self.owned)),)))
        nodes, partitions, places, divided, stored = await self._connection.run(steps)
        leases = []
        for row in range(nodes.ntuples):
            node_id, epoch, beat, lease_ms, is_leaving = (signed(nodes, place, row) for place in range(5))
            name, process = ((nodes.get_value(row, place) or b"").decode() for place in (5, 6))
            leases.append(NodeLease(node_id, name, epoch, beat, lease_ms / 1000, process, bool(is_leaving)))
        owners = [PartitionOwner(signed(partitions, 1, row), signed(partitions, 2, row)) for row in range(PARTITIONS)]
        overrides = {bytes(places.get_value(row, 0) or b""): signed(places, 1, row) for row in range(places.ntuples)}
        inbox = [
            StoredForOwner(signed(stored, 0, row), signed(stored, 1, row), integers(stored.get_value(row, 2) or b""))
            for row in range(stored.ntuples)
        ]
        shards = {
            bytes(divided.get_value(row, 0) or b""): ShardCount(signed(divided, 1, row), signed(divided, 2, row))
            for row in range(divided.ntuples)
        }
        return ClusterView(leases, owners, overrides, inbox, shards)

    async def empty_inbox(self, ids: Sequence[int], moved: Mapping[int, list[int]]) -> None:
        """Delete rows of the inbox whose jobs this node has taken, and put jobs of other partitions into theirs."""
        steps: list[Step] = [self.fence(), (STATEMENTS["empty_inbox"], (integer_array(list(ids)),))]
        steps += [
            (STATEMENTS["put_inbox"], (bigint(partition), integer_array(jobs))) for partition, jobs in moved.items()
        ]
        await self._fenced_update(steps)

    async def claim(self, partitions: Iterable[int]) -> dict[int, int]:
        """Take these partitions, as far as they are free; returns the epoch of each that this node owns from now on."""
        step = (STATEMENTS["claim_partitions"], (bigint(self.node_id), integer_array(sorted(partitions))))
        (_, result) = await self._fenced_update([self.fence(), step])
        taken = {signed(result, 0, row): signed(result, 1, row) for row in range(result.ntuples)}
        self.owned |= taken
        return taken

    async def reserve_ids(self, count: int) -> int:
        """The first of so many job ids that no other node uses. They are above all that were reserved before: a node
        that has claimed partitions must reserve new ones, or jobs that it accepts would be ahead of earlier ones."""
        step = (STATEMENTS["reserve_ids"], (bigint(count),))
        (_, result) = await self._fenced_update([self.fence(), step])
        return signed(result, 0)

    def hand_over_step(self, partitions: Sequence[int]) -> Step:
        """The step that frees these partitions, for the transaction that stores their last changes. The transaction
        fails if this node does not own them."""
        count = bigint(len(partitions))
        return STATEMENTS["free_partitions"], (bigint(self.node_id), integer_array(sorted(partitions)), count)

    async def hand_over(self, partitions: Sequence[int], changes: Sequence[Step] = ()) -> None:
        """Free these partitions of this node, together with their last changes; another node may claim them at once."""
        await self._fenced_update([self.fence(), *changes, self.hand_over_step(partitions)])
        for partition in partitions:
            self.owned.pop(partition, None)

    async def evict(self, seen: NodeLease) -> bool:
        """Free all partitions of a dead node, which cannot store anything from now on; returns whether it was still as
        it was seen. A session that is frozen in the middle of a commit of the node is ended."""
        both = integer_array(sorted((self.node_id, seen.id)))
        evict = (STATEMENTS["evict_node"], (bigint(seen.id), bigint(seen.epoch), bigint(seen.beat)))
        steps = [(STATEMENTS["lock_nodes"], (both,)), self.fence(), evict]
        (_, _, result) = await self._fenced_update(steps)
        return bool(signed(result, 0))

    async def announce_leaving(self) -> None:
        """Tell the other nodes that this one will claim nothing more, and hand over what it has."""
        await self._connection.run([(STATEMENTS["node_leaves"], (bigint(self.node_id),))])

    async def leave(self) -> None:
        """Free all partitions, and remove this node."""
        if self.epoch:
            numbers = (bigint(self.node_id), bigint(self.epoch), None)
            self.epoch = 0
            self.owned = {}
            await self._connection.run([(STATEMENTS["evict_node"], numbers)])

    async def place(self, function: bytes, source: int, target: int, *, by_name: bool) -> None:
        """Put a function of partition `source`, which this node owns, into another one. With `by_name` that is the one
        that follows from its name. Its jobs must be stored, and this node must have handed them over."""
        parameters = (function, bigint(source), bigint(self.node_id))
        step: Step = (STATEMENTS["drop_place"], parameters)
        if not by_name:
            step = (STATEMENTS["put_place"], (*parameters, bigint(target)))
        (_, result) = await self._fenced_update([self.fence(), step])
        if not result.ntuples:
            raise StorageError(f"this node does not own partition {source}")

    async def divide(self, function: bytes, partition: int, count: int, unplaced: Sequence[bytes]) -> None:
        """Divide a function of this partition, which this node owns, into so many shards; 1: unite them. It must have
        no jobs. These functions are in the partitions of their names from then on."""
        parameters = (function, bigint(partition), bigint(self.node_id), bigint(count))
        steps: list[Step] = [self.fence(), (STATEMENTS["put_shards"], parameters)]
        steps += [(STATEMENTS["drop_place_of_shard"], (name,)) for name in unplaced]
        result = (await self._fenced_update(steps))[1]
        if not result.ntuples:
            raise StorageError(f"this node does not own partition {partition}")

    async def _fenced_update(self, steps: list[Step]) -> list[PGresult]:
        sent_s = time.monotonic()
        fence_step = 2 + next(place for place, step in enumerate(steps) if step[0] is STATEMENTS["node_fence"])
        try:
            results = await update_impatiently(self._connection, steps, STATEMENTS["terminate_frozen"])
        except PostgresRefusal as refusal:
            if refusal.step == fence_step and refusal.code == NOT_AS_EXPECTED:
                raise self.fenced() from refusal
            raise
        self.beat_succeeded(sent_s)
        return results
