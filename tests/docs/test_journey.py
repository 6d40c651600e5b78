"""docs/journey-of-a-job.md names files, classes and functions; each of them is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import switchgear
from tests.docs.pages import DOCS

PAGE = DOCS / "journey-of-a-job.md"
PACKAGE = Path(switchgear.__file__).parent

# `net/connections/tcp_listener.py`, or `net/connections/tcp_listener.py: Connection.data_received`.
NAMED = re.compile(r"`([\w/]+\.py)(?:: ([\w.]+))?`")
NAMES = sorted(set(NAMED.findall(PAGE.read_text(encoding="utf-8"))))


@cache
def names_in(path: Path) -> frozenset[str]:
    """Everything that a module defines: classes, functions, methods as CLASS.METHOD, and constants."""
    found: set[str] = set()

    def visit(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + node.name)
            elif isinstance(node, ast.ClassDef):
                found.add(prefix + node.name)
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                found.update(prefix + target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(prefix + node.target.id)

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def test_the_page_follows_jobs_through_the_code() -> None:
    assert len(NAMES) > 40


@pytest.mark.parametrize(("file", "name"), NAMES, ids=lambda part: part or "module")
def test_what_the_page_names_is_there(file: str, name: str) -> None:
    path = PACKAGE / file
    assert path.is_file()
    assert not name or name in names_in(path)
