"""Jobs in threads, in an event loop and in processes, with a real server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear import App
from switchgear.app.worker.executor_choice import choose_executors
from switchgear.app.worker.worker import AppWorker, WorkerSettings
from switchgear.errors import JobCancelled, JobLost, TaskFailed
from tests.app.worker.harness import Recorder, lines, wait_for, working
from tests.app.worker.tasks import make_app
from tests.client.background import url_of
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

ADDERS = ["add", "add_async", "add_in_process"]
HOLDERS = ["hold", "hold_async", "hold_in_process", "hold_async_in_process"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One for all of them: each leaves its queues empty."""
    with running_switchgear() as server:
        yield server


@pytest.mark.parametrize("task", ADDERS)
def test_a_result_comes_back(server: Server, task: str) -> None:
    with working(server, task) as crew:
        assert crew.run(task, 1, 2) == 3
        assert [crew.run(task, number) for number in range(5)] == [1, 2, 3, 4, 5]


def test_three_kinds_in_one_worker(server: Server) -> None:
    with working(server, " ".join(ADDERS)) as crew:
        assert sorted(crew.worker.labels) == ["asyncio", "process-1", "threads"]
        jobs = [crew.submit(task, number) for number in range(10) for task in ADDERS]
        assert sorted(job.result(DEADLINE_SECONDS) for job in jobs) == sorted([*range(1, 11)] * 3)


@pytest.mark.parametrize("task", ADDERS)
def test_progress_is_heard(server: Server, task: str) -> None:
    with working(server, task) as crew:
        news = list(crew.submit(task, 1).updates())
    assert [(update.done, update.total, update.message) for update in news] == [(1, 2, "adding")]


@pytest.mark.parametrize("task", ["await_word", "await_word_async", "await_word_in_process"])
def test_a_task_that_waits_leaves_its_slot_and_comes_back(server: Server, task: str, tmp_path: Path) -> None:
    with working(server, f"{task} add", slots=1) as crew:
        job = crew.submit(task, str(tmp_path))
        eventually(lambda: job.status().state == "waiting", "it waits", within_seconds=60)
        eventually(lambda: "signal word" in str(job.explain()), "it waits for the signal")
        eventually(lambda: not crew.worker.running_jobs, "the slot is free")
        assert crew.run("add", 1, 2) == 3
        assert crew.app.signal(job, "word", "go")
        assert job.result(DEADLINE_SECONDS) == "go"
        assert lines(tmp_path, "runs") >= 2  # three times, unless the sleep was over before it began to wait
        assert (job.status().attempts, job.status().details["losses"]) == (1, 0)


@pytest.mark.parametrize("task", ["chatter", "chatter_in_process"])
def test_much_progress_is_told_in_little(server: Server, task: str) -> None:
    with working(server, task) as crew:
        job = crew.submit(task, 5000)
        news = list(job.updates())
        assert job.result() == 5000
    assert len(news) < 500
    assert (news[-1].done, news[-1].total) == (5000, 5000)


def test_an_error_comes_with_its_traceback(server: Server) -> None:
    with working(server, "fail") as crew, pytest.raises(TaskFailed, match="too bad") as caught:
        crew.run("fail", "too bad")
    assert caught.value.error_type == "ValueError"
    assert "in fail" in caught.value.remote_traceback


def test_retries_with_pauses(server: Server) -> None:
    with working(server, "flaky") as crew:
        assert crew.run("flaky", 2) == 3
        with pytest.raises(TaskFailed, match="attempt 4"):
            crew.run("flaky", 100)


def test_a_task_may_ask_for_another_attempt(server: Server) -> None:
    with working(server, "ask_again") as crew:
        assert crew.run("ask_again", 0.01) == 2


def test_arguments_that_are_results_of_other_jobs(server: Server) -> None:
    with working(server, "add total") as crew:
        one, two = crew.submit("add", 1), crew.submit("add", 2)
        assert crew.run("total", [one, two, 10]) == 15


@pytest.mark.parametrize("task", HOLDERS)
def test_cancelling_a_running_job(server: Server, task: str, tmp_path: Path) -> None:
    with working(server, task, kill_after_seconds=1000.0) as crew:
        job = crew.submit(task, str(tmp_path))
        wait_for(tmp_path, "started")
        job.cancel()
        with pytest.raises(JobCancelled):
            job.result(DEADLINE_SECONDS)
        wait_for(tmp_path, "stopped cancelled")
        assert crew.recorder.until("dropped") == "cancelled"
        # The slot is free again.
        (tmp_path / "go").touch()
        assert crew.run(task, str(tmp_path)) == "finished"


@pytest.mark.parametrize(
    ("task", "word"), [("ignore_in_process", "cleaned up"), ("resist_in_process", "would not stop")]
)
def test_a_process_that_does_not_listen_is_terminated_and_then_killed(
    server: Server, task: str, word: str, tmp_path: Path
) -> None:
    with working(server, f"{task} process_id_in_process") as crew:
        before = crew.run("process_id_in_process")
        job = crew.submit(task, str(tmp_path))
        wait_for(tmp_path, "started")
        job.cancel()
        wait_for(tmp_path, word)
        assert crew.recorder.until("dropped") == "cancelled"
        after = crew.run("process_id_in_process")
    assert (before == after) == (task == "ignore_in_process")


def test_a_process_past_its_time_limit_is_killed(server: Server, tmp_path: Path) -> None:
    task = "resist_limited_in_process"
    with working(server, f"{task} add_in_process") as crew:
        job = crew.submit(task, str(tmp_path))
        with pytest.raises(JobLost):
            job.result(DEADLINE_SECONDS)
        assert lines(tmp_path, "started") == 2  # it has one retry
        assert lines(tmp_path, "would not stop") == 0
        assert crew.run("add_in_process", 1) == 2


def test_a_thread_past_its_time_limit_is_told_and_keeps_its_slot(server: Server, tmp_path: Path) -> None:
    with working(server, "hold_limited add", slots=2) as crew:
        job = crew.submit("hold_limited", str(tmp_path))
        with pytest.raises(JobLost):
            job.result(DEADLINE_SECONDS)
        assert "a thread cannot be stopped" in crew.recorder.until("note")
        wait_for(tmp_path, "stopped timed_out")
        assert crew.recorder.until("dropped") == "timed_out"
        assert crew.run("add", 1) == 2


def test_a_job_that_kills_its_process_is_lost_until_it_is_dead(server: Server, tmp_path: Path) -> None:
    with working(server, "die_in_process add_in_process") as crew:
        job = crew.submit("die_in_process", str(tmp_path))
        with pytest.raises(JobLost):
            job.result(DEADLINE_SECONDS)
        assert lines(tmp_path, "started") == 2  # its crash limit
        assert crew.recorder.until("dropped") == "its process ended with exit status 3"
        assert crew.run("add_in_process", 1) == 2


def test_processes_are_replaced_after_so_many_jobs(server: Server) -> None:
    with working(server, "process_id_in_process", jobs_per_process=2) as crew:
        seen = [crew.run("process_id_in_process") for _ in range(6)]
    assert [seen.count(number) for number in dict.fromkeys(seen)] == [2, 2, 2]


def test_a_process_with_too_much_memory_is_replaced_before_its_next_job(server: Server) -> None:
    with working(server, "process_id_in_process leak_in_process", memory_per_process_bytes=200 * 10**6) as crew:
        first = crew.run("process_id_in_process")
        assert crew.run("leak_in_process", 1) == first
        assert crew.run("leak_in_process", 200) == first  # its result is not lost
        note = crew.recorder.until("note")
        assert note.startswith(f"process {first} has 2")
        assert note.endswith("more than 191 MiB: it is replaced")
        assert "(leak_in_process)" in note
        second = crew.run("process_id_in_process")
        assert second != first
        with pytest.raises(TaskFailed, match="too much"):
            crew.run("leak_in_process", 200, "too much")
        assert crew.run("process_id_in_process") not in (first, second)


def test_a_memory_limit_that_no_process_can_meet_costs_a_process_per_job(server: Server) -> None:
    with working(server, "process_id_in_process", memory_per_process_bytes=1) as crew:
        assert len({crew.run("process_id_in_process") for _ in range(3)}) == 3


def test_a_busy_thread_does_not_cost_the_lease(server: Server) -> None:
    with working(server, "burn", slots=2, lease_seconds=0.6) as crew:
        jobs = [crew.submit("burn", 1.5) for _ in range(2)]
        assert all(job.result(DEADLINE_SECONDS) for job in jobs)
        assert [job.status().attempts for job in jobs] == [1, 1]


@pytest.mark.parametrize("task", ["count_threads", "count_threads_in_process"])
def test_two_thousand_jobs_leave_nothing_behind(server: Server, task: str) -> None:
    with working(server, task, slots=2) as crew:
        first = crew.run(task)
        jobs = [crew.submit(task) for _ in range(2000)]
        counts = [job.result(DEADLINE_SECONDS * 3) for job in jobs]
        assert max(counts) <= first + 2
        pool = crew.worker._pools[0]
        eventually(lambda: not pool.attempts and not pool.connections[0].jobs, "every attempt is forgotten")
        protocol = pool.connections[0].protocol
        assert not protocol._gone
        assert not protocol._cancelled
        if task == "count_threads_in_process":
            assert crew.worker.finished_jobs >= 2001


def test_a_worker_says_what_it_is(server: Server) -> None:
    with working(server, " ".join(ADDERS), name="tester") as crew:
        rows: list[Any] = [row for row in crew.app.workers() if row.name.startswith("tester/")]
        found = {row.name: list(row.functions) for row in rows}
    assert found == {
        "tester/threads": ["add"],
        "tester/asyncio": ["add_async"],
        "tester/process-1": ["add_in_process"],
    }


def test_a_child_that_cannot_import_the_app_is_told_and_tried_again(server: Server) -> None:
    app = make_app(url_of(server))
    recorder = Recorder()
    executor_choice = choose_executors(app.tasks, processes=1, only=frozenset({"add_in_process"}))
    worker = AppWorker(app, executor_choice, WorkerSettings(), recorder, target="there_is_no_such_module:app")
    worker.start()
    try:
        for _ in range(2):
            assert "before it was ready" in recorder.until("note")
        assert not [about for name, about in recorder.all_so_far() if name == "started"]
    finally:
        worker.stop(0.0)
        assert worker.wait(DEADLINE_SECONDS)
        app.close()


def test_a_child_that_is_killed_between_jobs_is_replaced(server: Server) -> None:
    with working(server, "process_id_in_process") as crew:
        before = crew.run("process_id_in_process")
        os.kill(before, signal.SIGKILL)
        assert crew.recorder.until("note") == "an idle child process was killed by SIGKILL"
        assert crew.run("process_id_in_process") != before


@pytest.mark.parametrize("task", ["linger", "linger_async", "linger_in_process", "linger_async_in_process"])
def test_a_soft_time_limit_lets_a_task_clean_up(server: Server, task: str, tmp_path: Path) -> None:
    with working(server, task) as crew:
        with pytest.raises(TaskFailed, match="SoftTimeout"):
            crew.run(task, str(tmp_path))
        assert lines(tmp_path, "cleaned up") == 1


def test_a_task_may_end_well_after_its_soft_time_limit(server: Server, tmp_path: Path) -> None:
    with working(server, "linger add") as crew:
        assert crew.app.tasks["linger"].submit(str(tmp_path), is_caught=True).result(DEADLINE_SECONDS) == "in part"
        assert crew.run("add", 1) == 2


def test_a_soft_time_limit_is_less_than_the_hard_one() -> None:
    with pytest.raises(ValueError, match="soft_timeout is less than timeout"):
        App("gearman://127.0.0.1:1").task(soft_timeout=2, timeout=2)(len)


def test_a_process_that_has_too_much_memory_is_killed_in_the_middle_of_its_job(server: Server, tmp_path: Path) -> None:
    with working(server, "leak_and_hold_in_process add_in_process", hard_memory_per_process_bytes=200 * 10**6) as crew:
        job = crew.submit("leak_and_hold_in_process", 250, str(tmp_path))
        with pytest.raises(JobLost):
            job.result(DEADLINE_SECONDS)
        assert lines(tmp_path, "called") == 2  # its crash limit
        dropped = crew.recorder.until("dropped")
        assert dropped.startswith("its process had 2")
        assert dropped.endswith("of memory, more than 191 MiB, and was killed")
        assert crew.run("add_in_process", 1) == 2


def test_an_idle_process_that_has_too_much_memory_is_replaced(server: Server) -> None:
    with working(server, "process_id_in_process leak_in_process", hard_memory_per_process_bytes=200 * 10**6) as crew:
        leaked = crew.run("leak_in_process", 250)  # it may be killed before it can say so, and then runs again
        eventually(lambda: crew.run("process_id_in_process") != leaked, "another process")
