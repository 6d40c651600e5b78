"""What the service manager is told, over real datagram sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from switchgear.net.process.service_manager import ServiceManager


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(10)
        yield listener


def manager_of(listener: socket.socket, **variables: str) -> ServiceManager:
    return ServiceManager.from_environment({"NOTIFY_SOCKET": listener.getsockname(), **variables})


def heard(listener: socket.socket) -> list[str]:
    return listener.recv(4096).decode().split("\n")


def test_each_message_is_one_datagram(listener: socket.socket) -> None:
    manager = manager_of(listener)
    manager.starting("restoring jobs: 5", 60)
    assert heard(listener) == ["STATUS=restoring jobs: 5", "EXTEND_TIMEOUT_USEC=60000000"]
    manager.ready("serving")
    assert heard(listener) == ["READY=1", f"MAINPID={os.getpid()}", "STATUS=serving"]
    manager.reloading()
    first, second = heard(listener)
    assert first == "RELOADING=1"
    assert second.startswith("MONOTONIC_USEC=")
    manager.beat()
    assert heard(listener) == ["WATCHDOG=1"]
    manager.stopping(1.5)
    assert heard(listener) == ["STOPPING=1", "STATUS=draining", "EXTEND_TIMEOUT_USEC=1500000"]
    manager.close()


def test_an_abstract_socket(listener: socket.socket) -> None:
    name = f"switchgear-test-{token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract:
        abstract.bind(f"\0{name}")
        abstract.settimeout(10)
        manager = ServiceManager(f"@{name}")
        manager.beat()
        assert heard(abstract) == ["WATCHDOG=1"]
        manager.close()


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234", "/" + "x" * 200, "@" + "x" * 200])
def test_without_a_socket_nothing_is_told_and_nothing_breaks(address: str) -> None:
    manager = ServiceManager(address, watchdog_seconds=1)
    manager.ready("serving")
    manager.beat()
    assert manager.beat_seconds == 0
    manager.close()


def test_a_service_manager_that_is_gone_or_does_not_read_is_no_problem(listener: socket.socket, tmp_path: Path) -> None:
    manager = manager_of(listener)
    for _ in range(10_000):
        manager.beat()
    (tmp_path / "notify").unlink()
    manager.beat()
    manager.close()
    manager.beat()


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "30000000"}, 15),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "nonsense"}, 0),
        ({"WATCHDOG_USEC": "-5"}, 0),
        ({"WATCHDOG_USEC": "9" * 50}, 0),
    ],
)
def test_the_watchdog_is_told_twice_in_its_interval(
    listener: socket.socket, variables: dict[str, str], seconds: float
) -> None:
    manager = manager_of(listener, **variables)
    assert manager.beat_seconds == seconds
    manager.close()
