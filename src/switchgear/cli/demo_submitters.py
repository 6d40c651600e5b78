"""The submitters of the demo: a function for each protocol that submits one job and returns its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from math import ceil
from typing import Final

from switchgear.cli import demo_resp
from switchgear.cli.demo_addresses import FUNCTION, SCHEME_OF, DemoAddresses
from switchgear.errors import JobFailed

__all__ = ["SUBMITTERS", "Submit", "submitters_at"]

LOOK_SECONDS: Final = 0.005

Submit = Callable[[DemoAddresses, bytes, float], bytes | None]
"""Submits a job with this payload, waits at most this many seconds, and returns the result; None: done, and the
protocol has no results. Raises a SwitchgearError, OSError or TimeoutError."""


def by_gearman(addresses: DemoAddresses, payload: bytes, timeout_seconds: float) -> bytes:
    from switchgear.client import Client

    with Client(addresses.at("gearman")) as client:
        return client.submit(FUNCTION, payload).wait(timeout_seconds)


def by_draft(addresses: DemoAddresses, payload: bytes, timeout_seconds: float) -> bytes:
    from switchgear.client.draft import DraftClient, JobType

    with DraftClient(addresses.at("gearman")) as client:
        record = client.submit(FUNCTION, payload, job_type=JobType.SYNC_WAIT)
        outcome = client.wait(record, timeout_seconds)
    if outcome.code:
        raise JobFailed(outcome.data.decode(errors="replace"), outcome.data)
    return outcome.data


def by_pingpong(addresses: DemoAddresses, payload: bytes, timeout_seconds: float) -> bytes:
    from switchgear.client import PingPongClient

    with PingPongClient(addresses.at("pingpong"), keys=addresses.keys) as client:
        return client.call(payload, timeout_seconds)


def by_dwork(addresses: DemoAddresses, payload: bytes, timeout_seconds: float) -> None:
    """Submit by dwork, which does not report the end of a task, so that it is polled."""
    from switchgear.client import DworkClient

    deadline = time.monotonic() + timeout_seconds
    with DworkClient(addresses.at("dwork"), keys=addresses.keys, timeout_seconds=timeout_seconds) as client:
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


def by_gearmonkey(addresses: DemoAddresses, payload: bytes, timeout_seconds: float) -> bytes:
    address = addresses.host("gearmonkey"), addresses.listeners["gearmonkey"].port
    with demo_resp.RespConnection(address, timeout_seconds) as connection:
        return demo_resp.call(connection, payload, timeout_seconds)


def by_http(addresses: DemoAddresses, payload: bytes, timeout_seconds: float) -> bytes:
    import http.client

    connection = http.client.HTTPConnection(
        addresses.host("http"), addresses.listeners["http"].port, timeout=timeout_seconds
    )
    with closing(connection):
        prefer = {"Prefer": f"wait={ceil(timeout_seconds)}"}
        connection.request("POST", f"/v1/functions/{FUNCTION}/jobs", payload, prefer)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status != 200:
        raise JobFailed(body.decode(errors="replace"), body)
    return body


def by_python(addresses: DemoAddresses, payload: bytes, timeout_seconds: float) -> bytes:
    from switchgear.app.app import App

    with App(addresses.at("gearman"), connect_seconds=timeout_seconds) as app:
        return app.task(name=FUNCTION)(_work).submit(payload).result(timeout_seconds)


def _work(payload: bytes) -> bytes:
    raise NotImplementedError("the workers have functions of their own under this name")


SUBMITTERS: Final[dict[str, Submit]] = {
    "Gearman": by_gearman,
    "2005 draft": by_draft,
    "PING/PONG": by_pingpong,
    "dwork": by_dwork,
    "GearMonkey": by_gearmonkey,
    "HTTP": by_http,
    "Python API": by_python,
}


def submitters_at(addresses: DemoAddresses) -> list[str]:
    """The submitters whose protocols the server speaks."""
    return [name for name in SUBMITTERS if addresses.speaks(SCHEME_OF[name])]
