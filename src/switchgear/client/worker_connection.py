"""A worker's conversation with one server.

The protocol's dance: ask for a job (GRAB_JOB_UNIQ); told that there is none, say that we sleep (PRE_SLEEP); woken
(NOOP), ask again.  We ask only while a slot is free, one question at a time, so an answer always belongs to the last
question.  A job occupies its slot until its end is reported; any number of jobs of one connection may run side by side.

A lost connection takes its jobs with it: the server gives them to somebody else, and our result would be refused.
So their handlers are cancelled; letting them go on could have one job run twice at once, even in this very process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from switchgear.client.address import Locator, ServerAddress
from switchgear.client.connection import LARGEST_PACKET_BYTES, keep_alive, refusal, words_of
from switchgear.errors import JobFailed, PeerError, ServerRefused, SwitchgearError
from switchgear.protocols.gearman.codec import RESPONSE, Decoder, request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["Handler", "HandlerTable", "ReconnectBackoff", "Slots", "WorkerConnection", "WorkerJob", "WorkerObserver"]

CONNECT_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 5.0
_READ_BYTES: Final = 1024 * 1024
_STATUS_NUMBER_LIMIT: Final = 2**32  # what servers keep of a numerator


class WorkerJob:
    """A job as its handler sees it."""

    def __init__(self, link: WorkerConnection, handle: bytes, function: bytes, unique: bytes, payload: bytes) -> None:
        self.handle = handle.decode(errors="surrogateescape")
        self.function = function.decode(errors="surrogateescape")
        self.unique = unique.decode(errors="surrogateescape")
        self.payload = payload
        self.server = link.address
        self._raw_handle = handle
        self._link = link

    def __repr__(self) -> str:
        return f"WorkerJob({self.handle!r}, {self.function!r})"

    def progress(self, numerator: int, denominator: int) -> None:
        """Tell how far it is: so many parts of so many."""
        parts = (b"%d" % max(0, min(number, _STATUS_NUMBER_LIMIT - 1)) for number in (numerator, denominator))
        self._link.send(request(Packet.WORK_STATUS, self._raw_handle, *parts))

    def data(self, data: bytes) -> None:
        """Send part of the result ahead of its end."""
        self._link.send(request(Packet.WORK_DATA, self._raw_handle, data))

    def warn(self, data: bytes) -> None:
        """Say something that is not part of the result."""
        self._link.send(request(Packet.WORK_WARNING, self._raw_handle, data))

    async def drain(self) -> None:
        """Wait until the server has room for more: for handlers that send much."""
        await self._link.drain()

    def end(self, kind: Packet, *data: bytes) -> bool:
        """For the link: report the end; False if there is nobody to report it to."""
        return self._link.send(request(kind, self._raw_handle, *data))


Handler = Callable[[WorkerJob], Awaitable[bytes]]


class WorkerObserver:
    """Hears of what a worker does.  Does nothing unless overridden.  Must not raise."""

    def connected(self, server: ServerAddress) -> None:
        """The connection stands, and the functions are announced."""

    def disconnected(self, server: ServerAddress, problem: str, retry_seconds: float) -> None:
        """There is no connection; another attempt follows after a pause."""

    def refused(self, server: ServerAddress, error: ServerRefused) -> None:
        """The server answered with an error, such as to the result of a job it had given to somebody else."""

    def job_started(self, job: WorkerJob) -> None:
        """A handler is about to be called."""

    def job_ended(self, job: WorkerJob, failure: str | None, seconds: float) -> None:
        """The end of a job was reported: success, if `failure` is None."""

    def job_dropped(self, job: WorkerJob) -> None:
        """A handler was cancelled; the server will have the job run again."""


class Slots:
    """How many jobs run at once, over all servers, and how many at all.

    When only some jobs are to be run, a slot that has seen the last of them is not given back.
    """

    def __init__(self, parallel: int, total: int = 0) -> None:
        self.finished = 0
        self.total = total  # 0: no limit
        at_once = min(parallel, total) if total else parallel
        self._unstarted = total - at_once
        self._free = asyncio.Semaphore(at_once)

    @property
    def all_finished(self) -> bool:
        """Whether as many jobs as wanted have been run."""
        return bool(self.total) and self.finished >= self.total

    async def acquire(self) -> None:
        """Wait for a slot; the longest waiting gets it."""
        await self._free.acquire()

    def release(self, *, finished: bool) -> None:
        """Give back a slot, with or without having finished a job in it."""
        if not finished:
            self._free.release()
            return
        self.finished += 1
        if not self.total:
            self._free.release()
        elif self._unstarted:
            self._unstarted -= 1
            self._free.release()


@dataclass(frozen=True, slots=True)
class ReconnectBackoff:
    """Pauses between attempts to connect: growing, so that a server in trouble is left alone, and never quite equal,
    so that a thousand workers do not all come back in the same moment."""

    first_seconds: float = 0.1
    most_seconds: float = 30.0
    factor: float = 2.0
    rng: Callable[[], float] = random.random

    def seconds(self, attempt: int) -> float:
        """The pause after so many failures in a row, counted from 0: between half of what is due and all of it."""
        due = min(self.most_seconds, self.first_seconds * self.factor ** min(attempt, 64))
        return due * (0.5 + self.rng() / 2)


@dataclass(slots=True)
class HandlerTable:
    """What the links of one worker share."""

    handlers: Mapping[bytes, Handler]
    name: bytes
    slots: Slots
    observer: WorkerObserver
    backoff: ReconnectBackoff
    on_finished: Callable[[], None]  # after each job


class WorkerConnection:
    """One server: connected whenever that is possible, and asked for jobs whenever a slot is free."""

    def __init__(self, server: ServerAddress | Locator, duties: HandlerTable) -> None:
        self._server = server
        self.address = server if isinstance(server, ServerAddress) else server.address()  # where it was last seen
        self._duties = duties
        self._stopping = False
        self._asking = False  # a question for a job is on its way, so a job may come
        self._heard = False  # the server has answered since we connected
        self._writer: asyncio.StreamWriter | None = None
        self._asker: asyncio.Task[None] | None = None
        self._jobs: dict[asyncio.Task[bool], WorkerJob] = {}
        self._answers: asyncio.Queue[WorkerJob | None] = asyncio.Queue()
        self._awake = asyncio.Event()
        self._settled = asyncio.Event()

    # --- for the worker ---

    async def run(self) -> None:
        """Be there for the server until cancelled, or until told to stop and then disconnected."""
        failures = 0
        while not self._stopping:
            self._heard = False
            problem = await self._converse()
            if self._stopping:
                break
            # Being let in says little: a server that is full lets us in and hangs up.
            failures = 0 if self._heard else failures + 1
            pause_seconds = self._duties.backoff.seconds(max(0, failures - 1))
            self._duties.observer.disconnected(self.address, problem, pause_seconds)
            await asyncio.sleep(pause_seconds)

    def stop_asking(self) -> None:
        """Take no more jobs.  An answer that is on its way is still waited for, since it may be a job."""
        self._stopping = True
        if self._asker is not None and not self._asking:
            self._asker.cancel()

    def unfinished(self) -> list[asyncio.Task[bool] | asyncio.Task[None]]:
        """What has to end before this link can be cut without harm."""
        asker = [self._asker] if self._asker is not None and not self._asker.done() else []
        return [*self._jobs, *asker]

    async def settle(self) -> None:
        """Wait until the server has dealt with every result: it answers in order."""
        if self._writer is None:
            return
        self._settled.clear()
        self.send(request(Packet.ECHO_REQ, b"done"))
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._settled.wait()

    # --- for the jobs ---

    def send(self, packet: bytes) -> bool:
        """Send, if there still is somebody to send to."""
        if self._writer is None or self._writer.is_closing():
            return False
        self._writer.write(packet)
        return True

    async def drain(self) -> None:
        """Wait until there is room for more."""
        if self._writer is not None:
            with suppress(OSError):  # the connection is lost; whoever reads from it will notice
                await self._writer.drain()

    # --- the conversation ---

    async def _converse(self) -> str:
        """Connect and serve until the connection is lost; returns what was the matter."""
        try:
            if not isinstance(self._server, ServerAddress):
                self.address = await asyncio.to_thread(self._server.address)
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(self.address.host, self.address.port, limit=_READ_BYTES)
        except SwitchgearError as error:
            return str(error)
        except (OSError, UnicodeError) as error:
            return f"cannot connect: {words_of(error)}"
        keep_alive(writer.get_extra_info("socket"))
        self._writer = writer
        self._answers = asyncio.Queue()
        self._introduce()
        self._asker = asyncio.create_task(self._ask_for_jobs())
        receiver = asyncio.create_task(self._receive(reader))
        try:
            await asyncio.wait({self._asker, receiver}, return_when=asyncio.FIRST_COMPLETED)
            if self._asker.done() and not self._asker.cancelled():
                self._asker.result()  # it ends without an error only when we stop
            return await receiver
        finally:
            await self._hang_up(writer, receiver)

    def _introduce(self) -> None:
        announcements = [request(Packet.CAN_DO, function) for function in self._duties.handlers]
        self.send(b"".join([request(Packet.SET_CLIENT_ID, self._duties.name), *announcements]))
        self._duties.observer.connected(self.address)

    async def _hang_up(self, writer: asyncio.StreamWriter, receiver: asyncio.Task[str]) -> None:
        self._writer = None  # from now on nothing is reported
        jobs = dict(self._jobs)
        tasks = [task for task in (self._asker, receiver, *jobs) if task is not None]
        for task in tasks:
            task.cancel()
        try:
            # First the handlers, which may need a moment to clean up, then the connection: once it is closed, the
            # server starts their jobs elsewhere.
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            writer.close()
            for task, job in jobs.items():
                if not _was_reported(task):
                    self._duties.observer.job_dropped(job)
        with suppress(OSError):
            await writer.wait_closed()

    async def _receive(self, reader: asyncio.StreamReader) -> str:
        decoder = Decoder(RESPONSE, LARGEST_PACKET_BYTES)
        while True:
            try:
                data = await reader.read(_READ_BYTES)
            except OSError as error:
                return f"the connection was lost: {words_of(error)}"
            if not data:
                return "the server closed the connection"
            try:
                for kind, body in decoder.feed(data):
                    self._on_packet(kind, body)
            except PeerError as error:
                return f"the server does not speak Gearman: {error}"
            if decoder.failure is not None:
                return f"the server does not speak Gearman: {decoder.failure}"

    def _on_packet(self, kind: int, body: bytes) -> None:
        self._heard = True
        if kind == Packet.JOB_ASSIGN_UNIQ:
            self._answers.put_nowait(self._job_of(body))
        elif kind == Packet.NO_JOB:
            self._answers.put_nowait(None)
        elif kind == Packet.NOOP:
            self._awake.set()
        elif kind == Packet.ECHO_RES:
            self._settled.set()
        elif kind == Packet.ERROR:
            self._duties.observer.refused(self.address, refusal(body))

    async def _ask_for_jobs(self) -> None:
        while not self._stopping:
            await self._duties.slots.acquire()
            job = None
            try:
                job = await self._ask_for_job()
            finally:
                if job is None:
                    self._duties.slots.release(finished=False)
            if job is not None:
                self._start(job)
            elif not self._stopping:
                # Whatever woke us before this point was answered by the question.
                self._awake.clear()
                self.send(request(Packet.PRE_SLEEP))
                await self._awake.wait()

    async def _ask_for_job(self) -> WorkerJob | None:
        self._asking = True
        self.send(request(Packet.GRAB_JOB_UNIQ))
        try:
            return await self._answers.get()
        finally:
            self._asking = False

    # --- running a job ---

    def _job_of(self, body: bytes) -> WorkerJob:
        fields = body.split(b"\0", 3)
        if len(fields) != 4:
            raise PeerError(f"a job of {len(fields)} fields")
        return WorkerJob(self, *fields)

    def _start(self, job: WorkerJob) -> None:
        task = asyncio.create_task(self._work(job))
        self._jobs[task] = job
        # Not at the end of the task's own code, because a task that is cancelled early never runs any of it.
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[bool]) -> None:
        del self._jobs[task]
        finished = _was_reported(task)
        self._duties.slots.release(finished=finished)
        if finished:
            self._duties.on_finished()

    async def _work(self, job: WorkerJob) -> bool:
        """Run the handler and report; False if there was nobody to report to."""
        self._duties.observer.job_started(job)
        started = time.monotonic()
        failure: str | None = None
        try:
            result = await self._duties.handlers[job.function.encode(errors="surrogateescape")](job)
            reported = job.end(Packet.WORK_COMPLETE, result)
        except JobFailed as failed:
            failure = str(failed)
            reported = job.end(Packet.WORK_EXCEPTION, failed.error) if failed.error else job.end(Packet.WORK_FAIL)
        except Exception as error:  # any defect of a handler is the end of its job, not of the worker
            failure = f"{type(error).__name__}: {error}"
            reported = job.end(Packet.WORK_EXCEPTION, failure.encode(errors="replace"))
        if reported:
            self._duties.observer.job_ended(job, failure, time.monotonic() - started)
        return reported


def _was_reported(task: asyncio.Task[bool]) -> bool:
    """Whether the server was told the end of the job that this task ran."""
    return not task.cancelled() and task.exception() is None and task.result()
