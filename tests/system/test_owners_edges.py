"""Jobs of several nodes that wait for each other: edges between functions of different owners."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from switchgear.client.gearman.blocking import Client
from tests.support.postgres import Cluster
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def nodes(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    yield from running(postgres.new_url(), tmp_path_factory.mktemp("owners"))


def running(url: str, place: Path) -> Iterator[list[OwnerNode]]:
    made = [OwnerNode(name, url, place) for name in NAMES]
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
