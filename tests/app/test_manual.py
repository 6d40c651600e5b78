"""The page about the Python API: its examples run, and it leaves nothing out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import switchgear
from switchgear import errors
from switchgear.app.task_options import SUBMIT_OPTIONS, TASK_OPTIONS
from switchgear.testing import in_memory

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "python-api.md"
TEXT = PAGE.read_text()
# Rows of tables whose first cell is a word in backquotes, perhaps with a star.
ROWS = dict(re.findall(r"^\| `(\w+)`( \*)? \|", TEXT, re.M))


def test_its_examples_run() -> None:
    first, *others = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    names: dict[str, Any] = {"__name__": "manual"}
    exec(first, names)
    with in_memory(names["app"]):
        for example in others:
            exec(example, names)


@pytest.mark.parametrize("option", sorted(TASK_OPTIONS | SUBMIT_OPTIONS))
def test_every_option_is_there(option: str) -> None:
    assert option in ROWS
    may_be_changed = option in TASK_OPTIONS & SUBMIT_OPTIONS
    assert bool(ROWS[option]) is may_be_changed, "a star is for what may be changed for one submission"


@pytest.mark.parametrize("name", [name for name in switchgear.__all__ if hasattr(errors, name)])
def test_every_error_is_there(name: str) -> None:
    assert f"`{name}`" in TEXT
