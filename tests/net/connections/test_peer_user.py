"""Whose process is behind a loopback connection."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.net.connections import peer_user
from switchgear.net.connections.peer_user import Address, is_same_user, user_behind

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel is asked in Linux's way")

BY_KERNEL, BY_TABLE = "asking the kernel", "from the table"


@pytest.fixture(params=["127.0.0.1", "127.9.9.9", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as listener:
        try:
            listener.bind((request.param, 0))
        except OSError:
            pytest.skip("no such address here")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as client:
            accepted, _ = listener.accept()
            with accepted:
                yield client, accepted


@pytest.fixture(params=[BY_KERNEL, BY_TABLE], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == BY_TABLE:
        monkeypatch.setattr(peer_user, "_ask_kernel", lambda *ends: None)
    else:
        monkeypatch.setattr(peer_user, "_look_up", lambda *ends: None)
    return str(request.param)


def ends(accepted: socket.socket) -> tuple[Address, Address]:
    return accepted.getpeername()[:2], accepted.getsockname()[:2]


def test_a_process_of_this_user(pair: tuple[socket.socket, socket.socket]) -> None:
    _, accepted = pair
    assert user_behind(*ends(accepted)) == os.geteuid()


def test_one_that_sends_no_more_but_still_listens(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.shutdown(socket.SHUT_WR)
    assert user_behind(*ends(accepted)) == os.geteuid()


def test_one_that_is_gone_is_nobody(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    peer, here = ends(accepted)
    client.close()
    assert user_behind(peer, here) is None


def test_who_is_not_connected_is_nobody(pair: tuple[socket.socket, socket.socket]) -> None:
    """In particular, not whoever listens there."""
    _, accepted = pair
    (host, _), here = ends(accepted)
    assert user_behind((host, 1), here) is None
    assert user_behind(here, (host, 1)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_process_of_another_user(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    with socket.socket(client.family) as listener:
        listener.bind((client.getpeername()[0], 0))
        listener.listen()
        os.seteuid(12_345)
        try:
            other = socket.create_connection(listener.getsockname()[:2])
        finally:
            os.seteuid(0)
        with other:
            accepted, _ = listener.accept()
            with accepted:
                assert user_behind(*ends(accepted)) == 12_345


@pytest.mark.parametrize(
    ("peer", "here"),
    [
        (("192.0.2.1", 4730), ("127.0.0.1", 4730)),
        (("127.0.0.1", 1), ("::1", 1)),
        (("", 0), ("", 0)),
        (("not an address", 0), ("127.0.0.1", 0)),
    ],
)
def test_whoever_does_not_come_by_loopback_is_nobody(peer: Address, here: Address) -> None:
    assert user_behind(peer, here) is None


@pytest.mark.parametrize("content", ["", "\n", "  sl  local_address\n  0: 0100007F:0001 0100007F:0002 01\n", "\0\0"])
def test_a_table_that_makes_no_sense(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket], way: str
) -> None:
    if way == BY_KERNEL:
        pytest.skip("there is no table")
    table = tmp_path / "tcp"
    table.write_text(content)
    monkeypatch.setattr(peer_user, "_TABLE", dict.fromkeys((socket.AF_INET, socket.AF_INET6), str(table)))
    assert user_behind(*ends(pair[1])) is None
    table.unlink()
    assert user_behind(*ends(pair[1])) is None


def test_ipv4_by_a_socket_of_ipv6() -> None:
    with socket.socket(socket.AF_INET6) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", 0))
        listener.listen()
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getpeername()[0] == "::ffff:127.0.0.1"
                assert user_behind(*ends(accepted)) == os.geteuid()


@pytest.mark.parametrize(("user", "is_same"), [(None, False), (0, True), (os.geteuid(), True), (54_321, False)])
def test_who_counts_as_the_same(user: int | None, is_same: bool) -> None:
    assert is_same_user(user) is is_same
