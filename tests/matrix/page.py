"""docs/interop.md: written from what the tests found, and read again by them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.matrix.sides import CAPABILITIES, PAIRS, SUBMITTERS, WORKERS, Capability, Degree, Pair, Side, expected

__all__ = ["PAGE", "WRITES", "Findings", "degree_on_page", "is_complete", "rendered"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "interop.md"
WRITES: Final = bool(os.environ.get("WRITE_INTEROP"))

Findings = dict[tuple[str, Capability], Degree]
"""By the name of a pair."""

LETTERS: Final = {
    Capability.RESULT: ("·", "r", "R"),
    Capability.PROGRESS: ("·", "·", "P"),
    Capability.FAILURE: ("·", "·", "F"),
    Capability.CANCEL: ("·", "c", "C"),
    Capability.DEATH: ("·", "·", "D"),
}
SAYS: Final = {Degree.NONE: "no", Degree.PART: "in part", Degree.ALL: "yes"}

HEAD: Final = """\
# Every submitter with every worker

A worker of any protocol can run a job that was submitted over any other. What passes between the two depends on the
messages that both protocols have. The tests in `tests/matrix/` write this page: they send jobs through every pair,
with the clients and workers of this package, a real server and a real Redis (`make interop` writes it again). A test
fails if the page is wrong.

Submitters are the rows, workers the columns.
"""

LEGEND: Final = """\
| letter | meaning |
|---|---|
| R | the result comes back |
| r | the end of the job comes back; one of the two protocols has no field for a result, so the result is empty |
| P | progress that the worker reports reaches the submitter while the job runs |
| F | the worker reports that the job failed, and the submitter receives that with the reason |
| C | the submitter cancels the job while it runs, and the worker is told |
| c | the submitter cancels the job while it runs; the worker cannot be told, and its report is dropped |
| D | the worker is killed in the middle of the job; another worker runs it, and the submitter gets its result |
| · | one of the two protocols has no message for it: see below |

"GearMonkey" is a GearMonkey client or worker at the server's `gearmonkey://` listener; "GearMonkey, Redis" is one at a
real Redis, to which the server has a [bridge](howto/gearmonkey-bridge.md). If both are at the Redis, they find each
other there without the server: a job whose worker dies is lost, as it is without the server.

"Python API" is the library of this package at a `gearman://` address, and "Python API, HTTP" the same at an `http://`
address.

A PING/PONG or dwork listener has jobs of one function, which the other side has to name. An operator can cancel a job
whose submitter has no message for it (`switchgear cancel`); the submitter then receives a failure.
"""


def is_complete(findings: Mapping[tuple[str, Capability], Degree]) -> bool:
    """Whether everything was tried that anybody has words for."""
    wanted = {(pair.name, capability) for pair in PAIRS for capability in CAPABILITIES if expected(pair, capability)}
    return wanted <= findings.keys()


def rendered(findings: Mapping[tuple[str, Capability], Degree]) -> str:
    """The page."""
    parts = [HEAD, _table(findings), LEGEND]
    parts += ["## Messages of submitters\n", _reasons(SUBMITTERS)]
    parts += ["## Messages of workers\n", _reasons(WORKERS)]
    return "\n".join(parts)


def _table(findings: Mapping[tuple[str, Capability], Degree]) -> str:
    rows = [["", *(worker.title for worker in WORKERS.values())], ["---"] * (1 + len(WORKERS))]
    for submitter in SUBMITTERS.values():
        cells = (_cell(findings, Pair(submitter, worker)) for worker in WORKERS.values())
        rows.append([f"**{submitter.title}**", *cells])
    return _lines(rows)


def _cell(findings: Mapping[tuple[str, Capability], Degree], pair: Pair) -> str:
    degrees = ((capability, findings.get((pair.name, capability), Degree.NONE)) for capability in CAPABILITIES)
    return " ".join(LETTERS[capability][degree] for capability, degree in degrees)


def _reasons(sides: Mapping[str, Side]) -> str:
    rows = [["", *CAPABILITIES], ["---"] * (1 + len(CAPABILITIES))]
    for side in sides.values():
        cells = (side.can[capability] for capability in CAPABILITIES)
        rows.append([f"**{side.title}**", *(f"{SAYS[can.degree]}: {can.how}" for can in cells)])
    return _lines(rows)


def _lines(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def degree_on_page(pair: Pair, capability: Capability) -> Degree:
    """What the page says of a cell."""
    lines = PAGE.read_text().splitlines()
    row = next((line for line in lines if line.startswith(f"| **{pair.submitter.title}** |")), "")
    assert row, f"{PAGE} has no row for {pair.submitter.title}: make interop"
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    letter = cells[list(WORKERS).index(pair.worker.key)].split()[CAPABILITIES.index(capability)]
    return min(degree for degree in Degree if LETTERS[capability][degree] == letter)
