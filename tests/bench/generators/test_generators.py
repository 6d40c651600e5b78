"""The load generators: content with servers that work, and not with those that lose, double or spoil something."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import generators, servers
from tests.bench.generators.fakes import FakeBeanstalkd, FakeGearman, serving
from tests.support.peers import require_program
from tests.support.servers import Server, free_port, running_gearmand, running_switchgear

SMALL = ("--clients", "2", "--workers", "2", "--jobs", "40", "--patience", "1", "--limit", "20")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    require_program(os.environ.get("CC", "cc"))
    folder = tmp_path_factory.mktemp("build")
    return {name: generators.build(name, folder) for name in ("gearblast", "beanblast")}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_switchgear("--log-level", "error") as server:
        yield server


def run(program: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [str(program), *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def outcome(program: Path, *words: object) -> dict[str, Any]:
    done = run(program, *words)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0)
    return found


# --- compiling ---


@pytest.mark.parametrize("name", ["gearblast", "beanblast"])
def test_compiles_without_a_warning(name: str, tmp_path: Path) -> None:
    compiler = require_program(os.environ.get("CC", "cc"))
    sources = [str(generators.HERE / f"{name}.c"), str(generators.HERE / "blast.c")]
    command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(tmp_path / name), *sources]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""


def test_is_compiled_again_only_when_its_source_is_newer(programs: dict[str, Path]) -> None:
    program = programs["gearblast"]
    made = program.stat()
    assert generators.build("gearblast", program.parent).stat().st_ino == made.st_ino
    os.utime(program, (0, 0))
    assert generators.build("gearblast", program.parent).stat().st_mtime > 0


# --- servers that work ---

GEARMAN_RUNS = {
    "background": "background --outstanding 4",
    "drain": "drain --outstanding 4 --queued 7",
    "foreground": "foreground",
    "foreground, without unique ids": "foreground --no-unique",
    "foreground, large payloads": "foreground --payload 1100000 --echo --jobs 20",
    "foreground, idle connections": "foreground --idle 30",
    "foreground, one of each": "foreground --clients 1 --workers 1",
    "foreground, pushed": "foreground --push 3 --outstanding 8",
    "drain, pushed": "drain --push 3",
    "pass": "pass --outstanding 8",
    "pass, pushed": "pass --push 2",
    "depth": "depth --queued 300 --outstanding 4",
}


@pytest.mark.system
@pytest.mark.parametrize("what", GEARMAN_RUNS)
def test_gearblast_is_content_with_this_server(programs: dict[str, Path], server: Server, what: str) -> None:
    name = what.replace(" ", "-").replace(",", "")  # a function of its own: other tests leave jobs behind
    words = (*SMALL, "--patience", "10", "--function", name, "--pid", server.pid)
    found = outcome(programs["gearblast"], "--port", server.port, *words, *GEARMAN_RUNS[what].split())
    assert found["fault"] == ""
    assert found["jobs"] == (20 if "large" in what else 40)
    assert found["server_cpu_us_per_job"] > 0
    assert found["left_in_server"] == {"background": 40, "drain": 7, "depth": 300}.get(what, 0)
    if what == "depth":
        assert found["drained"]["jobs"] == 40


@pytest.mark.system
def test_one_sleeping_worker_is_woken_for_each_job(programs: dict[str, Path], server: Server) -> None:
    words = ("--port", server.port, "--workers", 50, "--jobs", 60, "--function", "crowd")
    found = outcome(programs["gearblast"], *words, "crowd")
    assert found["fault"] == ""
    assert 60 <= found["noops"] <= 66  # a worker that goes to sleep just when a job arrives is woken for it, too


@pytest.mark.interop
@pytest.mark.parametrize("workload", ["background", "drain", "pass"])
def test_beanblast_is_content_with_beanstalkd(programs: dict[str, Path], workload: str) -> None:
    program, port = require_program("beanstalkd"), free_port()
    process = subprocess.Popen([program, "-l", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        servers.wait_until_ready(process, servers.BEANSTALKD, port, Path(os.devnull))
        words = (*SMALL, "--patience", "10", "--port", port, "--pid", process.pid, "--outstanding", 4)
        found = outcome(programs["beanblast"], *words, workload)
    finally:
        process.kill()
        process.wait()
    assert found["fault"] == ""
    assert found["left_in_server"] == (40 if workload == "background" else 0)


# --- servers that do not ---

GEARMAN_FAULTS = {
    "refuses": ("background", "ERROR to a client: QUEUE_ERROR: Job queue is full"),
    "hangs up": ("background", "the server closed a connection"),
    "doubles a handle": ("background", "1 jobs were given the handle of another"),
    "loses a job": ("background", "the server says that it holds 39 jobs where 40 are expected"),
    "doubles a job": ("drain", "job 4 was assigned twice"),
    "spoils a payload": ("drain", "JOB_ASSIGN of a job that is none of ours"),
    "keeps a result": ("foreground --clients 1", "no progress for 1 s"),
    "doubles a result": ("foreground --clients 1", "job 4 was finished twice"),
    "pushes beyond credit": ("drain --push 1 --workers 1", "a worker was pushed more jobs than it gave credit for"),
    "pushes again": ("drain --push 1", "says attempt 2"),
}


@pytest.mark.parametrize(
    "workload", ["background", "drain", "foreground", "pass", "drain --push 2", "depth --queued 9"]
)
def test_gearblast_is_content_with_a_fake_without_faults(programs: dict[str, Path], workload: str) -> None:
    with serving(FakeGearman()) as port:
        assert outcome(programs["gearblast"], *SMALL, "--port", port, *workload.split())["fault"] == ""


@pytest.mark.parametrize("fault", GEARMAN_FAULTS)
def test_gearblast_notices(programs: dict[str, Path], fault: str) -> None:
    workload, expected = GEARMAN_FAULTS[fault]
    with serving(FakeGearman(fault)) as port:
        assert expected in outcome(programs["gearblast"], *SMALL, "--port", port, *workload.split())["fault"]


BEANSTALK_FAULTS = {
    "refuses": ("background", "OUT_OF_MEMORY"),
    "doubles an id": ("background", "1 jobs were given the handle of another"),
    "loses a job": ("background", "the server says that it holds 39 jobs where 40 are expected"),
    "doubles a job": ("drain", "job 4 was reserved twice"),
    "spoils a payload": ("drain", "a reserved job that is none of ours"),
    "forgets a job": ("drain", "NOT_FOUND"),
}


@pytest.mark.parametrize("workload", ["background", "drain"])
def test_beanblast_is_content_with_a_fake_without_faults(programs: dict[str, Path], workload: str) -> None:
    with serving(FakeBeanstalkd()) as port:
        assert outcome(programs["beanblast"], *SMALL, "--port", port, workload)["fault"] == ""


@pytest.mark.parametrize("fault", BEANSTALK_FAULTS)
def test_beanblast_notices(programs: dict[str, Path], fault: str) -> None:
    workload, expected = BEANSTALK_FAULTS[fault]
    with serving(FakeBeanstalkd(fault)) as port:
        assert expected in outcome(programs["beanblast"], *SMALL, "--port", port, workload)["fault"]


# --- wrong usage ---


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--host 10.0.0.1 background", "this program loads servers on 127.0.0.1 only"),
        ("--payload 3 background", "--payload must be a number from 16 to"),
        ("--jobs many background", "--jobs must be a number from 1 to"),
        ("sideways", 'no workload "sideways"'),
        ("--pid 4194304 background", "cannot read the CPU time of process 4194304"),
    ],
)
@pytest.mark.parametrize("name", ["gearblast", "beanblast"])
def test_wrong_usage_is_one_line(programs: dict[str, Path], name: str, words: str, expected: str) -> None:
    done = run(programs[name], *words.split())
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{name}: ")
    assert expected in done.stderr


def test_queued_jobs_go_with_some_workloads_only(programs: dict[str, Path]) -> None:
    done = run(programs["gearblast"], "--queued", 5, "foreground")
    assert (done.returncode, done.stderr) == (2, "gearblast: --queued goes with background, drain and depth only\n")


@pytest.mark.interop
def test_push_is_refused_by_a_server_that_does_not_know_it(programs: dict[str, Path]) -> None:
    with running_gearmand() as server:
        done = run(programs["gearblast"], "--port", server.port, "--push", 1, "foreground")
    assert done.returncode == 2
    assert done.stderr == "gearblast: the server does not know the extension that --push needs\n"
