from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.matrix.page import PAGE, WRITES, Findings, is_complete, rendered
from tests.matrix.stage import Stage, running_stage
from tests.matrix.workers import Nursery, running_nursery


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """One server for all pairs."""
    with running_stage() as stage:
        yield stage


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with running_nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def findings() -> Iterator[Findings]:
    """What was found out; the page is made of it, if it is wanted."""
    findings: Findings = {}
    yield findings
    if WRITES:
        assert is_complete(findings), "the page is written by a run of all tests of the matrix in one process"
        PAGE.write_text(rendered(findings))
