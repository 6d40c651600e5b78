"""Docstrings, comments and documents refer to modules, files and settings that exist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from switchgear.config import SETTINGS

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "switchgear"

# Packages whose names are not also those of variables in examples, such as `app` and `client`.
DOTTED_PACKAGES = "config|engine|joblog|model|net|protocols|storage|testing|verbs"
FOLDERS = (
    "app|bench|cli|client|config|contrib|docs|engine|fuzz|joblog|model|net|protocols|scripts|src|storage|tests|torture"
)

DOTTED = re.compile(rf"(?<![\w./`:-])`?(?:switchgear\.)?((?:{DOTTED_PACKAGES})(?:\.\w+)+)")
PATH = re.compile(rf"(?<![\w./-])((?:{FOLDERS})(?:/[\w-]+)*/[\w-]+\.(?:py|md|sql|lua))\b")
FILE = re.compile(r"`([\w-]+\.py)`")
ATTRIBUTE = re.compile(r"`([A-Z]\w*[a-z]\w*)\.(\w+)`")

# They describe earlier states.
HISTORIES = frozenset({"CHANGELOG.md"})

SETTING_NAMES = frozenset(SETTINGS)


def documents() -> list[Path]:
    found = [path for path in ROOT.rglob("*.md") if not {".venv", "build", "node_modules", ".git"} & set(path.parts)]
    return sorted(path for path in found if path.name not in HISTORIES)


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module with their lines, or all of a document."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, source
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@cache
def names_in(module: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", module.read_text(encoding="utf-8")))


@cache
def file_names() -> frozenset[str]:
    return frozenset(path.name for path in ROOT.rglob("*.py") if ".venv" not in path.parts)


@cache
def words_of_classes() -> dict[str, frozenset[str]]:
    """By the name of a class, every name in its definitions and those of its base classes."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(re.findall(r"\w+", ast.get_source_segment(source, node) or ""))
                bases.setdefault(node.name, set()).update(re.findall(r"\w+", " ".join(map(ast.unparse, node.bases))))

    def inherited(name: str) -> set[str]:
        return own.get(name, set()).union(*(inherited(base) for base in bases.get(name, set()) - {name}))

    return {name: frozenset(inherited(name)) for name in own}


def dotted_exists(name: str) -> bool:
    """Whether this is a setting, a module, a name in a module, or a method of the engine."""
    if name in SETTING_NAMES or any(setting.startswith(name + ".") for setting in SETTING_NAMES):
        return True
    at = SOURCES
    for index, part in enumerate(name.split(".")):
        if (at / part).is_dir():
            at = at / part
        elif (at / f"{part}.py").is_file():
            rest = name.split(".")[index + 1 :]
            return set(rest) <= names_in(at / f"{part}.py")
        elif at == SOURCES / "engine":
            return part in names_in(at / "engine.py")  # `engine` is also a variable
        else:
            return (at / "__init__.py").is_file() and part in names_in(at / "__init__.py")
    return True


def missing_in(path: Path) -> list[str]:
    missing = []
    for line, text in texts_of(path):
        for match in DOTTED.finditer(text):
            if not match[1].endswith(".md") and not dotted_exists(match[1]):
                missing.append(f"{line}: {match[1]}")
        for match in PATH.finditer(text):
            if "NAME" not in match[1] and not any(
                (place / match[1]).is_file() for place in (ROOT, SOURCES, path.parent, ROOT / "docs")
            ):
                missing.append(f"{line}: {match[1]}")
        for match in FILE.finditer(text):
            if match[1] not in file_names():
                missing.append(f"{line}: {match[1]}")
        for match in ATTRIBUTE.finditer(text):
            words = words_of_classes().get(match[1])
            if words is not None and match[2] not in words:
                missing.append(f"{line}: {match[0]}")
    return missing


def test_a_reference_to_what_is_gone_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("See engine.gates, engine/shelves.py, `wishes.py` and `Engine.holder`.")
    assert missing_in(page) == ["1: engine.gates", "1: engine/shelves.py", "1: wishes.py", "1: `Engine.holder`"]
    page.write_text("See engine.limiters, storage.sync, engine/timers.py, `job_commands.py` and `Engine.submit`.")
    assert missing_in(page) == []


@pytest.mark.parametrize(
    "path", [*sorted(SOURCES.rglob("*.py")), *documents()], ids=lambda path: str(path.relative_to(ROOT))
)
def test_what_is_referred_to_exists(path: Path) -> None:
    assert not missing_in(path)
