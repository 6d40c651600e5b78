"""Brokers, workers and clients as processes of their own, and the processor time they use."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from switchgear.bench.server import HOST
from switchgear.bench.server import environment as our_environment

ROOT = Path(__file__).resolve().parent.parent.parent
# Two of them, because the libraries in the second want an older Redis client.
PEERS_ENVIRONMENTS = (ROOT / "build" / "bench-peers", ROOT / "build" / "bench-peers-2")
LIBRARIES = (("celery", "rq", "dramatiq", "huey", "taskiq"), ("arq", "procrastinate", "distributed"))
PATIENCE_SECONDS = 60.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class PeerMissing(RuntimeError):
    """A program that was asked for is not here."""


class PeerFailed(RuntimeError):
    """A program did not do what it was started for."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running redis-server, PostgreSQL, Dask scheduler or switchgear."""

    process_id: int
    port: int


def require_peers() -> None:
    """Raises PeerMissing when the other libraries or their Redis are not here."""
    if not all((place / ".made").exists() for place in PEERS_ENVIRONMENTS):
        raise PeerMissing("the other task libraries are missing: run scripts/install-bench-peers")
    if shutil.which("redis-server") is None:
        raise PeerMissing("redis-server is missing (Debian: apt-get install redis-server)")


def versions() -> dict[str, str]:
    """Of all that is measured beside this library."""
    require_peers()
    found: dict[str, str] = {}
    for place, names in zip(PEERS_ENVIRONMENTS, LIBRARIES, strict=True):
        program = f"import importlib.metadata as m; print(*map(m.version, {names!r}))"
        answer = subprocess.run([place / "bin" / "python", "-c", program], capture_output=True, text=True, check=True)
        found |= zip(names, answer.stdout.split(), strict=True)
    server = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True)
    match = re.search(r"v=(\S+)", server.stdout)
    return {**found, "redis-server": match[1] if match else "unknown"}


def peer_program(name: str, module: str = "") -> str:
    """A program of the environment that has it; for Python the one that has the library of this module."""
    library = module.removeprefix("on_").replace("dask", "distributed")
    place = PEERS_ENVIRONMENTS[library in LIBRARIES[1] or name in ("arq", "procrastinate", "dask")]
    return str(place / "bin" / name)


# --- processor time ---


def tree_cpu_seconds(process_id: int) -> float:
    """Of a process and all its children: those that live, and those that it has waited for."""
    total = 0.0
    for each in _tree(process_id):
        try:
            total += time.clock_gettime((~each << 3) | 2)  # the CPU clock of another process, all its threads together
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[13]) + int(fields[14])) / TICKS_PER_SECOND  # cutime, cstime
        except OSError:
            continue  # it has just ended; whoever waited for it has its time
    return total


def tree_memory_bytes(process_id: int) -> int:
    """The resident memory of a process, and what its children have for themselves."""
    total = 0
    for each in _tree(process_id):
        names = ("Rss",) if each == process_id else ("Private_Clean", "Private_Dirty")
        text = Path(f"/proc/{each}/smaps_rollup").read_text()
        for name in names:
            found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
            assert found is not None
            total += int(found[1]) * 1024
    return total


def _tree(process_id: int) -> Iterator[int]:
    yield process_id
    for listed in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            children = listed.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _tree(int(child))


# --- processes ---


@contextmanager
def running(
    command: list[str], environment: Mapping[str, str], log: int | IO[str], *, is_heard: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A process group of its own, so that what it starts ends with it.  One that is heard writes to a pipe."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**our_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if is_heard else log,
        stderr=log,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def finish(command: list[str], environment: Mapping[str, str], log: int | IO[str]) -> None:
    """Run it to its end."""
    with running(command, environment, log) as process:
        if process.wait(PATIENCE_SECONDS):
            raise PeerFailed(f"{' '.join(command)} ended with status {process.returncode}")


@contextmanager
def redis_broker(folder: Path) -> Iterator[Broker]:
    """A Redis that keeps everything in memory and nothing on a disk."""
    program = shutil.which("redis-server")
    if program is None:
        raise PeerMissing("redis-server is missing (Debian: apt-get install redis-server)")
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    command = [program, "--bind", HOST, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with running(command, {}, subprocess.DEVNULL) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _connects(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise PeerFailed("redis-server does not answer")
            time.sleep(0.01)
        yield Broker(process.pid, port)


@contextmanager
def dask_scheduler() -> Iterator[Broker]:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    command = [peer_program("dask"), "scheduler", "--host", HOST, "--port", str(port), "--no-dashboard", "--no-show"]
    with running(command, {"PYTHONPATH": str(ROOT)}, subprocess.DEVNULL) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _connects(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise PeerFailed("the Dask scheduler does not answer")
            time.sleep(0.01)
        yield Broker(process.pid, port)


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


class Client:
    """A client program, which waits to be told to begin."""

    def __init__(self, process: subprocess.Popen[str], worker: subprocess.Popen[str] | None, log: Path) -> None:
        self._process = process
        self._worker = worker
        self._log = log
        if self._line() != "ready":
            raise PeerFailed(self._why("the client did not get ready"))

    def run(self) -> dict[str, Any]:
        """Have it work, and return what it found."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        try:
            findings: dict[str, Any] = json.loads(self._line())
        except ValueError:
            raise PeerFailed(self._why("the client ended before its time")) from None
        return findings

    def _line(self) -> str:
        """What it says next; empty when it has ended."""
        output = self._process.stdout
        assert output is not None
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while not select.select([output], [], [], 0.5)[0]:
            if self._worker is not None and self._worker.poll() is not None:
                raise PeerFailed(self._why(f"the worker ended with status {self._worker.returncode}"))
            if time.monotonic() > deadline:
                raise PeerFailed(self._why("the client does not come to an end"))
        return output.readline().strip()

    def _why(self, what: str) -> str:
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{what}: {said[-1]}" if said else what
