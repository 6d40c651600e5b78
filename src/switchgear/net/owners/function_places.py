"""Placing functions: an operator puts a function into another partition, to keep it at the node of another function.

The owner of the function lets go of it as of a partition, and then changes its row in `sg_place` in a transaction that
fails unless it owns the partition that the function leaves. All nodes read these rows with each look. The node that
owns the new partition restores the jobs before it accepts any: until then the function is *absent*. So nobody else can
have them, whoever dies when: the row says which partition the jobs are in, and one node owns this partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from switchgear.errors import Fenced
from switchgear.json_bytes import plain
from switchgear.net.owners.relay import Relay
from switchgear.partitions import partition_of
from switchgear.verbs.answers import PlainBytes

__all__ = ["MOST_PLACED", "follow_places", "placed_in"]

# Each node reads all of them several times in each lease.
MOST_PLACED: Final = 1_000
MOST_NAMED: Final = 100


def follow_places(relay: Relay, places: dict[bytes, int]) -> None:
    """Note which functions are placed where. Raises Fenced if this node has lost one without letting go of it."""
    before = relay.overrides
    relay.overrides = places
    if places != before:
        relay.edges.functions_moved()
        for name in before.keys() | places.keys():
            old, new = partition_of(name, before), partition_of(name, places)
            if old == new:
                continue
            if old in relay.ready and name not in relay.absent:
                raise Fenced(f"the function {name.decode('utf-8', 'backslashreplace')} was taken from this node")
            if new in relay.ready:
                relay.absent.add(name)
    relay.absent = {name for name in relay.absent if partition_of(name, places) in relay.ready}


def placed_in(partitions: Collection[int], places: Mapping[bytes, int]) -> list[PlainBytes]:
    """The names of functions that were placed in these partitions, at most a hundred."""
    names = sorted(name for name, partition in places.items() if partition in partitions)
    return [plain(name) for name in names[:MOST_NAMED]]
