"""A real server tells the service manager how it is; the unit file is one that systemd understands."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.peers import require_program
from tests.support.servers import HOST, free_port
from tests.support.waiting import DEADLINE_SECONDS
from tests.support.wire import Kind, Wire
from tests.system.talk import acknowledged, grab

pytestmark = pytest.mark.system

UNIT = Path(__file__).parents[2] / "contrib" / "systemd" / "switchgear.service"


class Notifications:
    """The socket of a service manager, and a server that it has started."""

    def __init__(self, listener: socket.socket, process: subprocess.Popen[bytes], port: int) -> None:
        self._listener = listener
        self.process = process
        self.port = port

    def next(self) -> dict[str, str]:
        """The next message that is not a beat of the watchdog."""
        while (message := self.any()).keys() == {"WATCHDOG"}:
            pass
        return message

    def any(self) -> dict[str, str]:
        text = self._listener.recv(4096).decode()
        return dict(line.split("=", 1) for line in text.split("\n"))

    def beats(self, seconds: float = DEADLINE_SECONDS) -> bool:
        """Whether the watchdog is told within this time that the server is well."""
        self._listener.settimeout(seconds)
        try:
            return "WATCHDOG" in self.any()
        except TimeoutError:
            return False
        finally:
            self._listener.settimeout(2 * DEADLINE_SECONDS)

    def forget(self) -> None:
        """Drop what was told so far."""
        self._listener.setblocking(False)
        try:
            while True:
                self._listener.recv(4096)
        except BlockingIOError:
            self._listener.settimeout(2 * DEADLINE_SECONDS)


@contextmanager
def started(tmp_path: Path, *words: str, command: str = "serve", **variables: str) -> Iterator[Notifications]:
    path = tmp_path / "notify"
    port = free_port()
    listen = ["--listen", f"gearman://{HOST}:{port}"] if command == "serve" else [f"--port={port}"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, (tmp_path / "log").open("wb") as log:
        listener.bind(str(path))
        listener.settimeout(2 * DEADLINE_SECONDS)
        process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", command, *listen, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            env={**os.environ, "NOTIFY_SOCKET": str(path), **variables},
        )
        try:
            yield Notifications(listener, process, port)
        finally:
            process.kill()
            process.wait()


def test_ready_reloading_ready_stopping(tmp_path: Path) -> None:
    with started(tmp_path, "--store", "memory:") as server:
        ready = server.next()
        assert (ready["READY"], ready["MAINPID"], ready["STATUS"]) == ("1", str(server.process.pid), "serving")
        with Wire((HOST, server.port)) as client:  # it is true
            acknowledged(client, b"f", b"")
        server.process.send_signal(signal.SIGHUP)
        assert server.next()["RELOADING"] == "1"
        assert server.next()["READY"] == "1"
        server.process.send_signal(signal.SIGTERM)
        stopping = server.next()
        assert stopping["STOPPING"] == "1"
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) >= 30_000_000
        assert server.process.wait(2 * DEADLINE_SECONDS) == 0


def test_gearmands_flags_tell_it_too(tmp_path: Path) -> None:
    with started(tmp_path, "--log-file=stderr", f"--pid-file={tmp_path}/pid", command="gearmand") as server:
        assert server.next()["READY"] == "1"


def test_the_watchdog_hears_while_the_store_works_and_not_otherwise(tmp_path: Path) -> None:
    database = tmp_path / "jobs.db"
    with started(tmp_path, "--store", f"sqlite:{database}", WATCHDOG_USEC="400000") as server:
        server.next()
        assert server.beats()
        assert server.beats()
        with Wire((HOST, server.port)) as client, Wire((HOST, server.port)) as worker:
            acknowledged(client, b"f", b"payload")
            worker.send(Kind.CAN_DO, b"f")
            assert grab(worker) is not None  # a running job keeps a draining server up
            database.rename(tmp_path / "elsewhere")
            while server.beats(1.5):  # until the server has noticed; then it must be silent for several intervals
                pass
            (tmp_path / "elsewhere").rename(database)
            assert server.beats()
            server.process.send_signal(signal.SIGTERM)
            assert server.next()["STOPPING"] == "1"
            server.forget()
            assert server.beats(), "a server that drains is well"


def test_a_server_that_hangs_is_silent(tmp_path: Path) -> None:
    with started(tmp_path, "--store", "memory:", WATCHDOG_USEC="200000") as server:
        server.next()
        assert server.beats()
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
        server.forget()
        assert not server.beats(1.0)
        server.process.send_signal(signal.SIGCONT)
        assert server.beats()


def test_a_server_without_a_watchdog_does_not_beat(tmp_path: Path) -> None:
    with started(tmp_path, "--store", "memory:", WATCHDOG_USEC="200000", WATCHDOG_PID="1") as server:
        server.next()
        assert not server.beats(0.7)


# --- the unit file ---


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit file, with a program that exists here."""
    copy = tmp_path / UNIT.name
    text, count = re.subn(r"ExecStart=\S+", f"ExecStart={sys.executable} -m switchgear", UNIT.read_text())
    assert count == 1
    copy.write_text(text)
    return copy


def test_systemd_understands_the_unit_file(unit: Path) -> None:
    command = [require_program("systemd-analyze"), "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_service_may_do_little(unit: Path) -> None:
    command = [require_program("systemd-analyze"), "security", "--offline=yes", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_settings_of_the_unit_file_exist() -> None:
    from switchgear.config import load_config

    variables = dict(re.findall(r"^Environment=(\w+)=(\S+)$", UNIT.read_text(), re.MULTILINE))
    assert load_config(None, variables, {"log.level": "info"}).store_url == "sqlite:/var/lib/switchgear/switchgear.db"
