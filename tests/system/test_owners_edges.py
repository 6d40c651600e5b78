"""Jobs of several nodes that wait for each other: edges between functions of different owners."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from switchgear import PredecessorFailed, TaskFailed, chain, group
from switchgear.client.gearman.blocking import Client
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.system.owner_flows import tasks_at
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def nodes(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    yield from running(postgres.new_url(), tmp_path_factory.mktemp("owners"))


def running(url: str, place: Path) -> Iterator[list[OwnerNode]]:
    made = [OwnerNode(name, url, place, lease_seconds=3.0) for name in NAMES]
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
        job = flows.fail.s(7).on_error(flows.report.s()).submit()
        with pytest.raises(TaskFailed):
            job.result(timeout=30)
    finally:
        flows.app.close()
