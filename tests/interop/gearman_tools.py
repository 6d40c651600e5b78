"""Debian's ``gearman`` and ``gearadmin`` commands as test peers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.peers import require_program
from tests.support.servers import HOST, Server
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Wire


def gearman(server: Server, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command as a client, up to its end."""
    command = _command(server, *args)
    return subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE_SECONDS, check=False)


def gearadmin(server: Server, *args: str) -> bytes:
    """What gearadmin prints; its exit status is 0 even when the server says no."""
    program = require_program("gearadmin")
    done = subprocess.run(
        [program, "--host", HOST, "--port", str(server.port), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    return done.stdout


@dataclass(frozen=True)
class Running:
    """The command, running beside the test, with the processes it starts."""

    process: subprocess.Popen[bytes]

    def result(self) -> bytes:
        """What it printed, when it has ended well by itself."""
        out, _ = self.process.communicate(timeout=DEADLINE_SECONDS)
        assert self.process.returncode == 0, f"ended with {self.process.returncode}, printed {out!r}"
        return out

    def kill(self) -> None:
        """Together with the job's command, as when the machine is lost."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def gearman_beside(server: Server, *args: str) -> Iterator[Running]:
    """The command as a client that goes on while the test does something else."""
    process = subprocess.Popen(
        _command(server, *args),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    running = Running(process)
    try:
        yield running
    finally:
        running.kill()


@contextmanager
def gearman_worker(server: Server, function: str, *command: str, options: tuple[str, ...] = ()) -> Iterator[Running]:
    """The command as a worker, once the server knows it, and until the server has noticed its end."""
    with Wire(server.address) as admin:
        before = worker_count(admin, function)
        with gearman_beside(server, "-w", "-f", function, *options, "--", *command) as running:
            eventually(
                lambda: worker_count(admin, function) > before or running.process.poll() is not None,
                f"a gearman worker registers {function}",
            )
            yield running
        eventually(lambda: worker_count(admin, function) <= before, f"the server notices that {function}'s worker left")


def worker_count(admin: Wire, function: str) -> int:
    for line in admin.ask("status")[:-1]:
        name, _total, _running, workers = line.split(b"\t")
        if name == function.encode():
            return int(workers)
    return 0


def _command(server: Server, *args: str) -> list[str]:
    return [require_program("gearman"), "-h", HOST, "-p", str(server.port), *args]
