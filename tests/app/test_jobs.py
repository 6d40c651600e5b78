"""Jobs through a real server: results, failures, progress, and what can be done to a job."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from typing import Any

import pytest

from switchgear import (
    AlreadySubmitted,
    App,
    Job,
    JobCancelled,
    JobExpired,
    JobLost,
    JobTimedOut,
    JobUnknown,
    NotFound,
    PredecessorFailed,
    Progress,
    ServerRefused,
    TaskFailed,
    current_job,
)
from tests.app.harness import hand_worker, url_of, working
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind

pytestmark = pytest.mark.system

WAIT = DEADLINE_SECONDS


def test_a_result_comes_back(app: App) -> None:
    @app.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    with working(app):
        job = add.submit(2, b=3)
        assert job.result(WAIT) == 5
        assert job.result() == 5  # asking again is no mistake
        assert repr(job) == f"<Job {job.handle} {add.name} done>"
        assert job.wait() == "done"


def test_a_label_is_what_people_see(app: App) -> None:
    @app.task(label=lambda order: f"order {order}")
    def ship(order: int) -> None: ...

    handles = [ship.submit(17).handle, *ship.submit_many([18]).handles]
    handles.append(ship.options(label="x" * 300).submit(19).handle)
    labels = [app.job(handle).status().details["label"] for handle in handles]
    assert labels == ["order 17", "order 18", "x" * 256]


def test_threads_and_event_loops_share_one_line(app: App) -> None:
    @app.task
    def add(a: int) -> int:
        return a + 1

    async def several(first: int) -> list[int]:
        return list(await asyncio.gather(*[await add.submit_async(first + number) for number in range(20)]))

    def one_by_one(first: int) -> list[int]:
        return [add.submit(first + number).result(WAIT) for number in range(20)]

    with working(app), ThreadPoolExecutor(6) as threads:
        ways = [one_by_one, lambda first: asyncio.run(several(first))] * 3
        results = [threads.submit(way, number * 100) for number, way in enumerate(ways)]
        assert [result.result(WAIT) for result in results] == [
            list(range(number * 100 + 1, number * 100 + 21)) for number in range(6)
        ]
        lines = [thread for thread in threading.enumerate() if thread.name == "switchgear-line"]
        assert len(lines) == 1


def test_asyncio_submits_and_waits(app: App) -> None:
    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    async def main() -> None:
        job = await double.submit_async(4)
        assert await job == 8
        assert await job.result_async(WAIT) == 8
        assert await job.wait_async() == "done"
        jobs = [await double.submit_async(number) for number in range(5)]
        assert await asyncio.gather(*jobs) == [0, 2, 4, 6, 8]

    with working(app):
        asyncio.run(main())


def test_a_wait_that_is_given_up_leaves_the_job_alone(app: App, live_server: Server) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    async def main() -> None:
        job = await add.submit_async(1)
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            await job.result_async(0.01)
        waiting = asyncio.create_task(job.result_async())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with hand_worker(live_server, add) as worker:
            handle, _ = await asyncio.to_thread(worker.grab)
            worker.complete(handle, b"7")
            assert await job == 7

    asyncio.run(main())


def test_a_result_that_does_not_come_in_time(app: App, live_server: Server) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    job = add.submit(1)
    with pytest.raises(TimeoutError, match=f"job {job.handle} has not ended within 0.01 s"):
        job.result(0.01)
    with hand_worker(live_server, add) as worker:
        worker.complete(worker.grab()[0], b"7")
        assert job.result(WAIT) == 7


def test_any_process_may_ask_for_the_result(app: App, live_server: Server) -> None:
    @app.task(name="elsewhere")
    def add(a: int) -> int:
        return a + 1

    with working(app):
        job = add.submit(1)
        assert job.result(WAIT) == 2
    program = f"from switchgear import App\nprint(App({url_of(live_server)!r}).job({job.handle!r}).result(10))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")
    with App(url_of(live_server)) as other:
        assert other.job(job.handle).result(WAIT) == 2


def test_a_job_by_its_handle_is_waited_for(app: App, live_server: Server) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    handle = add.submit(1).handle
    with App(url_of(live_server)) as other, hand_worker(live_server, add) as worker:
        job = other.job(handle)
        with pytest.raises(TimeoutError):
            job.result(0.01)
        worker.complete(worker.grab()[0], b"7")
        assert job.result(WAIT) == 7
        assert add.job(handle).result(WAIT) == 7


def test_a_job_that_never_was(app: App) -> None:
    job = app.job("H:nowhere:1")
    for ask in (job.result, job.wait, job.status, job.cancel, job.explain, job.retry):
        with pytest.raises(JobUnknown):
            ask()
    with pytest.raises(JobUnknown):
        list(job.updates())


# --- failures ---


def test_an_exception_arrives_with_its_traceback(app: App) -> None:
    @app.task
    def fail(text: str) -> None:
        raise KeyError(text)

    with working(app):
        job = fail.submit("ä")
        with pytest.raises(TaskFailed, match=f"job {job.handle} failed: KeyError: 'ä'") as caught:
            job.result(WAIT)
    assert (caught.value.error_type, caught.value.message) == ("KeyError", "'ä'")
    assert "in fail\n    raise KeyError(text)" in caught.value.remote_traceback
    assert job.wait() == "failed"
    assert job.status().error is not None


def test_a_task_that_fails_is_tried_again(app: App) -> None:
    attempts: list[int] = []

    @app.task(retries=2, backoff=0.001)
    def flaky() -> str:
        attempts.append(current_job().attempt)
        if len(attempts) < 3:
            raise OSError("not yet")
        return "at last"

    with working(app):
        assert flaky.submit().result(WAIT) == "at last"
    assert attempts == [1, 2, 3]


def test_failed_jobs_are_retried_together(app: App) -> None:
    broken = threading.Event()

    @app.task
    def weigh(number: int) -> int:
        if broken.is_set() and number % 2:
            raise OSError("disk full")
        if broken.is_set():
            raise ValueError("no number")
        return number

    broken.set()
    with working(app):
        jobs = weigh.submit_many(range(4))
        assert jobs.wait(WAIT) == {"failed": 4}
    odd = [jobs.handles[3], jobs.handles[1]]
    assert app.retry_dead(task=weigh) == app.retry_all(task=weigh, states="cancelled") == []
    assert app.retry_all(task=weigh, error="disk full") == odd
    assert sorted(app.cancel_all(task=weigh)) == sorted(odd)
    assert app.retry_all(task=weigh, states=("failed", "cancelled")) == list(jobs.handles)[::-1]
    broken.clear()
    with working(app):
        assert list(jobs.results(timeout=WAIT)) == [0, 1, 2, 3]
    with pytest.raises(ServerRefused, match="retry takes a handle, or says which jobs"):
        app.retry_all()
    with pytest.raises(ServerRefused, match="retry: states: expected a list of failed, cancelled, expired, got"):
        app.retry_all(states=["ready"])


def test_a_job_whose_worker_is_lost_too_often_is_dead(app: App, live_server: Server) -> None:
    @app.task(crash_limit=2)
    def deadly() -> None: ...

    job = deadly.submit()
    for _ in range(2):
        with hand_worker(live_server, deadly) as worker:
            worker.grab()
    with pytest.raises(JobLost, match="is dead: its attempts were lost or timed out"):
        job.result(WAIT)
    assert job.status().dead
    assert [info.handle for info in app.dead_jobs(task=deadly)] == [job.handle]
    assert app.retry_dead(task=deadly) == [job.handle]
    with hand_worker(live_server, deadly) as worker:
        worker.complete(worker.grab()[0], b"null")
    assert app.job(job.handle).wait(WAIT) == "done"


def test_a_job_that_takes_too_long(app: App, live_server: Server) -> None:
    @app.task(timeout=0.05)
    def slow() -> None: ...

    job = slow.submit()
    with hand_worker(live_server, slow) as worker:
        worker.grab()
        with pytest.raises(JobTimedOut, match="timed out in attempt 1, the last one") as caught:
            job.result(WAIT)
        assert isinstance(caught.value, JobLost)


def test_a_job_that_is_not_started_in_time_expires(app: App) -> None:
    @app.task(expires=0.05)
    def late() -> None: ...

    with pytest.raises(JobExpired):
        late.submit().result(WAIT)


def test_a_failed_job_is_retried(app: App, live_server: Server) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    job = add.submit(1)
    with hand_worker(live_server, add) as worker:
        with pytest.raises(ServerRefused, match="there is nothing to retry"):
            job.retry()
        worker.wire.send(Kind.WORK_FAIL, worker.grab()[0])
        with pytest.raises(TaskFailed, match="the worker gave no reason"):
            job.result(WAIT)
        job.retry()
        worker.complete(worker.grab()[0], b"3")
        assert job.result(WAIT) == 3


# --- looking at a job ---


def test_progress_is_pushed_to_whoever_waits(app: App) -> None:
    go_on = threading.Event()

    @app.task
    def steps() -> str:
        current_job().progress(1, 2, "half way")
        go_on.wait(WAIT)
        current_job().progress(2, 2, "there")
        return "done"

    with working(app):
        job = steps.submit()
        updates = iter(job.updates())
        assert next(updates) == Progress(1, 2, "half way")
        info = job.status()
        assert (info.state, info.progress, info.message) == ("running", Progress(1, 2, "half way"), "half way")
        assert next(iter(app.job(job.handle).updates())) == Progress(1, 2, "half way")
        go_on.set()
        assert list(updates) == [Progress(2, 2, "there")]
        assert job.result(WAIT) == "done"


def test_progress_with_asyncio(app: App) -> None:
    @app.task
    def steps() -> None:
        current_job().progress(1, 1, "there")

    async def main() -> list[Progress]:
        job = await steps.submit_async()
        return [progress async for progress in job.updates()]

    with working(app):
        assert asyncio.run(main()) == [Progress(1, 1, "there")]


def test_the_status_of_a_job(app: App) -> None:
    @app.task(priority="high")
    def idle() -> None: ...

    moment = time.time() + 3600
    job = idle.options(at=moment, expires=7200).submit()
    info = job.status()
    assert (info.handle, info.task, info.state, info.attempts) == (job.handle, idle.name, "scheduled", 0)
    assert (info.priority, info.dead, info.error, info.is_finished) == ("high", False, None, False)
    assert info.run_at is not None
    assert info.run_at.timestamp() == pytest.approx(moment, abs=0.001)
    assert info.expires_at is not None
    assert asyncio.run(job.status_async()) == info


def test_why_a_job_waits(app: App) -> None:
    @app.task
    def idle() -> None: ...

    first = idle.submit()
    second = idle.options(after=first).submit()
    explanation = second.explain()
    assert explanation.state == "waiting"
    assert first.handle in str(explanation)
    assert str(explanation).startswith(f"{second.handle} is waiting")
    assert "worker" in str(asyncio.run(first.explain_async()))


# --- cancelling ---


def test_a_job_that_waits_is_changed(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    job = add.options(delay=3600).submit(1, 2)
    info = job.change(priority="high", delay=7200)
    assert (info.state, info.details["priority"]) == ("scheduled", "high")
    assert info.run_at is not None
    assert job.change(at=info.run_at).run_at == info.run_at
    assert asyncio.run(job.change_async(delay=0)).state == "ready"
    with working(app):
        assert job.result(WAIT) == 3
    with pytest.raises(ServerRefused, match="is done: it cannot be changed"):
        job.change(priority="low")
    with pytest.raises(ValueError, match="give one of them"):
        job.change(at=1, delay=1)


def test_a_queued_job_is_cancelled(app: App) -> None:
    @app.task
    def idle() -> None: ...

    job = idle.submit()
    assert job.cancel()
    with pytest.raises(JobCancelled, match=f"job {job.handle} was cancelled"):
        job.result(WAIT)
    assert not job.cancel()
    assert not asyncio.run(job.cancel_async())


def test_a_running_job_is_told(app: App) -> None:
    started = threading.Event()

    @app.task
    def long() -> None:
        started.set()
        while True:
            current_job().wait_cancelled(WAIT)
            current_job().raise_if_cancelled()

    with working(app):
        job = long.submit()
        assert started.wait(WAIT)
        assert job.cancel()
        with pytest.raises(JobCancelled):
            job.result(WAIT)


def test_a_cancel_may_cascade(app: App) -> None:
    @app.task
    def idle() -> None: ...

    first = idle.submit()
    second = idle.options(after=first, on_failure="wait").submit()
    assert first.cancel(cascade=True)
    assert second.wait(WAIT) == "cancelled"


# --- waiting for other jobs ---


def test_a_job_as_an_argument_becomes_its_result(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task
    def total(first: int, others: list[int], more: dict[str, int]) -> int:
        return first + sum(others) + sum(more.values())

    with working(app):
        one, two = add.submit(1, 2), add.submit(3, 4)
        job = total.submit(one.as_argument, [two.as_argument, 100], {"x": one.as_argument})
        assert job.result(WAIT) == 3 + 7 + 100 + 3


def test_what_becomes_of_a_job_whose_predecessor_fails(app: App) -> None:
    @app.task
    def fail() -> int:
        raise ValueError("no")

    @app.task
    def after(value: Any = "nothing") -> Any:
        return value

    with working(app):
        failed = fail.submit()
        with pytest.raises(PredecessorFailed, match=f"because {failed.handle}, which it waited for, failed") as caught:
            after.options(after=failed).submit().result(WAIT)
        assert caught.value.predecessor == failed.handle
        with pytest.raises(JobCancelled, match=f"{failed.handle}, which it waited for, failed"):
            after.options(after=(failed, "skip")).submit().result(WAIT)
        assert after.options(after=[(failed, "run")]).submit().result(WAIT) == "nothing"
        assert after.options(on_failure="run").submit(failed).result(WAIT) is None
        waiting = after.options(after=failed, on_failure="wait").submit()
        assert waiting.status().state == "waiting"
        waiting.cancel()


# --- unique jobs ---


def test_unique_jobs_are_joined_refused_or_replaced(app: App) -> None:
    @app.task(unique=lambda path: path)
    def index(path: str) -> None: ...

    first = index.submit("a")
    assert index.submit("a").handle == first.handle != index.submit("b").handle
    with pytest.raises(AlreadySubmitted, match=f'{first.handle}, which is ready, has the unique key "a"'):
        index.options(unique_policy="reject").submit("a")
    second = index.options(unique_policy="replace").submit("a")
    assert second.handle != first.handle
    with pytest.raises(JobCancelled, match="another with its unique key took its place"):
        first.result(WAIT)


def test_who_joins_gets_the_result_too(app: App, live_server: Server) -> None:
    @app.task(unique=True)
    def index(path: str) -> str:
        return path

    jobs = [index.submit("a") for _ in range(3)]
    with hand_worker(live_server, index) as worker:
        worker.complete(worker.grab()[0], b'"indexed"')
    assert [job.result(WAIT) for job in jobs] == ["indexed"] * 3


# --- jobs that are not kept ---


def test_a_job_that_is_not_durable_goes_with_its_submitter(app: App, live_server: Server) -> None:
    @app.task(durable=False)
    def add(a: int) -> int:
        return a

    with App(url_of(live_server)) as other:
        given_up = other.task(name=add.name, durable=False)(add.function).submit(1)
    eventually(lambda: not any(app.jobs(task=add, limit=None)), "nothing is kept of a job that nobody waits for")
    with pytest.raises(JobUnknown):
        app.job(given_up.handle).wait(WAIT)
    with working(app):
        assert add.submit(3).result(WAIT) == 3


# --- the app ---


def test_jobs_are_listed(app: App) -> None:
    @app.task
    def idle(number: int) -> None: ...

    handles = idle.submit_many(range(7)).handles
    assert [info.handle for info in app.jobs(task=idle, limit=3)] == list(handles)[:3:-1]
    assert [info.handle for info in app.jobs(task=idle, states=["ready"], limit=None)] == list(handles)[::-1]
    assert list(app.jobs(task=idle, states="running")) == []
    assert list(app.jobs(task=idle.name, dead=True)) == []
    assert app.cancel_all(task=idle, states=["ready"]) != []
    assert {info.state for info in app.jobs(task=idle)} == {"cancelled"}


def test_a_task_is_paused(app: App, live_server: Server) -> None:
    @app.task
    def idle() -> None: ...

    job = idle.submit()
    app.pause(idle)
    with hand_worker(live_server, idle) as worker:
        assert worker.has_nothing_to_do()
        assert "paused" in str(job.explain())
        (function,) = [function for function in app.functions() if function.name == idle.name]
        assert (function.paused, function.ready, function.workers) == (True, 1, 1)
        assert idle.name in {name for worker_info in app.workers() for name in worker_info.functions}
        app.resume(idle.name)
        assert worker.grab()[0].decode() == job.handle
    assert app.server().jobs > 0
    job.cancel()


def test_schedules_are_declared_and_run(app: App, live_server: Server) -> None:
    @app.every("0 4 * * *", timezone="UTC", name="nightly", kwargs={"days": 3})
    def clean(days: int) -> int:
        return days

    app.declare()
    app.declare()  # as often as one likes
    (nightly,) = app.schedules.list()
    assert (nightly.name, nightly.task, nightly.spec) == ("nightly", clean.name, "0 4 * * *")
    assert (nightly.timezone, nightly.catch_up, nightly.overlap, nightly.paused) == ("UTC", "latest", False, False)
    assert nightly.next_at is not None
    assert (nightly.next_at.hour, nightly.next_at.tzinfo) == (4, UTC)
    assert (nightly.last_at, nightly.last_job, nightly.fired) == (None, None, 0)
    app.schedules.pause("nightly")
    (nightly,) = app.schedules.list()
    assert (nightly.paused, nightly.next_at) == (True, None)
    app.schedules.resume("nightly")
    job: Job[int] = app.schedules.run("nightly")
    assert app.schedules.list()[0].last_job == job.handle
    with working(app):
        assert job.result(WAIT) == 3
    app.schedules.remove("nightly")
    assert app.schedules.list() == []
    with pytest.raises(NotFound, match="there is no schedule 'nightly'"):
        app.schedules.remove("nightly")


def test_limits_are_declared(app: App, live_server: Server) -> None:
    @app.task(concurrency=1)
    def alone(number: int) -> None: ...

    app.declare()
    alone.submit_many([1, 2])
    with hand_worker(live_server, alone) as first, hand_worker(live_server, alone) as second:
        handle, _ = first.grab()
        assert second.has_nothing_to_do()
        first.complete(handle, b"null")
        second.grab()


def test_a_closed_app_may_be_used_again(app: App) -> None:
    @app.task
    def add(a: int) -> int:
        return a + 1

    job = add.submit(1)
    app.close()
    with working(app):
        assert job.result(WAIT) == 2
        assert add.submit(2).result(WAIT) == 3
