"""A server process for benchmarks, on a free loopback port, with its processor time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from switchgear import version
from switchgear.errors import SwitchgearError

__all__ = [
    "STORES",
    "BenchServer",
    "cpu_seconds_of",
    "how_started",
    "listen_addresses",
    "resident_bytes_of",
    "running_server",
]

HOST = "127.0.0.1"
LISTENING = "listening on "
STORES = {"memory": "serve --store memory:", "sqlite": "serve --store sqlite:FILE --sync full"}


def how_started(options: str) -> str:
    """The version, build and command of the server, for reports."""
    return f"{version.VERSION} ({version.BUILD}): switchgear {options}"


class DidNotStart(SwitchgearError):
    """The server that was to be measured ended at once."""


def cpu_seconds_of(process_id: int) -> float | None:
    """Processor time of another process, all its threads, user and system; None where it cannot be asked for."""
    if not sys.platform.startswith("linux"):
        return None
    return time.clock_gettime((~process_id << 3) | 2)  # the clock id of another process's CPU clock


def resident_bytes_of(process_id: int) -> int | None:
    """Memory that a process holds; None where it cannot be asked for."""
    try:
        fields = Path(f"/proc/{process_id}/statm").read_text().split()
    except OSError:
        return None
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A running server."""

    process_id: int
    port: int

    @property
    def url(self) -> str:
        return f"gearman://{HOST}:{self.port}"

    def cpu_seconds(self) -> float | None:
        return cpu_seconds_of(self.process_id)

    def resident_bytes(self) -> int | None:
        return resident_bytes_of(self.process_id)


def environment() -> dict[str, str]:
    """The environment without SWITCHGEAR_* variables, so that the server has the settings of the report."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SWITCHGEAR_")}


def listen_addresses(process: subprocess.Popen[str], count: int) -> list[str]:
    """The addresses in the output of a starting server, which come when it listens."""
    assert process.stdout is not None
    said: list[str] = []
    found: list[str] = []
    while len(found) < count:
        line = process.stdout.readline()
        if not line:
            last_words = process.stderr.read() if process.stderr is not None else ""
            raise DidNotStart(f"the server did not start: {(''.join(said) + last_words).strip()}")
        said.append(line)
        if line.startswith(LISTENING):
            found.append(line.removeprefix(LISTENING).strip())
    return found


@contextmanager
def running_server(store: str, directory: Path | None = None) -> Iterator[BenchServer]:
    """A server with one listener and its defaults; its database lies below `directory`, and goes with it."""
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-", dir=directory) as place:
        where = f"sqlite:{Path(place) / 'jobs.db'}" if store == "sqlite" else "memory:"
        command = [sys.executable, "-m", "switchgear", "serve", "--store", where, "--sync", "full"]
        command += ["--listen", f"gearman://{HOST}:0", "--log-level", "error"]
        process = subprocess.Popen(
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            (url,) = listen_addresses(process, 1)
            yield BenchServer(process.pid, int(url.rpartition(":")[2]))
        finally:
            process.kill()  # there is nothing to keep, and draining a long queue takes time
            process.communicate()
