"""WMP with real managers, devices and workers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from switchgear.client import Client, UpdateKind
from switchgear.client.wmp import WmpJob, WmpTiming, WmpWorker
from switchgear.errors import JobFailed
from tests.cli.commands import call
from tests.client.background import url_of
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wmp_processes import running_device, running_manager, wmp_url
from tests.system.talk import events

pytestmark = pytest.mark.system

# Where a worker is lost, that is to be noticed soon; where none is, a slow machine must not look like it.
CALM = WmpTiming(retry_first_seconds=0.1, retry_most_seconds=0.4)
PACE = WmpTiming(lease_seconds=1.0, lock_seconds=1.0, retry_first_seconds=0.1, retry_most_seconds=0.4)


class Shop:
    """Does jobs, and remembers which, how often, and how many at once in one worker."""

    def __init__(self, work_seconds: float = 0.001) -> None:
        self.runs: Counter[bytes] = Counter()
        self.most_at_once = 0
        self._work_seconds = work_seconds
        self._lock = threading.Lock()
        self._now: Counter[str] = Counter()

    def function(self, worker: str) -> Callable[[WmpJob], bytes]:
        def work(job: WmpJob) -> bytes:
            with self._lock:
                self.runs[job.payload] += 1
                self._now[worker] += 1
                self.most_at_once = max(self.most_at_once, self._now[worker])
            time.sleep(self._work_seconds)  # it is work
            with self._lock:
                self._now[worker] -= 1
            return job.payload[::-1]

        return work


@contextmanager
def working(managers: str | list[str], function: Callable[[WmpJob], Any], **options: Any) -> Iterator[WmpWorker]:
    with WmpWorker(managers, {"f": function}, **{"timing": PACE, **options}) as worker:
        yield worker
        worker.stop(0.0)


def submit_and_wait(servers: list[Server], count: int) -> None:
    """So many jobs to each server, each with a payload of its own; all results are right."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(url_of(server))) for server in servers]
        submissions = [
            (f"{number}-{n}".encode(), client.submit("f", f"{number}-{n}".encode()))
            for number, client in enumerate(clients)
            for n in range(count)
        ]
        for payload, submission in submissions:
            assert submission.wait(2 * DEADLINE_SECONDS) == payload[::-1]


def echo(job: WmpJob) -> bytes:
    return job.payload


# --- many to many ---


def test_three_managers_and_five_workers_do_every_job_once() -> None:
    shop = Shop()
    with ExitStack() as stack:
        managers = [stack.enter_context(running_manager(f"m{n}")) for n in range(3)]
        urls = [wmp_url(manager) for manager in managers]
        for name in ("a", "b", "c", "d", "e"):
            stack.enter_context(working(urls, shop.function(name), slots=3, timing=CALM))
        submit_and_wait(managers, 100)
        assert len(shop.runs) == 300
        assert set(shop.runs.values()) == {1}
        assert 1 < shop.most_at_once <= 3
        for manager in managers:
            assert not events(manager).keys() & {"bad_input", "internal_error", "job_requeued"}


def test_a_worker_behind_two_devices() -> None:
    with (
        running_manager("m") as manager,
        running_device(wmp_url(manager), identity="far") as far,
        running_device(wmp_url(far), identity="near") as near,
        working(wmp_url(near), echo, identity="w"),
        Client(url_of(manager)) as client,
    ):
        assert client.submit("f", b"x").wait(DEADLINE_SECONDS) == b"x"
        assert client.submit("f", b"y" * 1_000_000).wait(DEADLINE_SECONDS) == b"y" * 1_000_000
        (shown,) = client.control("workers")
        assert (shown["protocol"], shown["name"]) == ("wmp", "w")


def test_devices_that_know_several_managers() -> None:
    """Workers know only the devices, and do the jobs of all managers."""
    shop = Shop()
    with ExitStack() as stack:
        managers = [stack.enter_context(running_manager(f"m{n}")) for n in range(2)]
        device = stack.enter_context(running_device(*map(wmp_url, managers)))
        for name in ("a", "b"):
            stack.enter_context(working(wmp_url(device), shop.function(name), slots=2, timing=CALM))
        submit_and_wait(managers, 50)
        assert set(shop.runs.values()) == {1}
        assert shop.most_at_once == 2


# --- whoever dies ---


def test_a_device_that_is_killed_and_started_again_costs_no_job() -> None:
    shop = Shop(work_seconds=0.005)
    with (
        ExitStack() as workers,
        running_manager("m", "--set", "engine.attempts=10") as manager,
        Client(url_of(manager)) as client,
    ):
        with running_device(wmp_url(manager), identity="d") as device:
            for name in ("a", "b"):
                workers.enter_context(working(wmp_url(device), shop.function(name), slots=2))
            submissions = [(b"%d" % n, client.submit("f", b"%d" % n)) for n in range(200)]
            eventually(lambda: len(shop.runs) > 50, "a part of the jobs is done")
            device.kill()
        with running_device(wmp_url(manager), port=device.port, identity="d"):
            for payload, submission in submissions:
                assert submission.wait(2 * DEADLINE_SECONDS) == payload[::-1]
        assert len(shop.runs) == 200
        assert sum(shop.runs.values()) < 220  # what was under way when it died, and not much else, was done again


def test_a_manager_that_is_started_again_is_found_by_workers_behind_a_device(tmp_path: Path) -> None:
    shop = Shop(work_seconds=0.002)
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with ExitStack() as stack:
        with running_manager("m", store=store) as manager:
            port = int(wmp_url(manager).rpartition(":")[2])
            device = stack.enter_context(running_device(wmp_url(manager)))
            with Client(url_of(manager)) as client:
                for n in range(100):
                    client.submit("f", b"%d" % n, background=True)
                stack.enter_context(working(wmp_url(device), shop.function("far")))
                stack.enter_context(working(wmp_url(manager), shop.function("near")))
                eventually(lambda: len(shop.runs) > 30, "a part of the jobs is done")
            manager.kill()
        with running_manager("m", port=port, store=store) as manager, Client(url_of(manager)) as client:
            eventually(lambda: client.control("server")["jobs"] == 0, "all jobs are done", 2 * DEADLINE_SECONDS)
            eventually(lambda: len(client.control("workers")) == 2, "both workers are back")
        assert len(shop.runs) == 100


WORKER_PROGRAM = """
import sys, time
from switchgear.client.wmp import WmpTiming, WmpWorker

def hang(job):
    print("started", flush=True)
    time.sleep(1000)

WmpWorker(sys.argv[1], {"f": hang}, timing=WmpTiming(lease_seconds=1.0)).run()
"""


def test_a_job_whose_worker_is_killed_runs_elsewhere() -> None:
    with running_manager("m") as manager, Client(url_of(manager)) as client:
        command = [sys.executable, "-c", WORKER_PROGRAM, wmp_url(manager)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as doomed:
            submission = client.submit("f", b"x")
            assert doomed.stdout is not None
            assert doomed.stdout.readline() == b"started\n"
            doomed.kill()
        with working(wmp_url(manager), echo):
            assert submission.wait(DEADLINE_SECONDS) == b"x"
        assert events(manager)["job_requeued"] == 1


# --- news of a job, in both directions ---


@pytest.mark.parametrize("devices", [0, 1])
def test_progress_reaches_the_submitter_and_cancelling_the_worker(devices: int) -> None:
    stopped = threading.Event()

    def slow(job: WmpJob) -> None:
        job.progress(1, 4)
        if job.cancelled.wait(DEADLINE_SECONDS):
            stopped.set()

    with ExitStack() as stack:
        manager = stack.enter_context(running_manager("m"))
        client = stack.enter_context(Client(url_of(manager)))
        url = wmp_url(manager)
        for _ in range(devices):
            url = wmp_url(stack.enter_context(running_device(url)))
        stack.enter_context(WmpWorker(url, {"slow": slow, "f": echo}, timing=PACE))
        submission = client.submit("slow")
        progress = next(submission.updates(DEADLINE_SECONDS))
        assert (progress.kind, progress.numerator, progress.denominator) == (UpdateKind.STATUS, 1, 4)
        result = call(manager, "cancel", submission.handle)
        assert result.exit_code == 0, result.output
        with pytest.raises(JobFailed):
            submission.wait(DEADLINE_SECONDS)
        assert stopped.wait(DEADLINE_SECONDS)
        assert client.submit("f", b"x").wait(DEADLINE_SECONDS) == b"x"  # the only slot is free again
        assert "bad_input" not in events(manager)


def test_failures_reach_the_submitter() -> None:
    def fail(job: WmpJob) -> bytes:
        raise ValueError("out of paper")

    with (
        running_manager("m") as manager,
        Client(url_of(manager)) as client,
        working(wmp_url(manager), fail),
        pytest.raises(JobFailed, match="ValueError: out of paper"),
    ):
        client.submit("f").wait(DEADLINE_SECONDS)


# --- jobs of different size ---


def test_a_large_job_waits_for_its_slots_while_small_ones_go_on() -> None:
    small_runs, go_on = threading.Event(), threading.Event()

    def small(job: WmpJob) -> bytes:
        if job.payload == b"wait":
            small_runs.set()
            go_on.wait(DEADLINE_SECONDS)
        return job.payload

    def large(job: WmpJob) -> bytes:
        return b"large" if go_on.is_set() else b"too early"

    with (
        running_manager("m") as manager,
        Client(url_of(manager)) as client,
        WmpWorker(wmp_url(manager), {"small": small, "large": large}, 2, needs={"large": 2}, timing=PACE),
    ):
        first = client.submit("small", b"wait")
        assert small_runs.wait(DEADLINE_SECONDS)
        second = client.submit("large")
        for n in range(5):
            assert client.submit("small", b"%d" % n).wait(DEADLINE_SECONDS) == b"%d" % n
        go_on.set()
        assert second.wait(DEADLINE_SECONDS) == b"large"
        assert first.wait(DEADLINE_SECONDS) == b"wait"


# --- policies ---

POLICY = """
def most_memory(job, workers):
    return [max(workers, key=lambda worker: worker.headers["memory_gb"])]
"""


def test_the_wake_policy_chooses_by_what_workers_say_of_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_policy.py").write_text(POLICY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")

    with (
        running_manager("m", "--set", "engine.wake_policy=our_policy:most_memory") as manager,
        Client(url_of(manager)) as client,
        working(wmp_url(manager), lambda job: b"small", headers={"memory_gb": 4}),
        working(wmp_url(manager), lambda job: b"large", headers={"memory_gb": 64}),
        working(wmp_url(manager), lambda job: b"medium", headers={"memory_gb": 16}),
    ):
        eventually(lambda: sum(shown["asleep"] for shown in client.control("workers")) == 3, "three workers sleep")
        for _ in range(5):
            assert client.submit("f").wait(DEADLINE_SECONDS) == b"large"
            eventually(lambda: all(shown["asleep"] for shown in client.control("workers")), "all sleep again")
