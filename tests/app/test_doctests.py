"""Examples in docstrings are run."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import switchgear.app

MODULES = [
    "switchgear.backoff",
    "switchgear.client.gearman.job_subscriber",
    *sorted(
        f"switchgear.app.{path.stem}"
        for path in Path(switchgear.app.__file__).parent.glob("*.py")
        if path.stem != "__init__"
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(import_module(name))
    assert failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(len(test.examples) for name in MODULES for test in finder.find(import_module(name))) > 10
