"""The records of the job log: registered tasks, logged runs, queries, summaries, and their columns."""

from __future__ import annotations

import math
import re
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import time as now
from typing import Any, Final, Literal, TypeAlias

__all__ = [
    "COLUMNS",
    "FunctionSummary",
    "LoggedRun",
    "LoggedStart",
    "Outcome",
    "RegisteredTask",
    "RunQuery",
    "RunRow",
    "TaskResult",
    "microseconds",
    "readable",
    "result_fields",
    "run_from_row",
    "start_line",
    "starts_of",
    "summary_from_row",
]

# Job number, submitted, started, ended, attempts, result code, state, function, unique key or name, origin, protocol,
# error, message, worker, its address, lines of starts, trace: the columns of a server's job, in the order of the
# statement put_runs.
RunRow: TypeAlias = tuple[int, int, int, int, int, int, str, str, str, str, str, str, str, str, str, str, str]

Moment: TypeAlias = float | datetime | None
TaskResult: TypeAlias = int | bytes | str | BaseException | None
Outcome: TypeAlias = Literal["any", "failed", "unfinished"]

# The columns after the id, in the order in which a run is read and written.
COLUMNS: Final = (
    "submitted_us",
    "started_us",
    "ended_us",
    "at_us",
    "attempts",
    "result_code",
    "source",
    "state",
    "function",
    "unique_key",
    "handle",
    "run",
    "host",
    "process",
    "origin",
    "protocol",
    "error",
    "result",
    "worker",
    "worker_host",
    "starts",
    "trace",
)

# A stack trace fits; a worker that answers with megabytes must not fill the log with them.
LONGEST_TEXT: Final = 4096
# Longer than any sensible name, and short enough for an index of PostgreSQL (2,700 bytes, up to 4 per letter).
LONGEST_NAME: Final = 512

SECOND_US: Final = 1_000_000
START_WORDS: Final = 4
LATEST_US: Final = 2**62
LARGEST_CODE: Final = 2**63 - 1

_HANDLE: Final = re.compile(r".+:[0-9]+")


@dataclass(frozen=True, slots=True)
class RegisteredTask:
    """A task that a worker registers.  A start and a result belong together if their tasks have the same `id`.

    A task may be passed on: to the process, perhaps on another host, that will know the result.
    """

    function: str
    key: str = ""  # the object of the task, such as the unique key of a job
    handle: str = ""  # of the job, if it came from a server
    host: str = field(default_factory=socket.gethostname)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def named(cls, text: str) -> RegisteredTask:
        """A new run of the task that the text names: a handle, which ends in a colon and a number, or a function."""
        return cls("", handle=text) if _HANDLE.fullmatch(text) else cls(text)


@dataclass(frozen=True, slots=True)
class LoggedStart:
    """One attempt of a job: when it began, and on which worker."""

    started_at: float  # seconds since the epoch
    protocol: str
    worker: str
    worker_host: str


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One row of the log.  Times are seconds since the epoch, or None."""

    id: int
    function: str
    key: str  # the unique key of a job, or its name if it has none
    state: str  # running, done, failed, cancelled, expired; ready and the like while it waits for another attempt
    submitted_at: float | None
    started_at: float | None  # of the last attempt
    ended_at: float | None
    attempts: int
    result_code: int  # 0 is success
    error: str
    result: str  # of a task; of a server's job the last message of its worker, because its result is in the store
    handle: str
    host: str
    process: str
    source: str  # "server", or "worker" for a task that was registered
    origin: str
    protocol: str
    worker: str = ""  # of the last attempt: its name, or what the server has called it
    worker_host: str = ""  # the address that it came from
    starts: tuple[LoggedStart, ...] = ()  # every attempt of a server's job, the last ones if there were very many
    trace: str = ""  # the traceparent of the submitter's span

    @property
    def seconds(self) -> float | None:
        """How long the last attempt took; None if it has not started or not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, round(self.ended_at - self.started_at, 6))  # as exact as the times are

    @property
    def is_unfinished(self) -> bool:
        """Whether the run has started and not ended, as far as the log knows."""
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list: newest first, `limit` at a time, the next page below `before_id`.

    A run happens when it starts, or, if it never does, when it ends.
    """

    function: str | None = None
    key: str | None = None
    handle: str | None = None
    host: str | None = None
    since: float | datetime | None = None  # at or after
    until: float | datetime | None = None  # before
    outcome: Outcome = "any"
    before_id: int = 0  # 0: from the newest
    limit: int = 100
    every: int = 1  # of very many runs only every so manieth, by their ids

    def conditions(self) -> tuple[str, dict[str, Any]]:
        """The WHERE clause of the query, and its values."""
        terms: list[str] = []
        values: dict[str, Any] = {}

        def require(term: str, name: str, value: object) -> None:
            terms.append(term)
            values[name] = value

        if self.outcome == "failed":
            terms.append("state = 'failed'")
        elif self.outcome == "unfinished":
            terms.append("ended_us = 0")
        for column, wanted in (("function", self.function), ("unique_key", self.key), ("host", self.host)):
            if wanted is not None:
                require(f"{column} = :{column}", column, readable(wanted, LONGEST_NAME))
        if self.handle is not None:
            require("handle = :handle", "handle", readable(self.handle, LONGEST_NAME))
        if self.since is not None:
            require("at_us >= :since_us", "since_us", microseconds(self.since))
        if self.until is not None:
            require("at_us < :until_us", "until_us", microseconds(self.until))
        if self.before_id:
            require("id < :before_id", "before_id", self.before_id)
        if self.every > 1:  # written so that every database understands it
            require("id - (id / :every) * :every = 0", "every", self.every)
        return f"WHERE {' AND '.join(terms)}" if terms else "", values


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """The figures of one function. Durations are in seconds, and None where no run has both start and end."""

    function: str
    runs: int
    ok: int
    failed: int
    unfinished: int
    mean_seconds: float | None
    p50_seconds: float | None
    p99_seconds: float | None
    longest_seconds: float | None
    first_at: float
    last_at: float

    @property
    def other(self) -> int:
        """How many runs were cancelled, or expired before they were started."""
        return self.runs - self.ok - self.failed - self.unfinished


def run_from_row(row: Sequence[Any]) -> LoggedRun:
    """The run of a row: its id and `COLUMNS`."""
    fields = dict(zip(COLUMNS, row[1:], strict=True))
    return LoggedRun(
        id=row[0],
        function=fields["function"],
        key=fields["unique_key"],
        state=fields["state"],
        submitted_at=_seconds(fields["submitted_us"]),
        started_at=_seconds(fields["started_us"]),
        ended_at=_seconds(fields["ended_us"]),
        attempts=fields["attempts"],
        result_code=fields["result_code"],
        error=fields["error"],
        result=fields["result"],
        handle=fields["handle"],
        host=fields["host"],
        process=fields["process"],
        source=fields["source"],
        origin=fields["origin"],
        protocol=fields["protocol"],
        worker=fields["worker"],
        worker_host=fields["worker_host"],
        starts=tuple(starts_of(fields["starts"]).values()),
        trace=fields["trace"],
    )


def start_line(started_us: int, protocol: str, worker: str, worker_host: str) -> str:
    """A start as the log has it; see `starts_of`."""
    return f"{started_us}\t{protocol}\t{worker}\t{worker_host}\n"


def starts_of(lines: str) -> dict[int, LoggedStart]:
    """The starts in some lines, by their microseconds since the epoch; each once, though a line may have been written
    twice, and without a first line that was cut."""
    found: dict[int, LoggedStart] = {}
    for line in lines.split("\n"):
        words = line.split("\t")
        if len(words) == START_WORDS and words[0].isdigit():
            found[int(words[0])] = LoggedStart(int(words[0]) / SECOND_US, words[1], words[2], words[3])
    return found


def summary_from_row(row: Sequence[Any]) -> FunctionSummary:
    """The summary of a row of the statement `summary`."""
    function, runs, ok, failed, unfinished, first_us, last_us, *durations_us = row
    mean, longest, p50, p99 = (None if us is None else us / SECOND_US for us in durations_us)
    first, last = first_us / SECOND_US, last_us / SECOND_US
    return FunctionSummary(function, runs, ok, failed, unfinished, mean, p50, p99, longest, first, last)


def _seconds(time_us: int) -> float | None:
    return time_us / SECOND_US if time_us else None


def microseconds(moment: Moment) -> int:
    """Microseconds since the epoch of seconds or a datetime (local if it names no zone); None is now."""
    if moment is None:
        moment = now()
    if isinstance(moment, datetime):
        moment = moment.timestamp()
    if isinstance(moment, bool) or not isinstance(moment, int | float) or not math.isfinite(moment):
        raise TypeError(f"a time is seconds since the epoch or a datetime, not {moment!r}")
    return max(1, min(round(moment * SECOND_US), LATEST_US))


def readable(text: str | bytes, longest: int = LONGEST_TEXT) -> str:
    """Text that every database accepts: NUL and bytes that are not UTF-8 are escaped, and long text is cut."""
    if isinstance(text, bytes):
        text = text[: 4 * longest].decode("utf-8", "backslashreplace")
    elif not text.isascii():
        text = text[:longest].encode("utf-8", "backslashreplace").decode()
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if len(text) <= longest else text[: longest - 1] + "…"


def result_fields(result: TaskResult) -> dict[str, Any]:
    """The state, result code, error and result for a registered result."""
    state, code, error, data = "done", 0, "", ""
    if isinstance(result, BaseException):
        words = str(result)
        state, code = "failed", 1
        error = f"{type(result).__name__}: {words}" if words else type(result).__name__
    elif isinstance(result, bytes | str):
        data = readable(result)
    elif isinstance(result, bool) or (result is not None and not isinstance(result, int)):
        raise TypeError(f"a result is a code, bytes, text, an exception or None, not {result!r}")
    elif result:
        state, code, error = "failed", max(-LARGEST_CODE, min(result, LARGEST_CODE)), f"result code {result}"
    return {"state": state, "result_code": code, "error": readable(error), "result": data}
