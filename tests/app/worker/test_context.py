"""What a task may ask about its job."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from switchgear.app.current_job import CurrentJob, NotInAJob, Retry, current_job, running
from switchgear.errors import JobCancelled


def test_outside_of_a_job_it_says_so() -> None:
    with pytest.raises(NotInAJob, match=r"current_job\(None\)"):
        current_job()


def test_outside_of_a_job_there_may_be_a_default() -> None:
    assert current_job(None) is None
    assert current_job("none") == "none"


def test_inside_it_is_the_job() -> None:
    job = CurrentJob("H:a:1", "f", attempt=3, losses=1)
    with running(job):
        assert current_job() is job
        assert (current_job().handle, current_job().function) == ("H:a:1", "f")
        assert (current_job().attempt, current_job().losses) == (3, 1)
    assert current_job(None) is None


def test_each_coroutine_has_its_own() -> None:
    async def ask(job: CurrentJob) -> CurrentJob:
        with running(job):
            await asyncio.sleep(0)
            return await asyncio.to_thread(current_job)

    async def both() -> list[CurrentJob]:
        return await asyncio.gather(*(ask(job) for job in jobs))

    jobs = [CurrentJob(f"H:a:{number}", "f") for number in range(2)]
    assert asyncio.run(both()) == jobs


def test_another_thread_has_none() -> None:
    found: list[object] = []
    with running(CurrentJob("H:a:1", "f")):
        thread = threading.Thread(target=lambda: found.append(current_job(None)))
        thread.start()
        thread.join()
    assert found == [None]


def test_cancelling() -> None:
    job = CurrentJob("H:a:1", "f")
    job.raise_if_cancelled()
    assert not job.cancelled
    assert not job.wait_cancelled(0)
    job.cancel("timed_out")
    job.cancel("cancelled")
    assert job.cancelled
    assert job.wait_cancelled(1000)
    assert job.cancel_reason == "timed_out"
    with pytest.raises(JobCancelled, match=r"H:a:1 \(f\): timed_out"):
        job.raise_if_cancelled()


def test_a_deadline() -> None:
    assert CurrentJob("H:a:1", "f").deadline is None
    assert CurrentJob("H:a:1", "f").seconds_left is None
    left = CurrentJob("H:a:1", "f", timeout_seconds=1000).seconds_left
    assert left is not None
    assert 900 < left <= 1000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((3, 10, "resizing"), (3, 10, "resizing")),
        ((3,), (3, 100, "")),
        ((-1, 2**40), (0, 2**32 - 1, "")),
        ((1, 2, "a\udcffb"), (1, 2, "a\\udcffb")),
    ],
    ids=["all", "percent", "out of range", "not text"],
)
def test_progress(given: Any, told: Any) -> None:
    heard: list[Any] = []
    CurrentJob("H:a:1", "f", on_progress=lambda *figures: heard.append(figures)).progress(*given)
    assert heard == [told]


@pytest.mark.parametrize(
    "given", [(0.5, 1), (True, 1), ("1", 2), (1, 2, b"x")], ids=["fraction", "bool", "text", "bytes"]
)
def test_progress_is_of_whole_numbers_and_text(given: Any) -> None:
    with pytest.raises(TypeError, match="progress"):
        CurrentJob("H:a:1", "f").progress(*given)


@pytest.mark.parametrize("delay", [-1, float("inf"), float("nan")])
def test_a_retry_needs_a_delay_that_can_be_waited_for(delay: float) -> None:
    with pytest.raises(ValueError, match="delay"):
        Retry(delay=delay)
