"""An app for workers in tests.  What its tasks do can be seen, and let go on, from outside: by files in a directory."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from switchgear.app.app import App
from switchgear.app.current_job import Retry, current_job
from switchgear.app.soft_timeout import SoftTimeout

PAUSE_SECONDS = 0.005
NOWHERE = "gearman://127.0.0.1:1"


def add(a: int, b: int = 1) -> int:
    current_job().progress(1, 2, "adding")
    return a + b


async def add_async(a: int, b: int = 1) -> int:
    current_job().progress(1, 2, "adding")
    await asyncio.sleep(0)
    return a + b


def await_word(place: str) -> str:
    """Notes each run, sleeps, and waits for a signal."""
    _note(place, "runs")
    current_job().sleep(0.05)
    return current_job().wait_for("word", kind=str)


async def await_word_async(place: str) -> str:
    _note(place, "runs")
    await current_job().sleep_async(0.05)
    return await current_job().wait_for_async("word", kind=str)


def process_id() -> int:
    return os.getpid()


KEPT: list[bytes] = []


def leak(megabytes: int, message: str = "") -> int:
    """Keeps so much memory for good, and says in which process; fails with the message, if there is one."""
    KEPT.append(b"x" * (megabytes * 10**6))
    if message:
        raise ValueError(message)
    return os.getpid()


def leak_and_hold(megabytes: int, place: str) -> None:
    _note(place, "called")
    KEPT.append(b"x" * (megabytes * 10**6))
    hold(place)


def fail(message: str) -> None:
    raise ValueError(message)


def flaky(failures: int) -> int:
    """Fails as often as it is told to, and then says which attempt this is."""
    if current_job().attempt <= failures:
        raise OSError(f"attempt {current_job().attempt}")
    return current_job().attempt


def ask_again(delay: float) -> int:
    if current_job().attempt == 1:
        raise Retry("not yet", delay=delay)
    return current_job().attempt


def _note(place: str, word: str) -> None:
    with (Path(place) / word).open("a") as file:
        file.write(f"{current_job().attempt}\n")


def hold(place: str) -> str:
    """Until it may go on, or is not wanted any more."""
    _note(place, "started")
    job = current_job()
    while not (Path(place) / "go").exists():
        if job.cancelled:
            _note(place, f"stopped {job.cancel_reason}")
            job.raise_if_cancelled()
        time.sleep(PAUSE_SECONDS)
    return "finished"


def hold_and_fail(place: str) -> None:
    hold(place)
    raise ValueError("as it was told")


async def hold_async(place: str) -> str:
    _note(place, "started")
    try:
        for _ in itertools.takewhile(lambda _: not (Path(place) / "go").exists(), itertools.count()):
            await asyncio.sleep(PAUSE_SECONDS)
    except asyncio.CancelledError:
        _note(place, f"stopped {current_job().cancel_reason}")
        raise
    return "finished"


def linger(place: str, *, is_caught: bool = False) -> str:
    """Runs until its soft time limit is over."""
    try:
        while True:
            time.sleep(PAUSE_SECONDS)
    except SoftTimeout:
        _note(place, "cleaned up")
        if is_caught:
            return "in part"
        raise


async def linger_async(place: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        _note(place, "cleaned up")


def ignore(place: str) -> str:
    """Does not look whether it is wanted, but can be interrupted."""
    _note(place, "started")
    try:
        while not (Path(place) / "go").exists():
            time.sleep(PAUSE_SECONDS)
    finally:
        _note(place, "cleaned up")
    return "finished"


def resist(place: str) -> str:
    """Only KILL ends it."""
    _note(place, "started")
    while not (Path(place) / "go").exists():
        try:
            while not (Path(place) / "go").exists():
                time.sleep(PAUSE_SECONDS)
        except BaseException:
            _note(place, "would not stop")
    return "finished"


async def resist_async(place: str) -> str:
    """The same for a coroutine."""
    _note(place, "started")
    while not (Path(place) / "go").exists():
        try:
            await asyncio.sleep(1000.0)
        except asyncio.CancelledError:
            _note(place, "would not stop")
    return "finished"


async def hold_in_pool(place: str) -> str:
    """In a thread that cannot be stopped."""
    return await asyncio.to_thread(resist, place)


async def leave_an_exit(seconds: float) -> str:
    """Leaves something in the event loop that ends it."""
    asyncio.get_running_loop().call_soon(sys.exit, 5)
    await asyncio.sleep(seconds)
    return "finished"


def repeat(text: str, times: int) -> str:
    return text * times


def shout(text: str) -> None:
    print(text)


def log_and_print(text: str) -> None:
    logging.getLogger("shop.mail").info("info %s", text)
    logging.getLogger("shop.mail").debug("debug %s", text)
    print(f"printed {text}")
    subprocess.run(["/bin/echo", "echoed", text], check=True)


def burn(seconds: float) -> int:
    """Holds on to the interpreter as long as it is let."""
    end = time.monotonic() + seconds
    turns = 0
    while time.monotonic() < end:
        turns += sum(range(100))
    return turns


def die(place: str) -> None:
    _note(place, "started")
    os._exit(3)


def total(numbers: list[int]) -> int:
    return sum(numbers)


def chatter(times: int) -> int:
    for number in range(times):
        current_job().progress(number + 1, times)
    return times


def hand_on(number: int) -> str:
    return app.tasks["add"].submit(number).handle


def count_threads() -> int:
    return threading.active_count()


def make_app(url: str = NOWHERE) -> App:
    app = App(url)
    here: list[Callable[..., Any]] = [
        await_word,
        await_word_async,
        add,
        add_async,
        fail,
        hold,
        hold_and_fail,
        hold_async,
        hold_in_pool,
        resist,
        burn,
    ]
    here += [leave_an_exit, total, chatter, count_threads, repeat, hand_on, log_and_print]
    for function in here:
        app.task(name=function.__name__)(function)
    app.task(name="flaky", retries=3, backoff=0.02, jitter=False)(flaky)
    app.task(name="ask_again", retries=1, backoff=100.0)(ask_again)
    app.task(name="hold_limited", timeout=0.2)(hold)
    in_processes: list[Callable[..., Any]] = [
        await_word,
        add,
        process_id,
        hold,
        hold_async,
        ignore,
        resist,
        resist_async,
    ]
    in_processes += [leak, leave_an_exit, count_threads, chatter, repeat, shout, hand_on, log_and_print]
    for function in in_processes:
        app.task(name=f"{function.__name__}_in_process", run_in="process")(function)
    app.task(name="resist_limited_in_process", run_in="process", timeout=0.2, retries=1)(resist)
    for function in (linger, linger_async):
        app.task(name=function.__name__, soft_timeout=0.1, timeout=60)(function)
        app.task(name=f"{function.__name__}_in_process", run_in="process", soft_timeout=0.1)(function)
    app.task(name="leak_and_hold_in_process", run_in="process", crash_limit=2)(leak_and_hold)
    app.task(name="die_in_process", run_in="process", crash_limit=2)(die)
    return app


app = make_app(os.environ.get("SWITCHGEAR_URL", NOWHERE))
