"""The table of verbs: how arguments are checked, and that the server's handlers fit the table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
import pytest

from switchgear.net.operations.verb_steps import Steps
from switchgear.protocols.gearman.admin import ON_COMMAND
from switchgear.verbs.answers import ListenerFigures
from switchgear.verbs.kinds import (
    ArgumentKind,
    Boolean,
    Handle,
    HandleList,
    Number,
    PayloadText,
    PlainText,
    StartRate,
    Whole,
    Word,
)
from switchgear.verbs.operator_verb import Keeps, OperatorVerb, checked
from switchgear.verbs.table import VERBS
from tests.net.operator_harness import OperatorHarness

HANDLERS = OperatorHarness().operations.handlers
CONTROL_VERBS = [verb for verb in VERBS.values() if not verb.is_text_only]
ROWS = pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
CONTROL_ROWS = pytest.mark.parametrize("verb", CONTROL_VERBS, ids=lambda verb: verb.name)


# --- checking ---


def test_defaults_are_filled_in() -> None:
    assert checked(VERBS["jobs"], {"function": "f"}) == {
        "function": "f",
        "states": None,
        "unique": None,
        "name": None,
        "dead": False,
        "error": None,
        "key": None,
        "contains": None,
        "since": 0,
        "until": 0,
        "before_id": 0,
        "limit": 100,
    }


@pytest.mark.parametrize(
    ("verb", "arguments", "complaint"),
    [
        ("jobs", {"limit": "x"}, "jobs: limit: expected a whole number from 1 to 1000, got 'x'"),
        ("jobs", {"limit": None}, "jobs: limit: expected a whole number from 1 to 1000, got None"),
        ("jobs", {"before_id": -1}, "jobs: before_id: expected a whole number, 0 or more, got -1"),
        ("jobs", {"states": ["sleepy"]}, "jobs: states: expected a list of waiting, scheduled, ready, running, done,"),
        ("cancel", {"states": ["done"]}, "cancel: states: expected a list of waiting, scheduled, ready, running, got"),
        ("jobs", {"dead": 1}, "jobs: dead: expected true or false, got 1"),
        ("jobs", {"since": "yesterday"}, "jobs: since: expected a number from 0 to 8.79609e+12, got 'yesterday'"),
        ("jobs", {"query": 1}, "jobs: there is no argument 'query'; there are: function, states, unique,"),
        ("server", {"x": 1}, "server: there is no argument 'x'; there are: none"),
        ("pause", {}, "pause: function is missing: expected a text"),
        ("pause", {"function": None}, "pause: function is missing: expected a text"),
        ("pause", {"function": "\ud800"}, "pause: function: expected a text, got '\\ud800'"),
        ("states", {"handles": "H:t:1"}, "states: handles: expected a list of at most 10000 handles, got 'H:t:1'"),
    ],
)
def test_errors_name_verb_and_argument(verb: str, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        checked(VERBS[verb], arguments)
    assert str(caught.value).startswith(complaint)


def test_a_wrong_value_is_shown_in_part() -> None:
    with pytest.raises(ValueError) as caught:
        checked(VERBS["jobs"], {"limit": "x" * 10_000})
    assert len(str(caught.value)) < 200
    with pytest.raises(ValueError, match="got a very long int"):
        checked(VERBS["jobs"], {"limit": 10**6000})


def test_null_stands_for_an_argument_that_has_no_default() -> None:
    assert checked(VERBS["limit"], {"function": "f", "rate": None}) == checked(VERBS["limit"], {"function": "f"})


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        (Whole(1, 10, clamped=True), 99, 10),
        (Whole(1, 10, clamped=True), 0, 1),
        (Whole(1, 10), 10, 10),
        (Number(5), 2.5, 2.5),
        (Word(("a", "b")), "b", "b"),
        (PayloadText(), "ä", "ä".encode()),
        (PayloadText(), {"base64": "/w=="}, b"\xff"),
        (StartRate(), 0, (0, 0.0)),
        (StartRate(), [10, 1.5], (10, 1.5)),
        (Handle(), 17, "17"),
        (Handle(), "H:t:17", "H:t:17"),
        (Handle(), [], ""),
        (HandleList(2), ["H:t:1", 5], ["H:t:1", ""]),
        (PlainText(3), "abc", "abc"),
        (Boolean(), False, False),
    ],
    ids=repr,
)
def test_values(kind: ArgumentKind, given: object, read: object) -> None:
    assert kind.read(given) == read


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Whole(1, 10), 11),
        (Whole(1, 10), 1.0),
        (Number(5), float("nan")),
        (Number(5), True),
        (Word(("a",)), "A"),
        (PayloadText(), {"base64": "!"}),
        (PayloadText(), {"base64": "", "more": ""}),
        (StartRate(), 1),
        (StartRate(), [1, float("inf")]),
        (StartRate(), [True, 1]),
        (PlainText(3), "abcd"),
        (PlainText(3), ""),
        (PlainText(3), "\0"),
    ],
    ids=repr,
)
def test_values_that_are_refused(kind: ArgumentKind, given: object) -> None:
    with pytest.raises(ValueError, match=r"expected .*, got "):
        kind.read(given)


# --- the table and the server ---


@ROWS
def test_a_row_is_whole(verb: OperatorVerb) -> None:
    assert verb.help.endswith(".")
    assert verb.command
    assert verb.library
    names = [argument.name for argument in verb.arguments]
    assert len(set(names)) == len(names)
    for argument in verb.arguments:
        assert argument.help.endswith("."), argument.name
        assert not (argument.required and argument.default is not None)
        assert argument.kind.schema()
        if argument.default is not None and not isinstance(argument.default, bytes):
            assert argument.kind.read(argument.default) == argument.default


@CONTROL_ROWS
def test_the_handler_takes_the_arguments_of_its_row(verb: OperatorVerb) -> None:
    parameters = inspect.signature(HANDLERS[verb.name]).parameters
    named = {name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD}
    names = {argument.name for argument in verb.arguments}
    assert named <= names
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        assert named == names
    assert all(each.default is each.empty for each in parameters.values()), "defaults are in the table"


@CONTROL_ROWS
def test_the_handler_answers_what_its_row_says(verb: OperatorVerb) -> None:
    returned = get_type_hints(HANDLERS[verb.name])["return"]
    assert returned == (Steps if verb.is_long else verb.answer)


def test_the_text_commands_are_those_of_the_table() -> None:
    commands = [command for verb in VERBS.values() for command in verb.text_commands]
    assert sorted(commands) == sorted(command.decode() for command in ON_COMMAND)
    assert all(verb.text_commands for verb in VERBS.values() if verb.is_text_only)


# --- answers ---


def busy_operator() -> OperatorHarness:
    """Jobs in several states, a function with limits, a schedule, a listener."""
    operator = OperatorHarness(attempts=1)
    listener: ListenerFigures = {
        "url": "http://127.0.0.1:4740",
        "connections": 0,
        "input": 0,
        "output": 0,
        "largest": None,
    }
    operator.operations.context.listeners = lambda: [listener]
    operator.submit(4, key=b"tenant", unique=b"")
    operator.submit(1, predecessors=(4,), run_at_us=operator.engine.now_us + 5)
    operator.finish()
    operator.finish(code=1, error=b"\xffbroken")
    operator.take()
    operator.ask("limit", function="f", rate=[10, 1], fair=True)
    operator.ask("schedule", name="nightly", function="g", cron="0 3 * * *", payload="x")
    operator.ask("run_schedule", name="nightly")
    return operator


# Arguments of verbs that only read, if those of every verb do not fit.
READ_ARGUMENTS: dict[str, dict[str, Any]] = {
    "at": {"t": 0.5},
    "runs": {"since": 0.5, "until": 1.5},
    "times": {"function": "f"},
    "keys": {"function": "f"},
    "graph": {"function": "f"},
    "states": {"handles": ["H:t:1"]},
    "control_workers": {"action": "ping"},
}

ANSWERS: dict[str, Callable[[OperatorHarness], Any]] = {
    "pause": lambda operator: operator.ask("pause", function="f"),
    "resume": lambda operator: operator.ask("resume", function="f"),
    "place": lambda operator: operator.ask("place", function="f"),
    "limit": lambda operator: operator.ask("limit", function="f"),
    "job": lambda operator: operator.ask("job", handle="H:t:2"),
    "at": lambda operator: operator.ask("at", **READ_ARGUMENTS["at"]),
    "runs": lambda operator: operator.ask("runs", **READ_ARGUMENTS["runs"]),
    "times": lambda operator: operator.ask("times", **READ_ARGUMENTS["times"]),
    "keys": lambda operator: operator.ask("keys", **READ_ARGUMENTS["keys"]),
    "graph": lambda operator: operator.ask("graph", **READ_ARGUMENTS["graph"]),
    "states": lambda operator: operator.ask("states", handles=["H:t:1", "H:t:77"]),
    "explain": lambda operator: operator.ask("explain", handle="H:t:5"),
    "control_workers": lambda operator: operator.ask("control_workers", action="resize", slots=2),
    "cancel": lambda operator: [operator.ask("cancel", handle="H:t:4"), operator.ask("cancel", function="f")],
    "retry": lambda operator: [operator.ask("retry", handle="H:t:2"), operator.ask("retry", function="f")],
    "bulk": lambda operator: operator.ask("bulk", action="cancel", function="f"),
    "bulk_actions": lambda operator: [
        operator.ask("bulk", action="retry", handles=["H:t:2"]),
        operator.ask("bulk_actions"),
    ][-1],
    "abort_bulk": lambda operator: operator.ask(
        "abort_bulk", id=operator.ask("bulk", action="cancel", handles=["H:t:4"])["id"]
    ),
    "complete": lambda operator: operator.ask("complete", handle="H:t:4", result="7"),
    "wait_for": lambda operator: operator.ask("wait_for", handle="H:t:5", after=["H:t:3"]),
    "spawn": lambda operator: operator.ask("spawn", handle="H:t:4", jobs=["H:t:3"]),
    "change": lambda operator: operator.ask("change", handle="H:t:4", priority="high", run_at=0),
    "schedule": lambda operator: operator.ask("schedule", name="hourly", function="f", every_seconds=3600),
    "declare": lambda operator: operator.ask("declare", owner="shop", schedules=[], functions=[]),
    "unschedule": lambda operator: operator.ask("unschedule", name="nightly"),
    "pause_schedule": lambda operator: operator.ask("pause_schedule", name="nightly"),
    "resume_schedule": lambda operator: operator.ask("resume_schedule", name="nightly"),
    "run_schedule": lambda operator: [
        operator.ask("schedule", name="poll", function="f", every_seconds=60),
        operator.ask("run_schedule", name="poll"),
    ][-1],
}


@CONTROL_ROWS
def test_answers_have_the_type_of_their_row(verb: OperatorVerb) -> None:
    operator = busy_operator()
    answer = ANSWERS[verb.name](operator) if verb.name in ANSWERS else operator.ask(verb.name)
    for each in answer if verb.name in ("cancel", "retry") else [answer]:
        text = msgspec.json.encode(each)
        assert msgspec.json.decode(text, type=verb.answer) == msgspec.json.decode(text)


@CONTROL_ROWS
def test_a_verb_that_changes_nothing_keeps_nothing(verb: OperatorVerb) -> None:
    assert verb.changes == (verb.keeps not in (Keeps.NOTHING, Keeps.EARLIER))
    if verb.keeps is Keeps.NOTHING:
        operator = busy_operator()
        engine = operator.engine
        before = (engine.job_count(), len(engine.schedules), len(engine.functions), list(engine.changed))
        arguments: dict[str, Any] = {}
        if verb.arguments and verb.arguments[0].required:
            arguments = {verb.arguments[0].name: "H:t:1"}
        operator.ask(verb.name, **READ_ARGUMENTS.get(verb.name, arguments))
        after = (engine.job_count(), len(engine.schedules), len(engine.functions), list(engine.changed))
        assert after == before


def test_answers_can_be_described_to_others() -> None:
    """As an OpenAPI document does."""
    schemas, components = msgspec.json.schema_components([verb.answer for verb in CONTROL_VERBS])
    assert len(schemas) == len(CONTROL_VERBS)
    assert {"JobAnswer", "JobsPage", "FunctionAnswer"} <= components.keys()
    assert "count" not in components["CancelAnswer"]["required"]
