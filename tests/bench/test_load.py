"""The load in Python: against a real server, and against servers that do wrong, which it must notice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from switchgear.bench import load, workloads
from switchgear.bench.load import Fault, Load
from switchgear.bench.server import BenchServer, running_server
from switchgear.protocols.gearman.codec import REQUEST, GearmanDecoder, response
from switchgear.protocols.gearman.messages import Packet

SMALL = Load(200, clients=3, workers=2, outstanding=4)


@pytest.fixture(scope="module")
def server() -> Iterator[BenchServer]:
    with running_server("memory") as server:
        yield server


@pytest.mark.system
def test_jobs_are_submitted_and_drained(server: BenchServer) -> None:
    submitted = load.submit(server.port, SMALL, server.cpu_seconds)
    assert len(submitted.latencies_seconds) == SMALL.jobs
    assert submitted.cpu_seconds is not None
    assert submitted.cpu_seconds > 0
    load.drain(server.port, SMALL, server.cpu_seconds)


@pytest.mark.system
@pytest.mark.parametrize("credit", [0, 3])
def test_jobs_go_round(server: BenchServer, credit: int) -> None:
    shape = Load(200, clients=3, workers=2, outstanding=4, payload_bytes=5_000, credit=credit)
    assert len(load.round_trips(server.port, shape, server.cpu_seconds).latencies_seconds) == shape.jobs


@pytest.mark.system
def test_a_queue_that_is_not_as_it_should_be_is_a_fault() -> None:
    with running_server("memory") as server:
        _submit_one_more(server)
        with pytest.raises(Fault, match="holds 201 jobs, and should hold 200"):
            load.submit(server.port, SMALL, server.cpu_seconds)


def _submit_one_more(server: BenchServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.sendall(b"\0REQ\0\0\0\x12\0\0\0\x08bench\0\0x" + b"\0REQ\0\0\0\x10\0\0\0\0")
        answers = b""
        while b"\0RES\0\0\0\x11" not in answers:  # the echo: the job is there
            answers += stranger.recv(1000)


def test_every_workload_has_a_name_of_its_own() -> None:
    names = [(cell.group, cell.workload, cell.peer) for cell in workloads.cells()]
    assert len(set(names)) == len(names)


def test_a_payload_must_have_room_for_its_number() -> None:
    with pytest.raises(ValueError, match="no room"):
        load.submit(1, Load(1, payload_bytes=5), lambda: None)


# --- servers that do wrong ---

Answer = Callable[[int, bytes], bytes | None]


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """A server that says what `answer` makes of each packet, and hangs up if that is None; echoes it answers itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            decoder = GearmanDecoder(REQUEST, 1 << 20)
            with connection, suppress(ConnectionError):  # the load has seen enough
                while data := connection.recv(65_536):
                    for kind, body in decoder.feed(data):
                        said = response(Packet.ECHO_RES, body) if kind == Packet.ECHO_REQ else answer(kind, body)
                        if said is None:
                            return
                        connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(10)


def expect_fault(answer: Answer, words: str, run: Callable[..., object], shape: Load) -> None:
    with answering(answer) as port, pytest.raises(Fault, match=words):
        run(port, shape, lambda: None)


def test_two_jobs_under_one_handle_are_noticed() -> None:
    expect_fault(
        lambda kind, body: response(Packet.JOB_CREATED, b"H:x:1"),
        "two jobs have the handle",
        load.submit,
        Load(2, clients=1),
    )


def test_a_refusal_is_noticed() -> None:
    expect_fault(
        lambda kind, body: response(Packet.ERROR, b"queue_full", b"no"), "packet 19", load.submit, Load(2, clients=1)
    )


def test_a_job_that_is_handed_out_twice_is_noticed() -> None:
    def answer(kind: int, body: bytes) -> bytes:
        payload = b"%012d" % 0 + b"x" * 88
        return response(Packet.JOB_ASSIGN, b"H:x:1", b"bench", payload) if kind == Packet.GRAB_JOB else b""

    expect_fault(answer, "job 0 was handed out twice", load.drain, Load(2, workers=1))


def test_a_payload_that_nobody_sent_is_noticed() -> None:
    def answer(kind: int, body: bytes) -> bytes:
        return response(Packet.JOB_ASSIGN, b"H:x:1", b"bench", b"%012d" % 0) if kind == Packet.GRAB_JOB else b""

    expect_fault(answer, "a payload that nobody sent", load.drain, Load(2, workers=1))


def test_the_result_of_another_job_is_noticed() -> None:
    def answer(kind: int, body: bytes) -> bytes:
        if kind != Packet.SUBMIT_JOB:
            return b""
        return response(Packet.JOB_CREATED, b"H:x:1") + response(Packet.WORK_COMPLETE, b"H:x:1", b"%012d" % 1)

    expect_fault(answer, "does not wait for it", load.round_trips, Load(2, clients=1, workers=0))


def test_a_server_that_hangs_up_is_noticed() -> None:
    expect_fault(lambda kind, body: None, "hung up|broke", load.submit, Load(2, clients=1))
