"""A node that does not answer, while another one is asked: the answer names it, or is a refusal that names it."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from switchgear.app.app import App
from switchgear.client.gearman.blocking import Client
from switchgear.errors import ServerRefused
from switchgear.verbs.operator_verb import Reach
from switchgear.verbs.table import VERBS
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, function_of, has_partitions, running, shares

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]

# Longer than a node waits for its part of a list, and shorter than it waits for a change.
LEASE_SECONDS = 6.0
LOST = "cleo"


class Stage:
    """Three nodes of which the last one is suspended, and what each verb can be asked about at the first one."""

    def __init__(self, nodes: list[OwnerNode]) -> None:
        self.nodes = nodes
        self.entry, _, self.lost = nodes
        self.function = function_of(self.lost, 3)
        self.here = function_of(self.entry, 3)
        with self.entry.client() as client:
            self.handle = client.submit(self.function, b"x", background=True).handle
            client.submit(self.here, b"x", background=True)
            client.control("schedule", name="s", function=self.function, every_seconds=86_400)
        function, handle, key = {"function": self.function}, {"handle": self.handle}, {"key": "none"}
        self.arguments: dict[str, dict[str, Any]] = {
            "at": {"t": 1},
            "runs": {"since": 1, "until": 2},
            "control_workers": {"action": "ping"},
            "states": {"handles": [self.handle]},
            "cancel": key,
            "retry": key,
            "graph": handle,
            "bulk": {"action": "cancel", "dry_run": True, **key},
            "abort_bulk": {"id": "b-1-1"},
            "change": {**handle, "priority": "high"},
            "wait_for": {**handle, "after": []},
            "spawn": {**handle, "jobs": []},
            "schedule": {"name": "s", "every_seconds": 60, **function},
            "declare": {"owner": "a", "schedules": [], "functions": []},
        }
        for verb in ("times", "keys", "pause", "resume", "limit", "place"):
            self.arguments[verb] = function
        for verb in ("job", "explain", "complete"):
            self.arguments[verb] = handle
        for verb in ("unschedule", "pause_schedule", "resume_schedule", "run_schedule"):
            self.arguments[verb] = {"name": "s"}

        name = self.function
        self.lines = [
            "status",
            "prioritystatus",
            "workers",
            "show jobs",
            "show unique jobs",
            f"maxqueue {name} 5",
            f"create function {name}",
            f"drop function {name}",
            f"cancel job {self.handle}",
        ]

    def text(self, line: str) -> Any:
        with self.entry.client() as client:
            try:
                return client.admin(line)
            except ServerRefused as refused:
                return str(refused)

    def over_http(self) -> Any:
        with urlopen(f"http://{HOST}:{self.entry.http_port}/v1/functions") as answer:
            assert json.load(answer)
            return answer.headers

    def one_over_http(self) -> Any:
        try:
            with urlopen(f"http://{HOST}:{self.entry.http_port}/v1/functions/{self.function}") as answer:
                return answer.status
        except HTTPError as error:
            return error.code, error.read()

    def by_the_library_over_http(self) -> Any:
        """What the library writes to its log."""
        said: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("switchgear")
        log.addHandler(handler)
        try:
            with App(f"http://{HOST}:{self.entry.http_port}") as app:
                app.control("schedules")
        finally:
            log.removeHandler(handler)
        return said

    def by_command(self) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "switchgear", "functions", "--server", f"gearman://{HOST}:{self.entry.port}"]
        return subprocess.run(command, capture_output=True, timeout=60)

    def outcome(self, verb: str) -> tuple[Any, Any]:
        """The answer or the refusal of the first node, and what it says is missing."""
        with self.entry.client() as client:
            try:
                return client.control(verb, **self.arguments.get(verb, {})), client.incomplete
            except ServerRefused as refused:
                return refused, None


@pytest.fixture(scope="module")
def nodes(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    place = tmp_path_factory.mktemp("unreachable")
    url = postgres.new_url()
    made = [OwnerNode(name, url, place, lease_seconds=LEASE_SECONDS) for name in NAMES]
    with running(made):
        yield made


@pytest.fixture(scope="module")
def answers(nodes: list[OwnerNode]) -> dict[str, Any]:
    """What the first node says to everything that it is asked while the last one is suspended."""
    stage = Stage(nodes)
    with ThreadPoolExecutor(100) as pool:
        nodes[-1].signal(signal.SIGSTOP)
        asked = {verb: pool.submit(stage.outcome, verb) for verb, row in VERBS.items() if not row.is_text_only}
        texts = {f"text {line}": pool.submit(stage.text, line) for line in stage.lines}
        others = {
            "http": pool.submit(stage.over_http),
            "one over http": pool.submit(stage.one_over_http),
            "http-library": pool.submit(stage.by_the_library_over_http),
            "command": pool.submit(stage.by_command),
        }
        return {name: future.result() for name, future in (asked | texts | others).items()}


@pytest.mark.parametrize("verb", [name for name, row in VERBS.items() if not row.is_text_only])
def test_a_verb_says_which_node_did_not_answer(answers: dict[str, Any], verb: str) -> None:
    answer, incomplete = answers[verb]
    reach = VERBS[verb].reach
    if reach is Reach.HERE:
        assert not isinstance(answer, ServerRefused), answer
        assert incomplete is None
    elif verb == "abort_bulk":  # no node that answers knows the action
        assert "no answer from the node cleo" in str(answer)
    elif reach is Reach.ALL or verb in ("cancel", "retry"):
        assert not isinstance(answer, ServerRefused), answer
        assert incomplete["unreachable"] == [LOST]
    else:
        assert isinstance(answer, ServerRefused), answer
        assert f"the node {LOST}, which owns the function" in str(answer)
        assert ("is not known" in str(answer)) == VERBS[verb].changes


@pytest.mark.parametrize("line", ["status", "prioritystatus", "workers", "show jobs", "show unique jobs"])
def test_a_text_command_has_a_line_about_it(answers: dict[str, Any], line: str) -> None:
    assert any(
        "no\\x20answer\\x20from\\x20cleo" in each or "(no answer from cleo)" in each for each in answers[f"text {line}"]
    )


@pytest.mark.parametrize("line", ["maxqueue", "create", "drop", "cancel"])
def test_a_text_command_that_changes_something_names_it(answers: dict[str, Any], line: str) -> None:
    (refused,) = [answer for command, answer in answers.items() if command.startswith(f"text {line} ")]
    assert LOST in refused


def test_http_has_a_header(answers: dict[str, Any]) -> None:
    assert answers["http"]["Switchgear-Unreachable"] == LOST


def test_http_does_not_say_that_there_is_nothing(answers: dict[str, Any]) -> None:
    """The node that has the function did not answer."""
    status, text = answers["one over http"]
    assert status == 503
    assert b"not all nodes have answered" in text


def test_the_library_logs_it(answers: dict[str, Any]) -> None:
    assert "the answer to schedules lacks what the node cleo should have answered" in answers["http-library"]


def test_the_command_line_prints_it(answers: dict[str, Any]) -> None:
    assert answers["command"].returncode == 0
    assert b"the answer to functions lacks what the node cleo should have answered" in answers["command"].stderr


def test_a_question_to_a_node_that_is_killed_meanwhile_goes_to_the_next_owner(
    nodes: list[OwnerNode], answers: dict[str, Any]
) -> None:
    entry, killed, _ = nodes
    function = function_of(killed, 7, NAMES)
    with entry.client() as client:
        client.submit(function, b"x", background=True)
        with ThreadPoolExecutor(1) as pool:
            killed.signal(signal.SIGSTOP)
            asked = pool.submit(client.control, "graph", function=function)
            killed.signal(signal.SIGKILL)
            assert asked.result()["jobs"] == 1


def test_while_functions_move_a_list_is_complete_or_says_that_it_is_not(
    nodes: list[OwnerNode], answers: dict[str, Any]
) -> None:
    """A node comes back, and gets functions from the one that is left; then it is killed."""
    entry, other, _ = nodes
    functions = {function_of(node, number, NAMES[:2]) for node in nodes[:2] for number in range(20, 40)}
    eventually(other.is_over, "the node is gone")
    with entry.client() as client:
        eventually(partial(has_all, client, functions, submit=True), "one node has everything", 60)
        other.start()
        seen = watch(client, functions, lambda: has_partitions(entry, shares(nodes[:2])))
        other.signal(signal.SIGKILL)
        seen += watch(client, functions, lambda: has_partitions(entry, {entry.name: 64}))
    assert None in seen
    assert any(incomplete and incomplete["partitions_without_owner"] for incomplete in seen)


def has_all(client: Client, functions: set[str], *, submit: bool = False) -> bool:
    """Whether lists have all functions, each with its job, unless they say that something is missing."""
    if submit:
        for function in functions:
            client.submit(function, b"x", unique="once", background=True)
    jobs = client.control("jobs", unique="once", limit=1000)["jobs"]
    if client.incomplete is None and {job["function"] for job in jobs} != functions:
        return False
    rows = {row["name"]: row["ready"] for row in client.control("functions")}
    return client.incomplete is not None or all(rows.get(function) == 1 for function in functions)


def watch(client: Client, functions: set[str], is_over: Callable[[], bool]) -> list[Any]:
    """Ask again and again; returns what the lists said that they lack."""
    seen: list[Any] = []

    def look() -> bool:
        assert has_all(client, functions)
        seen.append(client.incomplete)
        return client.incomplete is None and is_over()

    eventually(look, "the functions have moved", 90)
    return seen
