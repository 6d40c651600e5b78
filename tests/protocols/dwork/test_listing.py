"""Lookup and List: what can be learned of tasks."""

from __future__ import annotations

import pytest

from switchgear.model import DONE, FAILED, NORMAL, READY, RUNNING, WAITING, Delivery
from switchgear.protocols.dwork import listing
from switchgear.protocols.dwork.messages import LogEntry, LogState, Query, QueryType, Task
from tests.protocols.dwork.harness import HOST, DworkHarness, complete, create, fail, names, steal, transfer
from tests.protocols.dwork.test_codec import plain


@pytest.fixture(params=[False, True], ids=["memory", "durable"])
def world(request: pytest.FixtureRequest) -> DworkHarness:
    return DworkHarness(keeps=request.param)


def pages(world: DworkHarness, n: int | None = None) -> list[Query]:
    """All pages of the list."""
    found = [world.ask(Query(QueryType.LIST, n=n))]
    while found[-1].cursor is not None:
        found.append(world.ask(Query(QueryType.LIST, n=n, cursor=found[-1].cursor)))
    assert all(page == Query(QueryType.OK, page.tasks, cursor=page.cursor) for page in found)
    return found


def listed(world: DworkHarness, n: int | None = None) -> list[Task]:
    return [task for page in pages(world, n) for task in page.tasks]


def test_a_list_has_all_tasks_by_id_with_their_states(world: DworkHarness) -> None:
    world.ask(create("a", "b after a", "c", "d after c", "e"))
    world.ask(steal("w", 3))
    world.ask(complete("w", "a"))
    world.ask(fail("w", "c", "so it is"))
    shown = [(task.id, task.name, task.state, list(task.after)) for task in listed(world)]
    assert shown == [
        (1, b"a", DONE, []),
        (2, b"b", READY, [1]),
        (3, b"c", FAILED, []),
        (4, b"d", WAITING, [3]),
        (5, b"e", RUNNING, []),
    ]
    assert [task.error for task in listed(world)] == [None, None, b"so it is", None, None]
    assert {task.origin for task in listed(world)} == {b"here"}


def test_a_log_tells_the_life_of_a_task(world: DworkHarness) -> None:
    start = world.now_us
    world.ask(create("x", "a after x"))
    for query in (steal("w"), complete("w", "x"), steal("w"), transfer("w", "a"), steal("w"), fail("w", "a", "why")):
        world.harness.pass_time(1)
        world.ask(query)
    assert [(LogState(state), (time_us - start) / 1e6) for state, time_us in listed(world)[1].log] == [
        (LogState.WAITING, 0),
        (LogState.READY, 2),
        (LogState.STARTED, 3),
        (LogState.READY, 4),
        (LogState.STARTED, 5),
        (LogState.RECORDED, 6),
    ]


def test_lookup_tells_where_a_task_is(world: DworkHarness) -> None:
    start = world.now_us
    world.ask(create("a"))
    expected = Task(b"a", b"here", log=[LogEntry(LogState.READY, start)], id=1, state=READY)
    answer = world.ask(Query(QueryType.LOOKUP, name=b"a"))
    assert plain(answer) == plain(Query(QueryType.OK, [expected], name=b"a", location=HOST))
    world.ask(steal("w"))
    assert world.ask(Query(QueryType.LOOKUP, name=b"a")).location == b"w"


def test_lookup_finds_the_newest_of_several_that_had_a_name(world: DworkHarness) -> None:
    for _ in range(2):
        world.ask(create("a"))
        world.ask(steal("w"))
        world.ask(complete("w", "a"))
    assert world.ask(Query(QueryType.LOOKUP, name=b"a")).tasks[0].id == 2


def test_the_end_of_a_task_is_told_when_it_is_kept() -> None:
    world = DworkHarness(keeps=True)
    world.ask(create("a"))
    world.ask(steal("w"))
    world.ask(complete("w", "a"))
    world.send(Query(QueryType.LOOKUP, name=b"a"))
    assert world.heard() == []
    world.keep()
    assert world.heard()[0].tasks[0].state == DONE


def test_a_list_comes_in_pages(world: DworkHarness) -> None:
    world.ask(create(*(f"t{number}" for number in range(10))))
    world.ask(steal("w", 4))
    world.ask(complete("w", "t1", "t3"))
    assert [names(page) for page in pages(world, 4)] == [
        ["t0", "t1", "t2", "t3"],
        ["t4", "t5", "t6", "t7"],
        ["t8", "t9"],
    ]


def test_an_empty_server_has_an_empty_list(world: DworkHarness) -> None:
    assert world.ask(Query(QueryType.LIST)) == Query(QueryType.OK)


def test_a_cursor_from_beyond_the_end_finds_nothing(world: DworkHarness) -> None:
    world.ask(create("a"))
    assert world.ask(Query(QueryType.LIST, cursor=2**62)) == Query(QueryType.OK)


def test_a_page_has_at_most_a_thousand(world: DworkHarness) -> None:
    world.ask(create(*(f"t{number}" for number in range(1500))))
    world.ask(steal("w", 1200))
    world.ask(complete("w", *(f"t{number}" for number in range(0, 1200, 2))))
    first, second = pages(world, 5000)
    assert (len(first.tasks), len(second.tasks)) == (1000, 500)
    assert names(first) + names(second) == [f"t{number}" for number in range(1500)]


def test_gaps_are_passed_over(world: DworkHarness) -> None:
    world.ask(create("a"))
    world.engine.next_job_id += 50_000  # as after a restart
    world.ask(create("b"))
    assert [task.name for task in listed(world)] == [b"a", b"b"]
    assert len(pages(world)) == 3  # each looks no further than a while


def test_a_long_list_is_cut(world: DworkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ENOUGH_BYTES", 200)
    world.ask(create("a" * 150, "b" * 150, "c"))
    assert [len(page.tasks) for page in pages(world)] == [2, 1]


def test_only_tasks_are_listed(world: DworkHarness) -> None:
    world.engine.submit(b"mail", b"", b"letter", NORMAL, Delivery.HANDLE)
    world.engine.submit(b"dwork", b"", b"from elsewhere", NORMAL, Delivery.HANDLE)
    world.ask(create("a"))
    assert [task.name for task in listed(world)] == [b"from elsewhere", b"a"]
    world.ask(steal("w"))
    world.ask(Query(QueryType.COMPLETE, [Task(b"from elsewhere")], location=b"w"))
    assert [(task.name, task.state) for task in listed(world)] == [(b"from elsewhere", DONE), (b"a", READY)]
