"""An app with a server in memory: the real engine and protocol, one thread, and time that stands still."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from switchgear.app.app import App
from switchgear.app.current_job import current_job
from switchgear.errors import (
    ArgumentError,
    ClientError,
    JobCancelled,
    JobExpired,
    JobUnknown,
    PredecessorFailed,
    ServerRefused,
    ServerUnreachable,
    TaskFailed,
)
from switchgear.testing import InMemoryServer, WouldWaitForever, in_memory


class Shop:
    """Some tasks, and what they did."""

    def __init__(self) -> None:
        self.app = app = App("gearman://127.0.0.1:1", connect_seconds=0.05)  # where nobody is
        self.done: list[str] = []

        @app.task(name="add")
        def add(a: int, b: int = 1) -> int:
            self.done.append(f"{a}+{b}")
            return a + b

        @app.task(name="fail")
        def fail(text: str) -> None:
            raise LookupError(text)

        @app.task(name="flaky", retries=3, backoff="exponential", jitter=False)
        def flaky(good_at: int) -> int:
            attempt = current_job().attempt
            self.done.append(f"attempt {attempt}")
            if attempt < good_at:
                raise OSError("not yet")
            return attempt

        @app.task(name="total")
        def total(numbers: list[int]) -> int:
            return sum(job.result() for job in [add.submit(number) for number in numbers])

        @app.task(name="slow_add")
        async def slow_add(a: int, b: int) -> int:
            await asyncio.sleep(0)
            return a + b

        self.add, self.fail, self.flaky, self.total, self.slow_add = add, fail, flaky, total, slow_add


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def server(shop: Shop) -> Iterator[InMemoryServer]:
    with in_memory(shop.app) as server:
        yield server


@pytest.fixture
def stepping(shop: Shop) -> Iterator[InMemoryServer]:
    with in_memory(shop.app, "step") as server:
        yield server


# --- at once ---


def test_a_job_has_been_run_when_submit_returns(shop: Shop, server: InMemoryServer) -> None:
    job = shop.add.submit(1, b=2)
    assert shop.done == ["1+2"]
    assert job.result() == 3
    assert job.status().state == "done"


def test_a_job_by_its_handle(shop: Shop, server: InMemoryServer) -> None:
    handle = shop.add.submit(1).handle
    assert shop.app.job(handle).result() == 2
    assert shop.add.job(handle).result() == 2


def test_nested_submits_are_run_inside(shop: Shop, server: InMemoryServer) -> None:
    assert shop.total.submit([1, 2, 3]).result() == 9
    assert shop.done == ["1+1", "2+1", "3+1"]


def test_a_job_as_an_argument(shop: Shop, server: InMemoryServer) -> None:
    first = shop.add.submit(1)
    assert shop.add.submit(first.as_argument, 10).result() == 12


def test_many(shop: Shop, server: InMemoryServer) -> None:
    assert list(shop.add.map(range(2000))) == list(range(1, 2001))
    assert len(shop.add.submit_many(range(3))) == 3


def test_arguments_and_results_go_through_the_wire(shop: Shop, server: InMemoryServer) -> None:
    @shop.app.task(name="types")
    def types(when: datetime, pair: tuple[int, str]) -> list[str]:
        return [type(when).__name__, type(pair).__name__]

    assert types.submit(datetime(2030, 1, 1, tzinfo=UTC), (1, "a")).result() == ["datetime", "tuple"]


def test_an_argument_that_does_not_fit_is_told_as_ever(shop: Shop, server: InMemoryServer) -> None:
    with pytest.raises(ArgumentError, match="add: a: expected int, got str"):
        shop.add.submit("one")  # type: ignore[arg-type]


def test_progress_is_heard(shop: Shop, server: InMemoryServer) -> None:
    @shop.app.task(name="telling")
    def telling() -> None:
        current_job().progress(1, 4, "beginning")

    job = telling.submit()
    assert [(update.done, update.total, update.message) for update in job.updates()] == [(1, 4, "beginning")]


def test_tasks_that_submit_each_other_without_end_are_told_so(shop: Shop, server: InMemoryServer) -> None:
    @shop.app.task(name="endless")
    def endless() -> None:
        endless.submit()

    with pytest.raises(RecursionError, match="30 tasks are running inside each other"):
        endless.submit()
    shop.add.submit(1)
    assert shop.done == ["1+1"], "the others are not concerned"


# --- failing ---


def test_a_failure_is_told_with_the_traceback_as_text(shop: Shop, server: InMemoryServer) -> None:
    with pytest.raises(TaskFailed, match="LookupError: nothing here") as caught:
        shop.fail.submit("nothing here").result()
    assert caught.value.__cause__ is None
    assert "raise LookupError(text)" in caught.value.remote_traceback


def test_a_failure_has_its_real_cause_if_that_is_asked_for(shop: Shop) -> None:
    with in_memory(shop.app, raise_errors=True), pytest.raises(TaskFailed) as caught:
        shop.fail.submit("nothing here").result()
    cause = caught.value.__cause__
    assert isinstance(cause, LookupError)
    assert traceback.extract_tb(cause.__traceback__)[-1].name == "fail"


def test_dependents_of_a_failure_end_too(shop: Shop, server: InMemoryServer) -> None:
    first = shop.fail.submit("x")
    with pytest.raises(PredecessorFailed):
        shop.add.options(after=[first]).submit(1).result()


# --- time ---


def test_retries_happen_when_their_time_has_come(shop: Shop, server: InMemoryServer) -> None:
    job = shop.flaky.submit(3)
    assert shop.done == ["attempt 1"]
    with pytest.raises(WouldWaitForever, match="the next one is due in"):
        job.result()
    server.advance(1000)
    assert shop.done == ["attempt 1", "attempt 2", "attempt 3"]
    assert job.result() == 3


def test_retries_take_the_time_that_their_backoff_says(shop: Shop, server: InMemoryServer) -> None:
    delay = shop.flaky.options.backoff.delay_seconds(1, 0.5)
    shop.flaky.submit(3)
    server.advance(delay - 0.01)
    assert len(shop.done) == 1
    server.advance(0.02)
    assert len(shop.done) == 2


def test_a_delayed_job_waits_for_its_time_whatever_the_time_is(shop: Shop, server: InMemoryServer) -> None:
    server.advance(7200)
    shop.add.options(delay=60).submit(1)
    server.advance(59)
    assert shop.done == []
    server.advance(1)
    assert shop.done == ["1+1"]


def test_a_job_that_is_not_started_in_time_expires(shop: Shop, server: InMemoryServer) -> None:
    shop.app.pause(shop.add)
    job = shop.add.options(expires=10).submit(1)
    server.advance(11)
    with pytest.raises(JobExpired):
        job.result()


def test_schedules_tick(shop: Shop) -> None:
    @shop.app.every(30, name="tick")
    def tick() -> None:
        shop.done.append("tick")

    start = datetime(2030, 1, 1, 12, 0, 1, tzinfo=UTC)
    with in_memory(shop.app, start=start.timestamp()) as server:
        server.advance(95)
    assert shop.done == ["tick"] * 3


def test_cron_ticks_at_its_times(shop: Shop) -> None:
    times: list[str] = []

    @shop.app.every("*/15 * * * *", timezone="UTC", name="quarterly")
    def quarterly() -> None:
        times.append(datetime.fromtimestamp(harness.now(), UTC).strftime("%H:%M"))

    with in_memory(shop.app, start=datetime(2030, 1, 1, 11, 50, tzinfo=UTC).timestamp()) as harness:
        harness.advance(3600)
    assert times == ["12:00", "12:15", "12:30", "12:45"]


def test_a_time_limit_ends_a_run_that_takes_too_long(shop: Shop, server: InMemoryServer) -> None:
    heard: list[str] = []

    @shop.app.task(name="long", timeout=10, crash_limit=1)
    def long() -> None:
        server.advance(11)
        heard.append(current_job().cancel_reason)

    long.submit()
    assert heard == ["timed_out"]


def test_time_does_not_run_backwards(server: InMemoryServer) -> None:
    with pytest.raises(ValueError, match="backwards"):
        server.advance(-1)


# --- step by step ---


def test_nothing_runs_before_it_is_told_to(shop: Shop, stepping: InMemoryServer) -> None:
    first, second = shop.add.submit(1), shop.add.submit(2)
    assert shop.done == []
    assert stepping.run_one()
    assert (first.status().state, second.status().state) == ("done", "ready")
    assert stepping.run_one()
    assert not stepping.run_one()
    assert second.result() == 3


def test_run_all_runs_what_becomes_ready_too(shop: Shop, stepping: InMemoryServer) -> None:
    last = shop.add.options(after=[shop.add.submit(1)]).submit(2)
    assert stepping.run_all() == 2
    assert last.result() == 3


def test_run_until_idle_lets_time_pass(shop: Shop, stepping: InMemoryServer) -> None:
    job = shop.flaky.submit(3)
    shop.add.options(delay=3600).submit(1)
    assert stepping.run_until_idle() == 4
    assert job.result() == 3
    assert shop.done[-1] == "1+1"


@pytest.mark.parametrize(
    ("rate", "key_rate", "seconds"),
    [("20/s", None, 2.0), (None, "20/s", 0.5)],
    ids=["of the task", "of each key"],
)
def test_run_until_idle_waits_for_rates(
    shop: Shop, stepping: InMemoryServer, rate: str | None, key_rate: str | None, seconds: float
) -> None:
    @shop.app.task(name="limited", key=lambda number: f"tenant {number % 2}", rate=rate, rate_per_key=key_rate)
    def limited(number: int) -> int:
        return number

    jobs = limited.submit_many(range(60))
    begin = stepping.now()
    assert stepping.run_until_idle() == 60
    assert jobs.counts() == {"done": 60}
    assert stepping.now() - begin == pytest.approx(seconds, abs=0.1)


def test_run_until_idle_does_not_wait_for_rates_that_keep_nobody(shop: Shop, stepping: InMemoryServer) -> None:
    @shop.app.task(name="limited", rate="1/h")
    def limited(number: int) -> int:
        return number

    limited.submit(1)
    begin = stepping.now()
    assert stepping.run_until_idle() == 1
    assert stepping.now() == begin
    limited.submit(2)
    shop.app.pause(limited)
    assert stepping.run_until_idle() == 0
    assert stepping.now() == begin


def test_run_until_idle_waits_for_an_end_that_lets_others_run(shop: Shop, stepping: InMemoryServer) -> None:
    shop.app.pause(shop.flaky)
    first = shop.flaky.options(expires=60).submit(1)
    second = shop.add.options(after=[first], on_failure="run").submit(1)
    assert stepping.run_until_idle() == 1
    assert (first.status().state, second.status().state) == ("expired", "done")


def test_waiting_with_a_time_limit_ends_as_it_does_elsewhere(shop: Shop, server: InMemoryServer) -> None:
    job = shop.add.options(delay=60).submit(1)
    with pytest.raises(TimeoutError, match="scheduled") as caught:
        job.result(timeout=5)
    assert isinstance(caught.value, WouldWaitForever)
    with pytest.raises(WouldWaitForever) as without:
        job.result()
    assert not isinstance(without.value, TimeoutError)

    async def main() -> None:
        with pytest.raises(TimeoutError, match="scheduled"):
            await job.result_async(timeout=5)

    asyncio.run(main())
    server.advance(60)
    assert job.result(timeout=5) == 2


def test_waiting_for_what_cannot_come_says_why(shop: Shop, stepping: InMemoryServer) -> None:
    job = shop.add.submit(1)
    shop.app.pause(shop.add)
    with pytest.raises(WouldWaitForever, match="paused"):
        job.result()
    with pytest.raises(WouldWaitForever, match="paused"):
        job.result(timeout=5)
    assert "paused" in stepping.explain(job)


def test_cancelled_before_it_was_run(shop: Shop, stepping: InMemoryServer) -> None:
    job = shop.add.submit(1)
    assert job.cancel()
    assert stepping.run_all() == 0
    with pytest.raises(JobCancelled):
        job.result()


def test_unique_jobs_are_one(shop: Shop, stepping: InMemoryServer) -> None:
    unique = shop.add.options(unique=True)
    assert unique.submit(1).handle == unique.submit(1).handle
    assert stepping.run_all() == 1
    assert len(stepping.submitted(shop.add)) == 2


# --- looking ---


def test_what_was_submitted(shop: Shop, stepping: InMemoryServer) -> None:
    job = shop.add.options(priority="high").submit(1, b=2)
    shop.fail.submit("x")
    (submitted,) = stepping.submitted(shop.add)
    assert (submitted.task, dict(submitted.arguments)) == ("add", {"a": 1, "b": 2})
    assert (submitted.handle, submitted.priority) == (job.handle, "high")
    assert [each.task for each in stepping.submitted()] == ["add", "fail"]


def test_jobs_by_task_and_state(shop: Shop, stepping: InMemoryServer) -> None:
    shop.add.submit(1)
    shop.fail.submit("x")
    stepping.run_all()
    shop.add.submit(2)
    assert [job.state for job in stepping.jobs()] == ["done", "failed", "ready"]
    assert [job.state for job in stepping.jobs(shop.add)] == ["done", "ready"]
    assert len(stepping.jobs(None, "failed")) == 1


# --- asyncio ---


def test_coroutine_functions_are_run(shop: Shop, server: InMemoryServer) -> None:
    assert shop.slow_add.submit(1, 2).result() == 3


def test_in_an_event_loop(shop: Shop) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[bool] = []

        @shop.app.task(name="where")
        async def where() -> None:
            seen.append(asyncio.get_running_loop() is loop)

        async with in_memory(shop.app) as server:
            job = await shop.slow_add.submit_async(1, 2)
            assert await job == 3
            await (await where.submit_async())
            assert seen == [True]
            assert shop.slow_add.submit(3, 4).result() == 7  # a plain call works too
            await shop.flaky.submit_async(2)
            await server.advance_async(1000)
            assert shop.done == ["attempt 1", "attempt 2"]

    asyncio.run(main())


def test_coroutines_that_wait_for_each_other(shop: Shop) -> None:
    async def main() -> tuple[int, int, int]:
        gate = asyncio.Event()

        @shop.app.task(name="gated")
        async def gated(number: int) -> int:
            await gate.wait()
            return number

        async def opening() -> int:
            job = await shop.slow_add.submit_async(1, 1)
            gate.set()
            return await job

        async with in_memory(shop.app):

            async def asking(number: int) -> int:
                return await (await gated.submit_async(number))

            seven, eight, two = await asyncio.gather(asking(7), asking(8), opening())
            return seven, eight, two

    assert asyncio.run(main()) == (7, 8, 2)


def test_a_coroutine_that_would_wait_for_ever_is_told_so(shop: Shop) -> None:
    async def main() -> None:
        async with in_memory(shop.app, "step"):
            job = await shop.add.submit_async(1)
            with pytest.raises(WouldWaitForever, match="is ready"):
                await job

    asyncio.run(main())


# --- the block ---


def test_after_the_block_the_app_is_as_before(shop: Shop) -> None:
    with in_memory(shop.app, "step"):
        job = shop.add.submit(1)
    with pytest.raises(ServerUnreachable):
        job.result()
    transport = shop.app.transport
    with in_memory(shop.app):
        assert shop.add.submit(1).result() == 2
    assert shop.app.transport is transport


def test_each_block_has_a_server_of_its_own(shop: Shop) -> None:
    for _ in range(2):
        with in_memory(shop.app, "step") as server:
            assert server.jobs() == []
            assert shop.add.submit(1).handle == "H:memory:1"


def test_a_mode_that_there_is_not(shop: Shop) -> None:
    with pytest.raises(ValueError, match='"at_once" or "step"'):
        in_memory(shop.app, "eager")  # type: ignore[arg-type]


def test_one_server_one_block(shop: Shop) -> None:
    with in_memory(shop.app) as server, pytest.raises(RuntimeError, match="in use already"), server:
        pass


def test_a_result_that_another_job_waits_for_is_there_whatever_its_retention(
    shop: Shop, stepping: InMemoryServer
) -> None:
    first = shop.add.options(retention=0).submit(1)
    second = shop.add.submit(first.as_argument, 10)
    while stepping.run_one():
        pass
    assert second.result() == 12


def test_what_a_server_refuses_is_refused_as_ever(shop: Shop, server: InMemoryServer) -> None:
    with pytest.raises(ServerRefused, match="H:memory:999"):
        shop.add.options(after="H:memory:999").submit(1)
    with pytest.raises(JobUnknown):
        shop.app.job("H:memory:999").cancel()
    with pytest.raises(ServerRefused, match="unknown verb"):
        shop.app.control("dance")
    assert shop.add.submit(1).result() == 2


@pytest.mark.parametrize(
    "refused",
    [
        lambda shop: shop.app.cancel_all(),
        lambda shop: shop.add.options(after="foo").submit(1),
        lambda shop: shop.app.control("explain", handle="foo"),
        lambda shop: shop.app.control("limit", function="add", rate="often"),
    ],
    ids=["cancel_all without a filter", "after foo", "explain foo", "a limit that is none"],
)
def test_after_a_refusal_everything_works(
    shop: Shop, server: InMemoryServer, refused: Callable[[Shop], object]
) -> None:
    for _ in range(3):
        with pytest.raises((ClientError, ValueError)):
            refused(shop)
    assert list(shop.add.map([1, 2, 3])) == [2, 3, 4]
    shop.app.pause("x")
    assert shop.add.submit(1).result() == 2
