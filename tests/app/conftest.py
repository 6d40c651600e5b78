"""Servers and apps for tests of the Python API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchgear import App
from tests.app.harness import url_of
from tests.support.servers import Server, running_gearmand, running_switchgear


@pytest.fixture(scope="module")
def live_server() -> Iterator[Server]:
    """One server for a whole module: tests tell their tasks apart by their names."""
    with running_switchgear() as server:
        yield server


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Server]:
    with running_gearmand() as server:
        yield server


@pytest.fixture
def app(live_server: Server) -> Iterator[App]:
    with App(url_of(live_server)) as app:
        yield app
