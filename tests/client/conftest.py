"""Servers to talk to.  What is plain Gearman is tried with gearmand too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import Server, running_gearmand, running_switchgear


@pytest.fixture(scope="module", params=["switchgear", "gearmand"])
def any_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server for a whole module: tests tell their jobs apart by their functions."""
    start = running_switchgear if request.param == "switchgear" else running_gearmand
    with start() as server:
        yield server


@pytest.fixture(scope="module")
def switchgear() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


@pytest.fixture(scope="module")
def gearmand() -> Iterator[Server]:
    with running_gearmand() as server:
        yield server


@pytest.fixture
def function(request: pytest.FixtureRequest) -> str:
    """A function that no other test uses."""
    return f"{request.node.originalname}-{id(request.node)}"
