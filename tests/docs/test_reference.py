"""The reference pages have every public name, and say what the source says."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.reference_pages import FOLDER, public_names, public_things, reference_pages


@pytest.mark.parametrize("page", sorted(reference_pages()))
def test_the_pages_are_up_to_date(page: str) -> None:
    assert (FOLDER / page).read_text(encoding="utf-8") == reference_pages()[page], "run make reference"


def test_every_public_name_has_a_section() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md"))
    sections = set(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert {name for name, _ in public_names()} <= sections


def test_everything_public_is_explained() -> None:
    silent = [each.name for each in public_things() if each.node is not None and not ast.get_docstring(each.node)]
    assert silent == []
