"""GearMonkey at several nodes that own functions: channels, hashes and lock lists of jobs that other nodes have."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import Cluster
from tests.support.resp_wire import OK, NullArray, RespWire
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, running

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def nodes(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    place, url = tmp_path_factory.mktemp("owners"), postgres.new_url()
    made = [OwnerNode(name, url, place) for name in NAMES]
    with running(made):
        yield made


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def peer(node: OwnerNode, peers: ExitStack) -> RespWire:
    return peers.enter_context(RespWire((HOST, node.redis_port)))


def write(client: RespWire, function: str, data: str = "in") -> int:
    """Get an id, and write the hash of a job."""
    number = client.ask("INCR", f"uid:{function}")
    assert isinstance(number, int)
    assert client.ask("HMSET", f"job:{function}:{number}", "status", "idle", "input", data) == OK
    return number


def push(client: RespWire, function: str, data: str = "in", queue: str = "normal") -> int:
    number = write(client, function, data)
    assert client.ask("LPUSH", f"queue:{function}:{queue}", number) == 1
    return number


def pop(worker: RespWire, function: str) -> int:
    queues = [f"queue:{function}:{priority}" for priority in ("high", "normal", "low")]
    _, number = worker.ask("BRPOP", *queues, 20)
    return int(number)


def fields(client: RespWire, function: str, number: int) -> dict[bytes, bytes]:
    flat: list[Any] = client.ask("HGETALL", f"job:{function}:{number}")
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_a_job_is_followed_at_one_node_owned_by_another_and_run_at_a_third(
    nodes: list[OwnerNode], peers: ExitStack
) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner)
    client, reader, worker = peer(submitter, peers), peer(submitter, peers), peer(runner, peers)
    number = push(client, function)
    client.send("BRPOP", f"lock:{function}:{number}", 20)
    assert pop(worker, function) == number
    assert fields(worker, function, number)[b"input"] == b"in"
    key = f"job:{function}:{number}"
    assert worker.ask("HMSET", key, "status", "busy", "status:dividend", 1, "status:divisor", 4) == OK
    eventually(
        lambda: reader.ask("HMGET", key, "status", "status:dividend", "status:divisor") == [b"busy", b"1", b"4"],
        "its progress is seen",
    )
    assert worker.ask("HMSET", key, "status", "success", "output", "out") == OK
    assert client.receive() == [f"lock:{function}:{number}".encode(), b"OK"]
    for node in nodes:
        seen = fields(peer(node, peers), function, number)
        assert (seen[b"status"], seen[b"output"]) == (b"success", b"out")
        assert 80_000 < peer(node, peers).ask("TTL", key) <= 90_000


def test_a_wait_for_a_job_of_another_node_times_out_and_can_be_repeated(
    nodes: list[OwnerNode], peers: ExitStack
) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner, 1)
    client = peer(submitter, peers)
    number = push(client, function)
    assert client.ask("BRPOP", f"lock:{function}:{number}", 0.05) == NullArray()
    client.send("BRPOP", f"lock:{function}:{number}", 20)
    with PlainWorker(runner, function):
        assert client.receive() == [f"lock:{function}:{number}".encode(), b"OK"]


def test_a_wait_that_is_sent_together_with_the_push(nodes: list[OwnerNode], peers: ExitStack) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner, 2)
    client = peer(submitter, peers)
    number = write(client, function)
    client.send("LPUSH", f"queue:{function}:normal", number)
    client.send("BRPOP", f"lock:{function}:{number}", 20)
    assert client.receive() == 1
    with PlainWorker(runner, function):
        assert client.receive() == [f"lock:{function}:{number}".encode(), b"OK"]


def test_a_refused_push_leaves_what_was_written(nodes: list[OwnerNode], peers: ExitStack) -> None:
    submitter, owner, _ = nodes
    function = function_of(owner, 3)
    client = peer(submitter, peers)
    push(client, function)
    set_queue_limit(owner, function, 1)
    number = write(client, function, "kept")
    answer = client.ask("LPUSH", f"queue:{function}:normal", number)
    assert b"queue is full" in answer.text
    assert fields(client, function, number)[b"input"] == b"kept"
    set_queue_limit(owner, function, 0)
    assert client.ask("LPUSH", f"queue:{function}:normal", number) == 1


def set_queue_limit(node: OwnerNode, function: str, limit: int) -> None:
    with socket.create_connection((HOST, node.port)) as admin:
        admin.sendall(f"maxqueue {function} {limit}\n".encode())
        assert admin.recv(100) == b"OK\r\n"


@pytest.mark.parametrize("is_pattern", [False, True])
def test_channels_tell_of_each_start_and_end_once_at_every_node(
    nodes: list[OwnerNode], peers: ExitStack, is_pattern: bool
) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner, 4 + is_pattern)
    channel = f"channel:{function}"
    listeners = [peer(node, peers) for node in nodes]
    for listener in listeners:
        if is_pattern:
            listener.ask("PSUBSCRIBE", f"channel:{function[:-1]}?")
        else:
            listener.ask("SUBSCRIBE", channel)
    client, worker = peer(submitter, peers), peer(runner, peers)
    told: list[list[bytes]] = [[] for _ in nodes]

    def hears(message: str) -> bool:
        """Each subscriber gets the message."""
        for listener, messages in zip(listeners, told, strict=True):
            while message.encode() not in messages:
                reply = listener.receive()
                assert reply[-2] == channel.encode()
                messages.append(reply[-1])
        return True

    for listener in listeners:
        hear_something(client, channel, listener)
    first = push(client, function)
    assert pop(worker, function) == first
    worker.ask("PUBLISH", channel, f"start:{first}")  # as its protocol says
    worker.ask("HMSET", f"job:{function}:{first}", "status", "success", "output", "out")
    worker.ask("PUBLISH", channel, f"finish:{first}")
    assert hears(f"finish:{first}")
    second = push(client, function)
    with PlainWorker(submitter, function):
        assert hears(f"finish:{second}")
    client.ask("PUBLISH", channel, "end")
    assert hears("end")
    for messages in told:
        wanted = [f"start:{first}", f"finish:{first}", f"start:{second}", f"finish:{second}"]
        assert sorted(text.decode() for text in messages if b":" in text) == sorted(wanted)


def hear_something(client: RespWire, channel: str, listener: RespWire) -> None:
    """Publish until the node of the client knows of the subscription at another node."""

    def has_heard() -> bool:
        client.ask("PUBLISH", channel, "ready")
        try:
            return bool(listener.receive(0.1))
        except TimeoutError:
            return False

    eventually(has_heard, "a message is heard at another node")


def test_nobody_else_can_report_a_job_of_another_node(nodes: list[OwnerNode], peers: ExitStack) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner, 6)
    client, worker = peer(submitter, peers), peer(runner, peers)
    number = push(client, function)
    assert pop(worker, function) == number
    key = f"job:{function}:{number}"
    assert b"was not taken" in client.ask("HMSET", key, "status", "success", "output", "no").text
    assert worker.ask("HMSET", key, "status", "success", "output", "yes") == OK
    eventually(partial(has_output, client, function, number, b"yes"), "the worker's own report counts")


def has_output(client: RespWire, function: str, number: int, output: bytes) -> bool:
    return fields(client, function, number).get(b"output") == output


def test_scheduled_jobs_are_run_at_other_nodes_when_they_are_due(nodes: list[OwnerNode], peers: ExitStack) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner, 7)
    client, worker = peer(submitter, peers), peer(runner, peers)
    number = write(client, function)
    now_s = int(client.ask("TIME")[0])
    assert client.ask("ZADD", f"queue:{function}:scheduled", now_s + 1, number) == 1
    assert pop(worker, function) == number


def test_a_bridge_is_refused_with_the_reason(postgres: Cluster, tmp_path: Path) -> None:
    node = OwnerNode("ada", postgres.new_url(), tmp_path, listen=("redis://127.0.0.1:1",))
    node.start()
    try:
        assert node.wait() != 0
        assert "there is no bridge to a Redis" in node.output()
    finally:
        node.end()
