"""Workers as a test sees them: processes that take a job, do with it what the test says, and die when it wants."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec
import redis

from tests.matrix.addresses import Addresses
from tests.matrix.nursery import Order, Said
from tests.support.waiting import DEADLINE_SECONDS, eventually

__all__ = ["Nursery", "WorkerProcess", "running_nursery"]

REPOSITORY = Path(__file__).parents[2]


class WorkerProcess:
    """One worker.  It takes a job when it can; `take` waits until it has."""

    def __init__(self, line: socket.socket, order: Order) -> None:
        self._line = line
        self._lines = line.makefile("rb")
        self._line.sendall(msgspec.json.encode(order) + b"\n")
        self._pid = self._hear("born").numbers[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Let it finish, and go in good order; one that does not is killed."""
        try:
            self._say("stop")
            with suppress(TimeoutError):
                while self._lines.readline():
                    pass
        except OSError:
            pass  # it is dead
        finally:
            self.die()
            self._lines.close()
            self._line.close()

    def take(self) -> bytes:
        """The payload of the job that it was given."""
        return self._hear("job").data

    def progress(self, numerator: int, denominator: int) -> None:
        self._say("progress", numbers=(numerator, denominator))

    def complete(self, result: bytes) -> None:
        self._say("complete", result)

    def fail(self, reason: bytes) -> None:
        self._say("fail", reason)

    def wait_cancelled(self) -> None:
        """Until it is told that nobody wants the result any more."""
        self._hear("cancelled")

    def die(self) -> None:
        """In the middle of whatever it does."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def _say(self, word: str, data: bytes = b"", numbers: tuple[int, int] = (0, 0)) -> None:
        self._line.sendall(msgspec.json.encode(Said(word, data, numbers)) + b"\n")

    def _hear(self, word: str) -> Said:
        line = self._lines.readline()
        assert line, f"the worker ended before it said {word}"
        said = msgspec.json.decode(line, type=Said)
        assert said.word == word, said
        return said


class Nursery:
    """Where workers come from."""

    def __init__(self, path: Path, log: Path) -> None:
        self._path = path
        self.log = log

    def worker(self, kind: str, addresses: Addresses, lease_seconds: float = 0.0) -> WorkerProcess:
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(DEADLINE_SECONDS)
        line.connect(str(self._path))
        worker = WorkerProcess(line, Order(kind, addresses, lease_seconds))
        if kind == "redis":
            eventually(lambda: _is_counted(addresses), "the worker counts itself in")
        return worker


def _is_counted(addresses: Addresses) -> bool:
    """Whether the bridge would find a GearMonkey worker; it looks once a second, so better not too early."""
    with redis.Redis.from_url(addresses.redis) as client:
        return int(client.get(f"count:{addresses.function}") or 0) >= 1


@contextmanager
def running_nursery() -> Iterator[Nursery]:
    with tempfile.TemporaryDirectory(prefix="nursery-") as place:
        path, log = Path(place) / "door", Path(place) / "output"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.matrix.nursery", str(path)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=REPOSITORY,
            )
        assert process.stdin is not None
        try:
            eventually(lambda: path.exists() or process.poll() is not None, "the nursery opens")
            assert process.poll() is None, log.read_text()
            yield Nursery(path, log)
        finally:
            process.stdin.close()
            process.wait(DEADLINE_SECONDS)
