"""A worker that loses its server in the middle of a job goes on with the job, and reports when the server is back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear.app.job import Job
from switchgear.app.worker.slot_pool import NOT_OURS
from switchgear.errors import TaskFailed
from tests.app.worker.harness import AppWithWorker, Proxy, lines, proxy_to, wait_for, working
from tests.app.worker.tasks import make_app
from tests.client.background import url_of
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

HOLDERS = ["hold", "hold_async", "hold_in_process"]


def let_go(place: Path) -> None:
    (place / "go").touch()


def taken_back(job: Job[Any]) -> Callable[[], bool]:
    return lambda: job.status().state == "ready"


def cut_off(proxy: Proxy) -> None:
    """Cut the line, and let none be made."""
    proxy.is_open = False
    proxy.cut()


def ends(crew: AppWithWorker) -> list[str]:
    return [about for name, about in crew.recorder.all_so_far() if name == "ended"]


@pytest.mark.parametrize("task", HOLDERS)
def test_a_job_goes_on_when_the_connection_was_cut(server: Server, task: str, tmp_path: Path) -> None:
    with proxy_to(server) as proxy, working(proxy.url, task, app=make_app(url_of(server))) as crew:
        job = crew.submit(task, str(tmp_path))
        wait_for(tmp_path, "started")
        for _ in range(4):  # more often than a job may lose its worker
            cut_off(proxy)
            eventually(taken_back(job), "the server has taken it back")
            proxy.is_open = True
            crew.recorder.until("subscribed again")
            eventually(lambda: job.status().state == "running", "the worker has it again")
        let_go(tmp_path)
        assert job.result(DEADLINE_SECONDS) == "finished"
        assert (lines(tmp_path, "started"), job.status().attempts) == (1, 1)
        heard = crew.recorder.all_so_far()
        assert [about for name, about in heard if name in ("refused", "dropped")] == []


@pytest.mark.parametrize("task", HOLDERS)
def test_a_job_that_ends_while_the_server_is_away_is_reported_afterwards(
    server: Server, task: str, tmp_path: Path
) -> None:
    with proxy_to(server) as proxy, working(proxy.url, task, app=make_app(url_of(server))) as crew:
        job = crew.submit(task, str(tmp_path))
        wait_for(tmp_path, "started")
        cut_off(proxy)
        eventually(taken_back(job), "the server has taken it back")
        let_go(tmp_path)
        eventually(lambda: not crew.worker.running_jobs, "it has ended")
        proxy.is_open = True
        assert job.result(DEADLINE_SECONDS) == "finished"
        assert (lines(tmp_path, "started"), job.status().attempts) == (1, 1)
        assert ends(crew) == ["Complete"]


def test_a_failure_is_reported_afterwards_too(server: Server, tmp_path: Path) -> None:
    with proxy_to(server) as proxy, working(proxy.url, "hold_and_fail", app=make_app(url_of(server))) as crew:
        job = crew.submit("hold_and_fail", str(tmp_path))
        wait_for(tmp_path, "started")
        cut_off(proxy)
        eventually(taken_back(job), "the server has taken it back")
        let_go(tmp_path)
        eventually(lambda: not crew.worker.running_jobs, "it has ended")
        proxy.is_open = True
        with pytest.raises(TaskFailed, match="as it was told"):
            job.result(DEADLINE_SECONDS)
        assert ends(crew) == ["Fail"]


@pytest.mark.parametrize("task", HOLDERS)
def test_the_server_is_killed_and_started_again(task: str, tmp_path: Path) -> None:
    """Of several processes of one worker, those without a job leave it to the one that runs it."""
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    listen = ("--listen", f"gearman://{HOST}:{free_port()}")
    url = listen[1]
    with running_switchgear(*listen, store=store) as first, working(url, task, app=make_app(url), processes=3) as crew:
        job = crew.submit(task, str(tmp_path))
        wait_for(tmp_path, "started")
        first.kill()
        crew.recorder.until("disconnected")
        with running_switchgear(*listen, store=store):
            eventually(lambda: job.status().state == "running", "the worker has it again")
            let_go(tmp_path)
            assert job.result(DEADLINE_SECONDS) == "finished"
            assert (lines(tmp_path, "started"), job.status().attempts) == (1, 1)


def test_a_job_that_another_worker_has_begun_is_stopped(server: Server, tmp_path: Path) -> None:
    with proxy_to(server) as proxy, working(proxy.url, "hold", app=make_app(url_of(server))) as crew:
        job = crew.submit("hold", str(tmp_path))
        wait_for(tmp_path, "started")
        cut_off(proxy)
        with working(server, "hold") as other:
            wait_for(tmp_path, "started", 2)
            proxy.is_open = True
            wait_for(tmp_path, f"stopped {NOT_OURS}")
            assert crew.recorder.until("dropped") == NOT_OURS
            let_go(tmp_path)
            assert job.result(DEADLINE_SECONDS) == "finished"
            assert (ends(crew), ends(other)) == ([], ["Complete"])
        assert job.status().attempts == 2


def test_a_job_that_was_cancelled_meanwhile_is_stopped(server: Server, tmp_path: Path) -> None:
    with proxy_to(server) as proxy, working(proxy.url, "hold", app=make_app(url_of(server))) as crew:
        job = crew.submit("hold", str(tmp_path))
        wait_for(tmp_path, "started")
        cut_off(proxy)
        eventually(taken_back(job), "the server has taken it back")
        assert job.cancel()
        proxy.is_open = True
        wait_for(tmp_path, f"stopped {NOT_OURS}")


def test_a_job_is_cancelled_after_it_was_resumed(server: Server, tmp_path: Path) -> None:
    with proxy_to(server) as proxy, working(proxy.url, "hold", app=make_app(url_of(server)), slots=1) as crew:
        job = crew.submit("hold", str(tmp_path))
        wait_for(tmp_path, "started")
        proxy.cut()
        crew.recorder.until("subscribed again")
        eventually(lambda: job.status().state == "running", "the worker has it again")
        assert job.cancel()
        wait_for(tmp_path, "stopped cancelled")
        assert job.wait(DEADLINE_SECONDS) == "cancelled"


def test_other_jobs_are_taken_meanwhile_and_afterwards(server: Server, tmp_path: Path) -> None:
    with proxy_to(server) as proxy, working(proxy.url, "hold add", app=make_app(url_of(server)), slots=2) as crew:
        job = crew.submit("hold", str(tmp_path))
        wait_for(tmp_path, "started")
        proxy.cut()
        assert crew.run("add", 1) == 2
        let_go(tmp_path)
        assert job.result(DEADLINE_SECONDS) == "finished"
        assert lines(tmp_path, "started") == 1


def test_a_worker_that_stops_while_the_server_is_away_does_not_wait_for_it(server: Server, tmp_path: Path) -> None:
    with proxy_to(server) as proxy, working(proxy.url, "hold", app=make_app(url_of(server))) as crew:
        crew.submit("hold", str(tmp_path))
        wait_for(tmp_path, "started")
        cut_off(proxy)
        crew.recorder.until("disconnected")
        crew.worker.stop(DEADLINE_SECONDS)
        wait_for(tmp_path, "stopped the connection to the server was lost")
        assert crew.worker.wait(DEADLINE_SECONDS)


def test_a_process_that_dies_meanwhile_loses_its_job(server: Server, tmp_path: Path) -> None:
    with proxy_to(server) as proxy, working(proxy.url, "hold_in_process", app=make_app(url_of(server))) as crew:
        job = crew.submit("hold_in_process", str(tmp_path))
        wait_for(tmp_path, "started")
        cut_off(proxy)
        eventually(taken_back(job), "the server has taken it back")
        crew.worker._pools[0].executor.cancel(next(iter(crew.worker._pools[0].attempts)), hard=True)
        crew.recorder.until("dropped")
        proxy.is_open = True
        wait_for(tmp_path, "started", 2)
        let_go(tmp_path)
        assert job.result(DEADLINE_SECONDS) == "finished"
