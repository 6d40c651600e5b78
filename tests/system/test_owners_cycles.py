"""Graphs of several nodes: cycles are refused, and limits of unfinished jobs hold."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from switchgear import chain
from switchgear.client.gearman.blocking import Client
from switchgear.errors import ServerRefused, SwitchgearError
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_flows import owned_by, tasks_at
from tests.system.owner_nodes import OwnerNode, function_of
from tests.system.test_owners_edges import running

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def database(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture(scope="module")
def nodes(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    yield from running(database, tmp_path_factory.mktemp("cycles"))


def submit(client: Client, function: str, **options: Any) -> str:
    return client.submit(function, b"x", background=True, **options).handle


def chained(client: Client, nodes: list[OwnerNode], number: int) -> list[str]:
    """Jobs of each node, each of which waits for the one before."""
    handles: list[str] = []
    for node in nodes:
        handles.append(submit(client, function_of(node, number), after=handles[-1:]))
    return handles


@pytest.mark.parametrize("entry", range(3))
def test_a_job_may_not_wait_for_one_that_waits_for_it(nodes: list[OwnerNode], entry: int) -> None:
    with nodes[entry].client() as client:
        first, second, third = chained(client, nodes, entry)
        with pytest.raises(ServerRefused, match=f"{first} -> {third} -> {second} -> {first}"):
            client.control("wait_for", handle=first, after=[third])
        assert client.control("job", handle=first)["state"] == "ready"
        late = submit(client, function_of(nodes[2], entry))
        assert client.control("wait_for", handle=first, after=[late]) == {"waits": True}


def test_successors_may_not_wait_for_one_that_waits_for_them(nodes: list[OwnerNode]) -> None:
    with nodes[0].client() as client:
        first, second, third = chained(client, nodes, 4)
        with pytest.raises(ServerRefused, match=f"{second} -> {third} -> {second}"):
            client.control("spawn", handle=first, jobs=[third])
        assert client.control("job", handle=second)["predecessors"] == [first]


def test_a_cycle_that_nobody_has_refused_is_explained(nodes: list[OwnerNode], database: str) -> None:
    """Two nodes may have stored their parts of it at the same moment; here the row of a job is changed."""
    with nodes[1].client() as client:
        first, _, third = chained(client, nodes, 5)
        other = submit(client, function_of(nodes[0], 5), after=[third])
        numbers = [int(handle.rpartition(":")[2]) for handle in (other, first)]
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "UPDATE sg_job SET state = 0, extra = (SELECT extra FROM sg_job WHERE id = %s) WHERE id = %s", numbers
            )
        reasons = client.control("explain", handle=third)["reasons"]
        assert reasons[0]["word"] == "cycle"
        assert reasons[0]["data"]["handles"][0] == reasons[0]["data"]["handles"][-1] == third
        client.control("cancel", handle=third)


def batch(node: OwnerNode, functions: list[str]) -> tuple[int, bytes]:
    """Submit an atomic batch with a job of each function; each job waits for the one before."""
    lines = [{"function": function, "payload": "x"} for function in functions]
    for number, line in enumerate(lines):
        if number:
            line["after"] = [f"#{number}"]  # type: ignore[assignment]
    body = "\n".join(map(json.dumps, lines)).encode()
    with closing(http.client.HTTPConnection(HOST, node.http_port, timeout=60)) as connection:
        connection.request("POST", "/v1/jobs/batch?atomic=true", body, {"Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def set_limit(node: OwnerNode, function: str, most: int) -> None:
    with socket.create_connection((HOST, node.port), timeout=60) as peer:
        peer.sendall(f"maxqueue {function} {most}\n".encode())
        assert peer.recv(100).startswith(b"OK")


def total_of(client: Client, function: str) -> int:
    return sum(each["total"] for each in client.control("functions") if each["name"] == function)


def test_limits_of_unfinished_jobs_hold_for_graphs_of_several_owners(nodes: list[OwnerNode]) -> None:
    one, two, three = functions = [function_of(node, 6) for node in nodes]
    set_limit(nodes[0], two, 2)
    with nodes[2].client() as client:
        status, text = batch(nodes[0], [one, two, three, two, two])
        assert status >= 400
        assert b"queue" in text
        assert not any(total_of(client, function) for function in functions)
        assert batch(nodes[0], [one, two, three, two])[0] == 200
        eventually(lambda: total_of(client, two) == 2, "the owner has its jobs")
        assert batch(nodes[0], [one, three])[0] == 200
        assert batch(nodes[0], [one, two])[0] >= 400


def test_the_same_for_the_python_library(nodes: list[OwnerNode]) -> None:
    flows = tasks_at(f"gearman://{HOST}:{nodes[0].port}")
    last = owned_by("cleo", "total")
    set_limit(nodes[1], last, 1)
    try:
        chain(flows.one.s(1), flows.total.s()).submit()
        with nodes[2].client() as client:
            eventually(lambda: total_of(client, last) == 1, "the owner has its job")
        with pytest.raises(SwitchgearError):
            chain(flows.one.s(1), flows.total.s()).submit()
    finally:
        flows.app.close()
