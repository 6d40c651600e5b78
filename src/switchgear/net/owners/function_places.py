"""Placing functions: an operator puts a function into another partition, to keep it at the node of another function.

The owner of the function lets go of it as of a partition, and then changes its row in `sg_place` in a transaction that
fails unless it owns the partition that the function leaves. All nodes read these rows with each look. The node that
owns the new partition restores the jobs before it accepts any: until then the function is *absent*. So nobody else can
have them, whoever dies when: the row says which partition the jobs are in, and one node owns this partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from switchgear.engine.function_placement import is_foreign
from switchgear.errors import Fenced
from switchgear.json_bytes import plain
from switchgear.model import Function
from switchgear.net.owners.relay import Relay
from switchgear.partitions import ShardCount, Shards, partition_of, shard_name
from switchgear.verbs.answers import PlainBytes

__all__ = ["MOST_PLACED", "follow_places", "placed_in"]

# Each node reads all of them several times in each lease.
MOST_PLACED: Final = 1_000
MOST_NAMED: Final = 100


def follow_places(relay: Relay, places: dict[bytes, int], counts: Mapping[bytes, ShardCount]) -> None:
    """Note which functions are placed where, and which are divided into shards. Raises Fenced if this node has lost one
    without letting go of it."""
    had_queue = relay.divided.shards.has_queue
    shards = Shards(counts)
    has_changed = False
    if counts != relay.divided.shards.counts:
        for name in {each for base, count in counts.items() for each in (base, *names_until(base, count.most))}:
            is_queue = shards.has_queue(name)
            if is_queue and not had_queue(name):
                relay.absent.add(name)  # this node restores it, if it owns the partition
            elif not is_queue and relay.is_ours(name) and is_used(relay.engine.functions.get(name)):
                text = name.decode("utf-8", "backslashreplace")
                raise Fenced(f"the function {text} was divided or united without this node")
        relay.divided.follow(shards)
        has_changed = True
        relay.edges.functions_moved()
    before = relay.overrides
    relay.overrides = places
    if places != before:
        relay.edges.functions_moved()
        for name in before.keys() | places.keys():
            old, new = partition_of(name, before), partition_of(name, places)
            if old == new or not shards.has_queue(name):
                continue
            if old in relay.ready and name not in relay.absent:
                raise Fenced(f"the function {name.decode('utf-8', 'backslashreplace')} was taken from this node")
            if new in relay.ready:
                relay.absent.add(name)
    relay.absent = {
        name for name in relay.absent if shards.has_queue(name) and partition_of(name, places) in relay.ready
    }
    if has_changed:
        relay.divided.serve(relay.is_ours)


def is_used(function: Function | None) -> bool:
    """Whether this node may have accepted jobs of a function."""
    return function is not None and not is_foreign(function)


def names_until(function: bytes, most: int) -> list[bytes]:
    """The names of all shards that a function ever had."""
    return [shard_name(function, number) for number in range(1, most + 1)]


def placed_in(partitions: Collection[int], places: Mapping[bytes, int]) -> list[PlainBytes]:
    """The names of functions that were placed in these partitions, at most a hundred."""
    names = sorted(name for name, partition in places.items() if partition in partitions)
    return [plain(name) for name in names[:MOST_NAMED]]
