"""Extension packets against a real server: workers that are pushed to, and clients that watch."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from switchgear.protocols.gearman.messages import Packet as Ours
from tests.support.servers import running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import CLOSED, Kind, Packet, Wire, request
from tests.system.talk import MIB, Deaf, control, events, resident_bytes

pytestmark = pytest.mark.system

SOON_SECONDS = 1.0


def introduce(worker: Wire, credit: int, lease_ms: int = 0, function: bytes = b"f") -> None:
    worker.send(Kind.OPTION_REQ, b"switchgear")
    assert worker.receive() == Packet(Kind.OPTION_RES, b"switchgear")
    worker.send(Kind.CAN_DO, function)
    worker.send(Ours.CREDIT, b"%d" % credit, b"%d" % lease_ms)


def submit(client: Wire, payload: bytes = b"x", options: bytes = b'{"watch":true}') -> bytes:
    client.send(Ours.SUBMIT_JOB_OPTIONS, b"f", b"", options, payload)
    created = client.receive_packet()
    assert created.type == Kind.JOB_CREATED, created
    return created.body


def pushed(worker: Wire, within_seconds: float | None = None) -> tuple[bytes, int, bytes]:
    """Handle, attempt and payload of the next job."""
    packet = worker.receive_packet(within_seconds)
    assert packet.type == Ours.JOB_PUSH, packet
    handle, _, _, attempt, _, _, _, payload = packet.body.split(b"\0", 7)
    return handle, int(attempt), payload


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "sqlite"])
def test_a_job_from_submission_to_result(durable: bool, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}" if durable else "memory:"
    with running_switchgear(store=store) as server, Wire(server.address) as client, Wire(server.address) as worker:
        introduce(worker, 2)
        client.send(Kind.OPTION_REQ, b"switchgear")
        client.receive()
        for number in range(100):
            handle = submit(client, b"%d" % number)
            assert pushed(worker) == (handle, 1, b"%d" % number)
            worker.send(Ours.WORK_PROGRESS, handle, b"1", b"2", b"half")
            assert client.receive() == Packet(Ours.WORK_PROGRESS, handle + b"\x001\x002\0half")
            worker.send_bytes(
                request(Kind.WORK_COMPLETE, handle, b"done %d" % number) + request(Ours.CREDIT, b"1", b"0")
            )
            assert client.receive() == Packet(Kind.WORK_COMPLETE, handle + b"\0done %d" % number)


def test_a_server_that_was_stopped_for_longer_than_a_lease_does_not_lose_the_worker() -> None:
    with running_switchgear() as server, Wire(server.address) as client, Wire(server.address) as worker:
        introduce(worker, 1, lease_ms=300)
        client.send(Kind.OPTION_REQ, b"switchgear")
        client.receive()
        handle = submit(client)
        assert pushed(worker) == (handle, 1, b"x")
        server.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        worker.send(Ours.WORK_PROGRESS, handle, b"1", b"2", b"still at it")
        eventually(lambda: time.monotonic() > stopped + 1, "the lease is long over")
        server.process.send_signal(signal.SIGCONT)
        assert client.receive() == Packet(Ours.WORK_PROGRESS, handle + b"\x001\x002\0still at it")
        worker.send(Kind.WORK_COMPLETE, handle, b"done")
        assert client.receive() == Packet(Kind.WORK_COMPLETE, handle + b"\0done")
        assert "worker_expired" not in events(server)


def test_a_job_whose_worker_dies_runs_elsewhere_within_a_second() -> None:
    with running_switchgear() as server, Wire(server.address) as client, Wire(server.address) as second:
        first = Wire(server.address)
        introduce(first, 1)
        handle = submit(client)
        assert pushed(first) == (handle, 1, b"x")
        introduce(second, 1)
        began = time.monotonic()
        first.reset()
        assert pushed(second) == (handle, 2, b"x")
        assert time.monotonic() - began < SOON_SECONDS


def test_a_worker_that_falls_silent_is_cut_off_at_the_end_of_its_lease() -> None:
    with (
        running_switchgear() as server,
        Wire(server.address) as client,
        Wire(server.address) as silent,
        Wire(server.address) as other,
    ):
        introduce(silent, 1, lease_ms=300)
        handle = submit(client)
        assert pushed(silent) == (handle, 1, b"x")
        introduce(other, 1, lease_ms=60_000)
        assert pushed(other) == (handle, 2, b"x")
        text = b"Nothing was heard within the lease of 300 ms"
        assert silent.receive_until_closed() == [Packet(Kind.ERROR, b"LEASE_EXPIRED\0" + text), CLOSED]
        assert events(server)["worker_expired"] == 1


def test_signs_of_life_are_enough_to_keep_a_job() -> None:
    with running_switchgear() as server, Wire(server.address) as client, Wire(server.address) as worker:
        introduce(worker, 1, lease_ms=500)
        handle = submit(client)
        assert pushed(worker) == (handle, 1, b"x")
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            worker.expect_nothing()  # asks for an echo
        worker.send(Kind.WORK_COMPLETE, handle, b"done")
        assert client.receive() == Packet(Kind.WORK_COMPLETE, handle + b"\0done")


def test_a_cancelled_job_is_revoked_at_once() -> None:
    with running_switchgear() as server, Wire(server.address) as client, Wire(server.address) as worker:
        introduce(worker, 1)
        handle = submit(client)
        assert pushed(worker)[0] == handle
        client.send(Ours.CONTROL, b"cancel", b'{"function":"f"}')
        assert worker.receive() == Packet(Ours.REVOKE, handle + b"\0cancelled")


def test_a_worker_that_grants_a_million_and_reads_nothing_is_no_danger() -> None:
    """A hundred megabytes of jobs lie ready; what waits for the worker is bounded, and others get theirs."""
    with running_switchgear() as server, Wire(server.address) as client, Deaf(server) as deaf:
        for _ in range(100):
            client.send(Kind.SUBMIT_JOB_BG, b"f", b"", b"x" * MIB)
            assert client.receive_packet().type == Kind.JOB_CREATED
        before = resident_bytes(server)
        deaf.send(request(Kind.CAN_DO, b"f") + request(Ours.CREDIT, b"1000000", b"0") * 1000)
        with Wire(server.address) as worker:
            introduce(worker, 50)
            payloads = [pushed(worker)[2] for _ in range(50)]
            assert all(len(payload) == MIB for payload in payloads)
            assert resident_bytes(server) - before < 60 * MIB
            assert control(worker, "functions")[0]["running"] < 75


def test_a_result_is_there_for_whoever_asks_later_even_after_a_crash(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear(store=store) as server:
        with Wire(server.address) as client, Wire(server.address) as worker:
            introduce(worker, 2)
            done, failed = submit(client), submit(client)
            worker.send(Kind.WORK_COMPLETE, done, b"result")
            worker.send(Kind.WORK_EXCEPTION, failed, b"OSError: no\n\nTraceback")
            ends = [client.receive_packet(), client.receive_packet()]
            assert {end.type for end in ends} == {Kind.WORK_COMPLETE, Kind.WORK_FAIL}
        server.kill()
    with running_switchgear(store=store) as server, Wire(server.address) as client:
        client.send(Kind.OPTION_REQ, b"switchgear")
        client.send(Ours.WATCH, done)
        client.send(Ours.WATCH, failed)
        assert [client.receive() for _ in range(5)] == [
            Packet(Kind.OPTION_RES, b"switchgear"),
            Packet(Ours.WATCH_RES, done + b"\0done"),
            Packet(Kind.WORK_COMPLETE, done + b"\0result"),
            Packet(Ours.WATCH_RES, failed + b"\0failed"),
            Packet(Ours.JOB_ENDED, failed + b"\0failed\0ended_badly\0OSError: no\n\nTraceback"),
        ]
