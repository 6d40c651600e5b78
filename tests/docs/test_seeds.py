"""docs/seeds.md, the statements of the five documents: every module and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "seeds.md"
LEAST_STATEMENTS = 248  # fewer would mean that rows were lost

ROW = re.compile(r"^\| (?P<number>[A-Z]\d+) \| .+? \| (?P<how>\w+) \| (?P<where>.+?) \| (?P<proof>.+) \|$")
TEST = re.compile(r"`(?P<path>tests/[^`:]+\.py)::(?P<name>\w+)`")
CONVERSATION = re.compile(r"`(?P<path>tests/[^`]+\.txt)` “(?P<title>[^”]+)”")
QUOTED = re.compile(r"`([^`]+)`")


class Statement(NamedTuple):
    """One row of the page."""

    number: str
    how: str
    where: list[str]
    proof: str


def read_statements() -> list[Statement]:
    """All rows of the page's tables."""
    found = []
    for line in PAGE.read_text().splitlines():
        if re.match(r"\| [A-Z]\d", line):
            row = ROW.match(line)
            assert row, f"not a row of five columns: {line}"
            found.append(Statement(row["number"], row["how"], QUOTED.findall(row["where"]), row["proof"]))
    return found


STATEMENTS = read_statements()


def test_all_statements_are_there_and_numbered() -> None:
    assert len(STATEMENTS) >= LEAST_STATEMENTS
    numbers = [statement.number for statement in STATEMENTS]
    for letter in "WPGDM":
        of_document = [number for number in numbers if number[0] == letter]
        assert of_document == [f"{letter}{n}" for n in range(1, len(of_document) + 1)]


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.number)
def test_what_a_statement_names_exists(statement: Statement) -> None:
    assert statement.how in {"yes", "choice", "differs"}
    assert statement.where
    for module in statement.where:
        assert (ROOT / "src" / "switchgear" / module).exists() or (ROOT / module).exists(), module
    tests = list(TEST.finditer(statement.proof))
    conversations = list(CONVERSATION.finditer(statement.proof))
    assert tests or conversations, "a statement without a proof"
    assert len(tests) + len(conversations) == statement.proof.count("tests/"), "a proof that this test cannot read"
    for test in tests:
        source = (ROOT / test["path"]).read_text()
        assert re.search(rf"def {test['name']}\(", source), test.group()
    for conversation in conversations:
        lines = (ROOT / conversation["path"]).read_text().splitlines()
        assert f"== {conversation['title']}" in lines, conversation.group()
