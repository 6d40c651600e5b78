"""Which shard of a divided function has a job, and what the names of shards stand for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.partitions import (
    FREE,
    MOST_SHARDS,
    PARTITIONS,
    PartitionOwner,
    ShardCount,
    Shards,
    shard_name,
    shard_number,
    spread_over_nodes,
)

SHARDS = Shards({b"hot": ShardCount(3, 5), b"cold": ShardCount(1, 4), b"a#2": ShardCount(2, 2)})


@pytest.mark.parametrize(
    ("name", "base", "has_queue"),
    [
        (b"hot", b"hot", False),  # its jobs are those of its shards
        (b"hot#1", b"hot", True),
        (b"hot#3", b"hot", True),
        (b"hot#4", b"hot", False),  # it was a shard earlier
        (b"hot#5", b"hot", False),
        (b"hot#6", b"hot#6", True),  # it never was one
        (b"hot#0", b"hot#0", True),
        (b"hot#01", b"hot#01", True),
        (b"hot#", b"hot#", True),
        (b"hot#x", b"hot#x", True),
        (b"hot#100", b"hot#100", True),
        ("hot#²".encode(), "hot#²".encode(), True),
        (b"cold", b"cold", True),  # united again
        (b"cold#1", b"cold", False),
        (b"other", b"other", True),
        (b"other#1", b"other#1", True),
        (b"a#2", b"a#2", False),  # `a` is not divided
        (b"a#2#1", b"a#2", True),
        (b"", b"", True),
    ],
)
def test_what_a_name_stands_for(name: bytes, base: bytes, has_queue: bool) -> None:
    assert SHARDS.base_of(name) == base
    assert SHARDS.has_queue(name) is has_queue


@pytest.mark.parametrize(
    ("name", "number", "queue"),
    [
        (b"hot", 1, b"hot#1"),
        (b"hot", 3, b"hot#3"),
        (b"hot", 4, b"hot#1"),  # the number of a job decides
        (b"hot#2", 1, b"hot#2"),
        (b"hot#5", 2, b"hot#2"),
        (b"cold#1", 7, b"cold"),
        (b"cold", 7, b"cold"),
        (b"other", 7, b"other"),
    ],
)
def test_the_function_that_has_a_job(name: bytes, number: int, queue: bytes) -> None:
    assert SHARDS.queue_for(name, number) == queue
    assert SHARDS.has_queue(queue)


def test_the_names_of_shards() -> None:
    assert SHARDS.names(b"hot") == [b"hot#1", b"hot#2", b"hot#3"]
    assert SHARDS.names(b"cold") == SHARDS.names(b"hot#1") == SHARDS.names(b"other") == []


@given(st.binary(), st.integers(1, MOST_SHARDS))
def test_a_key_is_always_in_the_same_shard(unique: bytes, count: int) -> None:
    number = shard_number(unique, count)
    assert 1 <= number <= count
    assert shard_number(unique, count) == number
    assert Shards({b"f": ShardCount(count, count)}).base_of(shard_name(b"f", number)) == b"f"


def test_the_shard_of_a_key_never_changes() -> None:
    """Nodes of different versions must agree, or a key would be taken twice."""
    assert [shard_number(b"k%d" % number, 4) for number in range(8)] == [1, 2, 2, 3, 2, 4, 3, 3]


def test_keys_are_spread_evenly() -> None:
    counts = Counter(shard_number(b"k%d" % number, 8) for number in range(8_000))
    assert min(counts.values()) > 880
    assert max(counts.values()) < 1_120


def owners(*nodes: int) -> list[PartitionOwner]:
    return [PartitionOwner(nodes[partition % len(nodes)], 1) for partition in range(PARTITIONS)]


@pytest.mark.parametrize(
    ("count", "nodes", "most"),
    [(3, (1, 2, 3), 1), (4, (1, 2, 3), 2), (2, (1, 2, 3), 1), (64, (1, 2, 3), 22), (5, (1,), 5), (2, (FREE, 1), 2)],
)
def test_shards_are_at_different_nodes_as_far_as_there_are_nodes(count: int, nodes: tuple[int, ...], most: int) -> None:
    table = owners(*nodes)
    for first in range(PARTITIONS):
        partitions = spread_over_nodes(count, table, first)
        assert len(partitions) == count
        assert set(partitions) <= set(range(PARTITIONS))
        by_node = Counter(table[partition].node_id for partition in partitions)
        assert FREE not in by_node
        assert max(by_node.values()) == most
        assert len(set(partitions)) == count or len(set(nodes)) * 32 > count


def test_without_any_owner_shards_have_partitions_too() -> None:
    assert len(set(spread_over_nodes(3, owners(FREE), 5))) == 3
