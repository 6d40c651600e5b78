"""Programs as people write them, with nothing started by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from switchgear import App, Task, TaskFailed, current_job
from switchgear.app.embedded_worker import EmbeddedWorker
from tests.app.neighbour import neighbours
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

HELLO = """\
from switchgear import App
app = App()
@app.task
def hello(name: str) -> str:
    return f"Hello, {name}!"
print(hello.submit("world").result())
"""

TASKS = """
    import os, sys, time
    from pathlib import Path
    from switchgear import App

    app = App(run_here="here" in sys.argv)

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def linger(seconds: float) -> None:
        Path("started").touch()
        time.sleep(seconds)
        Path("finished").touch()
"""


class ProgramFolder:
    """A directory with programs in it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def write(self, name: str, *parts: str) -> None:
        (self.place / name).write_text("\n".join(dedent(part) for part in parts))

    def run(self, *command: str) -> str:
        """What it prints; it must end well and complain of nothing."""
        done = subprocess.run(
            command,
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    def python(self, *arguments: str) -> str:
        return self.run(sys.executable, *arguments)

    def switchgear(self, *arguments: str) -> str:
        return self.run(sys.executable, "-m", "switchgear", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> ProgramFolder:
    folder = ProgramFolder(tmp_path)
    folder.write("tasks.py", TASKS)
    return folder


# --- one program ---


def test_hello_world(folder: ProgramFolder) -> None:
    assert len(HELLO.splitlines()) == 6
    folder.write("hello.py", HELLO)
    assert folder.python("hello.py") == "Hello, world!\n"
    assert folder.python("hello.py") == "Hello, world!\n"


def test_jobs_that_run_may_finish_when_the_program_ends(folder: ProgramFolder) -> None:
    ending = """
        linger.submit(0.5)
        while not Path("started").exists():
            time.sleep(0.01)
    """
    folder.write("program.py", TASKS, ending)
    folder.python("program.py", "here")
    assert (folder.place / "finished").exists()


def test_what_is_queued_stays_for_the_next_program(folder: ProgramFolder) -> None:
    folder.write("submit.py", "from tasks import double", "print(double.submit(21).handle)")
    folder.write("run.py", "import sys", "from tasks import double", "print(double.job(sys.argv[2]).result())")
    handle = folder.python("submit.py").strip()
    assert folder.python("run.py", "here", handle) == "42\n"


def test_a_task_that_is_declared_later_is_run_too(folder: ProgramFolder) -> None:
    later = """
        print(double.submit(1).result())

        @app.task
        def triple(number: int) -> int:
            return 3 * number

        print(triple.submit(1).result())
    """
    folder.write("program.py", TASKS, later)
    assert folder.python("program.py", "here") == "2\n3\n"


def test_a_program_that_forks(folder: ProgramFolder) -> None:
    forking = """
        print(double.submit(1).result(), flush=True)
        child = os.fork()
        if child == 0:
            print(double.submit(2).result(), flush=True)
            sys.exit()
        print(os.waitpid(child, 0)[1])
        print(double.submit(3).result())
    """
    folder.write("program.py", TASKS, forking)
    # From Python 3.12 on a program with threads is warned when it forks; here it is the program's own wish.
    assert folder.python("-W", "ignore::DeprecationWarning", "program.py", "here") == "2\n4\n0\n6\n"


def test_an_error_that_ends_the_program_does_not_hang_it(folder: ProgramFolder) -> None:
    folder.write("program.py", TASKS, "double.submit(1).result()", "raise SystemExit(3)")
    done = subprocess.run([sys.executable, "program.py", "here"], cwd=folder.place, timeout=30, capture_output=True)
    assert (done.returncode, done.stderr) == (3, b"")


# --- a second terminal ---


def test_a_worker_finds_the_queue(folder: ProgramFolder) -> None:
    folder.write("submit.py", "from tasks import double", "print(double.submit(21).handle)")
    handle = folder.python("submit.py").strip()
    done = subprocess.run(
        [sys.executable, "-m", "switchgear", "worker", "tasks:app", "--burst"],
        cwd=folder.place, timeout=30, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder.write("ask.py", "import sys", "from tasks import double", "print(double.job(sys.argv[1]).result(timeout=5))")
    assert folder.python("ask.py", handle) == "42\n"


def test_commands_take_the_directory_for_a_server(folder: ProgramFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("submit.py", "from tasks import double", "print(double.submit(21).handle)")
    handle = folder.python("submit.py").strip()
    listed = json.loads(folder.switchgear("jobs", "--json", "--server", "embedded:.switchgear"))
    jobs = listed["jobs"] if isinstance(listed, dict) else listed
    assert [job["handle"] for job in jobs] == [handle]
    monkeypatch.setenv("SWITCHGEAR_URL", "embedded:.switchgear")
    assert handle in folder.switchgear("jobs")
    monkeypatch.setenv("SWITCHGEAR_SERVER", f"embedded:{folder.place}/.switchgear")
    assert handle in folder.switchgear("jobs")


def test_a_mistyped_directory_is_not_made(folder: ProgramFolder) -> None:
    command = [sys.executable, "-m", "switchgear", "jobs", "--server", "embedded:.swichgear"]
    done = subprocess.run(command, cwd=folder.place, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "there is no" in done.stderr
    assert not (folder.place / ".swichgear").exists()


def test_a_command_as_a_worker_follows_the_server(folder: ProgramFolder) -> None:
    """Its first server is killed, and it works for the next."""
    queue = folder.place / "queue"
    with neighbours(queue, 2) as (first, second):
        first.ask("address")
        second.ask("address")
        command = ["-m", "switchgear", "worker", "f", "--exec", "cat >> ran", "--server", f"embedded:{queue}"]
        worker = subprocess.Popen([sys.executable, *command], cwd=folder.place, stderr=subprocess.DEVNULL)
        try:
            first.ask("submit", "f", "a")
            ran = folder.place / "ran"
            eventually(lambda: ran.exists() and ran.read_text() == "a", "the first job is done")
            first.kill()  # perhaps before it has heard of that, so that the job is done again
            second.ask("submit", "f", "b")
            eventually(lambda: "b" in ran.read_text(), "the second job is done")
        finally:
            worker.kill()
            worker.wait()


# --- an owner that leaves ---


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(f"embedded:{tmp_path}/queue") as app:
        yield app


def test_when_the_owner_leaves_jobs_of_others_go_on_without_loss(tmp_path: Path, app: App) -> None:
    attempts: list[tuple[int, int]] = []
    leaving = threading.Event()

    @app.task(name="patient")
    def patient() -> str:
        attempts.append((current_job().attempt, current_job().losses))
        leaving.wait(DEADLINE_SECONDS)
        return "done"

    with neighbours(tmp_path / "queue", 1) as (owner,):
        owner.ask("address")
        job = patient.submit()
        queued = patient.options(delay=0.5).submit()
        eventually(lambda: attempts, "it runs")
        assert owner.leave() == ""
        leaving.set()
        assert job.result(timeout=DEADLINE_SECONDS) == "done"
        assert queued.result(timeout=DEADLINE_SECONDS) == "done"
    assert {losses for _, losses in attempts} == {0}


def test_submissions_go_on_while_owners_come_and_go(tmp_path: Path) -> None:
    with neighbours(tmp_path / "queue", 3) as processes, App(f"embedded:{tmp_path}/queue", run_here=False) as app:

        @app.task(name="count")
        def count(number: int) -> None: ...

        for number, process in enumerate(processes):
            process.ask("address")
            count.submit(number)
        for process in processes:
            started = time.monotonic()
            process.leave()
            count.submit(1)
            assert time.monotonic() - started < DEADLINE_SECONDS / 2
        assert len(list(app.jobs(limit=None))) == 6


def test_a_task_that_is_declared_again_is_run_as_it_is_now(app: App) -> None:
    def declare(function: Callable[..., Any], **options: Any) -> Task[Any, Any]:
        function.__qualname__ = "cell"  # the same place in the source
        task: Task[Any, Any] = app.task(name="cell", **options)(function)
        return task

    def first() -> str:
        return "first"

    def second(number: int) -> str:
        return f"second {number}"

    def third() -> str:
        assert current_job().attempt < 3
        raise ValueError

    async def fourth() -> str:
        return "fourth"

    beside = app.task(name="beside")(lambda: "beside")
    assert declare(first).submit().result(DEADLINE_SECONDS) == "first"
    assert declare(second).submit(2).result(DEADLINE_SECONDS) == "second 2"
    again = declare(third, retries=1, backoff="none").submit()
    with pytest.raises(TaskFailed, match="ValueError"):
        again.result(DEADLINE_SECONDS)
    assert again.status().attempts == 2
    assert declare(fourth).submit().result(DEADLINE_SECONDS) == "fourth"
    assert declare(first).submit().result(DEADLINE_SECONDS) == "first"
    assert beside.submit().result(DEADLINE_SECONDS) == "beside"
    eventually(lambda: len(app.workers()) == 1, "the workers before have gone")


def test_what_runs_when_a_task_changes_goes_on(app: App) -> None:
    started, going_on = threading.Event(), threading.Event()

    @app.task(name="long")
    def long() -> int:
        started.set()
        going_on.wait(DEADLINE_SECONDS)
        return current_job().attempt

    def declare(timeout: int) -> Task[[], int]:
        @app.task(name="short", timeout=timeout)
        def short() -> int:
            return timeout

        return short

    declare(1000)
    job = long.submit()
    assert started.wait(DEADLINE_SECONDS)
    assert declare(2000).submit().result(DEADLINE_SECONDS) == 2000
    going_on.set()
    assert job.result(DEADLINE_SECONDS) == 1
    assert job.status().attempts == 1


def test_tasks_for_processes_are_left_to_workers(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="heavy", run_in="process")
    def heavy() -> None: ...

    resident = EmbeddedWorker(app)
    resident.serve_all()
    resident.stop()
    assert 'heavy: run_in="process" needs a worker' in caplog.text


@pytest.mark.parametrize("method", ["serve_all", "stop"])
def test_a_lock_that_was_held_during_a_fork_holds_up_no_child(method: str) -> None:
    resident = EmbeddedWorker(App("gearman://127.0.0.1:1"))
    resident._process_id = 0  # as if this were a child of the process that made it
    with resident._lock:
        calling = threading.Thread(target=getattr(resident, method), daemon=True)
        calling.start()
        calling.join(DEADLINE_SECONDS)
        assert not calling.is_alive()
