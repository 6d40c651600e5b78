"""What a program in embedded mode runs, and how it leaves: jobs of others are for workers, and interruptions count."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from switchgear import App
from switchgear.errors import ConfigError
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

TASKS = """
    import sys, time
    from pathlib import Path
    from switchgear import App

    app = App(run_here="all" if "all" in sys.argv else True)

    @app.task
    def hello() -> str:
        return "hello"

    @app.task
    def nap(seconds: float) -> None:
        with Path("naps").open("a") as naps:
            naps.write("nap ")
        time.sleep(seconds)
"""

# A program inherits that SIGINT is ignored, for instance if the tests were started in the background by a shell script.
PROGRAM_START = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tasks import *
"""


class Programs:
    """A directory with programs in it that share `tasks.py`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "tasks.py").write_text(dedent(TASKS))
        self.running: list[subprocess.Popen[str]] = []

    def start(self, source: str, *arguments: str) -> subprocess.Popen[str]:
        program = self.place / "program.py"
        program.write_text(PROGRAM_START + dedent(source))
        process = subprocess.Popen(
            [sys.executable, program.name, *arguments],
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, source: str, *arguments: str) -> str:
        """What a program prints, which must end well and without complaints."""
        process = self.start(source, *arguments)
        out, complaints = process.communicate(timeout=3 * DEADLINE_SECONDS)
        assert (process.returncode, complaints) == (0, "")
        return out

    def naps(self) -> int:
        path = self.place / "naps"
        return len(path.read_text().split()) if path.exists() else 0

    def interrupted_nap(self, source: str = "nap.submit(60).result()", *, interrupts: int = 2) -> str:
        """Wait for a long nap, and press Ctrl-C so many times: what the program complains of."""
        before = self.naps()
        process = self.start(source)
        eventually(lambda: self.naps() > before, "it naps")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if "waiting up to" in line and interrupts > 1:
                process.send_signal(signal.SIGINT)
        assert process.wait(3 * DEADLINE_SECONDS) == -signal.SIGINT
        return "".join(lines)

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    yield programs
    programs.end()


SHOW_NAPS = """
    for job in app.jobs(task=nap):
        found = app.control("job", handle=job.handle)
        print(job.state, found["attempts"], found["losses"])
"""


@pytest.mark.parametrize("interrupts", [1, 2])
def test_an_interrupted_job_is_not_started_by_every_program_that_comes_later(
    programs: Programs, interrupts: int
) -> None:
    programs.interrupted_nap(interrupts=interrupts)
    assert programs.run("print(hello.submit().result())") == "hello\n"
    assert programs.run(SHOW_NAPS) == "ready 1 1\n", "the interrupted start counts"
    assert programs.naps() == 1


def test_a_job_that_is_interrupted_again_and_again_is_given_up(programs: Programs) -> None:
    programs.interrupted_nap()
    for _ in range(2):
        programs.interrupted_nap("nap.job(next(app.jobs()).handle).result()")
    assert programs.run(SHOW_NAPS) == "failed 3 3\n", "three is the crash limit of a task"
    assert programs.naps() == 3


def test_leaving_says_what_it_waits_for_and_a_second_interrupt_ends_it_without_a_traceback(programs: Programs) -> None:
    complaints = programs.interrupted_nap()
    assert "waiting up to 5 s for running jobs: H:" in complaints
    assert "(tasks.nap); Ctrl-C leaves at once" in complaints
    assert "the interrupted start counts" in complaints
    assert "atexit" not in complaints
    assert complaints.count("Traceback") == 1, "that of the first Ctrl-C, which Python shows"


def test_a_program_that_only_looks_runs_nothing(programs: Programs) -> None:
    programs.run("app.run_here = False; nap.submit(0)")
    assert programs.run("print([job.state for job in app.jobs()], len(app.workers()))") == "['ready'] 0\n"
    assert programs.naps() == 0


def test_one_that_is_told_so_runs_jobs_of_others(programs: Programs) -> None:
    programs.run("app.run_here = False; nap.submit(0)")
    programs.run(
        """
        while any(app.jobs(states=["ready", "running"])):
            time.sleep(0.01)
        """,
        "all",
    )
    assert programs.naps() == 1


def test_one_that_waits_for_a_job_of_another_program_runs_it(programs: Programs) -> None:
    handle = programs.run("app.run_here = False; print(hello.submit().handle)").strip()
    assert programs.run(f"print(app.job({handle!r}).result())") == "hello\n"


def test_run_here_is_one_of_three() -> None:
    with pytest.raises(ConfigError, match="run_here is True, False or \"all\", not 'some'"):
        App(run_here="some")  # type: ignore[arg-type]


def test_a_map_that_is_ended_early_says_nothing_of_the_jobs_it_cancels(programs: Programs) -> None:
    out = programs.run("""
        for _ in nap.map([0.01] * 500):
            break
        left = lambda: list(app.jobs(task=nap, states=["ready", "running"]))
        while left():
            time.sleep(0.01)
        print(len(list(app.jobs(task=nap, states="cancelled", limit=None))) > 400)
    """)
    assert out == "True\n"
