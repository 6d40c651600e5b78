"""Connections to WMP managers: what waits for them, what does not, and what wakes whoever waits."""

from __future__ import annotations

import select
import signal
from collections.abc import Iterator

import pytest
import zmq

from switchgear.client.waker import Waker
from switchgear.client.wmp import ManagerAddress, SocketSettings
from switchgear.client.wmp import manager_connections as lines_module
from switchgear.client.wmp.manager_connections import ManagerConnection, SocketPoller, connect
from switchgear.errors import ConfigError
from tests.support.servers import HOST, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wmp_wire import RawManager


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = zmq.Context()
    yield context
    context.destroy(0)


@pytest.fixture
def waker() -> Iterator[Waker]:
    waker = Waker()
    yield waker
    waker.close()


def test_without_a_connection_only_results_wait_and_not_too_many(
    context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "MOST_KEPT_BYTES", 10)
    (line,) = connect(context, [ManagerAddress(HOST, free_port())], b"me", SocketSettings(), None)
    try:
        assert not line.send([b"", b"READY"])
        assert not line.has_kept
        assert line.send([b"", b"a result that is too long"], keep=True)  # a single one may be
        assert not line.send([b"", b"another"], keep=True)
        assert line.has_kept
        assert line.flags == zmq.POLLIN  # room in the queue would be no news
    finally:
        line.close(0)


def test_results_that_a_manager_does_not_take_wait_until_it_does(
    context: zmq.Context[zmq.Socket[bytes]], waker: Waker
) -> None:
    with RawManager() as manager:
        manager.socket.set(zmq.RCVHWM, 1)
        settings = SocketSettings(messages_waiting=1)
        (line,) = connect(context, [ManagerAddress(HOST, manager.port)], b"me", settings, None)
        waiting = SocketPoller(waker, [line])
        eventually(lambda: turn(line, waiting) and line.is_connected, "the connection stands")
        megabyte = b"x" * 1_000_000
        sent = 0
        while line.send([b"%d" % sent, megabyte]):
            sent += 1
            assert sent < 1000
        for n in range(5):
            assert line.send([b"%d" % (sent + n), megabyte], keep=True)
        assert not line.send([b"not now", b""])  # it would overtake
        assert line.has_kept
        for n in range(sent + 5):
            while not manager.socket.poll(10):
                turn(line, waiting)
            assert manager.socket.recv_multipart()[1] == b"%d" % n
        assert not line.has_kept
        line.close(0)


def turn(line: ManagerConnection, waiting: SocketPoller) -> bool:
    arrivals = waiting.wait(10)
    if line.monitor in arrivals:
        list(line.changes())
    line.flush()
    return True


def test_what_cannot_be_connected_to(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    addresses = [ManagerAddress(HOST), ManagerAddress("-x")]
    with pytest.raises(ConfigError, match="cannot connect to wmp://-x:5714: Invalid argument"):
        connect(context, addresses, b"me", SocketSettings(), None)


def test_a_wakeup_ends_the_wait(waker: Waker) -> None:
    waiting = SocketPoller(waker, [])
    waker()
    waker()
    assert waiting.wait(int(DEADLINE_SECONDS * 1000))
    assert not waiting.wait(0)  # both were meant


def test_a_wakeup_after_the_end_is_harmless() -> None:
    waker = Waker()
    waker.close()
    waker()


def test_a_signal_is_a_wakeup(waker: Waker) -> None:
    """However it is handled: the wait must end for it to be handled at all."""
    handled: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
    try:
        signal.raise_signal(signal.SIGUSR1)
        assert not select.select([waker], [], [], 0)[0]
        with waker.by_signals():
            signal.raise_signal(signal.SIGUSR1)
        assert select.select([waker], [], [], 0)[0]
        assert handled == [signal.SIGUSR1] * 2
    finally:
        signal.signal(signal.SIGUSR1, before)
