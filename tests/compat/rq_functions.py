"""Functions of a program for RQ."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from switchgear.compat.rq import get_current_job, job

calls: list[Any] = []


def count_words(text: str, times: int = 1) -> int:
    return len(text.split()) * times


def next_day(day: datetime) -> datetime:
    return day.replace(day=day.day + 1)


def flaky() -> str:
    calls.append("flaky")
    if len(calls) < 3:
        raise ConnectionError("no line")
    return "at last"


def broken() -> None:
    raise ValueError("broken")


def run_for_ever(place: str) -> None:
    try:
        while True:
            sum(range(1000))
    finally:
        Path(place).touch()


def note(*args: Any) -> None:
    calls.append(args)


def with_progress() -> str:
    running = get_current_job()
    assert running is not None
    running.meta["progress"] = 50
    running.save_meta()
    return f"{running.id} {type(running).fetch(running.id, running.connection).meta}"


def report_success(job: Any, connection: Any, result: Any) -> None:
    calls.append(("success", job.id, result))


def report_failure(job: Any, connection: Any, kind: Any, value: Any, traceback: Any) -> None:
    calls.append(("failure", kind, str(value)))


@job("low", connection="gearman://127.0.0.1:1", timeout=5)
def decorated(x: int, y: int) -> int:
    return x + y
