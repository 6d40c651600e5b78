"""Jobs that require tags and resources, and workers that have them at other nodes than the owner of the function."""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, packet, running, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def nodes(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    place = tmp_path_factory.mktemp("requirements")
    url = postgres.new_url()
    made = [OwnerNode(name, url, place, lease_seconds=3.0) for name in NAMES]
    with running(made):
        yield made


class HeldWorker:
    """A raw Gearman worker with tags and resources, which takes as many jobs as it gets, and ends them when told."""

    def __init__(self, node: OwnerNode, functions: list[str], tags: str = "", resources: str = "") -> None:
        self.running: dict[bytes, bytes] = {}  # handles by payload
        self.begun: list[bytes] = []
        self._takes_more = bool(resources)  # as many jobs as fit
        self._lock = threading.Lock()
        self._socket = socket.create_connection((HOST, node.port))
        abilities = b"".join(packet(1, function.encode()) for function in functions)
        described = packet(1012, tags.encode()) + packet(1013, resources.encode())
        self._socket.sendall(described + abilities + packet(9))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> HeldWorker:
        return self

    def __exit__(self, *_: Any) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(DEADLINE_SECONDS)

    def end(self, payload: bytes) -> None:
        with self._lock:
            handle = self.running.pop(payload)
        self._socket.sendall(packet(13, handle, payload.upper()) + packet(9))

    def has(self, *payloads: bytes) -> bool:
        return set(payloads) <= set(self.begun)

    def _run(self) -> None:
        held = b""
        try:
            while data := self._socket.recv(65_536):
                held += data
                while len(held) >= 12:
                    kind, size = struct.unpack_from(">4xII", held)
                    if len(held) < 12 + size:
                        break
                    body, held = held[12 : 12 + size], held[12 + size :]
                    if kind == 6:  # NOOP
                        self._socket.sendall(packet(9))
                    elif kind == 10:  # NO_JOB
                        self._socket.sendall(packet(4))
                    elif kind == 11:  # JOB_ASSIGN
                        handle, _, payload = body.split(b"\0", 2)
                        with self._lock:
                            self.running[payload] = handle
                            self.begun.append(payload)
                        if self._takes_more:
                            self._socket.sendall(packet(9))
        except OSError:
            return


def reason_of(node: OwnerNode, handle: str) -> dict[str, Any]:
    with node.client() as client:
        reasons: list[dict[str, Any]] = client.control("explain", handle=handle)["reasons"]
    return reasons[0]


def is_explained(node: OwnerNode, handle: str, word: str) -> dict[str, Any]:
    """The reason, if it is this one; otherwise nothing."""
    reason = reason_of(node, handle)
    return reason if reason["word"] == word else {}


def state_of(node: OwnerNode, handle: str) -> str:
    with node.client() as client:
        return str(client.control("job", handle=handle)["state"])


def is_done(node: OwnerNode, handle: str) -> bool:
    return state_of(node, handle) == "done"


def test_a_tagged_worker_of_another_node_gets_the_job_and_others_do_not(nodes: list[OwnerNode]) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner)
    with (
        PlainWorker(runner, function) as plain,
        PlainWorker(owner, function) as plain_owner,
        submitter.client() as client,
    ):
        handle = client.submit(function, b"large", background=True, requires="gpu,large").handle
        reason = eventually(partial(is_explained, submitter, handle, "missing_tag"), "it is explained")
        assert sorted(reason["data"]["missing"]) == ["gpu", "large"]
        assert client.submit(function, b"other").wait(DEADLINE_SECONDS) == b"OTHER"  # it is not blocked
        with HeldWorker(submitter, [function], "gpu") as half:
            eventually(
                lambda: reason_of(owner, handle)["data"].get("missing") == ["large"],
                "the worker of a third node counts",
            )
            with HeldWorker(runner, [function], "gpu,large") as tagged:
                eventually(partial(tagged.has, b"large"), "the tagged worker got it")
                assert state_of(owner, handle) == "running"
                tagged.end(b"large")
                eventually(lambda: state_of(submitter, handle) == "done", "its end is known")
            assert b"large" not in [*half.begun, *plain.payloads, *plain_owner.payloads]


def test_jobs_of_a_mixed_queue_find_their_workers_at_three_nodes(nodes: list[OwnerNode]) -> None:
    """Each job goes to a worker that fits, whoever is first in the queue; busy workers count as such."""
    owner = nodes[1]
    function = function_of(owner, 1)
    with ExitStack() as stack:
        red, green = (
            stack.enter_context(HeldWorker(nodes[place], [function], tag)) for place, tag in ((0, "red"), (2, "green"))
        )
        client = stack.enter_context(nodes[2].client())
        sent = {b"%s-%d" % (tag, number): tag for number in range(30) for tag in (b"red", b"green")}
        jobs = [client.submit(function, text, background=True, requires=tag.decode()) for text, tag in sent.items()]
        for number in range(30):
            for tag, worker in ((b"red", red), (b"green", green)):
                eventually(partial(worker.has, b"%s-%d" % (tag, number)), "the next one is begun")
                worker.end(b"%s-%d" % (tag, number))
        assert not [text for text in red.begun if sent[text] != b"red"]
        assert not [text for text in green.begun if sent[text] != b"green"]
        assert len(red.begun) == len(green.begun) == 30  # each was begun once
        for job in jobs[-2:]:
            eventually(partial(is_done, nodes[0], job.handle), "all are done")


def test_resources_of_a_worker_at_another_node_are_not_exceeded(nodes: list[OwnerNode]) -> None:
    """A worker with two slots and 64G serves functions of two owners; 48G are used once at a time."""
    runner = nodes[2]
    functions = [function_of(nodes[0], 2), function_of(nodes[1], 2)]
    with HeldWorker(runner, functions, resources="memory=64G") as worker, nodes[0].client() as client:
        first = client.submit(functions[0], b"first", background=True, requires="memory=48G").handle
        eventually(partial(worker.has, b"first"), "the first one is begun")
        second = client.submit(functions[1], b"second", background=True, requires="memory=48G").handle
        reason = eventually(partial(is_explained, nodes[0], second, "resources_in_use"), "its owner knows why")
        assert reason["data"]["most_free"] == {"memory": 16 * 1000**3}
        third = client.submit(functions[0], b"third", background=True, requires="memory=100G").handle
        reason = eventually(partial(is_explained, nodes[2], third, "missing_resource"), "no worker has so much")
        assert reason["data"]["short"][0]["most"] == 64 * 1000**3
        small = client.submit(functions[1], b"small", background=True, requires="memory=10G").handle
        eventually(partial(worker.has, b"small"), "what fits is given")
        assert worker.begun == [b"first", b"small"]
        worker.end(b"small")
        worker.end(b"first")
        eventually(partial(worker.has, b"second"), "the memory is free again")
        worker.end(b"second")
        for handle in (first, second, small):
            eventually(partial(is_done, nodes[1], handle), "they are done")
        client.control("cancel", handle=third)


def test_a_worker_that_leaves_with_its_tag_is_offered_no_more(nodes: list[OwnerNode]) -> None:
    owner, runner = nodes[1], nodes[2]
    function = function_of(owner, 3)
    with nodes[0].client() as client:
        with HeldWorker(runner, [function], "gpu") as tagged:
            handle = client.submit(function, b"one", background=True, requires="gpu").handle
            eventually(partial(tagged.has, b"one"), "it is begun")
        eventually(partial(is_explained, nodes[0], handle, "no_worker"), "it is queued again, and no worker is there")
        with PlainWorker(runner, function):
            reason = eventually(partial(is_explained, nodes[0], handle, "missing_tag"), "a worker without the tag")
            assert reason["data"]["workers"] == 1
        with HeldWorker(nodes[0], [function], "gpu,x") as other:
            eventually(partial(other.has, b"one"), "another one has it")
            other.end(b"one")
            eventually(lambda: state_of(owner, handle) == "done", "it is done")


def test_a_job_that_requires_a_tag_runs_again_when_the_node_of_its_worker_is_killed(nodes: list[OwnerNode]) -> None:
    """The node of the worker is killed, and the job goes to another worker with the tag. When the owner is killed, too,
    that run goes on."""
    function = function_of(nodes[1], 4)
    with ExitStack() as stack:
        client = stack.enter_context(nodes[0].client())
        first = stack.enter_context(HeldWorker(nodes[2], [function], "gpu"))
        plain = stack.enter_context(PlainWorker(nodes[0], function))
        handle = client.submit(function, b"one", background=True, requires="gpu").handle
        eventually(partial(first.has, b"one"), "it is begun")
        nodes[2].signal(signal.SIGKILL)
        nodes[2].wait()
        last = stack.enter_context(HeldWorker(nodes[0], [function], "gpu"))
        eventually(partial(last.has, b"one"), "it is begun at another node", 30)
        nodes[1].signal(signal.SIGKILL)
        nodes[1].wait()
        eventually(lambda: nodes[0].partitions().get(nodes[1].name) is None, "there is another owner", 30)
        last.end(b"one")  # the run has gone on
        eventually(lambda: state_of(nodes[0], handle) == "done", "it is done", 30)
        assert last.begun.count(b"one") == 1
        assert plain.payloads == []
    for node in nodes[1:]:
        node.start()
        node.wait_until_it_answers()
    settled(nodes)
