"""The servers that other people's programs talk to.

gearmand is among them as a control: a test that fails with it is a wrong test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.sweeping import Reused, StartServer
from tests.support.servers import Server, running_gearmand, running_switchgear

SERVERS = ("gearmand", "switchgear", "switchgear with sqlite")


@pytest.fixture(scope="module", params=SERVERS)
def some_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reused]:
    def with_sqlite() -> str:
        return f"sqlite:{tmp_path_factory.mktemp('store') / 'jobs.db'}"

    starts: dict[str, StartServer] = {
        "gearmand": running_gearmand,
        "switchgear": running_switchgear,
        "switchgear with sqlite": lambda: running_switchgear(store=with_sqlite()),
    }
    reused = Reused(starts[request.param])
    yield reused
    reused.close()


@pytest.fixture
def server(some_server: Reused) -> Iterator[Server]:
    """A server without jobs, functions and connections."""
    with some_server.clean() as clean_server:
        yield clean_server
