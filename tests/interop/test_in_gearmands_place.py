"""What a service file, an init script or a worker sees of `switchgear gearmand`, beside gearmand as a control."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.peers import require_program
from tests.support.servers import (
    HOST,
    Server,
    answers_version,
    free_port,
    running_gearmand,
    running_switchgear,
    running_switchgear_as_gearmand,
)
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, Packet, Wire

pytestmark = pytest.mark.interop

SWITCHGEAR = (sys.executable, "-m", "switchgear", "gearmand")


@pytest.fixture(params=["gearmand", "switchgear gearmand"])
def program(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return (require_program("gearmand"),) if request.param == "gearmand" else SWITCHGEAR


@pytest.fixture(params=["gearmand", "switchgear gearmand"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    running = running_gearmand if request.param == "gearmand" else running_switchgear_as_gearmand
    with running() as started:
        yield started


# --- a worker that sleeps with a job in hand


def grab(worker: Wire) -> bytes:
    """The handle of the job that this worker gets."""
    worker.send(Kind.GRAB_JOB)
    [assigned] = worker.receive_until_fence()
    assert isinstance(assigned, Packet)
    assert assigned.type == Kind.JOB_ASSIGN
    return assigned.body.split(b"\0")[0]


def result_after_the_limit_of_another(server: Server, *, sleeps: bool) -> Packet:
    """What the client hears of a job whose worker, perhaps asleep, reports after its time limit.

    That the time is over is seen by another worker, with the same limit, that got its job later and has lost it.
    """
    with (
        Wire(server.address) as client,
        Wire(server.address) as worker,
        Wire(server.address) as timed,
        Wire(server.address) as idle,
    ):
        client.send(Kind.SUBMIT_JOB, b"f", b"", b"x")
        client.receive()
        worker.send(Kind.CAN_DO_TIMEOUT, b"f", b"1000")
        handle = grab(worker)
        if sleeps:
            worker.send(Kind.PRE_SLEEP)
            worker.receive_until_fence()
        client.send(Kind.SUBMIT_JOB_BG, b"control", b"", b"x")
        client.receive()
        timed.send(Kind.CAN_DO_TIMEOUT, b"control", b"1000")
        grab(timed)
        idle.send(Kind.CAN_DO, b"control")
        idle.send(Kind.PRE_SLEEP)
        assert idle.receive() == Packet(Kind.NOOP, b"")
        worker.send(Kind.WORK_COMPLETE, handle, b"done")
        told = [message for message in worker.receive_until_fence() if message != Packet(Kind.NOOP, b"")]
        if told:
            [refusal] = told
            assert isinstance(refusal, Packet)
            return refusal
        heard = client.receive()
        assert isinstance(heard, Packet)
        return heard


def test_a_worker_that_sleeps_with_a_job_in_hand_keeps_it(server: Server) -> None:
    heard = result_after_the_limit_of_another(server, sleeps=True)
    assert heard.type == Kind.WORK_COMPLETE
    assert heard.body.endswith(b"\0done")


def test_a_worker_that_does_not_sleep_loses_its_job_at_the_limit(server: Server) -> None:
    assert result_after_the_limit_of_another(server, sleeps=False).type == Kind.ERROR


def test_with_our_own_defaults_the_limit_holds_for_one_that_sleeps_too() -> None:
    with running_switchgear() as server:
        assert result_after_the_limit_of_another(server, sleeps=True).type == Kind.ERROR


# --- starting


def test_a_busy_port_is_tried_again() -> None:
    """gearmand tries for 22 seconds.  It does not say so, and when it has tried for the first time cannot be seen."""
    port = free_port()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, port))
        other.listen()
        command = [*SWITCHGEAR, f"--listen={HOST}", f"--port={port}", "--log-file=stderr", "--verbose=WARNING"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                line = process.stderr.readline()
                assert f"gearman://{HOST}:{port} is in use by another process; trying again for 22 s" in line
                other.close()
                eventually(lambda: answers_version(port), "it serves once the port is free")
            finally:
                process.send_signal(signal.SIGTERM)


def test_a_port_that_stays_busy_is_given_up() -> None:
    with running_switchgear_as_gearmand() as server:
        ended = subprocess.run(
            [*SWITCHGEAR, f"--listen={HOST}", f"--port={server.port}", "--log-file=stderr"],
            env={**os.environ, "SWITCHGEAR_LISTEN_RETRY_SECONDS": "0.5"},
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
    assert ended.returncode == 1
    assert ended.stderr.endswith(f"cannot listen on gearman://{HOST}:{server.port}: Address already in use\n")


def test_nothing_is_printed_to_standard_output(program: tuple[str, ...]) -> None:
    port = free_port()
    command = [*program, f"--listen={HOST}", f"--port={port}", "--log-file=stderr"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: answers_version(port), "it answers")
    finally:
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert printed == b""


def test_a_host_that_does_not_resolve_is_told_in_words(program: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [*program, "--listen=no-such-host.invalid", "--log-file=stderr"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "no-such-host.invalid" in ended.stderr
    assert "Unknown error" not in ended.stderr
    # What the system's resolver says: that there is no such name, or that it could not ask.
    assert any(words in ended.stderr for words in ("not known", "failure in name resolution")), ended.stderr


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("--hashtable-buckets=0", 1),
        ("--hashtable-buckets=x", 1),
        ("--hashtable-buckets=1", 0),
        ("--threads=x", 1),
        ("--threads=0", 0),
    ],
)
def test_arguments_that_are_refused(program: tuple[str, ...], word: str, code: int) -> None:
    ended = subprocess.run([*program, "--check-args", word], capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert ended.returncode == code, ended.stderr


# --- the two versions


def order_of_hand_out(server: Server) -> list[bytes]:
    """The payloads of jobs of two functions, in the order in which a worker of both gets them."""
    with Wire(server.address) as client, Wire(server.address) as worker:
        for kind, function, payload in [
            (Kind.SUBMIT_JOB_LOW_BG, b"one", b"one low"),
            (Kind.SUBMIT_JOB_BG, b"one", b"one a"),
            (Kind.SUBMIT_JOB_BG, b"one", b"one b"),
            (Kind.SUBMIT_JOB_BG, b"two", b"two a"),
            (Kind.SUBMIT_JOB_BG, b"two", b"two b"),
            (Kind.SUBMIT_JOB_HIGH_BG, b"two", b"two high"),
        ]:
            client.send(kind, function, b"", payload)
            client.receive()
        worker.send(Kind.CAN_DO, b"one")
        worker.send(Kind.CAN_DO, b"two")
        payloads = []
        for _ in range(6):
            worker.send(Kind.GRAB_JOB)
            assigned = worker.receive()
            assert isinstance(assigned, Packet)
            payloads.append(assigned.body.split(b"\0")[2])
        return payloads


def test_the_order_of_gearmand_1(server: Server) -> None:
    assert order_of_hand_out(server) == [b"two high", b"two a", b"two b", b"one a", b"one b", b"one low"]


def test_the_order_of_gearmand_2() -> None:
    """As it was observed on gearmand 2.0, which is not packaged."""
    with running_switchgear_as_gearmand("--gearmand-version=2.0") as server:
        assert order_of_hand_out(server) == [b"two high", b"one a", b"two a", b"one b", b"two b", b"one low"]


@pytest.mark.parametrize(("retries", "attempts"), [("0", 1), ("1", 1), ("2", 2)])
def test_the_attempts_of_gearmand_2(retries: str, attempts: int) -> None:
    flags = ("--gearmand-version=2.0", f"--job-retries={retries}")
    with running_switchgear_as_gearmand(*flags) as server, Wire(server.address) as client:
        client.send(Kind.SUBMIT_JOB, b"f", b"", b"x")
        client.receive()
        for _ in range(attempts):
            with Wire(server.address) as worker:
                worker.send(Kind.CAN_DO, b"f")
                worker.send(Kind.PRE_SLEEP)
                assert worker.receive() == Packet(Kind.NOOP, b"")
                grab(worker)
        failed = client.receive()
    assert isinstance(failed, Packet)
    assert failed.type == Kind.WORK_FAIL
