"""The faces of the table of verbs: commands, methods of the Python library, the reference page."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from switchgear.app.app import App
from switchgear.app.bulk_operation import BulkOperation
from switchgear.app.job import Job
from switchgear.app.job_group import JobGroup
from switchgear.app.schedules import AppSchedules
from switchgear.cli.main import main
from switchgear.client.gearman.blocking import Client
from switchgear.errors import ServerRefused
from switchgear.job_options import SCHEDULE_OPTIONS
from switchgear.testing import in_memory
from switchgear.testing.in_memory_transport import InMemoryTransport
from switchgear.verbs.operator_verb import OperatorVerb, checked
from switchgear.verbs.reference import reference_page
from switchgear.verbs.table import VERBS

WITH_COMMAND = [verb for verb in VERBS.values() if not verb.command.startswith("(")]
WITH_METHOD = [verb for verb in VERBS.values() if not verb.library.startswith("(")]
SENT: list[tuple[str, dict[str, Any]]] = []


# --- the command line ---

# How each verb is reached, as one would type it.
COMMANDS = {
    "server": "server",
    "nodes": "nodes",
    "overview": "top --once",
    "connections": "server --connections --limit 5",
    "explain_server": "explain",
    "workers": "workers",
    "functions": "functions",
    "control_workers": "control resize web1 --slots 4",
    "pause": "pause resize",
    "resume": "resume resize",
    "place": "place resize --beside upload --partition 3 --by-name",
    "limit": "limit resize --concurrency 4 --rate 10/s --key-concurrency 1 --key-rate none --fair",
    "jobs": "jobs --function f --state READY --unique k --name n --dead --state failed --error e --since 5 --limit 9"
    " --before 7 --key k --contains text --until 6",
    "job": "job H:t:1",
    "explain": "explain H:t:1",
    "cancel": "cancel --function f --state ready --unique k --name n --error e --since 5 --limit 9 --cascade",
    "retry": "retry --dead --function f --state failed --unique k --name n --error e --since 5 --limit 9",
    "change": "change H:t:1 --priority high --at +5m",
    "schedule": "schedule add poll fetch data --every 30 --catch-up none --overlap",
    "schedules": "schedules",
    "unschedule": "schedule remove poll",
    "pause_schedule": "schedule pause poll",
    "resume_schedule": "schedule resume poll",
    "run_schedule": "schedule run poll",
}
# Parameters of commands that are not arguments of verbs.
OF_THE_COMMAND = {
    "server",
    "token_file",
    "as_json",
    "show_connections",
    "interval",
    "view",
    "filter_text",
    "once",
    "wait",
}
# Commands that act on several things take them in the plural.
SINGULAR = {"handles": "handle", "functions": "function", "names": "name"}
# Arguments without an option, and why.
NOT_OPTIONS = {
    ("cancel", "before_id"): "the command asks again until there are no more",
    ("retry", "before_id"): "the command goes on by itself",
    ("retry", "all_dead"): "an older name; --all-dead is --dead",
    ("job", "contents"): "the command shows them",
    ("limit", "owner"): "an operator owns nothing",
    ("schedule", "owner"): "an operator owns nothing",
    ("job", "workers"): "the command always shows them",
    ("schedule", "options"): "each job option is an option of the command",
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What commands would send; each request is refused."""

    def control(self: Client, verb: str, **arguments: Any) -> Any:
        SENT.append((verb, {name: value for name, value in arguments.items() if value is not None}))
        raise ServerRefused("TEST", "this is no server")

    SENT.clear()
    monkeypatch.setattr(Client, "control", control)
    return SENT


def command_of(verb: OperatorVerb) -> click.Command:
    command: click.Command = main
    context = click.Context(main)
    for word in verb.command.split():
        if not word.startswith("--"):
            assert isinstance(command, click.Group)
            found = command.get_command(context, word)
            assert found is not None, word
            command = found
    return command


def test_every_verb_with_a_command_has_an_example() -> None:
    assert COMMANDS.keys() == {verb.name for verb in WITH_COMMAND}


@pytest.mark.parametrize("verb", WITH_COMMAND, ids=lambda verb: verb.name)
def test_a_command_sends_its_verb(verb: OperatorVerb, sent: list[tuple[str, dict[str, Any]]]) -> None:
    words = COMMANDS[verb.name].split()
    assert COMMANDS[verb.name].startswith(verb.command.partition(" --")[0])
    result = CliRunner().invoke(main, [*words, "--server", "gearman://127.0.0.1:1"])
    assert sent, result.output
    name, arguments = sent[0]
    assert name == verb.name
    checked(verb, arguments)


@pytest.mark.parametrize("verb", WITH_COMMAND, ids=lambda verb: verb.name)
def test_options_of_a_command_are_arguments_of_its_verb(verb: OperatorVerb) -> None:
    same_command = [other for other in WITH_COMMAND if command_of(other) is command_of(verb)]
    arguments = {argument.name for other in same_command for argument in other.arguments}
    own = OF_THE_COMMAND | (set(schedule_options()) if verb.name == "schedule" else set())
    parameters = [parameter.name or "" for parameter in command_of(verb).params]
    options = {SINGULAR.get(name, name) for name in parameters if name not in own}
    assert options <= arguments
    missing = {argument.name for argument in verb.arguments} - options
    assert missing == {name for command, name in NOT_OPTIONS if command == verb.name}


def schedule_options() -> list[str]:
    return [name for option in SCHEDULE_OPTIONS.values() for name in (option.name, option.schedule)]


# --- the Python library ---

CLASSES = {"App": App, "Job": Job, "JobGroup": JobGroup, "BulkOperation": BulkOperation, "AppSchedules": AppSchedules}


NUMBERS = count()


class Program:
    """An app with one task, which also runs on a schedule."""

    def __init__(self) -> None:
        self.app = app = App("gearman://127.0.0.1:1", name=f"program-{next(NUMBERS)}")

        @app.every(60, name="poll")
        @app.task(name="add")
        def add(number: int = 1) -> int:
            if number < 0:
                raise ValueError("negative")
            return number + 1

        self.add = add


CALLS: dict[str, Callable[[Program], object]] = {
    "App.server": lambda program: program.app.server(),
    "App.nodes": lambda program: program.app.nodes(),
    "App.connections": lambda program: program.app.connections(),
    "App.explain_server": lambda program: program.app.explain_server(),
    "App.workers": lambda program: program.app.workers(),
    "App.functions": lambda program: program.app.functions(),
    "App.control_workers": lambda program: program.app.control_workers("ping"),
    "App.pause": lambda program: program.app.pause(program.add),
    "App.resume": lambda program: program.app.resume(program.add),
    "App.place": lambda program: program.app.place(program.add),
    "App.limit": lambda program: program.app.limit(program.add, concurrency=2, rate="10/s", key_rate="none"),
    "App.jobs": lambda program: list(program.app.jobs(task=program.add, states=["ready"])),
    "App.cancel_all": lambda program: program.app.cancel_all(task=program.add),
    "App.retry_all": lambda program: program.app.retry_all(task=program.add),
    "App.bulk": lambda program: program.app.bulk("cancel", task=program.add, dry_run=True),
    "BulkOperation.refresh": lambda program: program.app.bulk("cancel", task=program.add).refresh(),
    "BulkOperation.abort": lambda program: program.app.bulk("cancel", task=program.add).abort(),
    "App.declare": lambda program: program.app.declare(),
    "Job.status": lambda program: program.add.submit(1).status(),
    "Job.explain": lambda program: program.add.submit(1).explain(),
    "Job.cancel": lambda program: program.add.submit(1).cancel(),
    "Job.retry": lambda program: retried(program.add.submit(-1)),
    "Job.complete": lambda program: program.add.options(delay=60).submit(1).complete(7),
    "Job.change": lambda program: program.add.options(delay=60).submit(1).change(priority="high", delay=0),
    "JobGroup.counts": lambda program: program.add.submit_many([1, 2]).counts(),
    "AppSchedules.list": lambda program: program.app.schedules.list(),
    "AppSchedules.remove": lambda program: program.app.schedules.remove("poll"),
    "AppSchedules.pause": lambda program: program.app.schedules.pause("poll"),
    "AppSchedules.resume": lambda program: program.app.schedules.resume("poll"),
    "AppSchedules.run": lambda program: program.app.schedules.run("poll"),
}


def retried(job: Job[int]) -> None:
    job.wait()
    job.retry()


def test_every_method_of_the_table_has_an_example() -> None:
    methods = {method for verb in WITH_METHOD for method in verb.library.split(", ")}
    assert CALLS.keys() == methods
    for method in methods:
        kind, _, name = method.partition(".")
        assert getattr(CLASSES[kind], name).__doc__, method


@pytest.mark.parametrize(
    ("verb", "method"),
    [(verb, method) for verb in WITH_METHOD for method in verb.library.split(", ")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_method_sends_its_verb(verb: OperatorVerb, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    control = InMemoryTransport.control

    def record(self: InMemoryTransport, name: str, arguments: dict[str, Any], *rest: Any) -> Any:
        asked.append((name, {key: value for key, value in arguments.items() if value is not None}))
        return control(self, name, arguments, *rest)

    monkeypatch.setattr(InMemoryTransport, "control", record)
    program = Program()
    with in_memory(program.app):
        program.app.declare()
        asked.clear()
        CALLS[method](program)
    arguments = next((arguments for name, arguments in asked if name == verb.name), None)
    assert arguments is not None, f"{method} asked for {asked}"
    checked(verb, arguments)


# --- the reference page ---


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "verbs.md"
    assert page.read_text(encoding="utf-8") == reference_page(), "docs/verbs.md is out of date; run make verbs"


def test_the_reference_page_has_every_verb_and_argument() -> None:
    page = reference_page()
    for verb in VERBS.values():
        assert f"## {verb.name}\n" in page
        for argument in verb.arguments:
            assert f"| `{argument.name}` |" in page
