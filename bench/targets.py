"""What the server is meant to reach, as data, and whether one run reached it.

Every figure is taken from the rows of one run, so that both sides of a ratio met the same machine at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from switchgear.bench.results import figure_of

__all__ = ["TARGETS", "Target", "Verdict", "judge"]

Row = dict[str, Any]

BEST = "gearmand-best"
SHIPPED = "gearmand"
SHAPES = ("background x1", "drain x1", "foreground x1", "background x32", "drain x32", "foreground x32")
DURABLE_SHAPES = (
    *("background x1", "background x32", "drain x1", "whole jobs x1", "whole jobs x32"),
    "one client, background x1",
)
PUSHED_SHAPES = ("whole jobs x1, pushed", "whole jobs x32, pushed")
LIBRARIES = ("celery", "rq", "dramatiq", "huey")
KEEPS_LESS = "-no-results"  # in a peer's name: it promises less than ours, and is not what ours is compared with


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of ours, or its ratio to another's, and what it must not exceed or fall below."""

    text: str
    group: str
    workload: str
    measure: str  # a figure of the best reading, or the name of a note
    ours: str
    limit: float
    theirs: str = ""  # a peer, and its other settings whose names begin with it; empty: our figure itself is judged
    at_least: bool = False
    unit: str = "x"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, and what a run says about it."""

    target: Target
    value: float | None

    @property
    def word(self) -> str:
        if self.value is None:
            return "not measured"
        limit = self.target.limit
        return "met" if (self.value >= limit if self.target.at_least else self.value <= limit) else "missed"

    @property
    def wanted(self) -> str:
        return f"{'≥' if self.target.at_least else '≤'} {self.target.limit:g} {self.target.unit}"

    @property
    def found(self) -> str:
        return "–" if self.value is None else f"{self.value:.3g} {self.target.unit}"


def _gearman() -> list[Target]:
    made = []
    for shape in SHAPES:
        limit = 0.8 if shape.endswith("x32") else 1.0
        text = f"{shape}: processor time per job, to gearmand"
        made.append(Target(f"{text} at its best", "gearman", shape, "cpu_us", "switchgear", limit, BEST))
        made.append(Target(f"{text} as shipped", "gearman", shape, "cpu_us", "switchgear", 0.6, SHIPPED))
    return made


TARGETS = (
    *_gearman(),
    Target(
        "lone round trip: median time, to gearmand as shipped",
        "gearman",
        "lone round trip",
        "p50_us",
        "switchgear",
        1.0,
        SHIPPED,
    ),
    *(
        Target(
            f"{shape}, jobs pushed: processor time per job, to gearmand at its best",
            "gearman",
            shape,
            "cpu_us",
            "switchgear-credits",
            0.5,
            BEST,
        )
        for shape in ("foreground x1", "foreground x32")
    ),
    Target(
        "durable background x1, 64 clients: jobs a second, to gearmand with SQLite",
        "durable",
        "background x1",
        "jobs_per_second",
        "switchgear-sqlite",
        30,
        "gearmand-sqlite",
        at_least=True,
    ),
    *(
        Target(
            f"durable {shape}: jobs a second in PostgreSQL, to SQLite",
            "durable",
            shape,
            "jobs_per_second",
            f"switchgear-postgresql{kind}",
            0.8,
            f"switchgear-sqlite{kind}",
            at_least=True,
        )
        for shapes, kind in ((DURABLE_SHAPES, ""), (PUSHED_SHAPES, "-credits"))
        for shape in shapes
    ),
    Target(
        "durable whole jobs in PostgreSQL, 64 clients and 64 workers: jobs a second",
        "durable",
        "whole jobs x1",
        "jobs_per_second",
        "switchgear-postgresql",
        10_000,
        at_least=True,
        unit="/s",
    ),
    *(
        Target(
            f"Python tasks in bulk, end to end: tasks a second, to {library.capitalize() if library != 'rq' else 'RQ'}",
            "tasks",
            "bulk",
            "jobs_per_second",
            "switchgear",
            10,
            library,
            at_least=True,
            note="the best settings of each that keep results",
        )
        for library in LIBRARIES
    ),
    Target(
        "dwork, one by one with 500 workers: processor time per task",
        "dwork",
        "steal 1, complete 1, 500 workers",
        "cpu_us",
        "switchgear",
        12,
        unit="µs",
        note="what its authors' server, compiled with -O2, took with a C++ driver on another machine of this kind",
    ),
    Target(
        "memory of a queued job, memory:",
        "memory",
        "jobs that wait",
        "bytes per queued job",
        "switchgear",
        500,
        unit="B",
    ),
    Target(
        "memory of a queued job, sqlite:",
        "memory",
        "jobs that wait",
        "bytes per queued job",
        "switchgear-sqlite",
        200,
        unit="B",
    ),
)


def judge(document: dict[str, Any]) -> list[Verdict]:
    """All targets, in the light of one run."""
    return [Verdict(target, _value(target, document["rows"])) for target in TARGETS]


def _value(target: Target, rows: Sequence[Row]) -> float | None:
    ours = _figure(target, target.ours, rows)
    if not target.theirs or ours is None:
        return ours
    theirs = _figure(target, target.theirs, rows)
    return ours / theirs if theirs else None


def _figure(target: Target, peer: str, rows: Sequence[Row]) -> float | None:
    """The best figure of a peer; for tasks, among all its settings, since each library has its own best ones."""
    found = []
    for row in rows:
        if (row["group"], row["workload"]) != (target.group, target.workload):
            continue
        if row["peer"] != peer and not (target.group == "tasks" and _is_setting_of(peer, row["peer"])):
            continue
        value = figure_of(row, target.measure)
        if value is not None:
            found.append(value)
    if not found:
        return None
    return max(found) if target.at_least else min(found)


def _is_setting_of(peer: str, name: str) -> bool:
    return name.startswith(f"{peer}-") and KEEPS_LESS not in name and "sqlite" not in name
