"""Tables and sets of very many job ids: what they have is what a dictionary and a set would have, however many."""

from __future__ import annotations

from random import Random

import pytest

from switchgear.model import id_set, id_table
from switchgear.model.id_set import IdSet
from switchgear.model.id_table import IdTable


@pytest.mark.parametrize("ids", [20, 3 * id_table.MOST_IN_ONE])
def test_a_table_has_what_a_dictionary_has(ids: int) -> None:
    rng = Random(ids)
    table, wanted = IdTable[str](), dict[int, str]()
    for step in range(4 * ids):
        job_id = rng.randrange(ids)
        if rng.random() < 0.3:
            assert table.pop(job_id) == wanted.pop(job_id, None)
        else:
            table[job_id] = wanted[job_id] = str(step)
        assert table.count == len(table) == len(wanted)
    assert {job_id: table.get(job_id) for job_id in table} == wanted
    assert all((job_id in table) == (job_id in wanted) for job_id in range(ids))
    assert "1" not in table
    table.clear()
    assert (len(table), list(table), table.get(1)) == (0, [], None)


@pytest.mark.parametrize("ids", [20, 3 * id_set.MOST_IN_ONE])
def test_a_set_has_what_a_set_has(ids: int) -> None:
    rng = Random(ids)
    found, wanted = IdSet(), set[int]()
    for _ in range(4 * ids):
        job_id = rng.randrange(ids)
        if rng.random() < 0.3:
            found.discard(job_id)
            wanted.discard(job_id)
        else:
            assert found.add(job_id) is (job_id not in wanted)
            wanted.add(job_id)
        assert found.count == len(found) == len(wanted)
    assert set(found) == wanted
    assert all((job_id in found) == (job_id in wanted) for job_id in range(ids))
    found.clear()
    assert (len(found), list(found), 1 in found) == (0, [], False)


def test_both_are_freed_some_entries_at_a_time() -> None:
    table, ids = IdTable[int](), IdSet()
    for job_id in range(5000):
        table[job_id] = job_id
    ids.update(range(5000))
    assert sum(1 for _ in table.free()) >= 5000 // id_table.FREED_PER_STEP
    assert sum(1 for _ in ids.free()) >= 5000 // id_set.FREED_PER_STEP
    assert (len(table), list(table), len(ids), list(ids)) == (0, [], 0, [])
