"""`ShellCommand`: a handler that runs a shell command for each job.

The payload is the command's standard input, its standard output is the result, and its exit status decides. Its
standard error is passed on while it runs: lines such as `progress: 3/10` as progress, all others as warnings.

The command gets its own process group, so that it can be ended together with everything it has started, and so that a
Ctrl-C for the worker does not hit it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from switchgear.client.connection_security import SECRET_VARIABLES
from switchgear.client.exit_status import describe_exit_status
from switchgear.client.gearman.worker import WorkerJob
from switchgear.errors import JobFailed

__all__ = ["ErrorLines", "ShellCommand", "parse_progress"]

# A server closes the connection on a larger packet, and the job would be tried again with the same result.
RESULT_BYTES: Final = 64 * 1024 * 1024 - 4096
GRACE_SECONDS: Final = 5.0
# A process left behind in the background may keep the pipes open for ever, so they are not waited for longer than this.
LINGER_SECONDS: Final = 1.0
_READ_BYTES: Final = 64 * 1024
_TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 4096

_PARTS: Final = re.compile(rb"progress:\s*(\d{1,10})\s*/\s*(\d{1,10})\s*", re.I)
_PERCENT: Final = re.compile(rb"progress:\s*(\d{1,8})(?:\.(\d)\d*)?\s*%\s*", re.I)


def parse_progress(line: bytes) -> tuple[int, int] | None:
    """Numerator and denominator of `progress: 3/10`, `progress: 30%` or `progress: 30.5%`; None for any other line."""
    match = _PARTS.fullmatch(line)
    if match is not None:
        return int(match[1]), int(match[2])
    match = _PERCENT.fullmatch(line)
    if match is None:
        return None
    if match[2] is None:
        return int(match[1]), 100
    return int(match[1]) * 10 + int(match[2]), 1000


class ErrorLines:
    """Splits standard error into lines, sends progress and warnings, and keeps the last warnings."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job
        self._unfinished = b""
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)

    @property
    def tail(self) -> bytes:
        """The end of what the command wrote to its standard error, for the reason of a failure."""
        return b"".join(self._tail)[-_TAIL_BYTES:]

    def feed(self, data: bytes) -> None:
        """Handle more output."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        self._pass_on([line + b"\n" for line in lines])
        if len(self._unfinished) > _READ_BYTES:  # no line of this length is progress
            self.finish()

    def finish(self) -> None:
        """Handle the end of the output, with an unfinished last line."""
        if self._unfinished:
            self._pass_on([self._unfinished])
            self._unfinished = b""

    def _pass_on(self, lines: list[bytes]) -> None:
        """Send lines in order; consecutive warnings are sent as one."""
        warnings: list[bytes] = []
        for line in lines:
            progress = parse_progress(line)
            if progress is None:
                warnings.append(line)
                continue
            self._warn(warnings)
            warnings = []
            self._job.progress(*progress)
        self._warn(warnings)

    def _warn(self, lines: list[bytes]) -> None:
        if lines:
            self._tail.extend(lines)
            self._job.warn(b"".join(lines))


class ShellCommand:
    """A handler for `Worker`, for any number of jobs at once."""

    def __init__(
        self,
        command: str,
        *,
        timeout_seconds: float = 0.0,
        grace_seconds: float = GRACE_SECONDS,
        result_bytes: int = RESULT_BYTES,
    ) -> None:
        """A run longer than `timeout_seconds` fails, 0 for no limit.

        Whenever a command is ended from outside it is asked first (SIGTERM), and killed after `grace_seconds`.
        """
        self.command = command
        self.timeout_seconds = timeout_seconds
        self.grace_seconds = grace_seconds
        self.result_bytes = result_bytes
        self._ending: set[_CommandRun] = set()

    async def __call__(self, job: WorkerJob) -> bytes:
        run = await _CommandRun.start(self.command, job, self.result_bytes)
        try:
            in_time = await self._wait_for_exit(run)
            await run.read_rest()
        finally:
            await run.close()
        if not in_time:
            reason = f"timed out after {self.timeout_seconds:g} s"
        elif run.result_too_large:
            reason = f"the result is larger than {self.result_bytes} bytes"
        elif run.status:
            reason = describe_exit_status(run.status)
        else:
            return bytes(run.result)
        raise JobFailed(reason, b"\n".join(part for part in (reason.encode(), run.last_lines) if part))

    async def _wait_for_exit(self, run: _CommandRun) -> bool:
        """Wait until the command has exited; False if it was stopped at its timeout."""
        try:
            async with asyncio.timeout(self.timeout_seconds or None):
                await run.exited.wait()
        except TimeoutError:
            await self._end(run)
            return False
        except BaseException:
            await self._end(run)
            raise
        return True

    def kill_at_once(self) -> None:
        """Kill the commands that are being ended, and from now on all others without the grace period."""
        self.grace_seconds = 0.0
        for run in self._ending:
            run.signal(signal.SIGKILL)

    async def _end(self, run: _CommandRun) -> None:
        self._ending.add(run)
        try:
            await run.end(self.grace_seconds)
        finally:
            self._ending.discard(run)


class _Protocol(SubprocessStreamProtocol):
    """Sets an event when the process has exited, even while other processes hold its pipes open."""

    def __init__(self) -> None:
        super().__init__(limit=_READ_BYTES, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class _CommandRun:
    """One run of a command."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol, job: WorkerJob, most: int) -> None:
        self.exited = protocol.exited
        self.result = bytearray()
        self.result_too_large = False
        self._result_bytes = most
        self._transport = transport
        self._protocol = protocol
        self._job = job
        self._errors = ErrorLines(job)
        self._feeder = asyncio.create_task(self._feed())
        self._readers = [asyncio.create_task(self._read_result()), asyncio.create_task(self._read_errors())]

    @classmethod
    async def start(cls, command: str, job: WorkerJob, result_bytes: int) -> _CommandRun:
        transport, protocol = await asyncio.get_running_loop().subprocess_shell(
            _Protocol,
            command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            env=environment_of(job, os.environ),
        )
        return cls(transport, protocol, job, result_bytes)

    @property
    def status(self) -> int:
        """The exit status, or minus the number of the signal that killed it."""
        status = self._transport.get_returncode()
        assert status is not None
        return status

    @property
    def last_lines(self) -> bytes:
        """The last lines of standard error."""
        return self._errors.tail.rstrip()

    async def read_rest(self) -> None:
        """Read the rest of the output of a command that has exited."""
        done, late = await asyncio.wait(self._readers, timeout=LINGER_SECONDS)
        if late:
            self.signal(signal.SIGKILL)
        for reader in done:
            reader.result()  # raises if there is a defect of ours
        self._errors.finish()

    async def _feed(self) -> None:
        stdin = self._protocol.stdin
        assert stdin is not None
        # A command that does not read all its input is a command like any other.
        with suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(self._job.payload)
            await stdin.drain()
            stdin.close()
            await stdin.wait_closed()

    async def _read_result(self) -> None:
        stdout = self._protocol.stdout
        assert stdout is not None
        while data := await stdout.read(_READ_BYTES):
            self.result += data
            if len(self.result) > self._result_bytes:
                self.result_too_large = True
                self.signal(signal.SIGKILL)
                return

    async def _read_errors(self) -> None:
        stderr = self._protocol.stderr
        assert stderr is not None
        while data := await stderr.read(_READ_BYTES):
            self._errors.feed(data)
            await self._job.drain()

    async def end(self, grace_seconds: float) -> None:
        """End the command early: SIGTERM, a grace period, SIGKILL."""
        try:
            if grace_seconds:
                self.signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace_seconds):
                        await self.exited.wait()
        finally:
            # Also when the command itself is gone: what it started may have chosen to stay.
            self.signal(signal.SIGKILL)
        await self.exited.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command and all that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    async def close(self) -> None:
        """Close the process and its pipes."""
        stdin = self._transport.get_pipe_transport(0)
        if isinstance(stdin, asyncio.WriteTransport) and stdin.get_write_buffer_size():
            stdin.abort()  # closing would wait until the rest is read
        self._transport.close()
        tasks = [self._feeder, *self._readers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def environment_of(job: WorkerJob, base: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a command: those of the worker without its secrets, and some about the job."""
    return {
        **{name: value for name, value in base.items() if name not in SECRET_VARIABLES},
        "SWITCHGEAR_HANDLE": job.handle,
        "SWITCHGEAR_FUNCTION": job.function,
        "SWITCHGEAR_UNIQUE": job.unique,
    }
