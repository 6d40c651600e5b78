"""Graphs of tasks that are run on the spot."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from switchgear.client.dwork.local_run import LocalRun, RunObserver, RunReport, run_tasks
from switchgear.client.dwork.shell_commands import ShellCommands
from switchgear.client.dwork.taskfile import parse_tasks
from switchgear.errors import CycleRefused


@dataclass(frozen=True)
class Result:
    failure: str | None = None


class Performer:
    """Runs nothing, but takes note; each task takes as long as the event loop needs for so many others."""

    def __init__(self, failing: Iterable[str] = ()) -> None:
        self.failing = set(failing)
        self.order: list[str] = []
        self.running: set[str] = set()
        self.most_at_once = 0
        self.now_us = 0
        self._rng = random.Random(4711)

    async def __call__(self, name: str) -> Result:
        self.order.append(name)
        self.running.add(name)
        self.most_at_once = max(self.most_at_once, len(self.running))
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)
        self.running.discard(name)
        return Result("broken" if name in self.failing else None)

    def clock_us(self) -> int:
        self.now_us += 1
        return self.now_us


def run(lines: list[str], performer: Performer, jobs: int = 3, *, keep_going: bool = False) -> RunReport:
    local_run = LocalRun(parse_tasks(lines), performer.now_us, keep_going=keep_going)
    asyncio.run(run_tasks(local_run, performer, jobs, performer.clock_us, RunObserver()))
    return local_run.report(performer.clock_us())


def test_each_task_runs_once_after_those_that_it_waits_for() -> None:
    rng = random.Random(1)
    lines = [
        ",".join(map(str, [number, *rng.sample(range(number), min(number, rng.randrange(4)))])) for number in range(300)
    ]
    rng.shuffle(lines)
    performer = Performer()
    report = run(lines, performer, jobs=7)
    assert report.is_success
    assert sorted(performer.order, key=int) == [str(number) for number in range(300)]
    place = {name: number for number, name in enumerate(performer.order)}
    for name, predecessors in parse_tasks(lines).tasks.items():
        assert all(place[other] < place[name] for other in predecessors)
    assert performer.most_at_once <= 7


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_as_many_at_once_as_allowed_and_not_more(jobs: int) -> None:
    performer = Performer()
    run([f"task {number}" for number in range(100)], performer, jobs)
    assert performer.most_at_once == jobs


def test_what_was_released_goes_first_as_on_a_server() -> None:
    performer = Performer()
    run(["a", "b", "c", "d,a", "e,d"], performer, jobs=1)
    assert performer.order == ["a", "d", "e", "b", "c"]


def test_after_a_failure_nothing_is_started() -> None:
    performer = Performer(failing=["b"])
    report = run(["a", "b,a", "c,b", "d,c", "e"], performer, jobs=1)
    assert performer.order == ["a", "b"]
    assert (report.done, report.failed, report.blocked, report.not_started) == (
        ["a"],
        {"b": "broken"},
        ["c", "d"],
        ["e"],
    )
    assert not report.is_success
    assert report.left == ["b", "c", "d", "e"]


def test_keep_going_does_all_that_does_not_wait_for_a_failure() -> None:
    performer = Performer(failing=["b", "x"])
    report = run(["a", "b,a", "c,b", "d,c", "e", "x", "y,x,e", "z,e"], performer, jobs=1, keep_going=True)
    assert report.done == ["a", "e", "z"]
    assert report.failed.keys() == {"b", "x"}
    assert (report.blocked, report.not_started) == (["c", "d", "y"], [])


def test_times_and_the_critical_path() -> None:
    local_run = LocalRun(parse_tasks(["a", "b", "c,a", "d,b,c"]), 0)
    for name, began_us, ended_us in (("a", 0, 10), ("c", 10, 40), ("b", 40, 60), ("d", 60, 65)):
        assert local_run.take(began_us * 1_000_000) == name
        local_run.end(name, None, ended_us * 1_000_000)
    report = local_run.report(70_000_000)
    assert (report.wall_seconds, report.task_seconds) == (70.0, 65.0)
    assert (report.critical_path, report.critical_seconds) == (["a", "c", "d"], 45.0)


def test_what_runs_when_everything_is_stopped() -> None:
    local_run = LocalRun(parse_tasks(["a", "b,a", "c"]), 0)
    local_run.take(1)
    local_run.stop()
    assert local_run.take(2) is None
    report = local_run.report(3)
    assert (report.interrupted, report.not_started) == (["a"], ["c", "b"])


def test_a_circle_is_refused() -> None:
    with pytest.raises(CycleRefused, match="a -> b -> a"):
        LocalRun(parse_tasks(["a,b", "b,a"]), 0)


def test_a_hundred_thousand_lines() -> None:
    lines = [f"task {number},task {number // 2}" if number else "task 0" for number in range(100_000)]
    local_run = LocalRun(parse_tasks(lines), 0)
    began = time.process_time()
    done = 0
    while (name := local_run.take(done)) is not None:
        done += 1
        local_run.end(name, None, done)
    report = local_run.report(done)
    assert done == len(report.done) == 100_000
    assert time.process_time() - began < 10


# --- commands ---


def test_a_command_its_output_and_its_end() -> None:
    async def both(command: str, *, one_stream: bool = False) -> tuple[int, bytes, bytes, str | None]:
        ended = await ShellCommands(one_stream=one_stream).run(command)
        ended.stdout.seek(0)
        ended.stderr.seek(0)
        result = ended.status, ended.stdout.read(), ended.stderr.read(), ended.failure
        ended.close()
        return result

    for command, expected in [
        ("echo out; echo err >&2", (0, b"out\n", b"err\n", None)),
        ("cat", (0, b"", b"", None)),  # there is nothing to read
        ("echo first >&2; echo ' last ' >&2; echo >&2; exit 3", (3, b"", b"first\n last \n\n", "last")),
        ("exit 4", (4, b"", b"", "exit status 4")),
        ("kill -9 $$", (-9, b"", b"", "killed by SIGKILL")),
        ("a\0b", (127, b"", b"", "cannot be started: embedded null byte")),
    ]:
        assert asyncio.run(both(command)) == expected, command
    assert asyncio.run(both("echo 1; echo 2 >&2; echo 3", one_stream=True))[1] == b"1\n2\n3\n"


def test_a_name_that_is_too_long_for_the_system_is_a_failure() -> None:
    async def run_it() -> str | None:
        ended = await ShellCommands().run("true " + "x" * 1_000_000)
        ended.close()
        return ended.failure

    failure = asyncio.run(run_it())
    assert failure is not None
    assert "cannot be started" in failure
