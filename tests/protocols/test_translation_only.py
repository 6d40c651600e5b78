"""A protocol's folder translates; the engine decides.  What of that can be read from the sources is checked here.

A session turns messages into calls of `Engine`, and events into messages.  So code of a protocol

- imports of the engine only its interface and the words that answers are made of;
- holds no part of the engine, and looks up jobs and functions by calling `Engine`, not in its tables;
- changes no job, function or worker;
- asks of a job whether it is over and how it ended, which answers depend on, but not where it is on the way;
- counts no jobs of a function;
- has no clock and no timers.

Each exception is in a list with its reason.  An entry that is not needed any more fails as well, so the lists only
shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import switchgear.protocols

ROOT = Path(switchgear.protocols.__file__).parent
SOURCES = [
    ("shared" if path.parent == ROOT else path.relative_to(ROOT).parts[0], ast.parse(path.read_text()))
    for path in sorted(ROOT.rglob("*.py"))
]
ENGINE = ast.parse((ROOT.parent / "engine" / "engine.py").read_text())

Found: TypeAlias = tuple[str, str]  # the protocol, or what all share; and what was found there

# --- what is allowed to all ---

INTERFACE = {
    "switchgear.engine.engine": {"Engine", "GraphSubmission", "JobTemplate", "OneJobRules", "SubmitOptions"},
    "switchgear.engine.submit_options": {"SubmitOptions"},
    "switchgear.engine.lifecycle": {"MOVES"},  # which state each cause leads to: the words of a job's log
    "switchgear.engine.predecessor_error": {"error_told"},  # a text, with the names that a protocol has for jobs
}
REFUSALS = "REFUSED_"  # the kinds of refusals, which each protocol has its own words for

TABLES = {
    "changed", "changed_functions", "changed_schedules", "functions", "global_subscribers", "jobs", "names",
    "pending_failures", "schedules", "workers",
}  # fmt: skip
MODEL_NAMES = {"function", "holder", "job", "other", "worker"}  # what variables of these kinds are called
ON_THE_WAY = {"READY", "RUNNING", "SCHEDULED", "WAITING"}
COUNTS = {"ready", "running", "segmented", "sleepers", "submitted", "total", "uniques", "waiting"}
CLOCKS = {"asyncio", "datetime", "heapq", "random", "sched", "threading", "time"}

# --- exceptions, each with its reason ---

TABLES_READ: dict[Found, str] = {
    ("dwork", "session.engine.jobs"): "a look whether a block of ids is used; the store knows the others",
    ("gearman", "session.engine.functions"): "the text commands list all functions",
    ("gearmonkey", "self._engine.global_subscribers"): "the channels that tell of every job",
    ("gearmonkey", "self._engine.functions"): "a look that must not create a function",
    ("gearmonkey", "engine.functions"): "a look that must not create a function",
    ("gearmonkey", "session.engine.jobs"): "a look at a job of its own that is known not to be packed",
    ("gearmonkey", "session.engine.functions"): "a look that must not create a function",
}
PARTS_USED: dict[Found, str] = {}
CHANGED: dict[Found, str] = {
    ("shared", "job.error"): "a job made up for an answer, when the real one cannot be read any more",
    ("shared", "job.finished_us"): "a job made up for an answer, when the real one cannot be read any more",
    ("shared", "job.result_code"): "a job made up for an answer, when the real one cannot be read any more",
    ("shared", "job.state"): "a job made up for an answer, when the real one cannot be read any more",
    ("dwork", "self._function.released_first"): "the order that dwork promises, said once",
    ("gearman", "session.worker.name"): "what a worker calls itself",
    ("gearman", "worker.answered_control"): "what a worker says about itself",
    ("gearman", "worker.status"): "what a worker says about itself",
    ("gearmonkey", "worker.name"): "what a worker calls itself",
    ("wmp", "way.worker.headers"): "what a worker says about itself",
}
STATES_ASKED: dict[Found, str] = {
    ("dwork", "job.state is WAITING"): "the words of an answer",
    ("gearman", "job.state is RUNNING"): "GET_STATUS says whether it runs",
    ("gearman", "job.state is not RUNNING"): "whether a peer that begins to watch is told of a start",
    ("gearmonkey", "job.state is RUNNING"): "field of the hash",
}
COUNTS_READ: dict[Found, str] = {
    ("dwork", "function.ready"): "the status line says how many there are",
    ("dwork", "function.total"): "the status line says how many there are, and Exit that there are none",
    ("gearmonkey", "function.ready"): "the value of a counter that peers read",
    ("gearmonkey", "function.running"): "the value of a counter that peers read",
    ("gearmonkey", "function.total"): "the value of a counter that peers read",
    ("gearmonkey", "function.waiting"): "the value of a counter that peers read",
}


# --- reading sources ---


def engine_parts() -> set[str]:
    """What `Engine` holds under a name of its own: parts, and not its methods and properties."""
    assigned = {
        target.attr
        for node in ast.walk(ENGINE)
        for target in targets(node)
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    }
    return {name for name in assigned if not name.startswith("_")}


def last_word(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2].lstrip("_")


def attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def of_the_engine(names: set[str]) -> set[Found]:
    return {
        (protocol, ast.unparse(node))
        for protocol, tree in SOURCES
        for node in attributes(tree)
        if node.attr in names and last_word(node.value) == "engine"
    }


def targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


# --- what is checked ---


def test_only_the_interface_of_the_engine_is_imported() -> None:
    strangers = [
        f"{protocol}: {node.module}.{alias.name}"
        for protocol, tree in SOURCES
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("switchgear.engine")
        for alias in node.names
        if alias.name not in INTERFACE.get(node.module or "", ())
        and not (node.module == "switchgear.engine.state" and alias.name.startswith(REFUSALS))
    ]
    assert strangers == []


def test_no_part_of_the_engine_is_used() -> None:
    assert of_the_engine(engine_parts()) == PARTS_USED.keys()


def test_no_table_of_the_engine_is_read() -> None:
    assert of_the_engine(TABLES) == TABLES_READ.keys()


def test_no_job_function_or_worker_is_changed() -> None:
    changed = {
        (protocol, ast.unparse(target))
        for protocol, tree in SOURCES
        for node in ast.walk(tree)
        for target in targets(node)
        if isinstance(target, ast.Attribute) and last_word(target.value) in MODEL_NAMES
    }
    assert changed == CHANGED.keys()


def test_nobody_asks_where_a_job_is_on_the_way() -> None:
    asked = {
        (protocol, ast.unparse(node))
        for protocol, tree in SOURCES
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Attribute)
        and node.left.attr == "state"
        and any(last_word(other) in ON_THE_WAY for other in node.comparators)
    }
    assert asked == STATES_ASKED.keys()


def test_no_jobs_of_a_function_are_counted() -> None:
    counted = {
        (protocol, ast.unparse(node))
        for protocol, tree in SOURCES
        for node in attributes(tree)
        if node.attr in COUNTS and last_word(node.value) == "function"
    }
    assert counted == COUNTS_READ.keys()


def test_protocols_have_no_clock_and_no_timers() -> None:
    imported = {
        (protocol, name)
        for protocol, tree in SOURCES
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if name.partition(".")[0] in CLOCKS
    }
    assert imported == set()
