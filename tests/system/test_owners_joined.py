"""A submission that joins a job of another node by its unique key is told the handle of that job, in each protocol."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pytest

from tests.support.draft_wire import Kind, create
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_nodes import OwnerNode, PlainWorker, function_of, packet, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(120)]

NAMES = ("ada", "bob")


@pytest.fixture(scope="module")
def nodes(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    store, place = postgres.new_url(), tmp_path_factory.mktemp("joined")
    made = [OwnerNode(name, store, place, lease_seconds=6.0) for name in NAMES]
    with ExitStack() as stack:
        for node in made:
            stack.callback(node.end)
            node.start()
            node.wait_until_it_answers()
        settled(made)
        yield made


def first_job(nodes: list[OwnerNode], number: int) -> tuple[str, str]:
    """A function of the first node, and the handle of a job with the key k, submitted there."""
    function = function_of(nodes[0], number, NAMES)
    with nodes[0].client() as client:
        return function, client.submit(function, b"first", unique="k", background=True).handle


def requested(node: OwnerNode, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, Any]:
    with closing(http.client.HTTPConnection(HOST, node.http_port, timeout=30)) as connection:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def submission(function: str, key: str = "k") -> bytes:
    return json.dumps({"function": function, "unique": key, "payload": "second"}).encode()


JSON = {"Content_Type": "application/json"}


def test_http(nodes: list[OwnerNode]) -> None:
    function, handle = first_job(nodes, 0)
    status, headers, body = requested(nodes[1], "POST", "/v1/jobs", submission(function), **JSON)
    answer = json.loads(body)
    assert (status, answer["handle"], answer["joined"]) == (200, handle, True)
    assert answer["id"] == int(handle.rpartition(":")[2])
    status, _, body = requested(nodes[1], "GET", headers["Location"])
    assert (status, json.loads(body)["handle"]) == (200, handle)


def test_http_with_a_connection_that_closes(nodes: list[OwnerNode]) -> None:
    function, handle = first_job(nodes, 1)
    _, _, body = requested(nodes[1], "POST", "/v1/jobs", submission(function), Connection="close", **JSON)
    assert json.loads(body)["handle"] == handle


def test_lines_of_a_batch(nodes: list[OwnerNode]) -> None:
    function, handle = first_job(nodes, 2)
    lines = b"\n".join([submission(function, "other"), submission(function), submission(function, "third")])
    status, _, body = requested(nodes[1], "POST", "/v1/jobs/batch", lines, Content_Type="application/x-ndjson")
    answers = [json.loads(line) for line in body.splitlines()]
    assert status == 200
    assert [answer["line"] for answer in answers] == [1, 2, 3]
    assert [answer["joined"] for answer in answers] == [False, True, False]
    assert answers[1]["handle"] == handle
    for answer in answers:
        assert requested(nodes[0], "GET", f"/v1/jobs/{answer['handle']}")[0] == 200


def test_http_that_waits(nodes: list[OwnerNode]) -> None:
    function, handle = first_job(nodes, 3)
    status, headers, body = requested(nodes[1], "POST", "/v1/jobs", submission(function), Prefer="wait=1", **JSON)
    assert (status, json.loads(body)["handle"]) == (202, handle)
    assert headers["Location"].endswith(handle)
    with PlainWorker(nodes[1], function):
        status, _, body = requested(nodes[1], "POST", "/v1/jobs", submission(function), Prefer="wait=30", **JSON)
    answer = json.loads(body)
    assert (status, answer["handle"], answer["state"]) == (200, handle, "done")


def test_the_draft(nodes: list[OwnerNode]) -> None:
    function, handle = first_job(nodes, 4)
    with socket.create_connection((HOST, nodes[1].port), timeout=30) as peer, peer.makefile("rb") as answers:
        peer.sendall(create(function.encode(), b"second", dupkey=b"k"))
        head = answers.read(9)
        assert head[4] == Kind.job_create_res
        assert answers.read(int.from_bytes(head[5:], "big")).decode() == handle


GET_STATUS_UNIQUE, STATUS_RES_UNIQUE, SUBMIT_JOB = 41, 42, 7


def status_of_key(node: OwnerNode, key: bytes) -> tuple[int, list[bytes]]:
    with socket.create_connection((HOST, node.port), timeout=30) as peer, peer.makefile("rb") as answers:
        peer.sendall(packet(GET_STATUS_UNIQUE, key))
        header = answers.read(12)
        return header[7], answers.read(int.from_bytes(header[8:], "big")).split(b"\0")


def has_status(node: OwnerNode, key: bytes, wanted: tuple[int, list[bytes]]) -> bool:
    return status_of_key(node, key) == wanted


def test_the_status_of_a_key_is_told_by_every_node(nodes: list[OwnerNode]) -> None:
    """Known, running, numerator, denominator, and waiting clients, here at both nodes."""
    function = function_of(nodes[0], 9, NAMES)
    with ExitStack() as stack:
        for count, node in enumerate(nodes, 1):
            peer = stack.enter_context(socket.create_connection((HOST, node.port), timeout=30))
            peer.sendall(packet(SUBMIT_JOB, function.encode(), b"everywhere", b"x"))
            assert peer.recv(4096)[7] == 8  # JOB_CREATED
            for asked in nodes:
                wanted = (STATUS_RES_UNIQUE, [b"everywhere", b"1", b"0", b"0", b"0", b"%d" % count])
                eventually(partial(has_status, asked, b"everywhere", wanted), "the status is told")
    for asked in nodes:
        assert status_of_key(asked, b"nowhere") == (STATUS_RES_UNIQUE, [b"nowhere", b"0", b"0", b"0", b"0", b"0"])
