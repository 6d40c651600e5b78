"""The lists that `switchgear top` shows: what is asked of the server, columns, values, and what they are sorted by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from switchgear.cli.output import shortened, text_of
from switchgear.cli.tables import Column
from switchgear.units import short_duration

__all__ = ["NODE", "VIEWS", "Entry", "VerbServer", "View", "count_text"]

MOST_LISTED: Final = 500  # jobs that are asked for
NODE: Final = "NODE"  # the column that is there only if several servers own functions


class VerbServer(Protocol):
    """The interface to a server: sends operator verbs and returns their answers."""

    def control(self, verb: str, **arguments: Any) -> Any:
        """The answer to a verb; see docs/verbs.md."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row: its texts, what each column is sorted by, and the thing that it stands for."""

    key: str  # the name of a function, the id of a worker or the handle of a job: it finds the row again
    cells: tuple[str, ...]
    order: tuple[Any, ...]
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class View:
    """One of the four lists of `switchgear top`."""

    letter: str  # the key that shows it
    title: str
    columns: tuple[Column, ...]
    sorted_by: int  # the column that it is sorted by at first
    ask: Callable[[VerbServer], Sequence[Mapping[str, Any]]]
    entry: Callable[[Mapping[str, Any], float], Entry]  # of an object in the answer, at this time
    actions: tuple[str, ...]  # keys that change something


def count_text(value: float) -> str:
    """A number of jobs, or a rate, in few characters, and exact below 10,000."""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    for divisor, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= 10 * divisor or (value >= divisor and divisor > 10**3):
            return f"{value / divisor:.1f}{unit}"
    return f"{value:.0f}"


def _ask_functions(server: VerbServer) -> Sequence[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = server.control("functions")
    return found


def _function_entry(function: Mapping[str, Any], now: float) -> Entry:
    name = text_of(function["name"])
    rate = function.get("done_per_second")  # unknown until the server was asked twice
    figures = [
        function["ready"],
        function["running"],
        function["waiting_or_scheduled"],
        function["workers"],
        rate or 0.0,
        function["failed"],
    ]
    texts = [*map(count_text, figures)]
    if rate is None:
        texts[4] = "-"
    oldest = function["oldest_ready_seconds"] or 0.0
    note = "paused" if function["paused"] else "no worker" if function["ready"] and not function["workers"] else ""
    cells = (name, *texts, short_duration(function["oldest_ready_seconds"]), note)
    return Entry(name, cells, (name, *figures, oldest, note), function)


def _ask_workers(server: VerbServer) -> Sequence[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = server.control("workers")
    return found


def _worker_entry(worker: Mapping[str, Any], now: float) -> Entry:
    seconds = max(0.0, now - worker["connected_at"])
    functions = " ".join(text_of(name) for name in worker["functions"])
    order = (
        worker["id"],
        str(worker.get("node", "")),
        text_of(worker["name"]),
        worker["protocol"],
        worker["address"],
        worker["running_count"],
        seconds,
        functions,
    )
    cells = (str(order[0]), *order[1:5], str(order[5]), short_duration(seconds), functions)
    return Entry(f"{order[1]} {worker['id']}", cells, order, worker)


def _ask_running(server: VerbServer) -> Sequence[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = server.control("jobs", states=["running"], limit=MOST_LISTED)["jobs"]
    return found


def _ask_dead(server: VerbServer) -> Sequence[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = server.control("jobs", dead=True, limit=MOST_LISTED)["jobs"]
    return found


def _job_entry(job: Mapping[str, Any], now: float) -> Entry:
    age = max(0.0, now - job["created_at"])
    share = job["numerator"] / job["denominator"] if job["denominator"] else 0.0
    progress = f"{share:.0%}" if job["denominator"] else ""
    attempts = job["attempts"]
    error = shortened(text_of(job["error"]) or text_of(job["message"]))
    function = text_of(job["function"])
    cells = (job["handle"], function, str(attempts), progress, short_duration(age), error)
    return Entry(job["handle"], cells, (job["id"], function, attempts, share, age, error), job)


_JOB_COLUMNS: Final = (
    Column("HANDLE"),
    Column("FUNCTION", wrap=True),
    Column("ATTEMPTS", right=True, drop=2),
    Column("PROGRESS", right=True, drop=1),
    Column("AGE", right=True),
    Column("MESSAGE", wrap=True, drop=3),
)

VIEWS: Final = (
    View(
        "f",
        "functions",
        (
            Column("FUNCTION", wrap=True),
            Column("READY", right=True),
            Column("RUNNING", right=True),
            Column("WAITING", right=True, drop=3),
            Column("WORKERS", right=True, drop=1),
            Column("DONE/S", right=True, drop=2),
            Column("FAILED", right=True, drop=5),
            Column("OLDEST", right=True, drop=4),
            Column(""),
        ),
        1,
        _ask_functions,
        _function_entry,
        ("p",),
    ),
    View(
        "w",
        "workers",
        (
            Column("ID", right=True),
            Column(NODE, wrap=True, drop=1),
            Column("NAME", wrap=True),
            Column("PROTOCOL", drop=3),
            Column("ADDRESS", wrap=True, drop=4),
            Column("RUNNING", right=True),
            Column("CONNECTED", right=True, drop=5),
            Column("FUNCTIONS", wrap=True, drop=2),
        ),
        5,
        _ask_workers,
        _worker_entry,
        (),
    ),
    View("j", "running jobs", _JOB_COLUMNS, 4, _ask_running, _job_entry, ("c",)),
    View("d", "dead letters", _JOB_COLUMNS, 4, _ask_dead, _job_entry, ("r",)),
)
