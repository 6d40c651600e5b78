"""Graphs of jobs: nested groups and chains, callbacks, graphs in plain Python, and what becomes of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from switchgear import App, Failure, JobCancelled, PredecessorFailed, TaskFailed, chain, chord, group
from switchgear.app.signatures import Chain, Group
from switchgear.errors import ArgumentError, ClientError, ServerRefused
from switchgear.testing import in_memory
from switchgear.testing.in_memory_server import InMemoryServer


class OutOfStockError(Exception):
    """An exception of the user's own, with arguments of its own."""

    def __init__(self, item: str, left: int) -> None:
        super().__init__(item, left)
        self.item = item
        self.left = left

    def __str__(self) -> str:
        return f"only {self.left} of {self.item}"


app = App("gearman://127.0.0.1:1", name="graphs")
ran: list[object] = []


@app.task
def one(number: int = 1) -> int:
    ran.append(("one", number))
    return number


@app.task
def add(a: int, b: int = 0) -> int:
    ran.append(("add", a, b))
    return a + b


@app.task
def total(numbers: list[int]) -> int:
    ran.append(("total", numbers))
    return sum(numbers)


@app.task
def fail(number: int = 0) -> int:
    raise ValueError(f"no {number}")


@app.task
def sell(item: str) -> int:
    raise OutOfStockError(item, 3)


@app.task
def tell(what: str = "") -> None:
    ran.append(("told", what))


@app.task
def report(failure: Failure, word: str = "") -> str:
    ran.append(("report", failure.task, str(failure.exception), "raise ValueError" in failure.traceback, word))
    return failure.job


@app.task
async def twice(number: int) -> int:
    return 2 * number


@app.task(unique=True)
def only_one(number: int) -> int:
    return number


@pytest.fixture
def server() -> Iterator[InMemoryServer]:
    ran.clear()
    with in_memory(app) as server:
        yield server


# --- nesting ---


def test_groups_and_chains_nest_freely(server: InMemoryServer) -> None:
    inner = chain(one.s(1), group(add.s(10), add.s(20)), total.s())
    outer = group(inner, one.s(5), group(one.s(6), chain(one.s(7), add.s(1))))
    assert chain(outer, total.s(), add.s(100)).submit().result() == 11 + 21 + 5 + 6 + 8 + 100
    jobs = outer.submit()
    assert list(jobs.results()) == [32, 5, 6, 8]
    assert [job.task for job in jobs] == [total, one, one, add]


def test_operators(server: InMemoryServer) -> None:
    steps = one.s(1) | add.s(2) | (add.s(10) & add.s(20)) | total.s()
    assert isinstance(steps, Chain)
    assert len(steps.steps) == 4
    assert steps.submit().result() == 13 + 23
    members = one.s(1) & one.s(2) & (one.s(3) | add.s(1))
    assert isinstance(members, Group)
    assert list(members.submit().results()) == [1, 2, 4]
    assert chord([one.s(1), one.s(2)], total.s()).submit().result() == 3
    assert chord(group(one.s(1)), total.s()).submit().result() == 1
    with pytest.raises(TypeError):
        one.s(1) | 3  # type: ignore[operator]
    with pytest.raises(TypeError):
        one.s(1) & 3  # type: ignore[operator]


def test_an_immutable_step_is_given_nothing(server: InMemoryServer) -> None:
    assert chain(one.s(1), add.si(2, 3), add.s(1)).submit().result() == 6
    assert repr(add.si(2)) == f"{add.name}.si(2)"
    assert ran == [("one", 1), ("add", 2, 3), ("add", 5, 1)]


def test_a_graph_is_one_request_and_all_or_nothing(server: InMemoryServer) -> None:
    steps = chain(group(one.s(number) for number in range(100)), total.s())
    with pytest.raises(ArgumentError, match="b: expected int"):
        chain(group(one.s(number) for number in range(100)), total.s(), add.s("x")).submit()  # type: ignore[call-overload]
    assert not server.submitted()
    assert steps.submit().result() == sum(range(100))
    assert len(list(app.jobs(limit=None))) == 101


def test_a_refused_graph_leaves_nothing(server: InMemoryServer) -> None:
    with pytest.raises(ClientError, match="H:x:4711 is not a job of the server"):
        chain(one.s(1), add.options(after="H:x:4711").s(1)).submit()
    with pytest.raises(ServerRefused, match="job 2 of the graph waits for a job that is not before it"):
        chain(one.s(1), add.options(after="H:memory:4711").s(1)).submit()
    assert not server.submitted()
    assert not list(app.jobs())


def test_jobs_with_unique_keys_are_submitted_in_order(server: InMemoryServer) -> None:
    job = chain(group(only_one.s(3), only_one.s(3)), total.s()).submit()
    assert job.result() == 6
    assert len(set(job.status().predecessors)) == 1


def test_steps_of_two_apps_do_not_go_together() -> None:
    other = App("gearman://other")

    @other.task
    def foreign() -> None: ...

    with pytest.raises(ValueError, match="the steps of a chain belong to one app"):
        chain(one.s(), foreign.s())


# --- callbacks ---


def test_callbacks_of_a_job_that_succeeds(server: InMemoryServer) -> None:
    job = add.options(on_success=add.s(5), on_error=report.s(), finally_=tell.s("end")).submit(1, 2)
    assert job.result() == 3
    server.run_all()
    assert ran == [("add", 1, 2), ("add", 3, 5), ("told", "end")]
    (skipped,) = app.jobs(task=report)
    assert (skipped.state, skipped.error) == ("cancelled", "no job that it waited for has failed")


def test_callbacks_of_a_job_that_fails(server: InMemoryServer) -> None:
    job = fail.options(on_success=add.s(5), on_error=report.s("!"), finally_=tell.s("end")).submit(7)
    with pytest.raises(TaskFailed):
        job.result()
    server.run_all()
    told = f"job {job.handle} failed: ValueError: no 7"
    assert ran == [("report", fail.name, told, True, "!"), ("told", "end")]


def test_a_failure_in_the_middle_of_a_graph_is_handled_once_and_tells_its_root_cause(server: InMemoryServer) -> None:
    steps = chain(
        group(one.s(1), fail.s(2), one.s(3)),
        total.s(),
        group(add.s(1), add.s(2)),
        on_error=report.s(),
        on_success=tell.si("never"),
        finally_=tell.s("end"),
    )
    last = steps.submit()
    with pytest.raises(PredecessorFailed) as caught:
        last[0].result()
    assert caught.value.root_cause == f"{fail.name}: ValueError: no 2"
    assert app.job(caught.value.predecessor).status().task == fail.name
    server.run_all()
    reports = [each for each in ran if isinstance(each, tuple) and each[0] == "report"]
    assert len(reports) == 1
    assert reports[0][1] == fail.name  # the first that failed, and not those that waited for it
    assert reports[0][2].endswith("failed: ValueError: no 2")
    assert ("told", "end") in ran
    assert ("told", "never") not in ran


def test_a_callback_may_be_a_chain_and_is_skipped_as_a_whole(server: InMemoryServer) -> None:
    handler = chain(report.s(), tell.s())
    assert one.options(on_error=handler).submit(1).result() == 1
    server.run_all()
    assert [job.state for job in app.jobs(task=tell)] == ["cancelled"]
    job = fail.options(on_error=handler).submit(2)
    server.run_all()
    assert ran[-1] == ("told", job.handle)


def test_a_handler_that_is_waited_for_and_not_needed(server: InMemoryServer) -> None:
    plan = group(one.s(1), on_error=report.s())
    plan.submit()
    server.run_all()
    (handle,) = [job.handle for job in app.jobs(task=report)]
    with pytest.raises(JobCancelled, match="no job that it waited for has failed"):
        app.job(handle).result()


def test_callbacks_are_steps() -> None:
    with pytest.raises(TypeError, match="on_error is a signature such as"):
        one.options(on_error=tell)
    with pytest.raises(TypeError, match="on_error is a signature such as"):
        chain(one.s(), on_error=tell)  # type: ignore[call-overload]


# --- graphs in plain Python ---


def test_calls_in_a_graph_make_its_edges(server: InMemoryServer) -> None:
    with app.graph() as g:
        first = one(1)
        second = add(first, b=2)
        last = total([first, second, add(second, second)])
    assert g.job(last).result() == 1 + 3 + 6
    assert (g.job(second).handle, len(g), len(g.jobs)) == (g.jobs.handles[1], 4, 4)
    assert set(g.job(last).status().predecessors) == {job.handle for job in g.jobs} - {g.job(last).handle}
    assert add(1, 2) == 3  # calls are calls again


def test_a_graph_that_raises_submits_nothing(server: InMemoryServer) -> None:
    def describe() -> None:
        with g:
            one(1)
            add(1, 2, 3)  # type: ignore[call-arg]

    g = app.graph()
    with pytest.raises(ArgumentError, match="too many positional arguments"):
        describe()
    with app.graph():
        pass
    assert not server.submitted()
    with pytest.raises(ValueError, match="a graph is described once"):
        describe()


def test_a_placeholder_is_not_a_value(server: InMemoryServer) -> None:
    with app.graph() as g:
        number = one(1)
        with pytest.raises(TypeError, match="is not known before the job has run"):
            bool(number)
        with pytest.raises(TypeError):
            number + 1
        with pytest.raises(AttributeError, match="is not known before the job has run"):
            number.real  # noqa: B018
    with pytest.raises(TypeError, match="a placeholder is what a call"):
        g.job(3)


def test_steps_and_options_in_a_graph(server: InMemoryServer) -> None:
    with app.graph(on_error=report.s(), finally_=tell.s("end"), on_success=tell.s("good")) as g:
        numbers = g.add(group(one.s(1), one.s(2)))
        number = g.add(chain(one.s(3), add.s(4)))
        summed = total([*numbers, number])
        late = one.options(after=summed, priority="low")(9)
        doubled = g.add(twice.s(summed))
    assert (g.job(summed).result(), g.job(doubled).result(), g.job(late).status().priority) == (10, 20, "low")
    server.run_all()
    assert sorted(map(str, ran[-2:])) == ["('told', 'end')", "('told', 'good')"]


def test_the_handler_of_a_graph_is_given_the_root_cause(server: InMemoryServer) -> None:
    with app.graph(on_error=report.s()) as g:
        add(fail(3), 1)
    server.run_all()
    (reported,) = ran
    assert isinstance(reported, tuple)
    assert reported[1:3] == (fail.name, f"job {g.jobs.handles[0]} failed: ValueError: no 3")


def test_graphs_with_asyncio(server: InMemoryServer) -> None:
    async def main() -> int:
        async with app.graph() as g:
            number = g.add(twice.s(4))
            last = add(number, 1)
        assert await (await chain(one.s(1), add.s(1)).submit_async()) == 2
        with pytest.raises(TaskFailed):
            await (await fail.options(on_error=report.s()).submit_async(1))
        return await g.job(last)

    assert asyncio.run(main()) == 9


# --- rows and chunks ---


def test_rows_of_arguments(server: InMemoryServer) -> None:
    assert list(add.starmap([(1, 2), (3, 4)])) == [3, 7]
    assert list(add.starmap(iter([(1, 2)] * 5), window=2, in_order=False)) == [3] * 5
    with pytest.raises(ArgumentError, match="missing a required argument"):
        list(add.starmap([()]))  # type: ignore[list-item]
    with pytest.raises(ValueError, match="starmap has no callbacks"):
        add.options(on_error=report.s()).starmap([(1, 2)])


def test_chunks_make_several_calls_in_one_job(server: InMemoryServer) -> None:
    jobs = add.chunks(((number, 10) for number in range(7)), 3).submit()
    assert list(jobs.results()) == [[10, 11, 12], [13, 14, 15], [16]]
    assert len(list(app.jobs(task=add))) == 3
    assert list(twice.chunks([(1,), (2,)], 5).submit().results()) == [[2, 4]]
    with app.graph() as g:
        first = one(5)
        (sums,) = g.add(add.chunks([(first, 1), (first, 2)], 2))
        last = total(sums)
    assert g.job(last).result() == 6 + 7
    with pytest.raises(ValueError, match="no 2"):
        list(fail.chunks([(2,), (3,)], 2).submit().results())
    with pytest.raises(ArgumentError, match="a: expected int, got str"):
        add.chunks([("x", 1)], 2).submit()  # type: ignore[list-item]
    with pytest.raises(ValueError, match="size is a whole number"):
        add.chunks([(1, 2)], 0)
    with pytest.raises(ValueError, match="a group needs a member"):
        add.chunks([], 2)


# --- exceptions ---


def test_an_exception_comes_back_as_its_own_class(server: InMemoryServer) -> None:
    with pytest.raises(ValueError, match="no 5") as caught:
        fail.submit(5).result()
    assert isinstance(caught.value, TaskFailed)
    assert "raise ValueError" in caught.value.remote_traceback
    with pytest.raises(OutOfStockError, match="only 3 of pens") as sold:
        sell.submit("pens").result()
    failure = sold.value
    assert isinstance(failure, TaskFailed)
    assert (failure.error_type, failure.message, failure.original_args) == (
        "OutOfStockError",
        "only 3 of pens",
        ("pens", 3),
    )
    assert "Raised:" not in failure.remote_traceback


def test_an_exception_of_a_class_that_is_not_allowed_is_a_plain_failure(server: InMemoryServer) -> None:
    job = app.job(sell.submit("pens").handle)  # of which task it is, is not known
    with pytest.raises(TaskFailed) as caught:
        job.result()
    assert type(caught.value) is TaskFailed
    app.exceptions = (OutOfStockError,)
    try:
        with pytest.raises(OutOfStockError):
            job.result()
        app.exceptions = None
        with pytest.raises(TaskFailed) as caught:
            fail.submit(5).result()
        assert type(caught.value) is TaskFailed
    finally:
        app.exceptions = ()
