"""The table of job options, walked: each option has its place in everything that knows options."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from switchgear.app.app import App
from switchgear.app.task_options import SUBMIT_OPTIONS, TASK_OPTIONS, TaskOptions
from switchgear.cli.schedules import add
from switchgear.cli.submit import submit
from switchgear.client.gearman.submit_request import ExtendedOptions
from switchgear.engine.submissions import OPTIONS_OF_JOBS
from switchgear.engine.submit_options import SubmitOptions
from switchgear.errors import OptionError
from switchgear.job_options import (
    JOB_OPTION_NAMED,
    JOB_OPTIONS,
    SCHEDULE_OPTIONS,
    JobOption,
    Kept,
    OptionKind,
    canonical_names,
)
from switchgear.model import Function, Job, Schedule
from switchgear.model.job_details import Details, shared_details
from switchgear.net.operations.schedules import read_options, shown_options
from switchgear.net.owners.messages import OPTIONS as LINK_OPTIONS
from switchgear.protocols.gearman.messages import Packet
from switchgear.storage.sqlite_extra import Extra
from switchgear.storage.sqlite_rows import ERROR, JobRow, job_from_row, job_row
from switchgear.storage.sqlite_schedules import Options, schedule_from_row, schedule_row
from switchgear.timetable import timetable_of
from tests.protocols.gearman.harness import Harness
from tests.support.job_options_page import job_options_table
from tests.support.wire import request

# What `Engine.submit` takes by itself, and what a submission is answered with.
ARGUMENTS = {"wait", "watch", "priority"}
# What the engine has of a submission that is no option of a submitter.
ENGINES_OWN = {"origin", "job_id", "schedule", "linked", "details"}
BY_NAME = pytest.mark.parametrize("option", JOB_OPTIONS, ids=lambda option: option.name)
OF_SCHEDULES = pytest.mark.parametrize(
    "option", dict.fromkeys(SCHEDULE_OPTIONS.values()), ids=lambda option: option.name
)


def submitted(option: JobOption, name: str) -> Job:
    """A job that was submitted over the wire with the option's example under this name."""
    harness = Harness()
    client = harness.talker("client")
    client.send(request(Packet.SUBMIT_JOB_OPTIONS, b"g", b"", b"", b""))
    options: dict[str, Any] = {name: ["H:t:1"] if option.name == "after" else option.example}
    if option.name == "on_failure":
        options["after"] = ["H:t:1"]
    client.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"key", json.dumps(options).encode(), b""))
    return harness.engine.jobs[2]


def expected(option: JobOption) -> Any:
    """The value of the example in the engine."""
    if option.name == "after":
        return (1,)
    if option.name == "on_failure":
        return bytes([option.index_of(option.example)])
    return option.read(option.example, name_bytes=64)


# --- the engine ---


def test_the_engine_has_these_options_and_no_others() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(SubmitOptions)}
    wanted = {option.field: option.default for option in JOB_OPTIONS if option.name not in ARGUMENTS}
    wanted["edges"] = b""  # of all predecessors the default
    assert {name: value for name, value in defaults.items() if name not in ENGINES_OWN} == wanted


@BY_NAME
def test_a_job_without_the_option_has_its_default(option: JobOption) -> None:
    if option.kept is not Kept.NOT and option.name not in (*ARGUMENTS, "unique_for", "on_failure"):
        assert getattr(Job(1, Function(b"f"), b"", b"", 0, 0, 0), option.field) == option.default


@BY_NAME
def test_the_wire_says_it_and_the_job_has_it(option: JobOption) -> None:
    for name in (option.name, *option.old_names):
        job = submitted(option, name)
        if option.name == "wait":
            assert job.delivery == 0
        elif option.name == "unique_for":
            assert job.unique_until_us - job.created_us == expected(option)
        elif option.kept is not Kept.NOT:
            assert getattr(job, option.field) == expected(option)


def test_jobs_share_what_the_table_says_they_can() -> None:
    shared = {option.field: expected(option) for option in JOB_OPTIONS if option.is_shared}
    job = Job(1, Function(b"f"), b"", b"", 0, 0, 0)
    job.details = shared_details(**shared)
    job.message = b"its own"
    assert {field: getattr(job, field) for field in shared} == shared


@BY_NAME
def test_a_job_that_another_node_is_to_own_has_it(option: JobOption) -> None:
    """Its options travel with a link's messages, or with the row that its owner takes."""
    if option.name in ARGUMENTS:
        return
    assert option.field in LINK_OPTIONS
    if option.name not in ("unique_scope", "unique_policy", "unique_for", "after", "on_failure"):  # of its own code
        assert option.field in OPTIONS_OF_JOBS


@BY_NAME
def test_the_memory_account_counts_it(option: JobOption) -> None:
    """Of options that may be long, in a submission and in the job."""
    if option.kept is Kept.NOT or option.kind not in (OptionKind.TEXT, OptionKind.REQUIREMENTS, OptionKind.TRACE):
        return
    long = b"x" * 200
    options: dict[str, Any] = {option.field: long}
    assert SubmitOptions(**options).held_bytes() == SubmitOptions().held_bytes() + len(long)
    job = Job(1, Function(b"f"), b"", b"", 0, 0, 0)
    job.own_details()
    before = job.measured_entry()
    setattr(job, option.field, long)
    assert job.measured_entry() == before + len(long)


# --- the store ---


@BY_NAME
def test_the_store_has_it(option: JobOption) -> None:
    defaults = dict(zip(Extra.__struct_fields__, Extra.__struct_defaults__, strict=True))
    if option.kept is Kept.PACKED:
        assert defaults[option.field] == (b"" if option.field == "edges" else option.default)
    else:
        assert option.field not in defaults


def read_back(row: JobRow) -> JobRow:
    """A row as SQLite gives it back: blobs are bytes, and the statement has made NULL of an error that is 0."""
    values = [bytes(value) if isinstance(value, bytearray) else value for value in row]
    if values[ERROR] == 0:
        values[ERROR] = None
    return tuple(values)


@BY_NAME
def test_the_store_gives_it_back(option: JobOption) -> None:
    job = submitted(option, option.name)
    again = job_from_row(read_back(job_row(job, 1)), job.function)
    field = "unique_until_us" if option.name == "unique_for" else option.field
    if option.kept is not Kept.NOT:
        assert getattr(again, field) == getattr(job, field)


# --- schedules ---


@OF_SCHEDULES
def test_a_schedule_has_it(option: JobOption) -> None:
    for name in {option.schedule, *option.old_names}:
        example = 5.0 if option.kind is OptionKind.MOMENT else option.example
        (field, value), *rest = read_options({name: example}).items()
        assert (field, rest) == (option.schedule_field, [])
        schedule = Schedule(b"s", timetable_of(every_seconds=3600), b"f", **{field: value})
        assert schedule_from_row(schedule_row(schedule)) is not None
        assert getattr(schedule_from_row(schedule_row(schedule)), field) == value
        assert shown_options(schedule)[option.schedule] == example


@OF_SCHEDULES
def test_a_job_of_a_schedule_has_it(option: JobOption) -> None:
    harness = Harness()
    value = option.read(5.0 if option.kind is OptionKind.MOMENT else option.example, name_bytes=64)
    schedule = Schedule(b"s", timetable_of(every_seconds=3600), b"f", **{option.schedule_field: value})
    job = harness.engine.run_schedule_now(harness.engine.set_schedule(schedule))
    found = getattr(job, option.field)
    assert (found - job.created_us if option.kind is OptionKind.MOMENT else found) == value


def test_a_schedule_stores_no_others() -> None:
    fields = {option.schedule_field for option in SCHEDULE_OPTIONS.values()}
    assert set(Options.__struct_fields__) == fields | {"owner"}


# --- people and programs ---


def test_the_command_line_has_these() -> None:
    names = {name for parameter in submit.params for name in parameter.opts}
    assert {option.command_line for option in JOB_OPTIONS if option.command_line} <= names
    assert {
        f"--{old}" for option in JOB_OPTIONS for old in option.old_names if option.kind is OptionKind.COUNT
    } <= names
    names = {name for parameter in add.params for name in parameter.opts}
    assert {f"--{option.schedule.replace('_', '-')}" for option in SCHEDULE_OPTIONS.values()} <= names


def test_help_tells_of_each() -> None:
    texts = {name: parameter.help for parameter in submit.params if isinstance(parameter, click.Option)
             for name in parameter.opts}  # fmt: skip
    for option in JOB_OPTIONS:
        if option.command_line:
            assert (texts[option.command_line] or "").startswith(option.help)


def test_the_python_library_has_these() -> None:
    assert {name for option in JOB_OPTIONS for name in option.python} <= SUBMIT_OPTIONS
    assert {name for option in JOB_OPTIONS for name in option.python} >= (SUBMIT_OPTIONS & TASK_OPTIONS) - {"unique"}
    fields = {field.name for field in dataclasses.fields(TaskOptions)}
    assert {name for option in JOB_OPTIONS for name in option.python} <= fields


@BY_NAME
def test_the_python_library_sends_it(option: JobOption) -> None:
    if option.name in ARGUMENTS or option.name in ("wait", "after", "on_failure"):
        return
    app = App("gearman://127.0.0.1:1")
    task = app.register(lambda: None, "f", TaskOptions())
    for name in option.python:
        if name in ("at", "delay"):
            continue  # checked where their moments are: tests/app/test_options.py
        value = option.example[0] if option.kind is OptionKind.CHOICES else option.example
        chosen = {name: {"retries": 2, "expires": 5.0}.get(name, value)}
        if name.startswith("unique_"):
            chosen["unique"] = True
        sent = task.options(**chosen).requests.request_for((), {}, watch=False, trace="").options
        assert option.name in sent


def test_the_client_has_these() -> None:
    assert set(ExtendedOptions.__annotations__) <= set(JOB_OPTION_NAMED)


# --- values ---


def test_names_are_told_apart() -> None:
    names = [name for option in JOB_OPTIONS for name in (option.name, *option.old_names)]
    assert len(set(names)) == len(names)


def test_an_old_name_is_understood_but_not_twice() -> None:
    assert canonical_names({"crashes": 3, "key": "k"}) == {"crash_limit": 3, "key": "k"}
    with pytest.raises(OptionError, match="crash_limit is given twice, once under its old name crashes"):
        canonical_names({"crash_limit": 2, "crashes": 3})


@BY_NAME
def test_a_value_out_of_range_is_refused_with_the_name_of_the_option(option: JobOption) -> None:
    bad: dict[OptionKind, Any] = {
        OptionKind.SPAN: -1,
        OptionKind.MOMENT: 1e30,
        OptionKind.TEXT: "x" * 257,
        OptionKind.CHOICE: "none",
    }
    if option.kind in bad:
        with pytest.raises(OptionError, match=f"^{option.name} "):
            option.read(bad[option.kind], name_bytes=64)


@BY_NAME
def test_what_is_shown_can_be_read(option: JobOption) -> None:
    if option.kind not in (OptionKind.TEXT, OptionKind.TRACE, OptionKind.HANDLES, OptionKind.CHOICES):
        assert option.show(option.read(option.example)) == option.example
    assert msgspec.convert(option.example, option.json_type) == option.example
    assert option.example != option.json_default


def test_details_have_a_field_for_each_rare_option() -> None:
    assert {option.field for option in JOB_OPTIONS if option.kept is Kept.PACKED} <= set(dir(Details()))


def test_the_page_has_the_table() -> None:
    page = Path(__file__).parents[1] / "docs" / "job-options.md"
    assert job_options_table() in page.read_text(encoding="utf-8"), (
        "docs/job-options.md is out of date; the table comes from scripts/write-job-options-table"
    )


def test_every_submit_option_can_be_given() -> None:
    """Its `__init__` is written by hand, so that it is compiled."""
    parameters = inspect.signature(SubmitOptions).parameters.values()
    given = {parameter.name: parameter.default for parameter in parameters}
    assert given == {field.name: field.default for field in dataclasses.fields(SubmitOptions)}
    assert dataclasses.asdict(SubmitOptions()) == given
