"""Answers of ours that cannot be compared: gearmand crashes, is silent, or leaves them to chance."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Server, running_switchgear, running_switchgear_as_gearmand
from tests.support.waiting import eventually
from tests.support.wire import CLOSED, Kind, Line, Packet, Wire

pytestmark = pytest.mark.interop

NOT_A_REQUEST = Packet(Kind.ERROR, b"INVALID_COMMAND\0Command not expected")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_switchgear() as switchgear:
        yield switchgear


@pytest.fixture
def peer(server: Server) -> Iterator[Wire]:
    with Wire(server.address) as connection:
        yield connection


@pytest.mark.parametrize("kind", [0x80000000, 0x80000007, 0xFFFFFFFF])
def test_a_type_with_the_top_bit_set_kills_gearmand_and_not_us(peer: Wire, kind: int) -> None:
    peer.send(kind)

    assert peer.receive_until_fence() == [NOT_A_REQUEST]


@pytest.mark.parametrize(
    ("kind", "args", "complaint"),
    [
        (Kind.CAN_DO_TIMEOUT, (b"f",), b"CAN_DO_TIMEOUT takes 2 arguments, got 1"),
        (Kind.WORK_STATUS, (b"handle", b"1"), b"WORK_STATUS takes 3 arguments, got 2"),
        (Kind.WORK_STATUS, (b"handle",), b"WORK_STATUS takes 3 arguments, got 1"),
    ],
)
def test_too_few_arguments_where_gearmand_waits(
    peer: Wire, kind: Kind, args: tuple[bytes, ...], complaint: bytes
) -> None:
    peer.send(kind, *args)

    assert peer.receive_until_fence() == [Packet(Kind.ERROR, b"INVALID_PACKET\0" + complaint)]


def test_the_status_of_a_handle_that_is_too_long(peer: Wire) -> None:
    """gearmand does not answer, and sometimes hangs up later."""
    handle = b"h" * 100
    peer.send(Kind.GET_STATUS, handle)

    assert peer.receive_until_fence() == [Packet(Kind.STATUS_RES, handle + b"\x000\x000\x000\x000")]


def test_who_stops_sending_still_gets_the_answer(peer: Wire) -> None:
    """As ``printf 'version\\n' | nc`` does; from gearmand the answer comes by luck."""
    peer.send_line("show nonsense")
    peer.send(Kind.ECHO_REQ, b"x" * 100_000)
    peer.send_no_more()

    assert peer.receive_until_closed() == [
        Line(b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
        Packet(Kind.ECHO_RES, b"x" * 100_000),
        CLOSED,
    ]


def test_a_worker_that_stops_sending_is_gone(server: Server, peer: Wire) -> None:
    """Nothing more can come from it, so its jobs go back."""
    with Wire(server.address) as client:
        client.send(Kind.SUBMIT_JOB_BG, b"half", b"", b"x")
        handle = client.receive_packet().body
        peer.send(Kind.CAN_DO, b"half")
        peer.send(Kind.GRAB_JOB)
        assert peer.receive_packet().type == Kind.JOB_ASSIGN
        peer.send_no_more()
        assert peer.receive() is CLOSED
        eventually(lambda: _status(client, handle) == handle + b"\x001\x000\x000\x000", "the job waits again")


def _status(client: Wire, handle: bytes) -> bytes:
    client.send(Kind.GET_STATUS, handle)
    return client.receive_packet().body


def test_a_delayed_job_wakes_a_sleeper_when_its_time_comes(server: Server, peer: Wire) -> None:
    """gearmand never wakes anybody for it."""
    peer.send(Kind.CAN_DO, b"later")
    peer.send(Kind.PRE_SLEEP)
    peer.expect_nothing()
    with Wire(server.address) as client:
        client.send(Kind.SUBMIT_JOB_EPOCH, b"later", b"", b"%d" % (time.time() + 1), b"x")
        handle = client.receive_packet().body
        assert peer.receive_packet() == Packet(Kind.NOOP, b"")
        peer.send(Kind.GRAB_JOB)
        assert peer.receive_packet() == Packet(Kind.JOB_ASSIGN, handle + b"\0later\0x")


def test_every_job_of_a_worker_has_its_own_time(server: Server, peer: Wire) -> None:
    """gearmand has one timer for each connection, so only the last job is timed."""
    peer.send(Kind.CAN_DO_TIMEOUT, b"timed", b"1000")
    with Wire(server.address) as client:
        for _ in range(2):
            client.send(Kind.SUBMIT_JOB_BG, b"timed", b"", b"x")
            client.receive_packet()
            peer.send(Kind.GRAB_JOB)
            assert peer.receive_packet().type == Kind.JOB_ASSIGN
        eventually(lambda: b"timed\t2\t0\t1\n" in client.ask("status"), "both jobs wait again")


def test_a_restart_knows_its_jobs_and_never_uses_a_handle_twice(tmp_path: Path) -> None:
    """gearmand counts from 1 again and gives a kept job another handle."""
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    handles: list[bytes] = []
    for _ in range(3):
        with running_switchgear(store=store) as server, Wire(server.address) as client:
            for handle in handles:
                assert _status(client, handle) == handle + b"\x001\x000\x000\x000"
            client.send(Kind.SUBMIT_JOB_BG, b"f", b"", b"x")
            handles.append(client.receive_packet().body)
            server.kill()

    assert len(set(handles)) == 3


@pytest.mark.parametrize("command", ["shutdown", "shutdown graceful"])
def test_shutdown_by_text(command: str) -> None:
    with running_switchgear() as server, Wire(server.address) as admin:
        assert admin.ask(command) == [b"OK\r\n"]
        assert server.wait_stopped() == 0


def test_the_handle_prefix_can_be_set() -> None:
    with running_switchgear_as_gearmand("--job-handle-prefix=P:here") as server, Wire(server.address) as client:
        client.send(Kind.SUBMIT_JOB_BG, b"f", b"", b"x")
        assert client.receive_packet() == Packet(Kind.JOB_CREATED, b"P:here:1")
