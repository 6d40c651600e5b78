"""Jobs in threads and coroutines, without a server: which are begun, and when that and their ends are told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

from switchgear.app.app import App
from switchgear.app.worker.async_executor import AsyncExecutor
from switchgear.app.worker.executor import Attempt, ExecutorOwner
from switchgear.app.worker.thread_executor import ThreadExecutor
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Outcome, Stopped
from tests.app.worker.test_batches import URL, in_a_loop
from tests.support.waiting import DEADLINE_SECONDS

# --- in threads ---


class Listener(ExecutorOwner):
    """Hears of ends, in the loop."""

    def __init__(self) -> None:
        self.ends: dict[str, Outcome] = {}
        self.has_ended: dict[str, threading.Event] = {}
        self.in_vain = threading.Event()
        self.failures = 0  # how often it is still to raise when something waits in vain
        self.begun: list[str] = []
        self.changed = asyncio.Event()

    def attempts_ended(self, ends: Sequence[tuple[Attempt, Outcome]]) -> None:
        for attempt, outcome in ends:
            assert attempt.handle not in self.ends
            self.ends[attempt.handle] = outcome
            if attempt.handle in self.has_ended:
                self.has_ended[attempt.handle].set()
        self.changed.set()

    def attempt_lost(self, attempt: Attempt, problem: str) -> None: ...

    def attempts_begun(self, attempts: Sequence[Attempt]) -> None:
        self.begun += [attempt.handle for attempt in attempts]
        self.changed.set()

    def waiting_long(self) -> None: ...

    def held_too_long(self) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a defect")
        self.in_vain.set()

    def readiness_changed(self) -> None: ...

    def note(self, text: str) -> None: ...

    async def until_ended(self, *handles: str) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not all(handle in self.ends for handle in handles):
                self.changed.clear()
                await self.changed.wait()


class Threads:
    """An executor, and attempts of functions that a test gives it."""

    def __init__(self, slots: int) -> None:
        self.listener = Listener()
        self.executor = ThreadExecutor(slots)
        self.executor.open(self.listener, asyncio.get_running_loop())
        self._app = App(URL)
        self._count = 0

    def start(self, function: Callable[[], object], *, is_quick: bool = True) -> Attempt:
        self._count += 1
        task = self._app.task(name=f"task-{self._count}")(function)
        handle = f"H:{self._count}"
        attempt = Attempt(AssignedJob(handle, task.name, b"{}"), cast(Any, task), asyncio.get_running_loop())
        attempt.is_quick = is_quick
        self.executor.start(attempt)
        return attempt


def waits_for(event: threading.Event) -> Callable[[], bool]:
    def wait() -> bool:
        return event.wait(DEADLINE_SECONDS)

    return wait


@in_a_loop
async def test_a_quick_job_that_is_not_quick_does_not_hold_up_those_behind_it() -> None:
    threads = Threads(2)
    event = threading.Event()

    def release() -> bool:
        event.set()
        return True

    threads.start(waits_for(event))
    threads.start(release)
    await threads.listener.until_ended("H:1", "H:2")
    assert set(threads.listener.ends.values()) == {Complete(b"true")}
    assert await threads.executor.close()


@in_a_loop
async def test_an_end_is_told_although_the_next_job_takes_long() -> None:
    threads = Threads(1)
    told = threads.listener.has_ended["H:1"] = threading.Event()
    threads.start(lambda: True)
    threads.start(waits_for(told))
    await threads.listener.until_ended("H:1", "H:2")
    assert threads.listener.ends["H:2"] == Complete(b"true")
    assert await threads.executor.close()


@in_a_loop
async def test_jobs_that_take_long_run_at_the_same_time() -> None:
    threads = Threads(3)
    together = threading.Barrier(3)

    def meet() -> bool:
        together.wait(DEADLINE_SECONDS)
        return True

    for _ in range(3):
        threads.start(meet, is_quick=False)
    await threads.listener.until_ended("H:1", "H:2", "H:3")
    assert set(threads.listener.ends.values()) == {Complete(b"true")}
    assert await threads.executor.close()


@in_a_loop
async def test_a_thousand_quick_jobs_are_each_run_once() -> None:
    threads = Threads(4)
    runs: list[int] = []
    for number in range(1000):
        threads.start(lambda number=number: runs.append(number))  # type: ignore[misc]
    await threads.listener.until_ended(*(f"H:{number}" for number in range(1, 1001)))
    assert sorted(runs) == list(range(1000))
    assert await threads.executor.close()


@in_a_loop
async def test_a_job_that_is_withdrawn_or_cancelled_before_its_turn_is_not_run() -> None:
    threads = Threads(1)
    begun, event = threading.Event(), threading.Event()
    runs: list[str] = []

    def hold() -> bool:
        begun.set()
        return event.wait(DEADLINE_SECONDS)

    running = threads.start(hold)
    assert await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)
    withdrawn = threads.start(lambda: runs.append("withdrawn"))
    cancelled = threads.start(lambda: runs.append("cancelled"))
    threads.start(lambda: runs.append("last"))
    assert [attempt.handle for attempt in threads.executor.waiting()] == ["H:2", "H:3", "H:4"]
    assert threads.executor.withdraw(withdrawn)
    assert not threads.executor.withdraw(running)
    cancelled.job.cancel("cancelled")
    threads.executor.cancel(cancelled, hard=False)
    await threads.listener.until_ended("H:3")
    assert threads.listener.ends["H:3"] == Stopped("cancelled")
    event.set()
    await threads.listener.until_ended("H:1", "H:4")
    assert runs == ["last"]
    assert await threads.executor.close()


@in_a_loop
async def test_it_is_told_when_nothing_that_waits_is_begun() -> None:
    threads = Threads(1)
    threads.start(waits_for(threads.listener.in_vain))
    threads.start(lambda: True)
    await threads.listener.until_ended("H:1", "H:2")
    assert threads.listener.in_vain.is_set()
    assert await threads.executor.close()


@in_a_loop
async def test_it_is_told_when_one_waits_for_long_although_others_are_begun() -> None:
    threads = Threads(1)
    for _ in range(40):
        threads.start(lambda: threads.listener.in_vain.wait(0.005))
    await threads.listener.until_ended(*(f"H:{number}" for number in range(1, 41)))
    assert threads.listener.in_vain.is_set()
    assert await threads.executor.close()


@in_a_loop
async def test_jobs_are_watched_again_after_a_defect() -> None:
    threads = Threads(1)
    threads.listener.failures = 1
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    threads.start(waits_for(threads.listener.in_vain))
    threads.start(lambda: True)
    await threads.listener.until_ended("H:1", "H:2")
    assert threads.listener.ends["H:1"] == Complete(b"true")
    assert await threads.executor.close()


@in_a_loop
async def test_it_is_told_which_jobs_are_begun_and_of_no_others() -> None:
    threads = Threads(1)
    event = threading.Event()
    for is_quick in (False, True):
        threads.start(waits_for(event), is_quick=is_quick)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not threads.listener.begun:
            threads.listener.changed.clear()
            await threads.listener.changed.wait()
    assert threads.listener.begun == ["H:1"]
    event.set()
    await threads.listener.until_ended("H:1", "H:2")
    assert await threads.executor.close()


class LockThatComesLate:
    """When we get it, a thread that was about to sleep has found work after all."""

    def __init__(self, executor: ThreadExecutor) -> None:
        self._executor = executor

    def __enter__(self) -> None:
        self._executor._awake = self._executor.slots

    def __exit__(self, *error: object) -> None: ...


@in_a_loop
async def test_no_more_threads_are_woken_than_there_are_slots() -> None:
    threads = Threads(1)
    event = threading.Event()
    threads.start(waits_for(event), is_quick=False)
    lock, threads.executor._lock = threads.executor._lock, cast(Any, LockThatComesLate(threads.executor))
    threads.executor._awake = 0
    threads.start(waits_for(event), is_quick=False)
    threads.executor._lock = lock
    assert threads.executor._awake == 1
    event.set()
    await threads.listener.until_ended("H:1", "H:2")
    assert await threads.executor.close()


# --- in an event loop ---


@in_a_loop
async def test_the_end_of_a_coroutine_is_told_although_the_next_one_blocks_the_loop() -> None:
    listener, executor = Listener(), AsyncExecutor(2)
    executor.open(listener, asyncio.get_running_loop())
    told = listener.has_ended["H:1"] = threading.Event()
    app = App(URL)

    @app.task(name="first")
    async def first() -> bool:
        return True

    @app.task(name="second")
    async def second() -> bool:
        return told.wait(DEADLINE_SECONDS)

    loop = asyncio.get_running_loop()
    attempts = [
        Attempt(AssignedJob(f"H:{number}", task.name, b"{}"), cast(Any, task), loop)
        for number, task in enumerate((first, second), start=1)
    ]
    for attempt in attempts:
        executor._starts.put_quietly(attempt)
    executor._starts.call()  # both are begun in one turn of the jobs' loop
    await listener.until_ended("H:1", "H:2")
    assert listener.ends["H:2"] == Complete(b"true")
    assert await executor.close()
