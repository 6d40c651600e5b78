"""Child processes that come and go with the backlog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear import Client
from switchgear.app.worker import process_autoscaler, worker
from switchgear.app.worker.process_autoscaler import (
    SHRINK_SECONDS,
    AutoscaleLimits,
    AutoscalePolicy,
    parse_autoscale,
)
from tests.app.worker.harness import AppWithWorker, wait_for, working
from tests.client.background import url_of
from tests.support.servers import Server, running_gearmand, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

ONE_TO_THREE = AutoscaleLimits(1, 3)


@pytest.mark.parametrize(("text", "least", "most"), [("1,1", 1, 1), ("2,10", 2, 10), (" 3 , 1000 ", 3, 1000)])
def test_limits(text: str, least: int, most: int) -> None:
    assert parse_autoscale(text) == AutoscaleLimits(least, most)


@pytest.mark.parametrize("text", ["", "3", "0,3", "10,2", "1,1001", "1,2,3", "-1,2", "a,b", "1.5,2", "1," + "9" * 5000])
def test_what_are_no_limits(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_autoscale(text)
    assert 0 < len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("active", "busy", "ready_jobs", "wanted"),
    [
        (2, 2, 1, 3),
        (2, 2, 1000, 4),  # twice as many at most
        (6, 6, 1000, 8),
        (8, 8, 1000, 8),
        (2, 2, 0, 2),
        (2, 1, 1000, 2),  # one is free or still starting, so the jobs are not for us or are about to come
    ],
)
def test_growing(active: int, busy: int, ready_jobs: int, wanted: int) -> None:
    policy = AutoscalePolicy(AutoscaleLimits(2, 8), 0.0)
    assert policy.processes(1.0, active=active, busy=busy, ready_jobs=ready_jobs) == wanted


def test_shrinking_to_the_most_that_were_busy_at_once() -> None:
    policy = AutoscalePolicy(AutoscaleLimits(1, 8), 0.0)
    policy.saw_busy(3)
    before, then = SHRINK_SECONDS - 0.1, SHRINK_SECONDS
    assert policy.processes(before, active=6, busy=1, ready_jobs=0) == 6
    assert policy.processes(then, active=6, busy=1, ready_jobs=0) == 3
    assert policy.processes(then + before, active=3, busy=0, ready_jobs=0) == 3
    assert policy.processes(then + then, active=3, busy=0, ready_jobs=0) == 1  # the one that was busy at first
    assert policy.processes(3 * then, active=1, busy=0, ready_jobs=0) == 1


def test_new_processes_have_time_to_get_jobs() -> None:
    policy = AutoscalePolicy(AutoscaleLimits(1, 8), 0.0)
    assert policy.processes(SHRINK_SECONDS, active=2, busy=2, ready_jobs=9) == 4
    assert policy.processes(SHRINK_SECONDS + 1.0, active=4, busy=2, ready_jobs=0) == 4
    assert policy.processes(2 * SHRINK_SECONDS, active=4, busy=4, ready_jobs=0) == 4


def test_processes_that_start_are_not_superfluous_yet() -> None:
    policy = AutoscalePolicy(AutoscaleLimits(1, 8), 0.0)
    for now in (1.0, SHRINK_SECONDS, 5 * SHRINK_SECONDS):
        assert policy.processes(now, active=4, busy=2, ready_jobs=0, starting=2) == 4
    assert policy.processes(6 * SHRINK_SECONDS, active=4, busy=2, ready_jobs=0) == 2


@pytest.fixture(scope="module")
def one_server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes sooner."""
    monkeypatch.setattr(worker, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(process_autoscaler, "SHRINK_SECONDS", 0.2)


def processes(crew: AppWithWorker) -> int:
    return sum(1 for pool in crew.worker._pools if pool.executor.ready or pool.attempts)


@pytest.mark.system
@pytest.mark.usefixtures("quick")
def test_processes_come_with_the_backlog_and_go_with_it(one_server: Server, tmp_path: Path) -> None:
    with working(one_server, "hold_in_process", processes=3, autoscale=ONE_TO_THREE) as crew:
        jobs = [crew.submit("hold_in_process", str(tmp_path)) for _ in range(5)]
        wait_for(tmp_path, "started", 3)
        assert processes(crew) == 3
        assert crew.recorder.until("note") == "2 processes instead of 1: all are busy, and more jobs are ready"
        assert crew.recorder.until("note").startswith("3 processes instead of 2")
        (tmp_path / "go").touch()
        assert [job.result(DEADLINE_SECONDS) for job in jobs] == ["finished"] * 5
        eventually(lambda: processes(crew) == 1, "one process is left")
        assert crew.run("hold_in_process", str(tmp_path)) == "finished"
        assert [job.status().attempts for job in jobs] == [1] * 5


@pytest.mark.system
@pytest.mark.usefixtures("quick")
def test_one_job_after_the_other_needs_one_process(one_server: Server) -> None:
    with working(one_server, "process_id_in_process", processes=3, autoscale=ONE_TO_THREE) as crew:
        assert len({crew.run("process_id_in_process") for _ in range(100)}) == 1
        assert "note" not in [name for name, _ in crew.recorder.all_so_far()]


@pytest.mark.system
@pytest.mark.usefixtures("quick")
def test_jobs_that_come_while_processes_go_are_done_once(one_server: Server) -> None:
    with working(one_server, "process_id_in_process", processes=3, autoscale=ONE_TO_THREE) as crew:
        for _ in range(3):
            jobs = [crew.submit("process_id_in_process") for _ in range(300)]
            for job in jobs:
                assert job.result(DEADLINE_SECONDS)
            assert {job.status().attempts for job in jobs[::50]} == {1}
        assert not [about for name, about in crew.recorder.all_so_far() if name in ("dropped", "disconnected")]


@pytest.mark.system
@pytest.mark.usefixtures("quick")
def test_a_burst_ends_although_processes_rest(one_server: Server) -> None:
    with working(one_server, "add_in_process", processes=3, autoscale=ONE_TO_THREE, burst=True) as crew:
        assert crew.worker.wait(DEADLINE_SECONDS)
        assert crew.worker.end_reason == "burst"


@pytest.mark.system
@pytest.mark.usefixtures("quick")
def test_a_plain_server_does_not_tell_its_backlog_so_one_process_is_spare(tmp_path: Path) -> None:
    limits = AutoscaleLimits(1, 4)
    with running_gearmand() as server, Client(url_of(server)) as client:
        with working(server, "hold_in_process", processes=4, autoscale=limits) as crew:
            jobs = [client.submit("hold_in_process", b'{"place": "%s"}' % bytes(tmp_path)) for _ in range(2)]
            wait_for(tmp_path, "started", 2)
            eventually(lambda: processes(crew) == 3, "one is spare")
            (tmp_path / "go").touch()
            assert [job.wait(DEADLINE_SECONDS) for job in jobs] == [b'"finished"'] * 2
            eventually(lambda: processes(crew) == 1, "one process is left")
            last = client.submit("hold_in_process", b'{"place": "%s"}' % bytes(tmp_path))
            assert last.wait(DEADLINE_SECONDS) == b'"finished"'
        with working(server, "hold_in_process", processes=3, autoscale=ONE_TO_THREE, burst=True) as crew:
            assert crew.worker.wait(DEADLINE_SECONDS)


@pytest.mark.system
@pytest.mark.usefixtures("quick")
def test_a_worker_stops_while_processes_rest_and_others_work(one_server: Server, tmp_path: Path) -> None:
    with working(one_server, "hold_in_process", processes=3, autoscale=ONE_TO_THREE) as crew:
        job = crew.submit("hold_in_process", str(tmp_path))
        wait_for(tmp_path, "started")
        crew.worker.stop(DEADLINE_SECONDS)
        (tmp_path / "go").touch()
        assert crew.worker.wait(DEADLINE_SECONDS)
        assert job.result(DEADLINE_SECONDS) == "finished"
