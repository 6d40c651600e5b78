"""The cells of the benchmark of tasks, and real runs of each library with a few tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import tasks
from bench.task_peers import processes
from bench.task_peers.processes import PeerFailed, PeerMissing

LIBRARIES = ("switchgear", "celery", "rq", "dramatiq", "huey", "arq", "taskiq", "procrastinate", "dask")
SHOWN = [peer for peer in tasks.PEERS if not peer.is_variant]


def require(peer: tasks.Peer) -> None:
    if peer.is_ours:
        return
    try:
        processes.require_peers()
    except PeerMissing as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def test_every_library_takes_part_in_every_workload() -> None:
    found = {(workload, peer.module) for peer in SHOWN for workload in peer.tasks}
    everything = {(workload, f"on_{library}") for workload in tasks.WORKLOADS for library in LIBRARIES}
    assert found == everything - {("submit", "on_dask")}


def test_no_two_rows_have_the_same_name() -> None:
    rows = [(workload, peer.name) for peer in tasks.PEERS for workload in peer.tasks]
    assert len(set(rows)) == len(rows)


def test_missing_libraries_are_an_error_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PEERS_ENVIRONMENTS", (tmp_path,))
    with pytest.raises(PeerMissing, match="run scripts/install-bench-peers"):
        tasks.cells(quick=True)


def test_quick_is_a_quarter_and_variants_are_left_out_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    names = dict.fromkeys((*LIBRARIES, "distributed", "redis-server"), "1.0")
    monkeypatch.setattr(processes, "versions", lambda: names)
    asked: list[int] = []
    monkeypatch.setattr(tasks, "measure", lambda peer, workload, count: asked.append(count))
    shown, all_of_them = tasks.cells(quick=True), tasks.cells(quick=False, variants=True)
    assert {cell.peer for cell in shown} == {peer.name for peer in SHOWN}
    assert {cell.peer for cell in all_of_them} == {peer.name for peer in tasks.PEERS}
    shown[0].measure()
    assert asked == [next(iter(SHOWN[0].tasks.values())) // 4]
    assert any("celery 1.0, redis-server 1.0" in cell.settings for cell in shown)


def test_our_own_processes_see_the_modules_that_this_one_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = (next(peer for peer in SHOWN if peer.name == name) for name in ("switchgear", "celery"))
    monkeypatch.setenv("PYTHONPATH", "/compiled")
    assert tasks._module_path(ours) == f"{processes.ROOT}{os.pathsep}/compiled"
    assert tasks._module_path(theirs) == str(processes.ROOT)
    monkeypatch.delenv("PYTHONPATH")
    assert tasks._module_path(ours) == str(processes.ROOT)


def test_a_reading_has_the_processor_time_of_each_and_of_all() -> None:
    findings = {"fault": "", "seconds": 2.0, "client_cpu_seconds": 0.3, "trips": [0.001] * 99 + [0.5]}
    reading = tasks.reading_of(findings, 100, {"broker": 0.1, "worker": 0.2})
    assert reading.jobs_per_second == 50
    assert reading.cpu_us == pytest.approx(1000)
    assert reading.notes == pytest.approx(
        {"broker cpu us": 1000, "worker cpu us": 2000, "client cpu us": 3000, "all cpu us": 6000}
    )
    assert reading.p50_us == pytest.approx(1000)
    assert reading.p99_us is not None
    assert reading.p99_us > 100_000


def test_a_fault_is_a_reading_that_failed() -> None:
    assert tasks.reading_of({"fault": "lost"}, 10, {"broker": 0.1}).fault == "lost"


def test_processor_time_of_children_counts_while_they_live_and_after() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass\n"
    program = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {burn!r}], check=True)
living = subprocess.Popen([sys.executable, "-c", {burn + "print(1, flush=True); input()"!r}],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
living.stdout.readline()
print("ready", flush=True)
input()
living.communicate(b"\\n")
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = processes.tree_cpu_seconds(process.pid)
        process.communicate(b"\n")
    assert used >= 0.4


@pytest.mark.system
@pytest.mark.parametrize(
    ("library", "workload"),
    [(name, workload) for name in LIBRARIES for workload in tasks.WORKLOADS if (name, workload) != ("dask", "submit")],
)
def test_a_few_tasks_of_each_library(library: str, workload: str) -> None:
    peer = next(peer for peer in SHOWN if peer.module == f"on_{library}" and workload in peer.tasks)
    require(peer)
    reading = tasks.measure(peer, workload, 10)
    assert reading.fault == ""
    assert reading.jobs == 10
    assert reading.seconds > 0
    assert reading.notes["all cpu us"] > 0
    assert ("worker cpu us" in reading.notes) is (workload != "submit")
    assert (reading.p50_us is not None) is (workload == "round trip")


@pytest.mark.system
def test_a_worker_that_ends_is_told_with_what_it_said() -> None:
    broken = replace(SHOWN[0], worker="switchgear worker no_such_module:app")
    with pytest.raises(PeerFailed, match=r"the worker ended with status 2.*no_such_module"):
        tasks.measure(broken, "bulk", 10)


def test_the_program_says_in_one_line_that_libraries_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PEERS_ENVIRONMENTS", (tmp_path,))
    monkeypatch.setattr(sys, "argv", ["bench.tasks"])
    with pytest.raises(SystemExit) as ended:
        tasks.main()
    assert ended.value.code == "the other task libraries are missing: run scripts/install-bench-peers"


def test_an_unknown_peer_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tasks, "cells", lambda quick, variants: [])
    monkeypatch.setattr(sys, "argv", ["bench.tasks", "--only", "sidekiq"])
    with pytest.raises(SystemExit) as ended:
        tasks.main()
    assert ended.value.code == 2
    assert "--only: there is no peer with 'sidekiq' in its name" in capsys.readouterr().err
