"""Which partition a function belongs to, which node should own it, and what each node does about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.partitions import (
    FREE,
    MOST_HANDED_OVER,
    PARTITIONS,
    NodeLease,
    NodeWatch,
    PartitionOwner,
    partition_of,
    preferred_node,
)

names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True)
EVERY = range(PARTITIONS)
LEASE_SECONDS = 3.0


class TestThePartitionOfAFunction:
    @pytest.mark.parametrize(("function", "partition"), [(b"", 52), (b"resize", 21), (b"\xff\x00", 43)])
    def test_never_changes(self, function: bytes, partition: int) -> None:
        """Nodes of different versions and machines must agree."""
        assert partition_of(function) == partition

    @given(st.binary())
    def test_is_one_of_64(self, function: bytes) -> None:
        assert 0 <= partition_of(function) < 64

    def test_functions_are_spread(self) -> None:
        used = Counter(partition_of(b"function-%d" % number) for number in range(6400))
        assert len(used) == PARTITIONS
        assert max(used.values()) < 160

    def test_an_override_decides(self) -> None:
        assert partition_of(b"resize", {b"resize": 7}) == 7
        assert partition_of(b"other", {b"resize": 7}) == partition_of(b"other")


class TestTheNodeOfAPartition:
    def test_without_nodes_there_is_none(self) -> None:
        assert preferred_node(3, []) == ""

    @given(names)
    def test_does_not_depend_on_the_order_of_nodes(self, nodes: list[str]) -> None:
        shuffled = sorted(nodes, reverse=True)
        assert [preferred_node(each, nodes) for each in EVERY] == [preferred_node(each, shuffled) for each in EVERY]

    @given(names, st.text(min_size=1, max_size=8))
    def test_a_node_that_joins_only_takes(self, nodes: list[str], newcomer: str) -> None:
        for partition in EVERY:
            before, after = preferred_node(partition, nodes), preferred_node(partition, [*nodes, newcomer])
            assert after in (before, newcomer)

    @given(names)
    def test_a_node_that_leaves_only_gives(self, nodes: list[str]) -> None:
        *rest, gone = nodes
        for partition in EVERY:
            before = preferred_node(partition, nodes)
            assert before == gone or preferred_node(partition, rest) == before

    def test_three_nodes_have_about_a_third_each(self) -> None:
        shares = Counter(preferred_node(each, ["web1", "web2", "web3"]) for each in EVERY)
        assert sum(shares.values()) == PARTITIONS
        assert min(shares.values()) >= 12


def lease(name: str, number: int, beat: int = 0, *, epoch: int = 1, is_leaving: bool = False) -> NodeLease:
    return NodeLease(number, name, epoch, beat, LEASE_SECONDS, f"process {number}", is_leaving)


def owned(*node_ids: int) -> list[PartitionOwner]:
    """The partitions belong to these nodes in turn."""
    return [PartitionOwner(node_ids[each % len(node_ids)], 1) for each in EVERY]


class TestWhatANodeDoes:
    def test_the_first_node_claims_everything(self) -> None:
        watch, nodes = NodeWatch(), [lease("ada", 1)]
        watch.look(nodes, 0.0)
        assert watch.plan(1, nodes, owned(FREE), 0.0) == ((), tuple(EVERY), ())

    def test_a_node_without_a_row_does_nothing(self) -> None:
        """It was evicted, and its row deleted."""
        watch, nodes = NodeWatch(), [lease("ada", 1)]
        watch.look(nodes, 0.0)
        assert watch.plan(2, nodes, owned(FREE), 100.0) == ((), (), ())

    def test_free_partitions_are_claimed_by_the_node_they_belong_to(self) -> None:
        nodes = [lease("ada", 1), lease("bob", 2)]
        claims = []
        for number in (1, 2):
            watch = NodeWatch()
            watch.look(nodes, 0.0)
            claims.append(set(watch.plan(number, nodes, owned(FREE), 0.0).claim))
        assert claims[0] | claims[1] == set(EVERY)
        assert not claims[0] & claims[1]

    def test_partitions_of_others_are_left_alone(self) -> None:
        nodes = [lease("ada", 1), lease("bob", 2)]
        watch = NodeWatch()
        watch.look(nodes, 0.0)
        assert watch.plan(1, nodes, owned(2), 0.0) == ((), (), ())

    def test_some_at_a_time_are_handed_over_to_a_node_that_is_there_for_a_lease(self) -> None:
        watch = NodeWatch()
        watch.look([lease("ada", 1)], 0.0)
        nodes = [lease("ada", 1, 1), lease("bob", 2)]
        watch.look(nodes, 1.0)
        assert watch.plan(1, nodes, owned(1), 1.0).hand_over == ()
        nodes = [lease("ada", 1, 9), lease("bob", 2, 9)]
        watch.look(nodes, 4.0)
        handed_over = watch.plan(1, nodes, owned(1), 4.0).hand_over
        assert len(handed_over) == MOST_HANDED_OVER
        assert {preferred_node(each, ["ada", "bob"]) for each in handed_over} == {"bob"}

    def test_no_more_are_handed_over_until_their_next_owner_has_claimed_them(self) -> None:
        watch = NodeWatch()
        watch.look([lease("ada", 1), lease("bob", 2)], 0.0)
        nodes = [lease("ada", 1, 9), lease("bob", 2, 9)]
        watch.look(nodes, 4.0)
        partitions = owned(1)
        moved = watch.plan(1, nodes, partitions, 4.0).hand_over
        for each in moved:
            partitions[each] = owned(FREE)[each]
        assert watch.plan(1, nodes, partitions, 4.0).hand_over == ()
        partitions[moved[0]] = owned(2)[moved[0]]
        assert len(watch.plan(1, nodes, partitions, 4.0).hand_over) == 1

    def test_a_node_that_leaves_hands_over_everything_at_once(self) -> None:
        nodes = [lease("ada", 1, is_leaving=True), lease("bob", 2)]
        watch = NodeWatch()
        watch.look(nodes, 0.0)
        assert watch.plan(1, nodes, owned(1, 2), 0.0).hand_over == tuple(EVERY[::2])
        assert watch.plan(1, nodes, owned(FREE), 0.0).claim == ()

    def test_the_last_node_that_leaves_frees_everything(self) -> None:
        nodes = [lease("ada", 1, is_leaving=True)]
        watch = NodeWatch()
        watch.look(nodes, 0.0)
        assert watch.plan(1, nodes, owned(1), 0.0).hand_over == tuple(EVERY)

    def test_a_silent_node_is_evicted_after_a_whole_lease(self) -> None:
        watch = NodeWatch()
        for tenths in range(31):
            nodes = [lease("ada", 1, tenths), lease("bob", 2, 5)]
            watch.look(nodes, tenths / 10)
            assert watch.plan(1, nodes, owned(2), tenths / 10).evict == ()
        nodes = [lease("ada", 1, 99), lease("bob", 2, 5)]
        watch.look(nodes, 3.1)
        assert watch.plan(1, nodes, owned(2), 3.1).evict == (lease("bob", 2, 5),)

    def test_the_longer_lease_of_two_counts(self) -> None:
        watch = NodeWatch()
        nodes = [lease("ada", 1)._replace(lease_seconds=10.0), lease("bob", 2)]
        watch.look(nodes, 0.0)
        assert watch.plan(1, nodes, owned(2), 9.0).evict == ()
        assert watch.plan(1, nodes, owned(2), 10.1).evict == (nodes[1],)

    def test_a_node_whose_process_has_ended_is_evicted_at_once(self) -> None:
        watch = NodeWatch(lambda process: process == "process 2")
        nodes = [lease("ada", 1), lease("bob", 2)]
        watch.look(nodes, 0.0)
        plan = watch.plan(1, nodes, owned(FREE), 0.0)
        assert plan.evict == (nodes[1],)
        assert plan.claim == tuple(EVERY)

    def test_a_node_never_evicts_itself(self) -> None:
        watch = NodeWatch(lambda process: True)
        nodes = [lease("ada", 1)]
        watch.look(nodes, 0.0)
        assert watch.plan(1, nodes, owned(1), 100.0) == ((), (), ())

    def test_silence_is_not_counted_while_the_database_is_away(self) -> None:
        watch = NodeWatch()
        nodes = [lease("ada", 1), lease("bob", 2)]
        watch.look(nodes, 0.0)
        watch.could_not_look()
        watch.look(nodes, 50.0)
        assert watch.plan(1, nodes, owned(2), 50.0).evict == ()
        assert watch.plan(1, nodes, owned(2), 53.1).evict == (nodes[1],)

    def test_a_new_epoch_is_a_sign_of_life(self) -> None:
        watch = NodeWatch()
        watch.look([lease("bob", 2)], 0.0)
        nodes = [lease("ada", 1), lease("bob", 2, epoch=2)]
        watch.look(nodes, 10.0)
        assert watch.plan(1, nodes, owned(2), 10.0).evict == ()


class Table:
    """The rows of all nodes and partitions, changed as the database would."""

    def __init__(self) -> None:
        self.nodes: dict[int, NodeLease] = {}
        self.partitions = owned(FREE)

    def carry_out(self, own_id: int, watch: NodeWatch, now_s: float) -> None:
        nodes = list(self.nodes.values())
        watch.look(nodes, now_s)
        plan = watch.plan(own_id, nodes, list(self.partitions), now_s)
        for dead in plan.evict:
            del self.nodes[dead.id]
            self._change([each for each in EVERY if self.partitions[each].node_id == dead.id], FREE)
        self._change(plan.claim, own_id)
        self._change(plan.hand_over, FREE)

    def _change(self, partitions: Iterable[int], node_id: int) -> None:
        for each in partitions:
            self.partitions[each] = PartitionOwner(node_id, self.partitions[each].epoch + 1)


@given(st.lists(st.tuples(st.sampled_from(("join", "die", "leave", "look")), st.integers(0, 4)), max_size=40))
def test_whatever_happens_every_partition_gets_to_its_node(happenings: list[tuple[str, int]]) -> None:
    table, watches, now_s = Table(), dict[int, NodeWatch](), 0.0
    numbers = iter(range(1, 1000))

    def look_all() -> None:
        for own_id, watch in list(watches.items()):
            if own_id in table.nodes:
                table.nodes[own_id] = table.nodes[own_id]._replace(beat=table.nodes[own_id].beat + 1)
                table.carry_out(own_id, watch, now_s)

    for what, which in [*happenings, ("join", 0)]:
        now_s += 0.3
        name = f"node {which}"
        ids = [own_id for own_id in watches if own_id in table.nodes and table.nodes[own_id].name == name]
        if what == "join" and not ids:
            number = next(numbers)
            table.nodes[number] = lease(name, number)
            watches[number] = NodeWatch()
        elif what == "die":
            for own_id in ids:
                del watches[own_id]
        elif what == "leave":
            for own_id in ids:
                table.nodes[own_id] = table.nodes[own_id]._replace(is_leaving=True)
        look_all()
    for _ in range(60):
        now_s += 0.3
        look_all()
    live = {node.name: node.id for node in table.nodes.values() if not node.is_leaving}
    for partition in EVERY:
        assert table.partitions[partition].node_id == live.get(preferred_node(partition, live), FREE)
