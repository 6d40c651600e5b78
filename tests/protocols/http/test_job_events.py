"""Events of one job for very many clients, whose worker sends long data."""

from __future__ import annotations

import json

import pytest

from switchgear.protocols.http.job_error import MOST_ERROR_BYTES
from switchgear.protocols.http.job_events import MOST_DATA_BYTES
from tests.protocols.http.harness import HttpHarness


def watched_job(harness: HttpHarness, *viewers: str) -> None:
    """The first job, taken by a worker, with clients that watch it."""
    harness.ask("c", "POST", "/v1/functions/f/jobs", b"")
    harness.ask("w", "POST", "/v1/functions/f/take")
    for viewer in viewers:
        harness.send(viewer, "GET", "/v1/jobs/1/events")
        harness.peer(viewer).heard_raw()


def send_data(harness: HttpHarness, data: bytes) -> None:
    """Have the worker send a part of the result; over HTTP it cannot."""
    worker = harness.setup.shared.workers.by_job[1][0].worker
    harness.engine.data(worker, 1, data)


def told(raw: bytes) -> list[tuple[str, dict[str, object]]]:
    """The events in a body that came in chunks."""
    lines = [line for line in raw.decode().splitlines() if line.startswith(("event: ", "data: "))]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in pairs]


def test_all_clients_share_an_event() -> None:
    harness = HttpHarness()
    watched_job(harness, "one", "two")
    send_data(harness, b"\0" * MOST_DATA_BYTES)
    one, two = (max(harness.peer(name).session.out, key=len) for name in ("one", "two"))
    assert len(one) > MOST_DATA_BYTES
    assert one is two
    harness.turn()
    assert told(harness.peer("two").heard_raw()) == [("data", {"data": "\0" * MOST_DATA_BYTES})]


def test_an_event_is_not_mistaken_for_another() -> None:
    harness = HttpHarness()
    watched_job(harness, "one")
    for data in (b"x", b"", b"x" * (MOST_DATA_BYTES + 1), b"", b"x", b"\xff"):
        send_data(harness, data)
    harness.turn()
    assert [data for _, data in told(harness.peer("one").heard_raw())] == [
        {"data": "x"},
        {"data": ""},
        {"data": None, "bytes": MOST_DATA_BYTES + 1},
        {"data": ""},
        {"data": "x"},
        {"data": {"base64": "/w=="}},
    ]


@pytest.mark.parametrize("target", ["/v1/jobs/1/events", "/v1/jobs/1/result?wait=60"])
def test_a_long_error_is_not_copied_for_each_client(target: str) -> None:
    harness = HttpHarness()
    watched_job(harness)
    harness.send("v", "GET", target)
    worker = harness.setup.shared.workers.by_job[1][0].worker
    harness.engine.fail(worker, 1, error=("ä" * 500_000).encode())
    assert harness.peer("v").session.unsent_bytes < 3 * MOST_ERROR_BYTES
    harness.turn()
    assert b"\xc3\xa4" * (MOST_ERROR_BYTES // 2) in harness.peer("v").heard_raw()
