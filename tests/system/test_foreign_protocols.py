"""Programs that speak something else: nothing of what they send is obeyed, and they are told why."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.net.connections.test_foreign_protocols import FOREIGN
from tests.support.gearmonkey_server import MonkeyServer, running_monkey_server
from tests.support.servers import Server, running_switchgear
from tests.support.wire import Kind, Packet, Wire, request
from tests.system.talk import lines_with, unfinished, wait_for_line

pytestmark = pytest.mark.system

SUBMISSION = request(Kind.SUBMIT_JOB_BG, b"dwork", b"", b"id > pwned")
OWN_AT_GEARMAN = {"Gearman", "the Gearman draft of 2005"}
# A line of these may be a command of Redis as well, and is answered like any other that does not exist.
OWN_AT_GEARMONKEY = {"Redis", "memcached"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_switchgear() as running:
        yield running


@pytest.fixture(scope="module")
def monkey() -> Iterator[MonkeyServer]:
    with running_monkey_server() as running:
        yield running


def say(address: tuple[str, int], *pieces: bytes) -> bytes:
    """What the server answers until it hangs up."""
    with socket.create_connection(address, timeout=10) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                line.sendall(piece)
        except OSError:
            pass
        answer = b""
        while True:
            try:
                data = line.recv(65_536)
            except ConnectionResetError:
                return answer
            if not data:
                return answer
            answer += data


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize(
    ("start", "name"), [pytest.param(*case, id=i) for i, case in FOREIGN.items() if case[1] not in OWN_AT_GEARMAN]
)
def test_at_the_gearman_port(server: Server, start: bytes, name: str, sliced: bool) -> None:
    conversation = (
        start + b"\r\nContent-Length: 99\r\n\r\nshutdown\nshutdown\r\n" + SUBMISSION + b"create function pwned\n"
    )
    pieces = [conversation[i : i + 1] for i in range(min(80, len(start)))] + [conversation[80:]]
    answer = say(server.address, *(pieces if sliced else [conversation]))
    assert server.is_running()
    assert b"OK" not in answer
    if name == "HTTP":
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"This port speaks Gearman" in answer
    with Wire(server.address) as admin:
        assert admin.ask("status") == [b".\n"]
        assert unfinished(server) == []


@pytest.mark.parametrize(
    ("start", "name"), [pytest.param(*case, id=i) for i, case in FOREIGN.items() if case[1] not in OWN_AT_GEARMONKEY]
)
def test_at_the_gearmonkey_port(monkey: MonkeyServer, start: bytes, name: str) -> None:
    answer = say(monkey.address, start + b"\r\nHost: x\r\n\r\nINCR uid:f\r\nINCR uid:f\r\n")
    assert b":1\r\n" not in answer
    if name == "HTTP":
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"This port speaks GearMonkey" in answer
    elif name == "Gearman":
        assert answer.startswith(b"\0RES")


def test_one_line_of_the_log_names_the_protocol() -> None:
    with running_switchgear() as server:
        say(server.address, b"POST / HTTP/1.1\r\n\r\n")
        line = wait_for_line(server, "FOREIGN_PROTOCOL")
        assert "speaks HTTP" in line
        for _ in range(40):
            say(server.address, b"POST / HTTP/1.1\r\n\r\n")
        assert len(lines_with(server, "FOREIGN_PROTOCOL")) < 41


@pytest.mark.parametrize(
    "first", [b"\n", b"\r\n", b"statsu\n", b" status\n", b"sta\0tus\n", b"quit\r\n", b"\xff\xfb\n"]
)
def test_the_first_line_decides(server: Server, first: bytes) -> None:
    answer = say(server.address, first + b"version\ncreate function pwned\n" + SUBMISSION)
    assert answer.startswith(b"ERR UNKNOWN_COMMAND Unknown+server+command")
    assert answer.count(b"\n") == 1
    with Wire(server.address) as admin:
        assert admin.ask("status") == [b".\n"]


def test_text_and_packets_may_be_mixed_by_whoever_begins_well(server: Server) -> None:
    """Perl's client asks for the status on the connection that it submits with, and administrators mistype."""
    with Wire(server.address) as peer:
        assert peer.ask("VERSION")[0].startswith(b"OK ")
        peer.send_bytes(b"statsu\n" + request(Kind.ECHO_REQ, b"x"))
        assert peer.receive() == (b"ERR UNKNOWN_COMMAND Unknown+server+commandstatsu\r\n",)
        assert peer.receive() == Packet(Kind.ECHO_RES, b"x")
    with Wire(server.address) as peer:
        peer.send_bytes(request(Kind.ECHO_REQ, b"x") + b"nonsense\nversion\n")
        assert peer.receive() == Packet(Kind.ECHO_RES, b"x")
        assert peer.receive() == (b"ERR UNKNOWN_COMMAND Unknown+server+commandnonsense\r\n",)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_cannot_stop_the_server() -> None:
    program = (
        "import os, socket, sys; os.setuid(12345)\n"
        "line = socket.socket(); line.connect(('127.0.0.1', int(sys.argv[1]))); line.sendall(b'shutdown\\n')\n"
        "print(line.recv(1000))"
    )
    with running_switchgear() as server:
        told = subprocess.run(
            [sys.executable, "-c", program, str(server.port)], capture_output=True, text=True, check=True
        )
        assert "ERR NOT_ALLOWED" in told.stdout
        assert "gearman.shutdown=loopback" in told.stdout
        assert server.is_running()
        with Wire(server.address) as admin:
            assert admin.ask("shutdown") == [b"OK\r\n"]
        assert server.wait_stopped() == 0
