"""Programs written for RQ, with their import changed: the behaviours that RQ documents."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from switchgear.compat import rq
from switchgear.compat.not_supported import NotSupported
from switchgear.compat.rq import Callback, Dependency, Job, NoSuchJobError, Queue, Retry, Worker, get_current_job
from switchgear.compat.rq.job import JobStatus
from switchgear.compat.rq.queue import app_of, use_as_default
from switchgear.testing import in_memory
from switchgear.testing.in_memory_server import InMemoryServer
from tests.app.harness import url_of
from tests.compat import rq_functions
from tests.compat.programs import output_of, running
from tests.compat.rq_functions import broken, calls, count_words, flaky, next_day, note
from tests.support.servers import running_switchgear

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
URL = "gearman://127.0.0.1:1"


@pytest.fixture
def server() -> Iterator[InMemoryServer]:
    calls.clear()
    app = app_of(URL)
    use_as_default(app)
    Queue("low", URL)
    Queue(connection=URL)
    with in_memory(app, start=NOW.timestamp()) as server:
        yield server


@pytest.fixture
def queue(server: InMemoryServer) -> Queue:
    return Queue(connection=URL)


def test_enqueue_calls_a_function_by_its_path(queue: Queue) -> None:
    job = queue.enqueue(count_words, "one two three")
    assert (job.get_status(), job.is_finished, job.result, job.return_value()) == ("finished", True, 3, 3)
    assert (job.func_name, job.args, job.origin) == (
        "tests.compat.rq_functions.count_words",
        ("one two three",),
        "default",
    )
    assert queue.enqueue("tests.compat.rq_functions.count_words", "a b", times=2).result == 4
    assert queue.enqueue(count_words, args=("a b",), kwargs={"times": 3}).result == 6
    assert queue.enqueue_call(count_words, args=("a b c",)).result == 3


def test_values_that_json_does_not_have(queue: Queue) -> None:
    assert queue.enqueue(next_day, NOW).result == NOW.replace(day=6)


def test_a_job_is_found_by_its_id(queue: Queue) -> None:
    job = queue.enqueue(count_words, "x")
    assert Job.fetch(job.id, connection=URL) == job
    assert queue.fetch_job(job.id) == job
    assert queue.fetch_job("H:memory:99") is None
    with pytest.raises(NoSuchJobError):
        Job.fetch("no such id", connection=URL)


def test_ids_of_the_programs_own(queue: Queue) -> None:
    job = queue.enqueue(count_words, "x y", job_id="report-7")
    assert (job.id, Job.fetch("report-7", connection=URL).result) == ("report-7", 2)


def test_delayed_jobs_need_no_scheduler(server: InMemoryServer, queue: Queue) -> None:
    later = queue.enqueue_in(timedelta(seconds=60), note, "in")
    at = queue.enqueue_at(datetime(2026, 1, 5, 12, 2), note, "at")
    assert (later.get_status(), at.is_scheduled) == ("scheduled", True)
    server.advance(60)
    server.advance(60)
    assert calls == [("in",), ("at",)]


def test_a_failed_job(queue: Queue) -> None:
    job = queue.enqueue(broken)
    assert (job.is_failed, job.result) == (True, None)
    assert "ValueError: broken" in job.exc_info
    assert job.requeue().is_failed


def test_retry_with_intervals(server: InMemoryServer, queue: Queue) -> None:
    job = queue.enqueue(flaky, retry=Retry(max=3, interval=[10, 30]))
    assert (calls, job.is_scheduled) == (["flaky"], True)
    server.advance(10)
    server.advance(29)
    assert len(calls) == 2
    server.advance(1)
    assert (len(calls), job.result) == (3, "at last")


def test_dependencies(queue: Queue) -> None:
    first = queue.enqueue_in(timedelta(seconds=10), note, "first")
    second = queue.enqueue(note, "second", depends_on=first)
    assert second.is_deferred
    failed = queue.enqueue(broken)
    assert queue.enqueue(note, "never", depends_on=failed).is_failed
    assert (second.dependency, second.fetch_dependencies()) == (first, [first])
    assert queue.enqueue(note, "anyway", depends_on=Dependency([failed], allow_failure=True)).is_finished
    assert calls == [("anyway",)]


def test_the_names_of_the_module_of_jobs(queue: Queue) -> None:
    job_module = importlib.import_module("switchgear.compat.rq.job")  # `rq.job` is the decorator
    assert (job_module.Dependency, job_module.Retry, job_module.Callback) == (Dependency, Retry, Callback)
    assert queue.enqueue(note).get_status() is JobStatus.FINISHED
    assert JobStatus("finished") is JobStatus.FINISHED
    assert queue.enqueue(note, job_timeout=60).timeout == 60


def test_the_queues_of_a_server(server: InMemoryServer) -> None:
    for name in ("low", "high"):
        Queue(name, connection=URL).enqueue(note)
    assert {queue.name for queue in Queue.all(connection=URL)} >= {"low", "high"}


def test_callbacks(queue: Queue) -> None:
    job = queue.enqueue(count_words, "x", on_success=rq_functions.report_success)
    queue.enqueue(broken, on_failure=Callback(rq_functions.report_failure))
    assert calls == [("success", job.id, 1), ("failure", ValueError, "broken")]


def test_meta(queue: Queue) -> None:
    assert queue.enqueue(count_words, "x", meta={"who": "me"}).get_meta() == {"who": "me"}
    job = queue.enqueue(rq_functions.with_progress)
    assert job.result == f"{job.id} {{'progress': 50}}"
    assert get_current_job() is None


def test_the_decorator(server: InMemoryServer) -> None:
    assert rq_functions.decorated(1, 2) == 3
    job = rq_functions.decorated.delay(3, 4)
    assert (job.result, job.origin) == (7, "low")


def test_many_at_once(queue: Queue) -> None:
    jobs = queue.enqueue_many([Queue.prepare_data(count_words, ("x " * n,), job_id=f"n{n}") for n in range(3)])
    assert [(job.id, job.result) for job in jobs] == [("n0", 0), ("n1", 1), ("n2", 2)]


def test_what_waits_in_a_queue() -> None:
    with in_memory(app_of(URL), mode="step") as server:
        queue = Queue(connection=URL)
        first = queue.enqueue(note, 1)
        second = queue.enqueue(note, 2)
        urgent = queue.enqueue(note, 3, at_front=True)
        assert (len(queue), queue.job_ids, queue.is_empty()) == (3, [first.id, second.id, urgent.id], False)
        first.cancel()
        calls.clear()
        server.run_all()
        assert (calls, first.get_status()) == ([(3,), (2,)], "canceled")
        queue.enqueue(note, 4)
        assert (queue.empty(), queue.count) == (1, 0)


def test_without_a_worker() -> None:
    assert Queue(is_async=False, connection=URL).enqueue(count_words, "a b").result == 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda queue: queue.enqueue(note, pipeline=object()), "enqueue_many"),
        (lambda queue: queue.enqueue("x".upper), "methods of objects"),
        (lambda queue: queue.failed_job_registry, "switchgear jobs --state failed"),
        (lambda queue: queue.started_job_registry, "switchgear jobs --state running"),
        (lambda queue: queue.enqueue(note).delete(), "cancel"),
        (lambda queue: queue.enqueue(note).get_position(), "switchgear explain"),
        (lambda queue: Worker.all(connection=URL), "switchgear workers"),
        (lambda queue: Worker.count(queue=queue), "switchgear workers"),
        (lambda queue: Queue(serializer="pickle"), "JSON"),
    ],
)
def test_what_is_not_supported_says_what_to_use(queue: Queue, call: Any, text: str) -> None:
    with pytest.raises(NotSupported, match=text):
        call(queue)


def test_functions_that_no_worker_can_import(queue: Queue) -> None:
    with pytest.raises(ValueError, match="cannot be imported"):
        queue.enqueue(lambda: 1)


def test_a_project_with_a_worker_in_burst_mode(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("def count(text):\n    return len(text.split())\n")
    (tmp_path / "submit.py").write_text(
        "from switchgear.compat.rq import Queue\n"
        "from words import count\n"
        "print(Queue('low').enqueue(count, 'one two').id)\n"
    )
    (tmp_path / "read.py").write_text(
        "import sys\nfrom switchgear.compat.rq import Job\nprint(Job.fetch(sys.argv[1]).return_value())\n"
    )
    with running_switchgear() as server:
        url = url_of(server)
        id = output_of(tmp_path, "submit.py", url=url).strip()
        with running(tmp_path, "-m", "switchgear.compat.rq", "worker", "low", "--burst", url=url) as worker:
            assert worker.wait(60) == 0, (tmp_path / "worker.log").read_text()
        log = (tmp_path / "worker.log").read_text()
        assert f"connected to {url}" in log
        assert f"{id} (rq.low) done in" in log
        assert output_of(tmp_path, "read.py", id, url=url).strip() == "2"


@pytest.mark.system
def test_a_job_that_takes_too_long_gets_the_exception_and_frees_its_slot(tmp_path: Path) -> None:
    with running_switchgear() as server:
        app = app_of(url_of(server))
        queue = Queue("low", url_of(server))
        slow = queue.enqueue("tests.compat.rq_functions.run_for_ever", str(tmp_path / "cleaned up"), job_timeout=0.2)
        quick = queue.enqueue(count_words, "one two")
        Worker([queue]).work(burst=True)
        assert (tmp_path / "cleaned up").exists()
        assert slow.is_failed
        assert "rq.timeouts.JobTimeoutException" in (slow.exc_info or "")
        assert quick.result == 2
        assert slow.started_at is not None
        assert slow.created_at <= slow.started_at <= (slow.ended_at or slow.started_at)
        app.close()


def test_names_are_in_the_modules_where_rq_has_them() -> None:
    from switchgear.compat.rq.decorators import job as decorator
    from switchgear.compat.rq.exceptions import NoSuchJobError as MovedError
    from switchgear.compat.rq.job import Job as MovedJob
    from switchgear.compat.rq.queue import Queue as MovedQueue
    from switchgear.compat.rq.timeouts import BaseTimeoutException, JobTimeoutException
    from switchgear.compat.rq.worker import SimpleWorker

    assert issubclass(JobTimeoutException, BaseTimeoutException)
    assert (MovedJob, MovedQueue, MovedError) == (Job, Queue, NoSuchJobError)
    assert SimpleWorker is Worker
    assert decorator is rq.job


def test_the_latest_result_of_a_job(queue: Queue) -> None:
    done = queue.enqueue(count_words, "one two").latest_result()
    assert done is not None
    assert (done.type, done.return_value, done.exc_string) == (done.Type.SUCCESSFUL, 2, None)
    failed = queue.enqueue(broken).latest_result()
    assert failed is not None
    assert (failed.type, failed.return_value) == (failed.Type.FAILED, None)
    assert failed.exc_string is not None
    assert "Traceback" in failed.exc_string
    assert queue.enqueue_in(timedelta(days=1), count_words, "x").latest_result() is None


def test_a_connection_that_is_not_used_is_warned_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_URL", "gearman://127.0.0.1:8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        app_of("redis://a:1")
        app_of("redis://a:1")
        app_of("redis://b:2")
    assert [str(each.message).partition(":")[0] for each in caught] == ["the connection (redis"]
