"""The benchmark of ZeroMQ workers, with a real server and a few of them."""

from __future__ import annotations

import pytest

from bench import zeromq
from switchgear.client import Client

pytestmark = pytest.mark.system


def test_every_worker_does_a_job_and_none_is_left() -> None:
    with zeromq.running_server(expire_seconds=600) as server:
        reading = zeromq.measure_cycles(server, 30, 2)
        zeromq.await_empty(server.port("gearman"))
    assert reading.jobs == 30
    assert reading.cpu_us is not None
    assert reading.cpu_us > 0


def test_jobs_that_are_left_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq, "EMPTY_SECONDS", 0.0)
    with zeromq.running_server(expire_seconds=600) as server:
        with Client(server.urls["gearman"]) as client:
            client.submit("bench", b"x", background=True)
        with pytest.raises(SystemExit, match="1 jobs were not done"):
            zeromq.await_empty(server.port("gearman"))
