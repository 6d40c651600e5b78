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

A job that is submitted over any protocol can be done by a worker of any other.  How much passes between the two
depends on what both have words for.  This page is written by the tests in `tests/matrix/`, which send jobs through
every pair, with the clients and workers of this package, a real server and a real Redis (`make interop` writes it
anew); a test fails when it does not tell the truth.

Submitters are the rows, workers the columns.
"""

LEGEND: Final = """\
| | what passes |
|---|---|
| R | the result comes back |
| r | that the job is done comes back; one of the two has no room for the bytes of a result, so there are none |
| P | progress that the worker tells reaches the submitter while the job runs |
| F | the worker says that the job failed, and the submitter hears so, with the reason |
| C | the submitter cancels the job while it runs, and the worker is told |
| c | the submitter cancels the job while it runs; the worker cannot be told, and what it reports is dropped |
| D | the worker is killed in the middle of the job; another one does it, and the submitter gets its result |
| · | one of the two has no words for it: see below |

"GearMonkey" is a GearMonkey client or worker at the server's `gearmonkey://` listener; "GearMonkey, Redis" is one at a
real Redis, to which the server has a [bridge](howto/gearmonkey-bridge.md).  Where both are at the Redis they find each
other there, and the server has no part in it: a job whose worker dies is lost, as it is without the server.

A PING/PONG or dwork listener has jobs of one function, which the other side has to name.  A job whose submitter has no
word for it can still be cancelled by an operator (`switchgear cancel`); the submitter then hears of a failure.
"""


def is_complete(findings: Mapping[tuple[str, Capability], Degree]) -> bool:
    """Whether everything was tried that anybody has words for."""
    wanted = {(pair.name, capability) for pair in PAIRS for capability in CAPABILITIES if expected(pair, capability)}
    return wanted <= findings.keys()


def rendered(findings: Mapping[tuple[str, Capability], Degree]) -> str:
    """The page."""
    parts = [HEAD, _table(findings), LEGEND]
    parts += ["## What submitters can say and hear\n", _reasons(SUBMITTERS)]
    parts += ["## What workers can say and hear\n", _reasons(WORKERS)]
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
