"""The end of a worker: signals, hand-back, restart, burst."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from switchgear.app.job import Job
from switchgear.app.worker.executor_choice import choose_executors
from switchgear.app.worker.worker import AppWorker
from tests.app.worker.harness import TARGET, lines, wait_for, working
from tests.app.worker.tasks import make_app
from tests.cli.commands import running
from tests.client.background import url_of
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

HOLDERS = ["hold", "hold_async", "hold_in_process"]


def command(server: Server, functions: str, *more: str) -> tuple[str, ...]:
    kinds = ("--processes", "1", "--slots", "1")
    return ("worker", TARGET, "--functions", functions, "--server", url_of(server), *kinds, *more)


@pytest.mark.parametrize("task", HOLDERS)
def test_term_lets_running_jobs_finish_and_takes_no_more(server: Server, task: str, tmp_path: Path) -> None:
    with make_app(url_of(server)) as app, running(server, *command(server, task)) as worker:
        job = app.tasks[task].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        worker.send(signal.SIGTERM)
        worker.until("SIGTERM: running jobs may finish within 30 s")
        other = app.tasks[task].submit(str(tmp_path))
        (tmp_path / "go").touch()
        assert job.result(DEADLINE_SECONDS) == "finished"
        assert worker.exit_code() == 0
        assert other.status().state == "ready"
        assert other.status().attempts == 0


@pytest.mark.parametrize("task", HOLDERS)
def test_what_does_not_finish_in_time_is_handed_back(server: Server, task: str, tmp_path: Path) -> None:
    arguments = command(server, task, "--drain-timeout", "0.1")
    with make_app(url_of(server)) as app, running(server, *arguments) as worker:
        job = app.tasks[task].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        worker.send(signal.SIGTERM)
        worker.until("stopped before its end")
        assert worker.exit_code() == 0
        eventually(lambda: job.status().state == "ready", "it is back in its queue")
        assert job.status().attempts == 0
        (tmp_path / "go").touch()
        with working(server, task):
            assert job.result(DEADLINE_SECONDS) == "finished"


@pytest.mark.parametrize("task", ["resist", "resist_in_process"])
def test_a_second_signal_means_now_even_for_those_who_do_not_listen(server: Server, task: str, tmp_path: Path) -> None:
    with make_app(url_of(server)) as app, running(server, *command(server, task)) as worker:
        job = app.tasks[task].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        worker.send(signal.SIGTERM)
        worker.until("SIGTERM")
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0
        eventually(lambda: job.status().state == "ready", "it is back in its queue")
        assert job.status().attempts == 0


def test_quit_means_now(server: Server, tmp_path: Path) -> None:
    with make_app(url_of(server)) as app, running(server, *command(server, "resist")) as worker:
        job = app.tasks["resist"].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        worker.send(signal.SIGQUIT)
        assert worker.exit_code() == 0
        eventually(lambda: job.status().state == "ready", "it is back in its queue")


def test_the_first_process_of_a_container_stops_as_others_do(server: Server, tmp_path: Path) -> None:
    """The system delivers no signal to such a process for which it has no handler."""
    isolate = ["unshare", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*isolate, "true"], capture_output=True).returncode:
        pytest.skip("needs unshare, and the right to use it")
    program = [*isolate, sys.executable, "-m", "switchgear", *command(server, "hold")]
    with make_app(url_of(server)) as app, subprocess.Popen(program) as outer:
        job = app.tasks["hold"].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(inner), signal.SIGTERM)
        (tmp_path / "go").touch()
        assert job.result(DEADLINE_SECONDS) == "finished"
        assert outer.wait(DEADLINE_SECONDS) == 0


def test_int_is_told_apart(server: Server) -> None:
    with running(server, *command(server, "add")) as worker:
        worker.until("connected")
        worker.send(signal.SIGINT)
        assert worker.exit_code() == 130


def test_an_idle_worker_stops_at_once(server: Server) -> None:
    with running(server, *command(server, "add add_async add_in_process".replace(" ", ","))) as worker:
        for _ in range(3):
            worker.until("connected")
        started = time.monotonic()
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0
        assert time.monotonic() - started < 3


def test_it_stops_while_no_server_is_there() -> None:
    arguments = ("worker", TARGET, "--functions", "add", "--server", "gearman://127.0.0.1:1")
    with running("", *arguments) as worker:
        worker.until("next attempt in")
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_a_service_manager_may_send_term_to_the_children_too(server: Server, tmp_path: Path) -> None:
    task = "hold_in_process"
    with make_app(url_of(server)) as app, working(server, f"{task} process_id_in_process") as crew:
        child = crew.run("process_id_in_process")
        job = app.tasks[task].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        os.kill(child, signal.SIGTERM)
        os.kill(child, signal.SIGINT)
        (tmp_path / "go").touch()
        assert job.result(DEADLINE_SECONDS) == "finished"
        assert job.status().attempts == 1


def test_stopping_before_it_has_begun() -> None:
    app = make_app()
    worker = AppWorker(app, choose_executors(app.tasks, only=frozenset({"add"})))
    worker.stop(0.0)
    worker.start()
    assert worker.wait(DEADLINE_SECONDS)


# --- stopping by itself ---


def test_restart_after_some_jobs_loses_none(server: Server) -> None:
    arguments = command(server, "add,process_id_in_process", "--restart-after", "20")
    with make_app(url_of(server)) as app, running(server, *arguments) as worker:
        jobs: list[Job[int]] = [app.tasks["add"].submit(number) for number in range(70)]
        assert [job.result(DEADLINE_SECONDS) for job in jobs] == [*range(1, 71)]
        assert [job.status().attempts for job in jobs] == [1] * 70
        for _ in range(3):
            worker.until("starting afresh")
        worker.until("connected")
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_burst_ends_when_nothing_is_ready(server: Server) -> None:
    with make_app(url_of(server)) as app:
        jobs = [app.tasks[task].submit(number) for number in range(30) for task in ("add", "add_in_process")]
        later = app.tasks["add"].options(delay=1000).submit(1)
        with running(server, *command(server, "add,add_in_process", "--burst")) as worker:
            assert worker.exit_code() == 0
        assert [job.wait(DEADLINE_SECONDS) for job in jobs] == ["done"] * 60
        assert later.status().state == "scheduled"


def test_burst_with_nothing_to_do(server: Server) -> None:
    with running(server, *command(server, "add", "--burst")) as worker:
        assert worker.exit_code() == 0


def test_burst_does_not_wait_for_a_paused_function(server: Server) -> None:
    with make_app(url_of(server)) as app:
        job = app.tasks["add"].submit(1)
        app.pause("add")
        with running(server, *command(server, "add", "--burst")) as worker:
            assert worker.exit_code() == 0
        assert job.status().state == "ready"


def test_reload_when_the_source_is_changed(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "answers.py"

    def write(answer: str) -> None:
        file.write_text(
            f"from switchgear.app.app import App\napp = App({url_of(server)!r})\n"
            f"@app.task(name='answer')\ndef answer() -> str:\n    return {answer}\n"
        )
        os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns + len(answer)))

    write("'one'")
    monkeypatch.chdir(tmp_path)
    with make_app(url_of(server)) as app, running(server, "worker", "answers:app", "--reload") as worker:
        task = app.task(name="answer")(lambda: "")
        assert task.submit().result(DEADLINE_SECONDS) == "one"
        write("'two'")
        worker.until("answers.py changed; starting afresh")
        worker.until("connected")
        assert task.submit().result(DEADLINE_SECONDS) == "two"
        write("'three")  # a mistake
        worker.until("SyntaxError")
        worker.until("waiting for a change of the source")
        write("'four'")
        worker.until("connected")
        assert task.submit().result(DEADLINE_SECONDS) == "four"
        worker.send(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_a_stopped_worker_has_left_no_attempt_behind(server: Server, tmp_path: Path) -> None:
    with working(server, "hold", slots=2) as crew:
        jobs = [crew.submit("hold", str(tmp_path)) for _ in range(4)]
        wait_for(tmp_path, "started", 2)
        crew.worker.stop(0.05)
        assert crew.worker.wait(DEADLINE_SECONDS)
        assert [job.status().state for job in jobs] == ["ready"] * 4
        assert lines(tmp_path, "stopped the worker stops") == 2
