"""The submitters of the demo: a function for each protocol that submits one job and returns its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from switchgear.cli import demo_resp
from switchgear.cli.demo_places import FUNCTION, Places
from switchgear.errors import JobFailed

__all__ = ["SUBMITTERS", "Submit", "submitters_at"]

LOOK_SECONDS: Final = 0.005

Submit = Callable[[Places, bytes, float], bytes | None]
"""Has a job with this payload done within so many seconds, and returns its result; None: done, and the protocol has no
results.  Raises a SwitchgearError, OSError or TimeoutError."""


def by_gearman(places: Places, payload: bytes, timeout_seconds: float) -> bytes:
    from switchgear.client import Client

    with Client(places.gearman) as client:
        return client.submit(FUNCTION, payload).wait(timeout_seconds)


def by_draft(places: Places, payload: bytes, timeout_seconds: float) -> bytes:
    from switchgear.client.draft import DraftClient, JobType

    with DraftClient(places.gearman) as client:
        record = client.submit(FUNCTION, payload, job_type=JobType.SYNC_WAIT)
        outcome = client.wait(record, timeout_seconds)
    if outcome.code:
        raise JobFailed(outcome.data.decode(errors="replace"), outcome.data)
    return outcome.data


def by_pingpong(places: Places, payload: bytes, timeout_seconds: float) -> bytes:
    from switchgear.client import PingPongClient

    with PingPongClient(places.pingpong_clients, keys=places.keys) as client:
        return client.call(payload, timeout_seconds)


def by_dwork(places: Places, payload: bytes, timeout_seconds: float) -> None:
    """Submit by dwork, which does not report the end of a task, so that it is polled."""
    from switchgear.client import DworkClient

    deadline = time.monotonic() + timeout_seconds
    with DworkClient(places.dwork, keys=places.keys, timeout_seconds=timeout_seconds) as client:
        client.create(payload)
        while True:
            record = client.lookup(payload)
            if record is not None and record.state == "done":
                return
            if record is not None and record.ended_us:
                raise JobFailed(record.error or record.state)
            if time.monotonic() > deadline:
                raise TimeoutError("the task was not done in time")
            time.sleep(LOOK_SECONDS)


def by_gearmonkey(places: Places, payload: bytes, timeout_seconds: float) -> bytes:
    assert places.gearmonkey is not None
    with demo_resp.RespLine(places.gearmonkey, timeout_seconds) as line:
        return demo_resp.call(line, payload, timeout_seconds)


def by_python(places: Places, payload: bytes, timeout_seconds: float) -> bytes:
    from switchgear.app.app import App

    with App(places.gearman, connect_seconds=timeout_seconds) as app:
        return app.task(name=FUNCTION)(_work).submit(payload).result(timeout_seconds)


def _work(payload: bytes) -> bytes:
    raise NotImplementedError("the workers have functions of their own under this name")


SUBMITTERS: Final[dict[str, Submit]] = {
    "Gearman": by_gearman,
    "2005 draft": by_draft,
    "PING/PONG": by_pingpong,
    "dwork": by_dwork,
    "GearMonkey": by_gearmonkey,
    "Python API": by_python,
}


def submitters_at(places: Places) -> list[str]:
    """The submitters whose protocols the server speaks."""
    spoken = {
        "Gearman": places.gearman,
        "2005 draft": places.gearman,
        "PING/PONG": places.pingpong_clients,
        "dwork": places.dwork,
        "GearMonkey": places.gearmonkey,
        "Python API": places.gearman,
    }
    return [name for name in SUBMITTERS if spoken[name]]
