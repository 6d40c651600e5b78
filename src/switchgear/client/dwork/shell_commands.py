"""`ShellCommands`: runs tasks as shell commands; the name of a task is its command.

The output of a command goes to private files, and is passed on as a whole when the command has ended: the output of
concurrent commands is not mixed. Files, not pipes, since they hold any amount, and since a process that a command
leaves behind can continue to write without a reader.

A command gets its own process group, so that it can be ended together with everything it has started, and so that a
Ctrl-C for this program does not hit it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import ExitStack, suppress
from typing import IO, BinaryIO, Final

from switchgear.client.dwork.records import bytes_of
from switchgear.client.exit_status import describe_exit_status

__all__ = ["CommandResult", "ShellCommands"]

GRACE_SECONDS: Final = 5.0
TAIL_BYTES: Final = 4096
NOT_STARTED: Final = 127  # as the shell has it


class CommandResult:
    """The exit status and output of a command.  To be closed."""

    def __init__(self, status: int, stdout: IO[bytes], stderr: IO[bytes], problem: str = "") -> None:
        self.status = status  # or minus the number of the signal that killed it
        self.stdout = stdout
        self.stderr = stderr  # the same file, if both go to the same place
        self._problem = problem

    @property
    def failure(self) -> str | None:
        """The failure reason of a command: its last line on standard error, or its exit status."""
        if not self.status:
            return None
        return self._problem or self._last_line() or describe_exit_status(self.status)

    def _last_line(self) -> str:
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - TAIL_BYTES))
        lines = self.stderr.read(TAIL_BYTES).decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def pass_on(self, stdout: BinaryIO, stderr: BinaryIO) -> None:
        """Write the output of the command to standard output and error."""
        outputs = [(self.stdout, stdout)] + ([(self.stderr, stderr)] if self.stderr is not self.stdout else [])
        for written, stream in outputs:
            written.seek(0)
            shutil.copyfileobj(written, stream)
            stream.flush()

    @property
    def has_output(self) -> bool:
        return any(file.seek(0, os.SEEK_END) for file in (self.stdout, self.stderr))

    def close(self) -> None:
        self.stdout.close()
        self.stderr.close()


class ShellCommands:
    """Runs commands, any number at once."""

    def __init__(self, *, one_stream: bool = False) -> None:
        """With `one_stream`, what a command writes to standard error stays in order with what it writes to output."""
        self._one_stream = one_stream
        self._grace_seconds = GRACE_SECONDS
        self._ending: set[_CommandProcess] = set()

    async def run(self, command: str) -> CommandResult:
        """Run a command to its end.  If this is cancelled, the command is ended first."""
        with ExitStack() as files:
            stdout = files.enter_context(tempfile.TemporaryFile())
            stderr = stdout if self._one_stream else files.enter_context(tempfile.TemporaryFile())
            status, problem = NOT_STARTED, ""
            try:
                child = _CommandProcess(command, stdout, stderr)
            except (OSError, ValueError) as error:  # too long, has a NUL in it, or the system has no room
                problem = f"cannot be started: {error}"
            else:
                status = await self._wait(child)
            files.pop_all()
            return CommandResult(status, stdout, stderr, problem)

    async def _wait(self, child: _CommandProcess) -> int:
        try:
            return await asyncio.shield(child.exited)
        except BaseException:
            await self._end(child)
            raise

    def kill_at_once(self) -> None:
        """Kill the commands that are being ended, and from now on all others without the grace period."""
        self._grace_seconds = 0.0
        for child in self._ending:
            child.signal(signal.SIGKILL)

    async def _end(self, child: _CommandProcess) -> None:
        """End a command early: SIGTERM, a grace period, SIGKILL."""
        self._ending.add(child)
        try:
            if self._grace_seconds:
                child.signal(signal.SIGTERM)
                await asyncio.wait({child.exited}, timeout=self._grace_seconds)
        finally:
            # Also when the command itself is gone: what it started may have chosen to stay.
            child.signal(signal.SIGKILL)
            self._ending.discard(child)
        await child.exited


class _CommandProcess:
    """A process.

    Not asyncio's: in Python 3.11 that has a thread wait for each process, and for short commands most of the time would
    pass between their end and our hearing of it.
    """

    def __init__(self, command: str, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            bytes_of(command),
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        try:
            self._descriptor = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # another system, or an old one
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._descriptor, self._on_exit)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.exited.set_result(self._process.wait())

    def _wait_in_thread(self) -> None:
        status = self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.exited.set_result, status)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command and all that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
