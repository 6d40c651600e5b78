"""`ProcessExecutor`: runs jobs in a child process, which can be killed or crash without harm to the worker."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Coroutine, Sequence
from signal import SIGKILL, SIGTERM, Signals
from typing import Any, Final, cast

from switchgear.app.worker.child_messages import (
    CancelJob,
    ChildProgress,
    ChildReady,
    Frame,
    FrameReader,
    JobEnded,
    encode,
    outcome_of,
    start,
)
from switchgear.app.worker.executor import Attempt, Executor, ExecutorOwner
from switchgear.app.worker.resident_memory import resident_bytes_of
from switchgear.backoff import ReconnectBackoff, RetryPauses
from switchgear.client.exit_status import describe_exit_status
from switchgear.client.gearman.assigned_job import Stopped
from switchgear.client.sockets import describe_os_error
from switchgear.units import short_bytes

__all__ = ["ProcessExecutor"]

# Between TERM, which lets a job clean up, and KILL.
TERM_SECONDS: Final = 1.0
# How long a child without a job may take to notice that it is to end.
CLOSE_SECONDS: Final = 1.0
MEMORY_CHECK_SECONDS: Final = 0.5  # between looks at the memory of a child
REAP_PAUSE_SECONDS: Final = 0.005  # between checks of a process that is ending


class ProcessExecutor(Executor):
    """One slot: a child process that runs one job after the other, and is replaced when it dies or has done enough."""

    def __init__(
        self,
        target: str,
        urls: Sequence[str] = (),
        *,
        jobs_limit: int = 0,
        memory_limit_bytes: int = 0,
        hard_memory_limit_bytes: int = 0,
        kill_after_seconds: float = 5.0,
        log_level: str = "",
        log_format: str = "text",
    ) -> None:
        """`target` is the app, as MODULE:APP, and `urls` are its servers if not its own; after `jobs_limit` jobs a
        child is replaced, 0 for never, and after a job that leaves it with more resident memory than
        `memory_limit_bytes`, 0 for any; a child that ever has more than `hard_memory_limit_bytes` is killed.
        `log_level` and `log_format` are for `set_up_logging`, and the level is empty if that is left to the app."""
        super().__init__(1)
        self._logging = f"{log_level}:{log_format}" if log_level else ""
        self._target = target
        self._urls = urls
        self._jobs_limit = jobs_limit
        self._memory_limit_bytes = memory_limit_bytes
        self._hard_memory_limit_bytes = hard_memory_limit_bytes
        self._kill_after_seconds = kill_after_seconds
        self._pauses = RetryPauses(ReconnectBackoff(first_seconds=0.2))  # between attempts to start a child
        self._child: _ChildConnection | None = None
        self._tasks: set[asyncio.Task[object]] = set()  # that end soon
        self._restart: asyncio.TimerHandle | None = None  # after a pause
        self._closing = False
        self._resting = False

    @property
    def ready(self) -> bool:
        return self._child is not None and self._child.ready

    @property
    def resting(self) -> bool:
        return self._resting

    @property
    def pid(self) -> int:
        """The process id of the child; 0 if there is none."""
        return self._child.process.pid if self._child is not None else 0

    def open(self, owner: ExecutorOwner, loop: asyncio.AbstractEventLoop) -> None:
        super().open(owner, loop)
        self._spawn()
        if self._hard_memory_limit_bytes:
            self._check_memory()

    def rest(self) -> None:
        """Have no child process until `wake`.  The executor must be idle; it may be called before `open`."""
        self._resting = True
        if self._restart is not None:
            self._restart.cancel()
        child, self._child = self._child, None
        if child is not None:
            child.close()
            self._in_background(child.reap(CLOSE_SECONDS))
            self.owner.readiness_changed()

    def wake(self) -> None:
        """End the pause that `rest` began: start a child process again."""
        self._resting = False
        self._spawn()

    def start(self, attempt: Attempt) -> None:
        assert self._child is not None
        self._child.begin(attempt, measures_memory=bool(self._memory_limit_bytes))

    def cancel(self, attempt: Attempt, *, hard: bool) -> None:
        child = self._child
        if child is None or child.attempt is not attempt:
            return
        child.send(CancelJob(child.number, attempt.job.cancel_reason))
        if hard:
            child.signal(SIGKILL)
        else:
            number = child.number
            self.loop.call_later(self._kill_after_seconds, child.signal_attempt, number, SIGTERM)
            self.loop.call_later(self._kill_after_seconds + TERM_SECONDS, child.signal_attempt, number, SIGKILL)

    async def close(self) -> bool:
        self._closing = True
        child, self._child = self._child, None
        if child is not None:
            if child.attempt is not None:
                child.signal(SIGKILL)
            child.close()
            await child.reap(CLOSE_SECONDS)
        if self._restart is not None:
            self._restart.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        return True

    def _spawn(self) -> None:
        """Start a child process, unless there is one or none is needed."""
        if self._closing or self._resting or self._child is not None:
            return
        try:
            self._start_child()
        except OSError as error:  # no memory, or too many processes: that may pass
            self._spawn_later(f"no child process could be started: {describe_os_error(error)}")

    def _spawn_later(self, problem: str) -> None:
        pause_seconds = self._pauses.next_seconds()
        self.owner.note(f"{problem}; the next attempt in {pause_seconds:.1f} s")
        self._restart = self.loop.call_later(pause_seconds, self._spawn)

    def _start_child(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        arguments = [str(theirs.fileno()), self._logging, self._target, *self._urls]
        command = [sys.executable, "-m", "switchgear.app.worker.child", *arguments]
        with theirs:
            # Its own session: signals of a terminal go only to the worker, and a job can be killed together with the
            # processes that it has started.
            try:
                process = subprocess.Popen(
                    command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
                )
            except BaseException:
                ours.close()
                raise
        child = self._child = _ChildConnection(self, process)
        self._in_background(self._connect(child, ours))

    async def _connect(self, child: _ChildConnection, ours: socket.socket) -> None:
        await self.loop.create_unix_connection(lambda: child, sock=ours)

    def _in_background(self, work: Coroutine[Any, Any, object]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _check_memory(self) -> None:
        """Kill the child if it has too much memory, whether it runs a job or not."""
        child = self._child
        if child is not None and not child.killed_because:
            found = resident_bytes_of(child.process.pid)
            if found is not None and found > self._hard_memory_limit_bytes:
                most = short_bytes(self._hard_memory_limit_bytes)
                child.killed_because = f"had {short_bytes(found)} of memory, more than {most}, and was killed"
                child.signal(SIGKILL)
        if not self._closing:
            self.loop.call_later(MEMORY_CHECK_SECONDS, self._check_memory)

    # --- events of the child's connection ---

    def child_is_ready(self) -> None:
        """Called when the child process has imported the app."""
        self._pauses.reset()
        self.owner.readiness_changed()

    def attempt_ended(self, child: _ChildConnection, attempt: Attempt, frame: JobEnded) -> None:
        """Called when the child process has finished its job."""
        has_done_enough = bool(self._jobs_limit) and child.jobs >= self._jobs_limit
        is_too_large = bool(self._memory_limit_bytes) and frame.resident_bytes > self._memory_limit_bytes
        is_replaced = (has_done_enough or is_too_large) and child is self._child
        if is_replaced:
            self._child = None
            child.close()
            self._in_background(child.reap(CLOSE_SECONDS))
            self._spawn()
        self.owner.attempts_ended([(attempt, outcome_of(frame))])
        if is_replaced and is_too_large:
            self.owner.note(
                f"process {child.process.pid} has {short_bytes(frame.resident_bytes)} of memory"
                f" after {attempt.handle} ({attempt.assignment.function}), more than"
                f" {short_bytes(self._memory_limit_bytes)}: it is replaced"
            )

    def child_is_gone(self, child: _ChildConnection) -> None:
        """The child has closed its connection, or died."""
        if child is self._child:
            self._child = None
            self.owner.readiness_changed()
            self._in_background(self._bury(child))

    async def _bury(self, child: _ChildConnection) -> None:
        status = await child.reap(0.0)
        problem = child.killed_because or _describe(status)
        attempt = child.attempt
        if attempt is None and not child.ready:
            if not self._closing and not self._resting:
                self._spawn_later(f"a child process {problem} before it was ready")
            return
        if attempt is None:
            self.owner.note(f"an idle child process {problem}")
        elif attempt.job.cancelled:
            self.owner.attempts_ended([(attempt, Stopped(attempt.job.cancel_reason))])
        else:
            self.owner.attempt_lost(attempt, f"its process {problem}")
        self._spawn()


class _ChildConnection(asyncio.Protocol):
    """The worker's end of the connection to one child."""

    def __init__(self, executor: ProcessExecutor, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.ready = False
        self.killed_because = ""  # what was wrong with it, if the worker has killed it for that
        self.attempt: Attempt | None = None
        self.number = 0  # of the attempt
        self.jobs = 0
        self._executor = executor
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._is_over = False

    def begin(self, attempt: Attempt, *, measures_memory: bool) -> None:
        self.number += 1
        self.attempt = attempt
        self.ready = False
        self.send(start(self.number, attempt.assignment, measures_memory=measures_memory))

    def send(self, frame: Frame) -> None:
        if self._transport is not None:
            self._transport.write(encode(frame))

    def signal(self, number: Signals) -> None:
        """Send a signal to the child and to the processes that its job has started."""
        if self.process.returncode is None:  # until then the number is not used again
            try:
                os.killpg(self.process.pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def signal_attempt(self, attempt_number: int, number: Signals) -> None:
        """Send a signal if the child still runs the same attempt."""
        if self.attempt is not None and self.number == attempt_number:
            self.signal(number)

    def close(self) -> None:
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    async def reap(self, patience_seconds: float) -> int:
        """Wait for the end of the child, and kill it after some time; returns its exit status."""
        deadline = self._executor.loop.time() + patience_seconds
        while (status := self.process.poll()) is None:
            if self._executor.loop.time() >= deadline:
                self.signal(SIGKILL)
            await asyncio.sleep(REAP_PAUSE_SECONDS)
        return status

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if isinstance(frame, ChildReady):
                self.ready = True
                self._executor.child_is_ready()
            elif isinstance(frame, ChildProgress):
                if self.attempt is not None and frame.attempt == self.number:
                    self.attempt.progress(frame.done, frame.total, frame.message)
            elif isinstance(frame, JobEnded) and self.attempt is not None:
                attempt, self.attempt = self.attempt, None
                self.ready = True
                self.jobs += 1
                self._executor.attempt_ended(self, attempt, frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self._is_over:
            self._is_over = True
            self._executor.child_is_gone(self)


def _describe(status: int) -> str:
    text = describe_exit_status(status)
    return f"was {text}" if status < 0 else f"ended with {text}"
