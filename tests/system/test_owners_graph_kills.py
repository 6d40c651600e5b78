"""Nodes are killed while a graph of several owners is stored and taken, and functions are placed elsewhere while jobs
wait for their jobs: such a graph is accepted as a whole or not at all, and each of its jobs runs once, in order."""

from __future__ import annotations

import http.client
import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.postgres import Cluster
from tests.support.proxy import Proxy, cuttable
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, NeverHappenedError, eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(300)]

# A busy machine must not look like a dead node. One that is killed is replaced at once, on the same machine.
LEASE_SECONDS = 3.0
SUSPENDED_SECONDS = 10.0  # nobody is to be replaced while a test has suspended it
JOBS = 60
MOVES = 12


class Stage:
    """Three nodes. The first one, at which graphs are submitted, is behind a database connection that can be held."""

    def __init__(self, postgres: Cluster, place: Path, stack: ExitStack, lease_seconds: float) -> None:
        self.network: Proxy = stack.enter_context(cuttable(postgres.port))
        far = postgres.new_url(self.network.port)
        self.database = far.replace(f":{self.network.port}/", f":{postgres.port}/")
        self.nodes = [
            OwnerNode(name, url, place, lease_seconds=lease_seconds)
            for name, url in zip(NAMES, (far, self.database, self.database), strict=True)
        ]
        self.entry, self.owner, self.other = self.nodes
        for node in self.nodes:
            stack.callback(node.end)
            node.start()
        for node in self.nodes:
            node.wait_until_it_answers()
        settled(self.nodes)
        self.functions = [function_of(node, 5) for node in self.nodes]
        # What is prepared once for each connection to the database is so now.
        assert len(self.submitted(self.entry, "first")) == JOBS
        with self.workers(self.other) as ran:
            eventually(partial(have_run, ran, "first"), "the first graph has run", 60)

    def submitted(self, node: OwnerNode, name: str, functions: list[str] | None = None) -> list[str]:
        """Submit a chain of jobs of all functions; returns their handles."""
        return submit_chain(node, name, functions or self.functions)

    def workers(self, node: OwnerNode) -> Workers:
        return Workers(node, self.functions)

    def count(self, query: str, *values: Any) -> int:
        with psycopg.connect(self.database) as connection:
            row = connection.execute(query, values).fetchone()
        assert row is not None
        return int(row[0])

    def stored(self, name: str) -> int:
        """How many jobs of a graph are stored and unfinished."""
        return self.count("SELECT count(*) FROM sg_job WHERE payload LIKE %s", f"{name} %".encode())

    def rows_of_inbox(self) -> int:
        return self.count("SELECT count(*) FROM sg_inbox")

    def has_lost(self, node: OwnerNode) -> bool:
        """Whether others have taken the partitions of a node."""
        return all(each.partitions().get(node.name) is None for each in self.nodes if not each.is_over())


class Workers:
    """A worker of each function at one node, and what all of them have run, in order."""

    def __init__(self, node: OwnerNode, functions: list[str]) -> None:
        self._node = node
        self._functions = functions
        self._stack = ExitStack()
        self._ran: list[bytes] = []

    def __enter__(self) -> list[bytes]:
        for function in self._functions:
            self._stack.enter_context(PlainWorker(self._node, function)).payloads = self._ran
        return self._ran

    def __exit__(self, *_: Any) -> None:
        self._stack.close()


def submit_chain(node: OwnerNode, name: str, functions: list[str], jobs: int = JOBS) -> list[str]:
    """Submit jobs of these functions in turn, each of which waits for the one before, in one atomic request."""
    lines = [
        json.dumps(
            {
                "function": functions[number % len(functions)],
                "payload": f"{name} {number}",
                "after": [f"#{number}"] if number else [],
            }
        )
        for number in range(jobs)
    ]
    with closing(http.client.HTTPConnection(HOST, node.http_port, timeout=DEADLINE_SECONDS)) as connection:
        connection.request("POST", "/v1/jobs/batch?atomic=1", "\n".join(lines).encode())
        answer = connection.getresponse()
        body = answer.read()
    if answer.status != 200:
        raise AssertionError(body)
    return [json.loads(row)["handle"] for row in body.splitlines()]


def numbers(ran: list[bytes], name: str) -> list[int]:
    """Which jobs of a graph have run, in order."""
    found = (payload.decode().split(" ") for payload in ran)
    return [int(number) for graph, number in found if graph == name]


def have_run(ran: list[bytes], name: str, jobs: int = JOBS) -> bool:
    return len(set(numbers(ran, name))) == jobs


@pytest.fixture
def stage(postgres: Cluster, tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(postgres, tmp_path, stack, LEASE_SECONDS)


@pytest.fixture
def patient_stage(postgres: Cluster, tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(postgres, tmp_path, stack, SUSPENDED_SECONDS)


def in_background(stage: Stage, name: str) -> threading.Thread:
    """Submit a graph whose answer never comes."""

    def submit() -> None:
        with suppress(OSError, http.client.HTTPException):
            stage.submitted(stage.entry, name)
            raise AssertionError("the graph was acknowledged")

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    return thread


def test_nothing_of_a_graph_is_there_if_its_node_dies_within_the_transaction(stage: Stage) -> None:
    """The database has a part of the transaction. The rest comes after the takeover, and too late."""
    stage.network.stall_requests()
    submitting = in_background(stage, "lost")
    assert stage.network.has_stalled.wait(DEADLINE_SECONDS)
    assert b"lost 0" in stage.network.stalled_request
    stage.entry.signal(signal.SIGKILL)
    stage.entry.wait()
    submitting.join(DEADLINE_SECONDS)
    eventually(partial(stage.has_lost, stage.entry), "others have taken over", 60)
    stage.network.release_requests()
    with stage.workers(stage.other) as ran:
        stage.submitted(stage.owner, "again")
        eventually(partial(have_run, ran, "again"), "the repeated graph has run", 60)
    assert (stage.stored("lost"), stage.rows_of_inbox()) == (0, 0)
    assert numbers(ran, "lost") == []
    assert numbers(ran, "again") == list(range(JOBS))


def test_a_graph_is_there_as_a_whole_if_its_node_dies_after_the_commit(stage: Stage) -> None:
    """The node never hears that the graph is stored, and tells no owner."""
    stage.network.hold_answers()
    submitting = in_background(stage, "whole")
    eventually(lambda: stage.stored("whole") == JOBS, "the graph is stored", 60)
    stage.entry.signal(signal.SIGKILL)
    stage.entry.wait()
    submitting.join(DEADLINE_SECONDS)
    with stage.workers(stage.other) as ran:
        eventually(partial(have_run, ran, "whole"), "the graph has run", 60)
    assert numbers(ran, "whole") == list(range(JOBS))
    eventually(lambda: stage.rows_of_inbox() == 0, "the inbox is empty")


@pytest.mark.parametrize("has_taken", [False, True], ids=["before", "after"])
def test_an_owner_dies_before_it_has_emptied_its_inbox(patient_stage: Stage, *, has_taken: bool) -> None:
    """Before it has taken its jobs, or when it has them and the row of the inbox is still there."""
    stage = patient_stage
    function = stage.functions[1]
    stage.owner.signal(signal.SIGSTOP)
    stage.submitted(stage.entry, "kept")
    with psycopg.connect(stage.database) as connection:
        if has_taken:
            connection.execute("LOCK TABLE sg_inbox IN SHARE MODE")
            stage.owner.signal(signal.SIGCONT)
            eventually(partial(has_jobs, stage.owner, function), "the owner has its jobs", 60)
        assert stage.rows_of_inbox() >= 1
        stage.owner.signal(signal.SIGKILL)
        stage.owner.wait()
        if not has_taken:
            connection.rollback()
        eventually(partial(stage.has_lost, stage.owner), "others have taken over", 60)
        connection.rollback()
    with stage.workers(stage.other) as ran:
        eventually(partial(have_run, ran, "kept"), "the graph has run", 60)
    assert numbers(ran, "kept") == list(range(JOBS))
    eventually(lambda: stage.rows_of_inbox() == 0, "the inbox is empty")


def has_jobs(node: OwnerNode, function: str) -> bool:
    with node.client() as client:
        rows = client.control("functions")
    return any(row["name"] == function and row["total"] for row in rows)


class Graphs:
    """Submits short chains at one node, one after the other, until it is told to stop."""

    def __init__(self, node: OwnerNode, functions: list[str]) -> None:
        self.handles: dict[str, list[str]] = {}  # of the jobs of those that were accepted, by name
        self.problems: list[BaseException] = []
        self._node = node
        self._functions = functions
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._submit, daemon=True)
        self._thread.start()

    def _submit(self) -> None:
        number = 0
        while not self._is_over.wait(0.02):
            number += 1
            try:
                self.handles[f"g{number}"] = submit_chain(self._node, f"g{number}", self._functions, 4)
            except Exception as problem:
                self.problems.append(problem)

    def wait_for_more(self, count: int = 5) -> None:
        wanted = len(self.handles) + count
        eventually(lambda: len(self.handles) >= wanted or self.problems, "more graphs are accepted", 60)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.mark.parametrize("moved", [0, 1], ids=["predecessors", "successors"])
def test_a_function_is_placed_elsewhere_while_jobs_wait_for_its_jobs(stage: Stage, moved: int) -> None:
    """Chains through two functions go on being accepted and run while one of the two moves to the owner of the other,
    and back."""
    before, after = stage.functions[1:]
    function, beside = (before, after) if moved == 0 else (after, before)
    waiting = submit_chain(stage.entry, "waiting", [before, after], 4)
    with ExitStack() as stack:
        client = stack.enter_context(stage.entry.client())
        client.control("place", function=function, beside=beside)
        ran = stack.enter_context(stage.workers(stage.other))
        graphs = Graphs(stage.entry, [before, after])
        stack.callback(graphs.end)
        for number in range(MOVES):
            graphs.wait_for_more(3)
            arguments = {"by_name": True} if number % 2 == 0 else {"beside": beside}
            client.control("place", function=function, **arguments)
        graphs.wait_for_more()
        graphs.end()
        assert not graphs.problems, graphs.problems[:3]
        handles = {"waiting": waiting, **graphs.handles}
        try:
            eventually(lambda: all(have_run(ran, name, 4) for name in handles), "all graphs have run", 60)
        except NeverHappenedError as error:
            left = [name for name in handles if not have_run(ran, name, 4)]
            why = [client.control("explain", handle=handle) for name in left[:3] for handle in handles[name]]
            raise AssertionError(
                left, numbers(ran, left[0]), why, [node.output()[-2000:] for node in stage.nodes]
            ) from error
        states = client.control("states", handles=waiting)["states"]
    assert states == ["done"] * 4
    for name in handles:
        assert numbers(ran, name) == [0, 1, 2, 3], name
    assert max(Counter(ran).values()) == 1
