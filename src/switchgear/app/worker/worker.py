"""`AppWorker`: the worker of an app: slot pools for threads, an event loop and processes, and their I/O thread."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from switchgear.app.job_execution import references_of
from switchgear.app.server_locations import ServerLocation
from switchgear.app.worker.async_executor import AsyncExecutor
from switchgear.app.worker.disconnected_attempts import DisconnectedAttempts
from switchgear.app.worker.executor import Attempt, Executor
from switchgear.app.worker.executor_choice import CurrentTasks, ExecutorChoice
from switchgear.app.worker.observer import AppWorkerObserver
from switchgear.app.worker.prefetch import MOST_PREFETCH, Prefetch
from switchgear.app.worker.process_autoscaler import CHECK_SECONDS, AutoscaleLimits, ProcessAutoscaler
from switchgear.app.worker.process_executor import ProcessExecutor
from switchgear.app.worker.remote_control import RemoteControl
from switchgear.app.worker.slot_pool import SlotPool
from switchgear.app.worker.thread_executor import ThreadExecutor
from switchgear.backoff import ReconnectBackoff
from switchgear.client.gearman.worker_connection import WorkerConnection
from switchgear.client.gearman.worker_protocol import WorkerIntroduction
from switchgear.errors import ConfigError
from switchgear.resources import canonical_resources
from switchgear.tags import canonical_tags

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.task import Task

__all__ = ["AppWorker", "WorkerSettings"]

# Between the drain deadline and the release of jobs: for jobs that end when they are cancelled.
GRACE_SECONDS: Final = 1.0
BURST_PAUSE_SECONDS: Final = 0.1
LEAST_LEASE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker."""

    name: str = ""  # what servers show; default: HOST/PID
    tags: tuple[str, ...] = ()  # jobs that require these are run too
    resources: str = ""  # and jobs that require so much, as far as it is free: memory=64G,cores=8
    drain_seconds: float = 30.0  # when it stops by itself
    lease_seconds: float = 15.0
    kill_after_seconds: float = 5.0
    jobs_per_process: int = 0  # 0: any number
    autoscale: AutoscaleLimits | None = None  # how many processes there may be; None: always all
    memory_per_process_bytes: int = 0  # a child with more resident memory after a job is replaced; 0: any amount
    hard_memory_per_process_bytes: int = 0  # a child that has more at any time is killed, and its job is lost
    restart_after: int = 0  # stop after this many jobs, to be restarted; 0: never
    prefetch: int | None = None  # how many jobs may wait here for a free thread; None: as many as seems good
    burst: bool = False  # stop when no job is ready
    counts_interruptions: bool = False  # what still runs when it stops counts as lost, and is not just released
    log_format: str = "text"  # of child processes; see switchgear.log_format
    log_level: str = ""  # child processes log from this level on, unless the app says otherwise; empty: it decides
    backoff: ReconnectBackoff = field(default_factory=ReconnectBackoff)  # between attempts to connect

    def __post_init__(self) -> None:
        try:
            canonical_tags(self.tags)
            canonical_resources(self.resources)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if self.prefetch is not None and not 0 <= self.prefetch <= MOST_PREFETCH:
            raise ConfigError(f"prefetch is a number of jobs from 0 to {MOST_PREFETCH}, not {self.prefetch}")
        if self.lease_seconds < LEAST_LEASE_SECONDS:
            raise ConfigError(f"a lease of {self.lease_seconds:g} s is too short; {LEAST_LEASE_SECONDS} s is the least")


class AppWorker:
    """Runs the jobs of an app's tasks until it is stopped. It works in background threads; `start` returns at once."""

    def __init__(
        self,
        app: App,
        executor_choice: ExecutorChoice,
        settings: WorkerSettings | None = None,
        observer: AppWorkerObserver | None = None,
        *,
        locations: Sequence[ServerLocation] | None = None,
        target: str = "",
    ) -> None:
        """`locations` are the servers, if not those of the app; `target` is the app as MODULE:APP, for processes."""
        self.settings = settings or WorkerSettings()
        self.end_reason = ""  # why it stopped: stop, restart, burst, or another word given to `stop`
        self.finished_jobs = 0
        self.left_behind = False  # something still runs that could not be stopped
        self._observer = observer or AppWorkerObserver()
        self.locations = list(locations if locations is not None else app.locations)
        self._child_urls = [location.url for location in locations or ()]
        self._declarations = app.declarations()
        self._declared_tasks = app.tasks
        self._hooks = app.hooks
        self._runs_here = bool(executor_choice.in_threads or executor_choice.in_loop)
        for task in (*executor_choice.in_threads.values(), *executor_choice.in_loop.values()):
            app.hooks.resources.check(task.name, task.injected_kinds, is_async=task.is_async)
        self._executor_choice = executor_choice
        self._target = target
        self._name = self.settings.name or f"{socket.gethostname()}/{os.getpid()}"
        self._pools: list[SlotPool] = []
        self._autoscaler: ProcessAutoscaler | None = None
        self._interrupted = DisconnectedAttempts()
        self._control = RemoteControl(self, app.hooks.broadcast, self._observer)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event
        self._deadline_over: asyncio.Event
        self._changed: asyncio.Event
        self._at_once = False
        self._stop_asked: tuple[float, str] | None = None
        self._opened = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="switchgear-worker", daemon=True)

    @property
    def has_processes(self) -> bool:
        """Whether it runs tasks in child processes."""
        return bool(self._executor_choice.in_processes)

    # --- from any thread ---

    def start(self) -> None:
        """Start the threads of the worker.  To be called once."""
        self._thread.start()
        self._opened.wait()

    def stop(self, drain_seconds: float, reason: str = "stop") -> None:
        """Take no more jobs, and end when those that run have ended, or after this time.

        Jobs that still run then are cancelled (processes are killed), and released to the server.  Another
        call may shorten the time; with 0 there is no waiting at all.
        """
        self._stop_asked = (drain_seconds, reason)
        loop = self._loop
        if loop is not None and not self._ended.is_set():
            try:
                loop.call_soon_threadsafe(self._begin_stop, drain_seconds, reason)
            except RuntimeError:
                pass  # it has just ended

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end; returns whether it came within this time.  Raises the exception that ended the worker, if
        any."""
        if not self._ended.wait(timeout_seconds):
            return False
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return True

    @property
    def connected(self) -> bool:
        """Whether jobs may come from every server to every pool."""
        return bool(self._pools) and all(
            connection.subscribed for pool in self._pools for connection in pool.connections
        )

    @property
    def running_jobs(self) -> list[str]:
        """The jobs that run now, as people read them: with handle and function."""
        attempts = [attempt for pool in self._pools for attempt in list(pool.attempts)]
        return [f"{attempt.handle} ({attempt.assignment.function})" for attempt in attempts]

    @property
    def is_stopping(self) -> bool:
        """Whether the worker takes no more jobs."""
        return self._stop_asked is not None or bool(self.end_reason)

    def resize(self, pool: SlotPool, slots: int) -> str:
        """Give a pool another number of slots; processes have one together.  Returns why that is impossible, or an
        empty text.  To be called in the I/O thread."""
        if isinstance(pool.executor, ProcessExecutor):
            if self._autoscaler is None:
                return "the processes of this worker have a fixed number; --autoscale MIN,MAX lets it be changed"
            return self._autoscaler.use_limit(slots)
        pool.executor.slots = slots
        pool.rebalance()
        return ""

    @property
    def labels(self) -> list[str]:
        """The labels of the pools, which are the last part of their names at the servers."""
        return [pool.label for pool in self._pools]

    # --- in the I/O thread ---

    def _serve(self) -> None:
        try:
            # Not uvloop, which may start its own threads: a process that a task forks would crash at its end because of
            # them.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._failure = error
            self._observer.note(f"the worker has ended through a defect: {error!r}", is_problem=True)
        finally:
            self._opened.set()
            self._ended.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._hooks.start_worker()
        if self._runs_here:
            self._hooks.start_process()
        self._stopping, self._deadline_over, self._changed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._pools = self._make_pools()
        for pool in self._pools:
            pool.open(self._loop)
        connections = [asyncio.create_task(connection.run()) for pool in self._pools for connection in pool.connections]
        helpers = [asyncio.create_task(self._stop_when_empty())] if self.settings.burst else []
        if self._autoscaler is not None:
            helpers.append(asyncio.create_task(self._autoscale(self._autoscaler)))
        if self._stop_asked is not None:  # before there was a loop
            self._begin_stop(*self._stop_asked)
        self._opened.set()
        try:
            await self._until_stopped(connections, helpers)
            await self._drain()
        finally:
            for task in (*connections, *helpers):
                task.cancel()
            await asyncio.gather(*connections, *helpers, return_exceptions=True)
            closed = await asyncio.gather(*(pool.executor.close() for pool in self._pools))
            self.left_behind = not all(closed)
            if self._runs_here:
                self._hooks.stop_process()
            await self._hooks.stop_worker()

    async def _until_stopped(self, connections: list[asyncio.Task[None]], helpers: list[asyncio.Task[None]]) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopping, *connections, *helpers}, return_when=asyncio.FIRST_COMPLETED)
            if not self._stopping.is_set():
                for task in (*connections, *helpers):
                    if task.done():
                        task.result()  # none ends by itself, except through a defect, which is raised here
        finally:
            stopping.cancel()

    def _begin_stop(self, drain_seconds: float, reason: str) -> None:
        assert self._loop is not None
        if not self._stopping.is_set():
            self.end_reason = reason
            self._stopping.set()
            for pool in self._pools:
                pool.stop_taking()
        if drain_seconds <= 0:
            self._at_once = True
            self._deadline_over.set()
        else:
            self._loop.call_later(drain_seconds, self._deadline_over.set)

    async def _drain(self) -> None:
        await self._until_idle(self._deadline_over)
        if not self._is_idle:
            for pool in self._pools:
                pool.give_up()
            await self._until_idle(None, 0.0 if self._at_once else GRACE_SECONDS)
            if not self.settings.counts_interruptions:
                for pool in self._pools:
                    pool.release_rest()
        await asyncio.gather(*(connection.confirm_reports() for pool in self._pools for connection in pool.connections))
        for pool in self._pools:
            pool.lose_rest()  # after the confirmation, because it ends connections

    @property
    def _is_idle(self) -> bool:
        return all(pool.is_idle for pool in self._pools)

    async def _until_idle(self, given_up: asyncio.Event | None, seconds: float | None = None) -> None:
        async def watch() -> None:
            while not self._is_idle:
                self._changed.clear()
                await self._changed.wait()

        watching = asyncio.create_task(watch())
        giving_up = asyncio.create_task(given_up.wait()) if given_up is not None else None
        tasks = {watching} if giving_up is None else {watching, giving_up}
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _on_change(self, is_finished: bool) -> None:
        self._changed.set()
        if is_finished:
            self.finished_jobs += 1
            if self.settings.restart_after and self.finished_jobs == self.settings.restart_after:
                self._begin_stop(self.settings.drain_seconds, "restart")

    def _on_process_change(self, is_finished: bool) -> None:
        if self._autoscaler is not None:
            self._autoscaler.attempt_ended()
        self._on_change(is_finished)

    async def _autoscale(self, autoscaler: ProcessAutoscaler) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            autoscaler.check(loop.time())
            await asyncio.sleep(CHECK_SECONDS)
        await asyncio.Event().wait()  # `_until_stopped` sees the stop

    # --- pools ---

    def _make_pools(self) -> list[SlotPool]:
        executor_choice, settings = self._executor_choice, self.settings
        pools: list[SlotPool] = []
        if executor_choice.in_threads:
            pools.append(
                self._new_pool(
                    "threads", ThreadExecutor(executor_choice.slots), executor_choice.in_threads, is_first=True
                )
            )
        if executor_choice.in_loop:
            executor: Executor = AsyncExecutor(executor_choice.async_slots, self._hooks.close_loop)
            pools.append(self._new_pool("asyncio", executor, executor_choice.in_loop, is_first=not pools))
        if executor_choice.in_processes:
            process_pools = self._make_process_pools(has_first=bool(pools))
            pools += [pool for pool, _ in process_pools]
            if settings.autoscale is not None:
                self._autoscaler = ProcessAutoscaler(settings.autoscale, process_pools, self._observer)
        return pools

    def _make_process_pools(self, *, has_first: bool) -> list[tuple[SlotPool, ProcessExecutor]]:
        settings, tasks = self.settings, self._executor_choice.in_processes
        pools: list[tuple[SlotPool, ProcessExecutor]] = []
        for number in range(1, self._executor_choice.processes + 1):
            executor = ProcessExecutor(
                self._target,
                self._child_urls,
                jobs_limit=settings.jobs_per_process,
                memory_limit_bytes=settings.memory_per_process_bytes,
                hard_memory_limit_bytes=settings.hard_memory_per_process_bytes,
                kill_after_seconds=settings.kill_after_seconds,
                log_level=settings.log_level,
                log_format=settings.log_format,
            )
            is_first = not has_first and number == 1
            pools.append((self._new_pool(f"process-{number}", executor, tasks, is_first=is_first), executor))
        return pools

    def _new_pool(
        self, label: str, executor: Executor, chosen: dict[str, Task[Any, Any]], *, is_first: bool
    ) -> SlotPool:
        """`is_first`: it declares what concerns no single task."""
        tasks = CurrentTasks(chosen, self._declared_tasks)
        control = self._control
        introduction = WorkerIntroduction(
            name=f"{self._name}/{label}",
            functions={name: task.settings.timeout or 0.0 for name, task in tasks.items()},
            declarations=[
                (verb, arguments)
                for verb, arguments in self._declarations
                if (arguments["function"] in tasks if "function" in arguments else is_first)
            ],
            lease_seconds=self.settings.lease_seconds,
            references=lambda function, payload: references_of(tasks[function], payload),
            tags=self.settings.tags,
            resources=self.settings.resources,
            status=lambda: control.status(label, executor),
        )
        return SlotPool(
            label,
            executor,
            tasks,
            self.locations,
            introduction,
            self._observer,
            self._on_process_change if isinstance(executor, ProcessExecutor) else self._on_change,
            self.settings.backoff,
            prefetch=self._prefetch(tasks),
            counts_interruptions=self.settings.counts_interruptions,
            on_control=control.carry_out,
            interrupted=self._interrupted,
        )

    def _prefetch(self, tasks: CurrentTasks) -> Prefetch:
        wanted, last = self.settings.prefetch, self.settings.restart_after
        # Most prefetched jobs have run before their number is noticed.
        return Prefetch(wanted, tasks.values(), last // 10) if last else Prefetch(wanted, tasks.values())

    # --- until the queues are empty ---

    async def _stop_when_empty(self) -> None:
        """Stop when no job runs here and no server has a ready job for this worker."""
        while not self._stopping.is_set():
            arrivals = self._arrivals
            if self.connected and self._is_idle and await self._all_empty() and arrivals == self._arrivals:
                self._begin_stop(self.settings.drain_seconds, "burst")
                return
            await asyncio.sleep(BURST_PAUSE_SECONDS)
        await asyncio.Event().wait()  # `_until_stopped` sees the stop

    @property
    def _arrivals(self) -> int:
        return sum(pool.assigned_jobs for pool in self._pools)

    async def _all_empty(self) -> bool:
        """Ask all servers whether jobs are ready.  Jobs that they push because of their credit come before the
        answer."""
        pairs: list[tuple[SlotPool, WorkerConnection[Attempt]]] = [
            # A pool that rests does not ask; the others of its kind do.
            (pool, connection)
            for pool in self._pools
            if not pool.executor.resting
            for connection in pool.connections
        ]
        for pool, connection in pairs:
            pool.ready_jobs.pop(connection, None)
            if connection.protocol.extended:
                connection.protocol.count_ready_jobs()
        await asyncio.gather(*(connection.confirm_reports() for _, connection in pairs))
        return self._is_idle and all(
            pool.ready_jobs.get(connection) == 0 if connection.protocol.extended else connection.protocol.sleeps
            for pool, connection in pairs
        )
