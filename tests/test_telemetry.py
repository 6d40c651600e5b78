"""Events: one table, used as it is written; a log that cannot be flooded or forged."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter
from typing import NamedTuple

import pytest

import switchgear
from switchgear.log_format import JsonFormatter
from switchgear.model import NORMAL, Cause, Delivery, Function, Job, Peer, Worker
from switchgear.telemetry import EVENTS, LINES_PER_SECOND, Telemetry, text_of
from switchgear.text import MOST_REPEATED

ROOT = Path(switchgear.__file__).parent


def server_modules() -> list[Path]:
    """The modules that may emit events; `emit` of Huey's interface sends Huey's signals."""
    return sorted(path for path in ROOT.rglob("*.py") if "compat" not in path.relative_to(ROOT).parts)


# --- the table and its users ---


class Emission(NamedTuple):
    where: str
    event: str
    fields: frozenset[str]


def fields_of(text: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(text) if name)


def keywords(call: ast.Call, function: ast.AST) -> frozenset[str]:
    """The names of the arguments; one written `**name` is looked up where the function sets it."""
    names = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    for keyword in call.keywords:
        if keyword.arg is None:
            assert isinstance(keyword.value, ast.Name)
            names |= keys_of(keyword.value.id, function)
    return frozenset(names)


def keys_of(variable: str, function: ast.AST) -> set[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id == variable:
                return {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
    raise AssertionError(f"{variable} is not set where it is used")


def functions_in(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def calls_of(method: str, tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield node


def names_in(value: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef, folder: Path) -> list[str]:
    """The events that an argument may name: a constant, or what callers in the folder pass as that parameter."""
    if isinstance(value, ast.Constant):
        return [str(value.value)]
    assert isinstance(value, ast.Name), "an event is named by a constant or passed through"
    place = [argument.arg for argument in function.args.args].index(value.id) - 1  # without self
    trees = [parsed(path) for path in sorted(folder.glob("*.py"))]
    passed = [call.args[place] for tree in trees for call in calls_of(function.name, tree) if len(call.args) > place]
    assert passed, f"nobody calls {function.name}"
    return [str(argument.value) for argument in passed if isinstance(argument, ast.Constant)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def emissions() -> list[Emission]:
    found = []
    for path in server_modules():
        text = path.read_text()
        if ".emit(" not in text and "._tell(" not in text:
            continue  # collecting the tests should not take the time to parse all modules
        tree = parsed(path)
        for function in functions_in(tree):
            for call in calls_of("emit", function):
                where = f"{path.relative_to(ROOT)}:{call.lineno}"
                for event in names_in(call.args[0], function, path.parent):
                    found.append(Emission(where, event, keywords(call, function)))
            if path.parent.name != "joblog":
                continue
            for call in calls_of("_tell", function):  # the job log's thread has its events emitted by another
                where = f"{path.relative_to(ROOT)}:{call.lineno}"
                named, fields = call.args
                assert isinstance(named, ast.Constant)
                assert isinstance(fields, ast.Dict)
                names = frozenset(str(key.value) for key in fields.keys if isinstance(key, ast.Constant))
                found.append(Emission(where, str(named.value), names))
    return found


EMISSIONS = emissions()


def test_the_source_was_understood() -> None:
    texts = {path: path.read_text() for path in server_modules()}
    written = sum(text.count(".emit(") for text in texts.values())
    written += sum(text.count("._tell(") for path, text in texts.items() if path.parent.name == "joblog")
    assert len({emission.where for emission in EMISSIONS}) == written > 20


@pytest.mark.parametrize("emission", EMISSIONS, ids=lambda emission: f"{emission.event}@{emission.where}")
def test_every_event_is_in_the_table_and_comes_with_its_fields(emission: Emission) -> None:
    assert emission.event in EVENTS
    assert emission.fields == fields_of(EVENTS[emission.event][1])


def test_every_row_of_the_table_is_used() -> None:
    assert EVENTS.keys() == {emission.event for emission in EMISSIONS}


# --- counting and logging ---


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "switchgear")
    return caplog


def test_an_event_is_counted_and_becomes_a_line(log: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(Clock())
    telemetry.emit("connection_made", host="10.0.0.1", port=5)
    assert telemetry.counts["connection_made"] == 1
    (record,) = log.records
    assert record.getMessage() == "connection from 10.0.0.1:5"
    assert record.levelno == logging.DEBUG


def test_an_event_below_the_level_is_counted_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "switchgear")
    telemetry = Telemetry(Clock())
    telemetry.emit("connection_made", host="10.0.0.1", port=5)
    assert telemetry.counts["connection_made"] == 1
    assert caplog.records == []


def test_an_event_that_is_not_in_the_table_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Telemetry(Clock()).emit("surprise")


def test_a_flood_is_counted_whole_and_logged_in_part(log: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    telemetry = Telemetry(clock)
    for port in range(1000):
        telemetry.emit("connection_made", host="x", port=port)
    telemetry.emit("clock_stepped", seconds=1)
    assert telemetry.counts["connection_made"] == 1000
    assert len(log.records) == LINES_PER_SECOND + 1  # another kind of event has its own share
    clock.now += 1
    telemetry.emit("connection_made", host="x", port=1)
    lines = [record.getMessage() for record in log.records[LINES_PER_SECOND + 1 :]]
    assert lines == ["connection_made: 990 more like this within a second", "connection from x:1"]


def test_each_second_has_its_own_lines(log: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    telemetry = Telemetry(clock)
    for _ in range(5):
        for port in range(LINES_PER_SECOND):
            telemetry.emit("connection_made", host="x", port=port)
        clock.now += 1
    assert len(log.records) == 5 * LINES_PER_SECOND


def test_braces_and_percent_signs_of_strangers_mean_nothing(log: pytest.LogCaptureFixture) -> None:
    fields = {"protocol": "gearman", "host": "%s", "port": 1, "code": "{host}", "text": "%d {0} {port!r} %(x)s"}
    Telemetry(Clock()).emit("bad_input", **fields)
    assert log.records[0].getMessage() == "gearman peer %s:1: {host}: %d {0} {port!r} %(x)s"


# --- strangers in the log ---

FORGED = b"x\n2026-01-01 00:00:00 ERROR   disk on fire\r\x1b[31m\x85\xe2\x80\xa8"


@pytest.mark.parametrize("data", [FORGED, b"\0\x07\x7f", "\u2028\u2029\x85\u202e".encode(), b"\xff\xfe", b"x" * 10_000])
def test_bytes_of_strangers_are_made_harmless(data: bytes) -> None:
    text = text_of(data)
    assert text.isprintable()
    assert len(text.splitlines()) == 1
    assert len(text) <= MOST_REPEATED + 3


def observed_job() -> Job:
    job = Job(7, Function(FORGED), FORGED, b"", NORMAL, Delivery.HANDLE, 0)
    job.name = FORGED
    job.error = FORGED
    return job


@pytest.mark.parametrize("event", ["job_requeued", "job_died", "job_expired", "worker_expired", "function_created"])
def test_names_that_strangers_chose_cannot_forge_lines(event: str, log: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(Clock())
    worker = Worker(1, Peer(), "gearman", 0)
    worker.name = FORGED
    match event:
        case "job_requeued":
            telemetry.job_requeued(observed_job(), Cause.WORKER_LOST)
        case "job_died":
            telemetry.job_died(observed_job())
        case "job_expired":
            telemetry.job_expired(observed_job())
        case "worker_expired":
            telemetry.worker_expired(worker)
        case _:
            telemetry.function_created(Function(FORGED))
    (record,) = log.records
    assert record.getMessage().isprintable()


def test_no_text_in_any_field_can_forge_a_line(log: pytest.LogCaptureFixture) -> None:
    text = FORGED.decode("utf-8", "replace")
    Telemetry(Clock()).emit("bad_input", protocol="gearman", host="10.0.0.1", port=1, code="X", text=text)
    assert log.records[0].getMessage().isprintable()


def test_a_job_is_called_by_its_name_or_number(log: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(Clock())
    job = Job(7, Function(b"resize"), b"", b"", NORMAL, Delivery.HANDLE, 0)
    job.attempts = 2
    telemetry.job_requeued(job, Cause.TIMED_OUT)
    job.name = b"nightly"
    telemetry.job_expired(job)
    assert [record.getMessage() for record in log.records] == [
        "job 7 of resize requeued: timed out (attempt 2)",
        "nightly of resize expired before it was started",
    ]


def test_where_the_prefix_of_handles_is_known_a_job_is_called_by_its_handle(log: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(Clock())
    telemetry.handle_prefix = "H:myhost:"
    telemetry.job_expired(Job(7, Function(b"resize"), b"", b"", NORMAL, Delivery.HANDLE, 0))
    assert [record.getMessage() for record in log.records] == ["H:myhost:7 of resize expired before it was started"]


# --- JSON ---


def json_of(record: logging.LogRecord) -> dict[str, object]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert isinstance(entry, dict)
    return entry


def test_json_has_the_event_and_its_fields(log: pytest.LogCaptureFixture) -> None:
    Telemetry(Clock()).emit("storage_failed", error=OSError("disk\nfull"))
    entry = json_of(log.records[0])
    assert entry["event"] == "storage_failed"
    assert entry["level"] == "error"
    assert entry["fields"] == {"error": "disk\nfull"}


def test_json_of_a_line_that_is_no_event() -> None:
    record = logging.LogRecord("switchgear", logging.INFO, "file", 1, "%d jobs", (5,), None)
    entry = json_of(record)
    assert entry["message"] == "5 jobs"
    assert entry["event"] == "log"


def test_json_has_the_traceback_of_a_defect() -> None:
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        record = logging.LogRecord("switchgear", logging.ERROR, "file", 1, "defect", (), (type(error), error, None))
    assert "RuntimeError: broken" in str(json_of(record)["traceback"])


def test_json_of_suppressed_lines(log: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    telemetry = Telemetry(clock)
    for _ in range(LINES_PER_SECOND + 3):
        telemetry.emit("config_reloaded")
    clock.now += 1
    telemetry.emit("server_stopped")
    entry = json_of(log.records[LINES_PER_SECOND])
    assert (entry["event"], entry["fields"]) == ("config_reloaded", {"suppressed": 3})
