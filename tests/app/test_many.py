"""Many jobs: groups, maps, chains."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from switchgear import (
    App,
    ArgumentError,
    Job,
    JobGroup,
    JobUnknown,
    ServerRefused,
    TaskFailed,
    chain,
    group,
)
from tests.app.harness import hand_worker, working
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind

pytestmark = pytest.mark.system

WAIT = DEADLINE_SECONDS
SENDING_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
GIVEN_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a store that remembers more than the last thousand results."""
    with running_switchgear(store=f"sqlite:{tmp_path_factory.mktemp('store') / 'jobs.db'}") as server:
        yield server


class Tasks:
    """Some tasks of an app."""

    def __init__(self, app: App, prefix: str) -> None:
        @app.task(name=f"{prefix}.add")
        def add(a: int, b: int = 1) -> int:
            return a + b

        @app.task(name=f"{prefix}.odd_only")
        def odd_only(a: int) -> int:
            if a % 2 == 0:
                raise ValueError(f"{a} is even")
            return a

        @app.task(name=f"{prefix}.total")
        def total(numbers: list[int], more: int = 0) -> int:
            return sum(numbers) + more

        @app.task(name=f"{prefix}.double")
        async def double(a: int) -> int:
            return a * 2

        self.add, self.odd_only, self.total, self.double = add, odd_only, total, double


@pytest.fixture
def tasks(app: App, request: pytest.FixtureRequest) -> Tasks:
    return Tasks(app, request.node.name)


# --- groups ---


def test_many_jobs_are_a_group(app: App, tasks: Tasks) -> None:
    jobs = tasks.add.submit_many(range(1200))
    assert (len(jobs), repr(jobs)) == (1200, "<JobGroup of 1200 jobs>")
    assert len(set(jobs.handles)) == 1200
    assert jobs.counts() == {"ready": 1200}
    with working(app):
        assert list(jobs.results(timeout=WAIT)) == list(range(1, 1201))
        assert sorted(jobs.results(in_order=False)) == list(range(1, 1201))
        assert jobs.wait() == {"done": 1200}
    assert jobs.counts() == {"done": 1200}
    assert jobs.counts() == {"done": 1200}  # the server is not asked again
    assert jobs[-1].result(WAIT) == 1200
    assert [job.handle for job in jobs][:3] == list(jobs.handles[:3])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"retries": 2, "timeout": 9, "retention": 7, "crash_limit": 1, "priority": "high", "durable": False},
        {"unique": True},
        {"key": "k"},
        {"after": ["H:x:1"]},
        {"trace": GIVEN_TRACE},
    ],
)
@pytest.mark.parametrize("trace", ["", SENDING_TRACE], ids=["untraced", "traced"])
def test_many_requests_are_what_each_would_be_alone(app: App, options: dict[str, Any], trace: str) -> None:
    def double(number: int, more: Any = None) -> None: ...

    task: Any = app.task(name="double")(double).options(**options)
    earlier = app.job("H:x:2")
    rows: list[tuple[Any, ...]] = [(1, None), (2, "$job"), (3, earlier), (4, 1.5)]
    for watch in (True, False):
        many = list(task._requests(tuple(zip(*rows, strict=True)), watch=watch, trace=trace))
        assert many == [task.request(row, {}, watch=watch, trace=trace) for row in rows]
        assert {request.options.get("trace", "") for request in many} == {options.get("trace", trace)}
    assert many[2].options["after"][-1 if not options.get("after") else 0] == "H:x:2"


def test_a_million_handles_take_eight_bytes_each(app: App) -> None:
    jobs: JobGroup[int] = JobGroup(app, None, (f"H:host:{number}" for number in range(100_000)))
    assert sys.getsizeof(jobs.handles._numbers) < 1_000_000
    assert jobs.handles[99_999] == "H:host:99999"
    with pytest.raises(IndexError):
        jobs.handles[100_000]


def test_rows_of_several_iterables(app: App, tasks: Tasks) -> None:
    with working(app):
        assert list(tasks.add.submit_many([1, 2], [10, 20]).results()) == [11, 22]


def test_rows_of_different_lengths_are_a_mistake(app: App, tasks: Tasks) -> None:
    with pytest.raises(ValueError, match="add: the iterables have different lengths: 2, 1"):
        tasks.add.submit_many([1, 2], [10])
    with pytest.raises(ValueError, match="different lengths: 1, 2"):
        tasks.add.map([1], [10, 20])
    with pytest.raises(ValueError, match="shorter") as caught:  # seen only when it happens
        tasks.add.submit_many(iter([1, 2]), iter([10]))
    assert len(caught.value.submitted) == 0  # type: ignore[attr-defined]  # of so few, none had been sent
    with working(app), pytest.raises(ValueError, match="longer"):
        list(tasks.add.map(iter([1]), iter([10, 20]), window=1))


def test_what_is_endless_may_stand_beside_others(app: App, tasks: Tasks) -> None:
    with working(app):
        assert list(tasks.add.map([1, 2], itertools.repeat(10))) == [11, 12]
        assert list(tasks.add.map(itertools.count(), iter([10, 20]))) == [10, 21]
        assert list(itertools.islice(tasks.add.map(itertools.count(), itertools.cycle([1]), window=2), 2)) == [1, 2]
    with pytest.raises(ValueError, match="shorter"):
        list(tasks.add.submit_many(iter([1, 2]), itertools.repeat(10, 1)))


def test_a_part_of_a_group_is_a_group(app: App, tasks: Tasks) -> None:
    jobs = tasks.add.submit_many(range(5))
    part = jobs[1:3]
    assert isinstance(part, JobGroup)
    assert list(part.handles) == jobs.handles[1:3]
    assert (jobs[-1].handle, len(jobs[10:])) == (jobs.handles[4], 0)
    with pytest.raises(IndexError):
        jobs[5]
    with working(app):
        assert list(part.results(timeout=WAIT)) == [2, 3]
        mixed = group(tasks.add.s(1), tasks.double.s(4)).submit()
        assert mixed[1:][0].result(WAIT) == 8


def test_a_timeout_is_for_the_whole_group(app: App, live_server: Server, tasks: Tasks) -> None:
    jobs = tasks.add.submit_many(range(3))
    clock = Clock()
    with hand_worker(live_server, tasks.add) as worker, pytest.MonkeyPatch.context() as patch:
        patch.setattr("switchgear.app.job_group.time", clock)
        worker.complete(worker.grab()[0], b"1")
        results = jobs.results(timeout=1000)
        assert next(results) == 1
        clock.seconds += 1000  # that was all there was
        with pytest.raises(TimeoutError, match="the jobs have not all ended within 1000 s"):
            next(results)
    with pytest.raises(TimeoutError, match=r"the jobs have not all ended within 0.01 s"):
        jobs.wait(0.01)


class Clock:
    """Stands still unless it is told to go on."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_failures_among_many(app: App, tasks: Tasks) -> None:
    with working(app):
        jobs = tasks.odd_only.submit_many([1, 2, 3])
        results = jobs.results()
        assert next(results) == 1
        with pytest.raises(TaskFailed, match="2 is even"):
            next(results)
        first, second, third = jobs.results(return_exceptions=True)
        assert (first, third) == (1, 3)
        assert isinstance(second, TaskFailed)
        assert jobs.wait() == {"done": 2, "failed": 1}
        assert jobs.retry() == 1
        assert jobs.wait() == {"done": 2, "failed": 1}


def test_a_group_is_cancelled(app: App, tasks: Tasks) -> None:
    jobs = tasks.add.submit_many(range(5))
    jobs[0].cancel()
    assert jobs.cancel() == 4
    assert jobs.counts() == {"cancelled": 5}
    assert jobs.retry() == 5
    assert jobs.counts() == {"ready": 5}
    jobs.cancel()


def test_jobs_that_are_not_there(app: App) -> None:
    jobs: JobGroup[int] = JobGroup(app, None, ["H:nowhere:1", "H:nowhere:2"])
    assert jobs.counts() == {"unknown": 2}
    with pytest.raises(JobUnknown):
        list(jobs.results())


def test_states_are_asked_for_many_at_a_time(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: JobGroup[int] = JobGroup(app, None, (f"H:nowhere:{number}" for number in range(1200)))
    control = app.transport.control
    asked: list[int] = []

    def counting(verb: str, arguments: dict[str, Any], place: int | None = None) -> Future[Any]:
        asked.append(len(arguments["handles"]))
        return control(verb, arguments, place)

    monkeypatch.setattr(app.transport, "control", counting)
    monkeypatch.setattr("switchgear.app.job_group._MOST_STATES", 500)
    assert jobs.counts() == {"unknown": 1200}
    assert asked == [500, 500, 200]


def test_a_mistake_in_the_middle_tells_what_was_submitted(app: App, tasks: Tasks) -> None:
    with pytest.raises(ArgumentError, match="a: expected int, got str") as caught:
        tasks.add.submit_many(itertools.chain(range(700), ["x"]))  # type: ignore[list-item]
    submitted = caught.value.submitted  # type: ignore[attr-defined]
    assert len(submitted) <= 700
    assert "submitted before: " in caught.value.__notes__[0]


def test_a_refusal_in_the_middle_tells_what_was_submitted() -> None:
    with running_switchgear("--set", "limits.jobs=3") as server, App(f"gearman://127.0.0.1:{server.port}") as app:
        tasks = Tasks(app, "full")
        with pytest.raises(ServerRefused, match="Job queue is full") as caught:
            tasks.add.submit_many(range(5))
        assert len(caught.value.submitted) == 3  # type: ignore[attr-defined]
        with pytest.raises(ServerRefused, match="Job queue is full"):
            list(tasks.add.map(range(5)))


def test_nothing_is_no_job(app: App, tasks: Tasks) -> None:
    assert len(tasks.add.submit_many([])) == 0
    assert list(tasks.add.map([])) == []
    with pytest.raises(TypeError, match="an iterable of arguments is needed"):
        tasks.add.submit_many()  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="3 is not iterable"):
        tasks.add.map(3)  # type: ignore[call-overload]


def test_groups_with_asyncio(app: App, tasks: Tasks) -> None:
    async def main() -> None:
        jobs = await tasks.double.submit_many_async(range(1200))
        assert [result async for result in jobs.results_async()] == list(range(0, 2400, 2))
        unordered = [result async for result in jobs.results_async(in_order=False, timeout=WAIT)]
        assert sorted(unordered) == list(range(0, 2400, 2))

    with working(app):
        asyncio.run(main())


# --- maps ---


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "as they end"])
@pytest.mark.parametrize("window", [1, 7, 1000])
def test_a_map_gives_results(app: App, tasks: Tasks, window: int, in_order: bool) -> None:
    with working(app):
        results = list(tasks.add.map(range(100), window=window, in_order=in_order))
    assert (results if in_order else sorted(results)) == list(range(1, 101))


def test_a_map_has_a_bounded_number_of_jobs_at_a_time(app: App, tasks: Tasks) -> None:
    taken: list[int] = []

    def without_end() -> Any:
        for number in itertools.count():
            taken.append(number)
            yield number

    with working(app):
        results = tasks.add.map(without_end(), window=10)
        assert taken == []  # nothing is done before the first result is asked for
        assert list(itertools.islice(results, 30)) == list(range(1, 31))
        assert len(taken) <= 40
        results.close()  # type: ignore[attr-defined]


def test_a_map_that_fails_cancels_the_rest(app: App, tasks: Tasks, live_server: Server) -> None:
    with hand_worker(live_server, tasks.add) as worker, ThreadPoolExecutor(1) as other_thread:
        first = other_thread.submit(next, tasks.add.map([2, 3, 5], window=3))
        worker.wire.send(Kind.WORK_FAIL, worker.grab()[0])
        with pytest.raises(TaskFailed):
            first.result(WAIT)
    eventually(
        lambda: [info.state for info in app.jobs(task=tasks.add)] == ["cancelled", "cancelled", "failed"],
        "the others are cancelled",
    )


def test_a_map_with_asyncio(app: App, tasks: Tasks) -> None:
    async def main() -> None:
        assert [result async for result in tasks.double.amap(range(20), window=5)] == list(range(0, 40, 2))
        unordered = [result async for result in tasks.double.amap(range(20), window=5, in_order=False)]
        assert sorted(unordered) == list(range(0, 40, 2))

    with working(app):
        asyncio.run(main())


def test_a_window_is_a_number(tasks: Tasks) -> None:
    with pytest.raises(ValueError, match="window is a whole number from 1 up, not 0"):
        tasks.add.map([1], window=0)


# --- chains ---


def test_a_chain_passes_results_on(app: App, tasks: Tasks) -> None:
    with working(app):
        job = chain(tasks.add.s(1), tasks.add.s(10), tasks.double.s()).submit()
        assert isinstance(job, Job)
        assert job.result(WAIT) == 24


def test_a_chain_of_groups(app: App, tasks: Tasks) -> None:
    with working(app):
        steps = chain(
            tasks.add.s(1),
            group(tasks.add.s(number) for number in (10, 20)),
            tasks.total.s(more=100),
            group(tasks.add.s(), tasks.double.s()),
        ).submit_all()
        assert [type(step) for step in steps] == [Job, JobGroup, Job, JobGroup]
        last = steps[-1]
        assert isinstance(last, JobGroup)
        assert list(last.results(timeout=WAIT)) == [135, 268]


def test_a_step_may_wait_for_more_than_ten_thousand_jobs(app: App, tasks: Tasks) -> None:
    with working(app):
        job = chain(group(tasks.add.s(number) for number in range(10_001)), tasks.total.s()).submit()
        assert job.result(10 * WAIT) == sum(range(1, 10_002))


def test_a_chain_that_only_waits(app: App, tasks: Tasks) -> None:
    with working(app):
        first, second = chain(tasks.add.s(1), tasks.add.s(5), pass_results=False).submit_all()
        assert isinstance(second, Job)
        assert second.result(WAIT) == 6
        assert isinstance(first, Job)
        assert second.status().predecessors == (first.handle,)


def test_chains_and_groups_with_asyncio(app: App, tasks: Tasks) -> None:
    async def main() -> None:
        job = await chain(tasks.add.s(1), group([tasks.add.s(1), tasks.add.s(2)]), tasks.total.s()).submit_async()
        assert isinstance(job, Job)
        assert await job == 3 + 4

    with working(app):
        asyncio.run(main())


def test_a_group_as_an_argument(app: App, tasks: Tasks) -> None:
    with working(app):
        jobs = tasks.add.submit_many([1, 2, 3])
        assert tasks.total.submit(jobs.as_argument, more=1).result(WAIT) == 10


def test_signatures_have_options(app: App, tasks: Tasks) -> None:
    signature = tasks.add.s(1, b=2).options(priority="high")
    assert repr(signature) == f"{tasks.add.name}.s(1, b=2)"
    job = signature.submit()
    assert job.status().priority == "high"
    job.cancel()


def test_what_is_no_step(app: App, tasks: Tasks) -> None:
    with pytest.raises(TypeError, match="a chain is made of signatures such as task"):
        chain(tasks.add.s(1), 3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="a group is made of signatures such as task"):
        group([3])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a group is made of signatures such as task"):
        group(tasks.add.s(1), tasks.add)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="a chain needs a step"):
        chain()
    with pytest.raises(ValueError, match="a group needs a member"):
        group([])
    with pytest.raises(ValueError, match="the members of a group belong to one app"):
        group(tasks.add.s(1), Tasks(App("gearman://other"), "x").add.s(1))
