"""Real server processes on free loopback ports: gearmand, ours, and ours with gearmand's flags.

A server counts as ready when it answers ``version`` on its port, and nothing here waits for a fixed time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

from tests.support.peers import require_program
from tests.support.waiting import DEADLINE_SECONDS, eventually

HOST = "127.0.0.1"
_STOP_SECONDS = 10.0
_ATTEMPTS_TO_FIND_A_PORT = 3


@dataclass(frozen=True)
class Server:
    """One running server process, and everything it printed."""

    command: tuple[str, ...]
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        return (HOST, self.port)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait_stopped(self, within_seconds: float = DEADLINE_SECONDS) -> int:
        """The exit status of a server that was asked to stop in another way than by us."""
        return self.process.wait(within_seconds)

    def kill(self) -> None:
        """As the power cut does it: no goodbye."""
        self.process.kill()
        self.process.wait()


class DidNotStartError(AssertionError):
    """The process ended, or never answered on its port."""


@contextmanager
def running_gearmand(*flags: str) -> Iterator[Server]:
    """Debian's gearmand.

    One I/O thread, because with several the order in which two connections are served is chance, and
    because on small machines the default of four is slower.
    """
    program = require_program("gearmand")
    with tempfile.TemporaryDirectory(prefix="gearmand-") as place:

        def command(port: int) -> list[str]:
            return [program, *_gearmand_flags(port, Path(place)), "--threads=1", *flags]

        with _running(command, Path(place)) as server:
            yield server


@contextmanager
def running_switchgear(*args: str, store: str = "memory:", options: str = "") -> Iterator[Server]:
    """``switchgear serve``, with its own defaults; ``args`` come after the listener and the store.

    ``options`` are those of the listener's URL, with the question mark.
    """

    def command(port: int) -> list[str]:
        listener = f"gearman://{HOST}:{port}{options}"
        return [sys.executable, "-m", "switchgear", "serve", "--listen", listener, "--store", store, *args]

    with tempfile.TemporaryDirectory(prefix="switchgear-") as place, _running(command, Path(place)) as server:
        yield server


@contextmanager
def running_switchgear_as_gearmand(*flags: str) -> Iterator[Server]:
    """``switchgear gearmand``: gearmand's flags, and gearmand's defaults behind them."""
    with tempfile.TemporaryDirectory(prefix="switchgear-") as place:

        def command(port: int) -> list[str]:
            program = [sys.executable, "-m", "switchgear", "gearmand"]
            return [*program, *_gearmand_flags(port, Path(place)), *flags]

        with _running(command, Path(place)) as server:
            yield server


# Below the ports that the system gives to outgoing connections: one of those could take a port before the server does.
# Each process of pytest has a part of the range, begins anywhere in it, and goes round.
PORTS_OF_A_PROCESS = 5_000
FIRST_PORT = 11_000 + PORTS_OF_A_PROCESS * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 4)
_OFFSET = 37 * os.getpid() % PORTS_OF_A_PROCESS
PORTS: Iterator[int] = cycle(
    [*range(FIRST_PORT + _OFFSET, FIRST_PORT + PORTS_OF_A_PROCESS), *range(FIRST_PORT, FIRST_PORT + _OFFSET)]
)


def free_port() -> int:
    """A port that nobody listens on at this moment, and that no other test of this run is given for a long time.

    A server may listen on it later, and a node that is down listens on it again.
    """
    for port in PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise AssertionError("the ports have no end")


def answers_version(port: int) -> bool:
    """Whether a Gearman server is ready on this port."""
    try:
        with socket.create_connection((HOST, port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(b"version\n")
            return connection.recv(64).startswith(b"OK ")
    except OSError:
        return False


def _gearmand_flags(port: int, place: Path) -> list[str]:
    return [f"--listen={HOST}", f"--port={port}", "--log-file=stderr", f"--pid-file={place / 'pid'}"]


@contextmanager
def _running(command_for: Callable[[int], list[str]], place: Path) -> Iterator[Server]:
    server = _start(command_for, place)
    try:
        yield server
    finally:
        _stop(server)


def _start(command_for: Callable[[int], list[str]], place: Path) -> Server:
    """Another process may take the port between our look and the server's bind, hence the attempts."""
    for attempt in range(1, _ATTEMPTS_TO_FIND_A_PORT + 1):
        port = free_port()
        command = command_for(port)
        log = place / f"output-{attempt}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=place
            )
        server = Server(tuple(command), port, process, log)
        try:
            eventually(partial(_is_ready_or_gone, server), f"{' '.join(command)} answers or ends")
        except BaseException:
            _stop(server)
            raise
        if server.is_running():
            return server
        if "in use" not in server.output():
            break
    raise DidNotStartError(f"{' '.join(server.command)} ended with {process.returncode}:\n{server.output()}")


def _is_ready_or_gone(server: Server) -> bool:
    return not server.is_running() or answers_version(server.port)


def _stop(server: Server) -> None:
    if not server.is_running():
        return
    server.process.send_signal(signal.SIGTERM)
    try:
        server.process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
