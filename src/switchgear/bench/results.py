"""Measurements of benchmarks (`Reading`), and the loop that runs their rounds.

A round visits all cells before the next begins, so that a slow minute of the machine affects all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Reading:
    """The measurement of one run of one workload on one server."""

    jobs: int
    seconds: float  # elapsed, from the first request to the last answer
    cpu_us: float | None = None  # processor time of the server (all its processes and threads) per job, user + system
    p50_us: float | None = None
    p99_us: float | None = None
    memory_bytes: int | None = None  # what the server has grown by, or has, as the workload says
    notes: dict[str, float] = field(default_factory=dict)  # other figures, by name with unit
    fault: str = ""  # not empty: the run is invalid, and why

    @property
    def jobs_per_second(self) -> float:
        return self.jobs / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Cell:
    """One workload at one peer; measured once a round, interleaved with the others."""

    group: str  # "gearman", "durable", "tasks", "depth", "crowds", "payloads", ...
    workload: str  # "background x1"
    peer: str  # "switchgear", "gearmand-best", "celery" ...
    settings: str  # how the peer was started, as a person would read it
    measure: Callable[[], Reading]  # starts what it needs, measures once, stops it
    rounds: int = 3  # expensive cells may ask for fewer
    readings: list[Reading] = field(default_factory=list)
    judged_by: str = "cpu_us"  # the figure that makes a run the best: cpu_us, jobs_per_second or p50_us
    goes_first: bool = False  # when time is short, its further rounds come before those of others

    @property
    def name(self) -> str:
        return f"{self.group}/{self.workload}/{self.peer}"

    @property
    def fault(self) -> str:
        """Why the cell failed; one failed run is enough."""
        return next((reading.fault for reading in self.readings if reading.fault), "")

    @property
    def best(self) -> Reading | None:
        """The best reading by the figure of the cell, because disturbances only make it worse; else the fastest."""
        good = [reading for reading in self.readings if not reading.fault]
        return min(good, key=self._cost, default=None)

    @property
    def spread(self) -> float | None:
        """How far the worst reading is above the best: 0.1 is a tenth.  None if there is only one."""
        costs = sorted(self._cost(reading) for reading in self.readings if not reading.fault)
        return costs[-1] / costs[0] - 1 if len(costs) > 1 and costs[0] > 0 else None

    def _cost(self, reading: Reading) -> float:
        figure: float | None = None if self.judged_by == "jobs_per_second" else getattr(reading, self.judged_by)
        if figure is not None:
            return figure
        return reading.seconds / reading.jobs if reading.jobs else float("inf")


def run_cells(
    cells: Sequence[Cell],
    rounds: int,
    tell: Callable[[str], None],
    seconds: float | None = None,
    *,
    is_exact: bool = False,
) -> None:
    """Measure every cell once a round; when the time is up no new round is begun, but every cell has had one.

    Exact: as many rounds as that, also for cells that are content with fewer.
    """
    began = time.monotonic()
    for number, cell in _order(cells, rounds, is_first_apart=seconds is not None):
        if cell.fault or (number >= cell.rounds and not is_exact):
            continue
        if number and seconds is not None and time.monotonic() - began >= seconds:
            tell(f"time is up in round {number + 1} of {rounds}")
            return
        cell.readings.append(_measured(cell))
        tell(f"{number + 1}/{rounds}  {cell.name}: {in_words(cell.readings[-1])}")


def _order(cells: Sequence[Cell], rounds: int, is_first_apart: bool) -> Iterator[tuple[int, Cell]]:
    """The order of measurements: round by round; with a time limit, further rounds of preferred cells first."""
    yield from ((0, cell) for cell in cells)
    sets: list[Sequence[Cell]] = [cells]
    if is_first_apart:
        sets = [[cell for cell in cells if cell.goes_first], [cell for cell in cells if not cell.goes_first]]
    for chosen in sets:
        yield from ((number, cell) for number in range(1, rounds) for cell in chosen)


def _measured(cell: Cell) -> Reading:
    try:
        return cell.measure()
    except (Exception, SystemExit) as error:
        # One cell that breaks must not cost the results of all the others; it fails by name.
        return Reading(0, 0.0, fault=f"{type(error).__name__}: {error}")


def in_words(reading: Reading) -> str:
    if reading.fault:
        return f"FAILED: {one_line(reading.fault)}"
    cpu = "" if reading.cpu_us is None else f"{reading.cpu_us:.1f} us of the server, "
    return f"{cpu}{reading.jobs_per_second:,.0f} jobs/s"


def one_line(fault: str) -> str:
    """The first and the last line of a program's output, for a table; the results have all of it."""
    lines = [line.strip() for line in fault.splitlines() if line.strip()] or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"


def to_document(cells: Sequence[Cell], machine: dict[str, Any]) -> dict[str, Any]:
    """Everything of one run as plain data, for JSON and for the pages made from it."""
    return {"machine": machine, "rows": [_row(cell) for cell in cells]}


def _row(cell: Cell) -> dict[str, Any]:
    best = cell.best
    return {
        "group": cell.group,
        "workload": cell.workload,
        "peer": cell.peer,
        "settings": cell.settings,
        "fault": cell.fault,
        "judged_by": cell.judged_by,
        "spread": cell.spread,
        "best": None if best is None else {**asdict(best), "jobs_per_second": best.jobs_per_second},
        "readings": [asdict(reading) for reading in cell.readings],
    }


def figure_of(row: dict[str, Any], measure: str) -> float | None:
    """A figure of a row of a document, or a note by its name.

    Processor time is the least of all rounds, a rate the greatest, since each is disturbed in its own way; whatever
    else there is belongs to the round that is shown as the best.
    """
    best = row["best"]
    if row["fault"] or best is None:
        return None
    if measure == "cpu_us":
        costs = [reading["cpu_us"] for reading in row["readings"] if reading["cpu_us"] is not None]
        return float(min(costs)) if costs else None
    if measure == "jobs_per_second":
        return max(
            (reading["jobs"] / reading["seconds"] for reading in row["readings"] if reading["seconds"] > 0), default=0.0
        )
    value = best.get(measure, best["notes"].get(measure))
    return None if value is None else float(value)


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
