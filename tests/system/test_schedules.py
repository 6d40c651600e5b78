"""Schedules of a real server that is killed again and again: each tick makes one job, no more and no less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from switchgear.client import Client
from switchgear.errors import ServerRefused
from tests.client.background import url_of
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire
from tests.system.talk import grab

pytestmark = pytest.mark.system

TICKS_PER_SECOND = 5
LIVES = 4


@contextmanager
def life(home: Path) -> Iterator[Server]:
    """A server that ends by being killed."""
    with running_switchgear(store=f"sqlite:{home / 'jobs.db'}") as server:
        yield server
        server.kill()


def ask(server: Server, verb: str, **arguments: Any) -> Any:
    with Client(url_of(server)) as client:
        return client.control(verb, **arguments)


def run_jobs(server: Server, count: int) -> list[str]:
    """Take and finish so many jobs; their handles.  The last one is only taken."""
    handles: list[str] = []
    with Wire(server.address) as worker:
        worker.send(Kind.CAN_DO, b"tick")
        while True:
            job = eventually(lambda: grab(worker), "there is a job")
            assert job is not None
            handle, payload = job
            assert payload == b"x"
            handles.append(handle.decode())
            if len(handles) == count:
                return handles
            worker.send(Kind.WORK_COMPLETE, handle, b"")


def test_each_tick_makes_one_job_through_any_number_of_deaths(tmp_path: Path) -> None:
    wanted = {"name": "often", "function": "tick", "payload": "x", "every_seconds": 1 / TICKS_PER_SECOND}
    seen: list[str] = []
    for _ in range(LIVES):
        with life(tmp_path) as server:
            ask(server, "schedule", **wanted, catch_up="all", overlap=True)  # as each worker says it that connects
            seen += run_jobs(server, 4)
    with life(tmp_path) as server:
        ask(server, "pause_schedule", name="often")
        jobs = ask(server, "jobs", function="tick", limit=1000)["jobs"]
        (often,) = ask(server, "schedules")
    ticks = Counter(round(job["run_at"] * TICKS_PER_SECOND) for job in jobs)
    assert set(ticks.values()) == {1}, "a tick happened twice"
    assert sorted(ticks) == list(range(min(ticks), max(ticks) + 1)), "a tick was lost"
    assert often["fired"] == len(jobs)
    assert set(seen) <= {job["handle"] for job in jobs}, "a worker was given a job that was not kept"


def test_what_an_operator_was_told_is_still_so(tmp_path: Path) -> None:
    with life(tmp_path) as server:
        ask(server, "schedule", name="nightly", function="f", cron="0 3 * * *", timezone="Europe/Berlin")
        ask(server, "schedule", name="gone", function="f", every_seconds=3600)
        ask(server, "unschedule", name="gone")
        handle = ask(server, "run_schedule", name="nightly")["handle"]
        (before,) = ask(server, "schedules")
        ask(server, "pause_schedule", name="nightly")
    with life(tmp_path) as server:
        (after,) = ask(server, "schedules")
        assert after == {**before, "paused": True, "next_at": None}
        assert (after["last_job"], after["last_state"]) == (handle, "ready")
        with pytest.raises(ServerRefused, match="its last job is ready, and its jobs do not overlap"):
            ask(server, "run_schedule", name="nightly")
        assert ask(server, "resume_schedule", name="nightly")["next_at"] == before["next_at"]
