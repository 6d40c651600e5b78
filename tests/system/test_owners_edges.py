"""Jobs of several nodes that wait for each other: edges between functions of different owners."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from switchgear import PredecessorFailed, chain, group
from switchgear.client.gearman.blocking import Client
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.system.owner_flows import owned_by, tasks_at
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, packet, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def nodes(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    yield from running(postgres.new_url(), tmp_path_factory.mktemp("owners"))


def running(url: str, place: Path) -> Iterator[list[OwnerNode]]:
    made = [OwnerNode(name, url, place, lease_seconds=6.0) for name in NAMES]
    with ExitStack() as stack:
        for node in made:
            stack.callback(node.end)
        for node in made:
            node.start()
        for node in made:
            node.wait_until_it_answers()
        settled(made)
        yield made


def state_of(client: Client, handle: str) -> str:
    return str(client.control("job", handle=handle)["state"])


def is_in(client: Client, handle: str, state: str) -> bool:
    return state_of(client, handle) == state


def submit(client: Client, function: str, payload: bytes = b"x", **options: Any) -> str:
    return client.submit(function, payload, background=True, **options).handle


@pytest.mark.parametrize("owner", range(3))
def test_a_job_runs_after_its_predecessors_of_other_nodes(nodes: list[OwnerNode], owner: int) -> None:
    """Submitted at the first node; the predecessors are the other nodes', the successor any node's."""
    functions = [function_of(node, 11 + owner) for node in nodes]
    with ExitStack() as stack:
        client = stack.enter_context(nodes[0].client())
        before = [submit(client, function, b"before") for function in functions]
        after = submit(client, functions[owner], b"after", after=before)
        assert state_of(client, after) == "waiting"
        for node, function in zip(nodes[1:], functions[:2], strict=True):
            stack.enter_context(PlainWorker(node, function))
        for handle in before[:2]:
            eventually(partial(is_in, client, handle, "done"), "a predecessor is done")
        assert state_of(client, after) == "waiting"
        stack.enter_context(PlainWorker(nodes[0], functions[2]))
        eventually(partial(is_in, client, after, "done"), "the successor is done")


@pytest.fixture(scope="module")
def worker(nodes: list[OwnerNode]) -> Iterator[None]:
    """A worker of the tasks of `owner_flows`, at the last node."""
    command = [sys.executable, "-m", "switchgear", "worker", "tests.system.owner_flows", "--slots", "4"]
    process = subprocess.Popen([*command, "--server", f"gearman://{HOST}:{nodes[2].port}"])
    yield
    process.terminate()
    process.wait(DEADLINE_SECONDS)


def reports(client: Client) -> set[str]:
    """The error handlers that have run."""
    jobs = client.control("jobs", function=owned_by("cleo", "report"), states=["done"])
    return {job["handle"] for job in jobs["jobs"]}


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("entry", range(3))
def test_workflows_of_tasks_of_several_nodes(nodes: list[OwnerNode], entry: int) -> None:
    """Chains, groups with a callback, and what becomes of failures, submitted at any node."""
    flows = tasks_at(f"gearman://{HOST}:{nodes[entry].port}")
    try:
        job = chain(flows.one.s(1), group(flows.add.s(number) for number in (10, 20)), flows.total.s()).submit()
        assert job.result(timeout=30) == 32
        with pytest.raises(PredecessorFailed, match="no 1"):
            chain(flows.one.s(1), flows.fail.s(), flows.one.s()).submit().result(timeout=30)
        with nodes[entry].client() as client:
            before = reports(client)
            job = chain(flows.fail.s(7), flows.one.s(), on_error=flows.report.s()).submit()
            with pytest.raises(PredecessorFailed, match="no 7"):
                job.result(timeout=30)
            eventually(lambda: len(reports(client) - before) == 1, "the error handler has run")
    finally:
        flows.app.close()


@pytest.mark.usefixtures("worker")
def test_spawned_jobs_of_another_node_are_waited_for(nodes: list[OwnerNode]) -> None:
    """The successor of the spawning job is another node's, and so are the spawned jobs."""
    flows = tasks_at(f"gearman://{HOST}:{nodes[0].port}")
    try:
        job = chain(flows.grow.s(3), flows.total_of.s()).submit()
        assert job.result(timeout=30) == 3
        with nodes[1].client() as client:
            predecessors = client.control("job", handle=job.handle)["predecessors"]
            assert len(predecessors) == 4
            assert all(state_of(client, handle) == "done" for handle in predecessors)
    finally:
        flows.app.close()


class FailingWorker(PlainWorker):
    """Fails the first job."""

    def _handle(self, kind: int, body: bytes) -> None:
        if kind == 11 and not self.payloads:
            self.payloads.append(b"failed")
            self._socket.sendall(packet(14, body.split(b"\0")[0]) + packet(9))
        else:
            super()._handle(kind, body)


def test_a_failed_predecessor_of_another_node_is_retried(nodes: list[OwnerNode]) -> None:
    """Its successors have each policy: skipped, failed, run all the same, or run after the retry."""
    before, after = function_of(nodes[1], 21), function_of(nodes[2], 21)
    with nodes[0].client() as client, FailingWorker(nodes[0], before), PlainWorker(nodes[1], after):
        with nodes[1].client() as other:
            other.control("pause", function=before)
        first = submit(client, before)
        words = ("skip", "fail", "run", "error", "wait")
        handles = {word: submit(client, after, after=[first], on_failure=word) for word in words}
        client.control("resume", function=before)
        for word, state in (("skip", "cancelled"), ("fail", "failed"), ("run", "done"), ("error", "done")):
            eventually(partial(is_in, client, handles[word], state), f"{word} has ended")
        assert "failed" in client.control("job", handle=handles["fail"])["error"]
        assert state_of(client, handles["wait"]) == "waiting"
        explanation = client.control("explain", handle=handles["wait"])["reasons"][0]
        assert "failed; retry that one" in explanation["text"]
        late = submit(client, after, after=[first], on_failure="skip")
        eventually(partial(is_in, client, late, "cancelled"), "a late successor is skipped")
        client.control("retry", handle=first)
        eventually(partial(is_in, client, handles["wait"], "done"), "the successor runs after the retry")


def test_a_cascade_cancels_the_jobs_of_all_nodes(nodes: list[OwnerNode]) -> None:
    functions = [function_of(node, 22) for node in nodes]
    with nodes[0].client() as client:
        chained: list[str] = []
        for number in range(6):
            chained.append(submit(client, functions[number % 3], after=chained[-1:], on_failure="run"))
        explained = client.control("explain", handle=chained[1])["reasons"][0]
        eventually(
            lambda: client.control("explain", handle=chained[1])["reasons"][0]["data"].get("node") == "ada",
            f"the node of the predecessor is named: {explained}",
        )
        client.control("cancel", handle=chained[0], cascade=True)
        for handle in chained:
            eventually(partial(is_in, client, handle, "cancelled"), "a job of the chain is cancelled")


def test_a_job_of_a_graph_is_known_at_every_node_from_its_acknowledgement_on(nodes: list[OwnerNode]) -> None:
    """Its owner takes it from an inbox a moment later; a cancel that comes before that finds it all the same."""
    functions = [function_of(node, 31) for node in nodes]
    lines = "\n".join(json.dumps({"function": function, "payload": "x"}) for function in functions).encode()
    with closing(http.client.HTTPConnection(HOST, nodes[0].http_port)) as connection, nodes[2].client() as client:
        for round_number in range(20):
            connection.request("POST", "/v1/jobs/batch?atomic=1", lines)
            rows = [json.loads(row) for row in connection.getresponse().read().splitlines()]
            place = round_number % 2 + 1  # a function of another node than that of the submitter
            client.control("cancel", handle=str(rows[place]["handle"]))
            assert state_of(client, rows[place]["handle"]) == "cancelled"
            assert client.admin(f"cancel job {rows[3 - place]['handle']}") == ["OK"]
