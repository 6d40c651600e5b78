"""Lookup and List: what can be learned of tasks."""

from __future__ import annotations

import pytest

from switchgear.model import DONE, FAILED, NORMAL, READY, RUNNING, WAITING, Delivery
from switchgear.protocols.dwork import listing
from switchgear.protocols.dwork.messages import LogEntry, LogState, Query, QueryType, Task
from tests.protocols.dwork.harness import HOST, DworkHarness, complete, create, fail, names, steal, transfer
from tests.protocols.dwork.test_codec import plain


@pytest.fixture(params=[False, True], ids=["memory", "durable"])
def harness(request: pytest.FixtureRequest) -> DworkHarness:
    return DworkHarness(keeps=request.param)


def pages(harness: DworkHarness, n: int | None = None) -> list[Query]:
    """All pages of the list."""
    found = [harness.ask(Query(QueryType.LIST, n=n))]
    while found[-1].cursor is not None:
        found.append(harness.ask(Query(QueryType.LIST, n=n, cursor=found[-1].cursor)))
    assert all(page == Query(QueryType.OK, page.tasks, cursor=page.cursor) for page in found)
    return found


def listed(harness: DworkHarness, n: int | None = None) -> list[Task]:
    return [task for page in pages(harness, n) for task in page.tasks]


def test_a_list_has_all_tasks_by_id_with_their_states(harness: DworkHarness) -> None:
    harness.ask(create("a", "b after a", "c", "d after c", "e"))
    harness.ask(steal("w", 3))
    harness.ask(complete("w", "a"))
    harness.ask(fail("w", "c", "so it is"))
    shown = [(task.id, task.name, task.state, list(task.after)) for task in listed(harness)]
    assert shown == [
        (1, b"a", DONE, []),
        (2, b"b", READY, [1]),
        (3, b"c", FAILED, []),
        (4, b"d", WAITING, [3]),
        (5, b"e", RUNNING, []),
    ]
    assert [task.error for task in listed(harness)] == [None, None, b"so it is", None, None]
    assert {task.origin for task in listed(harness)} == {b"here"}


def test_a_log_tells_the_life_of_a_task(harness: DworkHarness) -> None:
    start = harness.now_us
    harness.ask(create("x", "a after x"))
    for query in (steal("w"), complete("w", "x"), steal("w"), transfer("w", "a"), steal("w"), fail("w", "a", "why")):
        harness.harness.pass_time(1)
        harness.ask(query)
    assert [(LogState(state), (time_us - start) / 1e6) for state, time_us in listed(harness)[1].log] == [
        (LogState.WAITING, 0),
        (LogState.READY, 2),
        (LogState.STARTED, 3),
        (LogState.READY, 4),
        (LogState.STARTED, 5),
        (LogState.RECORDED, 6),
    ]


def test_lookup_tells_where_a_task_is(harness: DworkHarness) -> None:
    start = harness.now_us
    harness.ask(create("a"))
    expected = Task(b"a", b"here", log=[LogEntry(LogState.READY, start)], id=1, state=READY)
    answer = harness.ask(Query(QueryType.LOOKUP, name=b"a"))
    assert plain(answer) == plain(Query(QueryType.OK, [expected], name=b"a", location=HOST))
    harness.ask(steal("w"))
    assert harness.ask(Query(QueryType.LOOKUP, name=b"a")).location == b"w"


def test_lookup_finds_the_newest_of_several_that_had_a_name(harness: DworkHarness) -> None:
    for _ in range(2):
        harness.ask(create("a"))
        harness.ask(steal("w"))
        harness.ask(complete("w", "a"))
    assert harness.ask(Query(QueryType.LOOKUP, name=b"a")).tasks[0].id == 2


def test_the_end_of_a_task_is_told_when_it_is_kept() -> None:
    harness = DworkHarness(keeps=True)
    harness.ask(create("a"))
    harness.ask(steal("w"))
    harness.ask(complete("w", "a"))
    harness.send(Query(QueryType.LOOKUP, name=b"a"))
    assert harness.heard() == []
    harness.keep()
    assert harness.heard()[0].tasks[0].state == DONE


def test_a_list_comes_in_pages(harness: DworkHarness) -> None:
    harness.ask(create(*(f"t{number}" for number in range(10))))
    harness.ask(steal("w", 4))
    harness.ask(complete("w", "t1", "t3"))
    assert [names(page) for page in pages(harness, 4)] == [
        ["t0", "t1", "t2", "t3"],
        ["t4", "t5", "t6", "t7"],
        ["t8", "t9"],
    ]


def test_an_empty_server_has_an_empty_list(harness: DworkHarness) -> None:
    assert harness.ask(Query(QueryType.LIST)) == Query(QueryType.OK)


def test_a_cursor_from_beyond_the_end_finds_nothing(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    assert harness.ask(Query(QueryType.LIST, cursor=2**62)) == Query(QueryType.OK)


def test_a_page_has_at_most_a_thousand(harness: DworkHarness) -> None:
    harness.ask(create(*(f"t{number}" for number in range(1500))))
    harness.ask(steal("w", 1200))
    harness.ask(complete("w", *(f"t{number}" for number in range(0, 1200, 2))))
    first, second = pages(harness, 5000)
    assert (len(first.tasks), len(second.tasks)) == (1000, 500)
    assert names(first) + names(second) == [f"t{number}" for number in range(1500)]


def test_gaps_are_passed_over(harness: DworkHarness) -> None:
    harness.ask(create("a"))
    harness.engine.next_job_id += 50_000  # as after a restart
    harness.ask(create("b"))
    assert [task.name for task in listed(harness)] == [b"a", b"b"]
    assert len(pages(harness)) == 3  # each looks no further than a while


def test_a_long_list_is_cut(harness: DworkHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ENOUGH_BYTES", 200)
    harness.ask(create("a" * 150, "b" * 150, "c"))
    assert [len(page.tasks) for page in pages(harness)] == [2, 1]


def test_only_tasks_are_listed(harness: DworkHarness) -> None:
    harness.engine.submit(b"mail", b"", b"letter", NORMAL, Delivery.HANDLE)
    harness.engine.submit(b"dwork", b"", b"from elsewhere", NORMAL, Delivery.HANDLE)
    harness.ask(create("a"))
    assert [task.name for task in listed(harness)] == [b"from elsewhere", b"a"]
    harness.ask(steal("w"))
    harness.ask(Query(QueryType.COMPLETE, [Task(b"from elsewhere")], location=b"w"))
    assert [(task.name, task.state) for task in listed(harness)] == [(b"from elsewhere", DONE), (b"a", READY)]
