"""Every test of the engine ends with a look at all its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from switchgear.testing import check_engine
from tests.engine.harness import Harness


@pytest.fixture
def make_harness() -> Iterator[Callable[..., Harness]]:
    """Makes engines with the settings that a test wants."""
    harnesss: list[Harness] = []

    def make(**settings: Any) -> Harness:
        harnesss.append(Harness(**settings))
        return harnesss[-1]

    yield make
    for harness in harnesss:
        check_engine(harness.engine)


@pytest.fixture
def harness(make_harness: Callable[..., Harness]) -> Harness:
    return make_harness()
