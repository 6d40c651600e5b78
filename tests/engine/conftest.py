"""Every test of the engine ends with a look at all its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from switchgear.testing import check_engine
from tests.engine.house import House


@pytest.fixture
def make_house() -> Iterator[Callable[..., House]]:
    """Makes engines with the settings that a test wants."""
    houses: list[House] = []

    def make(**settings: Any) -> House:
        houses.append(House(**settings))
        return houses[-1]

    yield make
    for house in houses:
        check_engine(house.engine)


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    return make_house()
