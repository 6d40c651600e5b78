"""Servers that go away and come back, several servers, and a worker that dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.app.worker.harness import TARGET, lines, proxy_to, wait_for, working
from tests.app.worker.tasks import make_app
from tests.cli.commands import running
from tests.client.background import url_of
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

HOLDERS = ["hold", "hold_async", "hold_in_process"]


@pytest.mark.parametrize("task", ["add", "add_async", "add_in_process"])
def test_after_a_cut_it_is_there_again(server: Server, task: str) -> None:
    with proxy_to(server) as proxy, working(proxy.url, task, app=make_app(url_of(server))) as crew:
        assert crew.run(task, 1) == 2
        for _ in range(3):
            proxy.cut()
            crew.recorder.until("subscribed again")
            assert crew.run(task, 2) == 3


def test_while_the_server_is_away_it_tries_again(server: Server) -> None:
    with proxy_to(server) as proxy, working(proxy.url, "add", app=make_app(url_of(server))) as crew:
        proxy.is_open = False
        proxy.cut()
        for _ in range(3):
            crew.recorder.until("disconnected")
        job = crew.submit("add", 1)
        proxy.is_open = True
        assert job.result(DEADLINE_SECONDS) == 2


def test_a_server_that_is_restarted(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    port = free_port()
    listen = ("--listen", f"gearman://{HOST}:{port}")
    with running_switchgear(*listen, store=store) as first:
        app = make_app(f"gearman://{HOST}:{port}")
        with working(f"gearman://{HOST}:{port}", "add", app=app) as crew:
            assert crew.run("add", 1) == 2
            first.kill()
            crew.recorder.until("disconnected")
            with running_switchgear(*listen, store=store):
                crew.recorder.until("subscribed again")
                assert crew.run("add", 2) == 3


def test_a_lease_that_runs_out_is_taken_up_anew(server: Server, tmp_path: Path) -> None:
    """A worker that was stopped for longer than its lease, as on a laptop that slept."""
    arguments = ("worker", TARGET, "--functions", "hold", "--lease", "0.5", "--server", url_of(server))
    app = make_app(url_of(server))
    with app, running(server, *arguments) as worker:
        worker.until("connected")
        job = app.tasks["hold"].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        worker.send(signal.SIGSTOP)
        eventually(lambda: job.status().state == "ready", "the server has taken it back")
        worker.send(signal.SIGCONT)
        worker.until("goes on")
        assert job.status().state == "running"
        (tmp_path / "go").touch()
        assert job.result(DEADLINE_SECONDS) == "finished"
        assert (lines(tmp_path, "started"), job.status().attempts) == (1, 1)


@pytest.mark.parametrize("task", HOLDERS)
def test_a_killed_worker_costs_less_than_a_second(server: Server, task: str, tmp_path: Path) -> None:
    arguments = ("worker", TARGET, "--functions", task, "--processes", "1", "--slots", "1", "--server", url_of(server))
    app = make_app(url_of(server))
    with app, running(server, *arguments) as one:
        one.until("connected")
        job = app.tasks[task].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        with working(server, task, slots=1):
            one.send(signal.SIGKILL)
            eventually(lambda: lines(tmp_path, "started") == 2, "the other has it", within_seconds=1.0)
            (tmp_path / "go").touch()
            assert job.result(DEADLINE_SECONDS) == "finished"
        assert job.status().attempts == 2


def test_the_children_of_a_killed_worker_end(server: Server, tmp_path: Path) -> None:
    task = "process_id_in_process"
    arguments = ("worker", TARGET, "--functions", task, "--processes", "1", "--server", url_of(server))
    with make_app(url_of(server)) as app, running(server, *arguments) as worker:
        child = app.tasks[task].submit().result(DEADLINE_SECONDS)
        assert _exists(child)
        worker.send(signal.SIGKILL)
        eventually(lambda: not _exists(child), "the child has ended")


def _exists(pid: int) -> bool:
    try:
        return "\tZ" not in Path(f"/proc/{pid}/status").read_text() and os.getpgid(pid) > 0
    except (OSError, ProcessLookupError):
        return False


# --- several servers ---


def test_jobs_come_from_each_server(server: Server) -> None:
    with running_switchgear() as other, working([server, other], "add") as crew, make_app(url_of(other)) as there:
        for number in range(5):
            assert crew.run("add", number) == number + 1
            assert there.tasks["add"].submit(number).result(DEADLINE_SECONDS) == number + 1


def test_two_servers_share_the_slots(server: Server, tmp_path: Path) -> None:
    """With one slot, a job of one server keeps those of the other in their queue, where other workers can have them."""
    with (
        running_switchgear() as other,
        working([server, other], "hold add", slots=1) as crew,
        make_app(url_of(other)) as there,
    ):
        held = crew.submit("hold", str(tmp_path))
        wait_for(tmp_path, "started")
        waiting = there.tasks["add"].submit(1)
        eventually(lambda: crew.worker._pools[0].connections[1].protocol.granted == 0, "the credit is taken back")
        assert waiting.status().state == "ready"
        (tmp_path / "go").touch()
        assert held.result(DEADLINE_SECONDS) == "finished"
        assert waiting.result(DEADLINE_SECONDS) == 2


def test_many_jobs_of_two_servers_at_once(server: Server) -> None:
    """Credits cross with jobs all the time here; none may be lost, and no slot either."""
    with (
        running_switchgear() as other,
        working([server, other], "add", slots=2) as crew,
        make_app(url_of(other)) as there,
    ):
        jobs = [app.tasks["add"].submit(number) for number in range(200) for app in (crew.app, there)]
        assert sum(job.result(DEADLINE_SECONDS) for job in jobs) == 2 * sum(range(1, 201))
        pool = crew.worker._pools[0]
        eventually(lambda: not pool.attempts, "all have ended")
        eventually(
            lambda: [connection.protocol.granted for connection in pool.connections] == [2 + pool._ahead] * 2,
            "all credit is back",
        )


def test_one_of_two_servers_is_enough(server: Server) -> None:
    app = make_app(url_of(server))
    with proxy_to(server) as proxy, working([url_of(server), proxy.url], "add", app=app) as crew:  # type: ignore[list-item]
        proxy.is_open = False
        proxy.cut()
        crew.recorder.until("disconnected")
        assert crew.run("add", 1) == 2
