"""How the engine is put together: parts hold each other, do not inherit, and keep their tables to themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from switchgear.engine import engine

MODULES = sorted(Path(engine.__file__).parent.glob("*.py"))
PARTS = Path(__file__).parent / "parts"
TESTED_ELSEWHERE = {
    "AdoptedRuns",
    "Deadlines",
    "ExplainParts",
    "ForeignPredecessors",
    "GraphSubmission",
    "Handover",
}  # in files beside this one
TREES = {path.stem: ast.parse(path.read_text()) for path in MODULES}

# Bases of the language, and of the data classes in this package; and the interface that workers and timers call.
ALLOWED_BASES = {"IntEnum", "NamedTuple", "Peer"}


def imported_parts(name: str) -> set[str]:
    return {
        node.module.rpartition(".")[2]
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("switchgear.engine.")
    }


@pytest.mark.parametrize("name", TREES)
def test_no_part_reaches_into_another(name: str) -> None:
    """What begins with an underscore is used through `self` only."""
    strangers = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert strangers == []


@pytest.mark.parametrize("name", TREES)
def test_parts_are_held_and_not_inherited(name: str) -> None:
    bases = {
        ast.unparse(base) for node in ast.walk(TREES[name]) if isinstance(node, ast.ClassDef) for base in node.bases
    }
    assert bases <= ALLOWED_BASES


def test_no_part_knows_one_that_is_built_on_it() -> None:
    """The imports of the parts have no cycle, so no call leads upwards."""
    reached: dict[str, set[str]] = {}

    def below(name: str, path: tuple[str, ...] = ()) -> set[str]:
        assert name not in path, f"{' -> '.join((*path, name))}"
        if name not in reached:
            parts = imported_parts(name) - {name}
            reached[name] = parts.union(*(below(part, (*path, name)) for part in parts))
        return reached[name]

    for name in TREES:
        below(name)
    assert "engine" not in set().union(*reached.values())


def test_each_part_has_unit_tests_of_its_own() -> None:
    """What `EngineParts` constructs can be put together without it, part by part, and is."""
    parts = part_classes() - {"EngineParts"}
    made = {
        node.func.id
        for tree in (TREES["engine_parts"], TREES["engine"])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in parts
    }
    tests = [path.read_text() for path in PARTS.glob("test_*.py")]
    assert made
    assert {name for name in made if not any(f"`{name}`" in text for text in tests)} == TESTED_ELSEWHERE


def part_classes() -> set[str]:
    return {node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("name", TREES)
def test_each_module_says_in_its_first_line_what_it_is(name: str) -> None:
    text = ast.get_docstring(TREES[name])
    if TREES[name].body:
        assert text
        assert text.splitlines()[0].endswith((".", ";", ","))
