"""The pytest plugin of this package: the fixture `switchgear_in_memory`.

def test_a_thumbnail(switchgear_in_memory):
    server = switchgear_in_memory(app)
    assert thumbnail.submit("a.png").result() == "a.png.small"

pytest loads this module in every project that has this package installed, so nothing is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from switchgear.testing.in_memory_server import InMemoryServer

__all__ = ["switchgear_in_memory"]


@pytest.fixture
def switchgear_in_memory() -> Iterator[Callable[..., InMemoryServer]]:
    """A function that gives an app a server in memory until the end of the test.

    It takes what `switchgear.testing.in_memory` takes: the app, a mode ("at_once" or "step"), `raise_errors`, `start`.
    """
    with ExitStack() as servers:

        def start(app: Any, mode: str = "at_once", **options: Any) -> InMemoryServer:
            from switchgear.testing.in_memory_server import in_memory

            return servers.enter_context(in_memory(app, mode, **options))  # type: ignore[arg-type]  # it checks that

        yield start
