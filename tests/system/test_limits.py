"""Strangers: garbage, too much of everything, and peers that do not listen.

Each gets its answer, is counted and told of in the log, and nobody else notices.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.servers import Server, running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import CLOSED, RES, Kind, Packet, Wire, request
from tests.system.talk import (
    MIB,
    Deaf,
    acknowledged,
    events,
    grab,
    lines_with,
    resident_bytes,
    run_all,
    submit,
    unfinished,
    wait_for_line,
)

pytestmark = pytest.mark.system


def header(kind: int, size: int, magic: bytes = b"\0REQ") -> bytes:
    return magic + kind.to_bytes(4, "big") + size.to_bytes(4, "big")


def error(code: bytes, words: bytes) -> Packet:
    return Packet(Kind.ERROR, code + b"\0" + words)


# --- bytes that mean nothing ---


def test_garbage_ends_only_its_own_connection() -> None:
    chance = random.Random(4730)
    with running_switchgear() as server, Wire(server.address) as neighbour:
        handle = acknowledged(neighbour, b"mail", b"payload")
        for number in range(1, 31):
            with Wire(server.address) as stranger:
                stranger.send_bytes(b"\0" + chance.randbytes(chance.randint(3, 300)))
                assert stranger.receive() == error(b"INVALID_MAGIC", b"unknown magic bytes")
                assert stranger.receive() is CLOSED
            assert events(server)["bad_input"] == number
        assert len(lines_with(server, "INVALID_MAGIC")) <= 30
        neighbour.send(Kind.GET_STATUS, handle)
        assert neighbour.receive() == Packet(Kind.STATUS_RES, handle + b"\x001\x000\x000\x000")


def test_what_comes_before_garbage_is_answered() -> None:
    with running_switchgear() as server, Wire(server.address) as stranger:
        stranger.send_bytes(b"version\n" + request(Kind.ECHO_REQ, b"hello") + b"\0XXX" + bytes(60))
        assert stranger.receive() != CLOSED
        assert stranger.receive() == Packet(Kind.ECHO_RES, b"hello")
        assert stranger.receive() == error(b"INVALID_MAGIC", b"unknown magic bytes")
        assert stranger.receive() is CLOSED


def test_text_garbage_after_a_command_is_answered_line_by_line() -> None:
    with running_switchgear() as server, Wire(server.address) as stranger:
        assert stranger.ask("version")[0].startswith(b"OK ")
        stranger.send_bytes(b"statsu\r\nHost: x\r\n\r\n")
        for word in (b"statsu", b"Host:", b""):
            assert stranger.receive() == (b"ERR UNKNOWN_COMMAND Unknown+server+command" + word + b"\r\n",)
        stranger.expect_nothing()
        stranger.send_bytes(b"x" * 10_000)
        assert stranger.receive() is CLOSED
        assert len(lines_with(server, "LINE_TOO_LONG")) == 1


@pytest.mark.parametrize("half", [b"\0R", header(Kind.SUBMIT_JOB_BG, 100), header(Kind.SUBMIT_JOB_BG, 100) + b"mail\0"])
def test_a_packet_that_is_never_finished_does_nothing(half: bytes) -> None:
    with running_switchgear() as server:
        with Wire(server.address) as stranger:
            stranger.send_bytes(request(Kind.ECHO_REQ, b"hello") + half)
            assert stranger.receive() == Packet(Kind.ECHO_RES, b"hello")
        with Wire(server.address) as other:
            eventually(lambda: len(other.ask("workers")) == 2, "only this connection is left")
        assert unfinished(server) == []


def test_packets_out_of_their_place_are_errors_and_the_connection_stays() -> None:
    with running_switchgear() as server, Wire(server.address) as peer:
        peer.send(Kind.WORK_COMPLETE, b"H:nobody:1", b"result")
        assert peer.receive() == error(b"JOB_NOT_FOUND", b"Job given in work result not found")
        peer.send(Kind.WORK_DATA, b"H:nobody:1", b"data")
        assert peer.receive() == error(b"JOB_NOT_FOUND", b"Job does not exist on server")
        assert grab(peer) is None  # it has not said what it can do
        peer.send(Kind.JOB_ASSIGN, b"H:nobody:1", b"mail", b"payload")
        assert peer.receive() == error(b"INVALID_COMMAND", b"Command not expected")
        peer.send(0x80000001, b"twelve bytes like these crash gearmand")
        assert peer.receive() == error(b"INVALID_COMMAND", b"Command not expected")
        peer.send(Kind.ECHO_REQ, b"backwards", magic=RES)
        assert peer.receive() == error(b"INVALID_MAGIC", b"Request magic expected")
        peer.send(Kind.SUBMIT_JOB_BG, b"mail")
        answer = peer.receive_packet()
        assert (answer.type, answer.body.partition(b"\0")[0]) == (Kind.ERROR, b"INVALID_PACKET")
        peer.send(Kind.CANT_DO, b"never said")
        peer.expect_nothing()
        assert unfinished(server) == []


def test_a_flood_of_bad_packets_is_not_a_flood_of_log_lines() -> None:
    with running_switchgear() as server, Wire(server.address) as stranger:
        stranger.send_bytes(request(Kind.NOOP) * 5000)
        answers = stranger.receive_until_fence()
        assert answers == [error(b"INVALID_COMMAND", b"Command not expected")] * 5000
        assert events(server)["bad_input"] == 5000
        assert len(lines_with(server, "INVALID_COMMAND")) <= 200

        def is_summed_up() -> bool:
            stranger.send(Kind.NOOP)
            stranger.receive()
            return bool(lines_with(server, "more like this within a second"))

        eventually(is_summed_up, "the log says how many lines are missing")


# --- too much of something ---


def test_a_packet_over_the_limit_is_refused_by_its_header() -> None:
    with running_switchgear("--set", "limits.packet_bytes=4096") as server, Wire(server.address) as neighbour:
        with Wire(server.address) as peer:
            peer.send(Kind.ECHO_REQ, b"x" * 4096)
            assert peer.receive() == Packet(Kind.ECHO_RES, b"x" * 4096)
            peer.send_bytes(header(Kind.SUBMIT_JOB_BG, 4097))
            assert peer.receive() == error(b"ARGUMENT_TOO_LARGE", b"packet of 4097 bytes, at most 4096 are taken")
            assert peer.receive() is CLOSED
        neighbour.expect_nothing()
        assert len(lines_with(server, "ARGUMENT_TOO_LARGE")) == 1


def test_announced_packets_take_no_memory() -> None:
    with running_switchgear() as server, ExitStack() as crowd:
        before = resident_bytes(server)
        for _ in range(50):
            peer = crowd.enter_context(Wire(server.address))
            peer.send_bytes(request(Kind.ECHO_REQ, b"hello") + header(Kind.SUBMIT_JOB_BG, 60 * MIB) + b"mail\0")
            assert peer.receive() == Packet(Kind.ECHO_RES, b"hello")
        assert resident_bytes(server) - before < 20 * MIB
        with Wire(server.address) as neighbour:
            acknowledged(neighbour, b"mail", b"payload")


def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    with running_switchgear("--set", "limits.connections=5") as server, ExitStack() as crowd:
        eventually(lambda: events(server), "the connection that looked whether it is up is gone")
        peers = [crowd.enter_context(Wire(server.address)) for _ in range(5)]
        for peer in peers:
            peer.expect_nothing()
        with Wire(server.address) as one_too_many:
            assert one_too_many.receive() is CLOSED
        wait_for_line(server, "refused: there are 5 connections already")
        for peer in peers:
            peer.expect_nothing()
        peers[0].close()

        def is_let_in() -> bool:
            with Wire(server.address) as next_one:
                return next_one.receive_until_fence() == []

        eventually(is_let_in, "there is room for one more")


def test_names_and_keys_have_a_longest_length() -> None:
    with running_switchgear() as server, Wire(server.address) as peer:
        acknowledged(peer, b"n" * 512, b"payload")
        too_long = error(b"ARGUMENT_TOO_LARGE", b"Function name over 512 bytes")
        assert submit(peer, b"n" * 513, b"payload") == too_long
        peer.send(Kind.CAN_DO, b"n" * 513)
        assert peer.receive() == too_long
        peer.send(Kind.CAN_DO_TIMEOUT, b"n" * 513, b"1000")
        assert peer.receive() == too_long
        assert submit(peer, b"mail", b"payload", unique=b"u" * 64).type == Kind.JOB_CREATED
        answer = submit(peer, b"mail", b"payload", unique=b"u" * 65)
        assert answer == error(b"ARGUMENT_TOO_LARGE", b"Unique value too large")
        peer.expect_nothing()
        assert len(unfinished(server)) == 2


def test_functions_have_a_greatest_number() -> None:
    with running_switchgear("--set", "limits.functions=3") as server, Wire(server.address) as peer:
        for name in (b"a", b"b", b"c"):
            acknowledged(peer, name, b"payload")
        full = error(b"ARGUMENT_TOO_LARGE", b"there are 3 functions already")
        assert submit(peer, b"d", b"payload") == full
        peer.send(Kind.CAN_DO, b"d")
        assert peer.receive() == full
        assert peer.ask("create function d")[0].startswith(b"ERR ")
        assert peer.ask("maxqueue d 5")[0].startswith(b"ERR ")
        acknowledged(peer, b"a", b"payload")
        assert len(peer.ask("status")) == 4


def test_jobs_have_a_greatest_number(tmp_path: Path) -> None:
    limits = ("--set", "limits.jobs=3", "--set", "limits.jobs_per_function=2")
    with running_switchgear(*limits, store=f"sqlite:{tmp_path / 'jobs.db'}") as server, Wire(server.address) as peer:
        full = error(b"QUEUE_ERROR", b"Job queue is full")
        acknowledged(peer, b"a", b"1")
        assert submit(peer, b"a", b"2", unique=b"key").type == Kind.JOB_CREATED
        assert submit(peer, b"a", b"3") == full
        assert submit(peer, b"a", b"twin", unique=b"key").type == Kind.JOB_CREATED
        acknowledged(peer, b"b", b"4")
        assert submit(peer, b"c", b"5") == full
        assert run_all(server, [b"a"]) == [b"1", b"2"]
        acknowledged(peer, b"c", b"6")


# --- peers that do not read ---


def test_a_peer_that_asks_and_never_reads_is_hung_up_on() -> None:
    limits = ("--set", "limits.slow_reader_seconds=1", "--set", "limits.slow_reader_bytes=256KiB")
    with running_switchgear(*limits) as server, Wire(server.address) as neighbour, Deaf(server) as deaf:
        before = resident_bytes(server)
        deaf.send(request(Kind.ECHO_REQ, b"x" * 10_000) * 3000)
        neighbour.expect_nothing()
        eventually(lambda: events(server).get("slow_reader_closed"), "it is hung up on")
        neighbour.expect_nothing()
        assert events(server)["slow_reader_closed"] == 1
        assert len(lines_with(server, "it does not read its output")) == 1
        assert resident_bytes(server) - before < 20 * MIB


def test_a_client_that_does_not_read_its_results_holds_up_nobody() -> None:
    limits = ("limits.slow_reader_seconds=60", "limits.slow_reader_bytes=1MiB", "limits.packet_bytes=64KiB")
    settings = [word for limit in limits for word in ("--set", limit)]
    with running_switchgear(*settings) as server, Wire(server.address) as worker, Deaf(server) as deaf:
        before = resident_bytes(server)
        deaf.send(request(Kind.SUBMIT_JOB, b"report", b"", b"payload"))
        worker.send(Kind.CAN_DO, b"report")
        job = eventually(lambda: grab(worker), "the worker is given the job")
        assert job is not None
        handle = job[0]

        def is_hung_up_on() -> bool:
            for _ in range(20):
                worker.send(Kind.WORK_DATA, handle, b"x" * 60_000)
            worker.expect_nothing()
            return "slow_reader_closed" in events(server)

        eventually(is_hung_up_on, "the client is hung up on")
        worker.send(Kind.WORK_COMPLETE, handle, b"")
        worker.expect_nothing()
        assert len(lines_with(server, "it does not read its output")) == 1
        assert resident_bytes(server) - before < 30 * MIB


# --- peers that have finished sending ---


def last_words(server: Server, data: bytes) -> bytes:
    """Send this, say that no more will come, and read to the end."""
    with socket.create_connection(server.address, timeout=15) as peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        return read_to_end(peer)


def read_to_end(peer: socket.socket) -> bytes:
    answer = b""
    while piece := peer.recv(65536):
        answer += piece
    return answer


def test_a_text_command_is_answered_after_the_end_of_input() -> None:
    with running_switchgear() as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"payload")
        assert last_words(server, b"status\n") == b"mail\t1\t0\t0\n.\n"
        assert last_words(server, b"version\nstatus\n").endswith(b"mail\t1\t0\t0\n.\n")


def test_a_background_submission_is_answered_after_the_end_of_input(tmp_path: Path) -> None:
    with running_switchgear(store=f"sqlite:{tmp_path / 'jobs.db'}") as server:
        answers = last_words(server, request(Kind.SUBMIT_JOB_BG, b"mail", b"", b"payload") * 3)
        handles = unfinished(server)
        assert answers == b"".join(request(Kind.JOB_CREATED, handle, magic=RES) for handle in handles)
        assert len(handles) == 3


def test_a_waiting_client_is_answered_after_the_end_of_input_and_waits_no_more() -> None:
    """Closing both directions looks the same, so what only it waited for is not worth doing."""
    with running_switchgear() as server:
        answer = last_words(server, request(Kind.SUBMIT_JOB, b"mail", b"", b"payload"))
        assert answer.startswith(RES + Kind.JOB_CREATED.to_bytes(4, "big"))
        assert run_all(server, [b"mail"]) == []


def test_a_worker_that_will_say_no_more_gives_its_job_back() -> None:
    with running_switchgear() as server, Wire(server.address) as client:
        handle = acknowledged(client, b"mail", b"payload")
        answer = last_words(server, request(Kind.CAN_DO, b"mail") + request(Kind.GRAB_JOB))
        assert answer == request(Kind.JOB_ASSIGN, handle, b"mail", b"payload", magic=RES)
        assert run_all(server, [b"mail"]) == [b"payload"]
