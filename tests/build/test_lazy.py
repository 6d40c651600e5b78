"""In compiled modules nothing relies on a generator expression being lazy: compiled, it is made into a list first."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def compiled_sources() -> list[str]:
    """The files that `setup.py` compiles, by its own lists."""
    lists: dict[str, tuple[str, ...]] = {}
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Tuple):
            lists[node.targets[0].id] = ast.literal_eval(node.value)
    package = ROOT / "src" / "switchgear"
    files = [package / f"{name}.py" for name in lists["MODULES"]]
    for package_name in lists["PACKAGES"]:
        files += sorted((package / package_name).rglob("*.py"))
    return [str(file.relative_to(ROOT)) for file in files]


def lazy_generators(source: str) -> list[int]:
    """The lines where a generator expression is returned or has a name, rather than being used up at once."""
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Return | ast.Assign | ast.AnnAssign | ast.Yield | ast.YieldFrom)
        and isinstance(node.value, ast.GeneratorExp)
    )


def test_a_generator_that_is_returned_or_named_is_found() -> None:
    assert lazy_generators("def f():\n    return (x for x in y)\ng = (x for x in y)\nh = sum(x for x in y)\n") == [2, 3]


@pytest.mark.parametrize("file", compiled_sources())
def test_nothing_is_made_into_a_list_unawares(file: str) -> None:
    assert lazy_generators((ROOT / file).read_text()) == []
