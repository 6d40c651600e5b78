"""One name, one meaning: a class name is defined once in the package, except for the messages of protocols."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import switchgear

ROOT = Path(switchgear.__file__).parent

# Names that are defined in more than one module, and why.
SHARED_NAMES = {
    "Job": "the engine's job, and the job of the Python library that a user holds",
    "Packet": "the packets of Gearman and of its 2005 draft, each in its own folder",
    "Progress": "the message of the 2005 draft, and the progress that the Python library reports",
    "Task": "the message of dwork, and the task of the Python library",
    "Worker": "the engine's record of a worker, and the Gearman worker that a user runs",
}


def classes() -> dict[str, list[str]]:
    """The modules that define each class name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(ROOT).as_posix())
    return found


def test_a_class_name_is_defined_once() -> None:
    twice = {name: modules for name, modules in classes().items() if len(modules) > 1 and name not in SHARED_NAMES}
    assert not twice


def test_every_exception_is_needed() -> None:
    known = classes()
    assert {name for name in SHARED_NAMES if len(known[name]) == 1} == set()
