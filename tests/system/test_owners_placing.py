"""Functions that operators place at the node of another function, while clients submit and nodes die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from switchgear.app.app import App
from switchgear.errors import ServerRefused, SwitchgearError
from switchgear.partitions import partition_of, preferred_node
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, running, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(300)]

LEASE_SECONDS = 3.0  # a busy machine must not look like a dead node


@pytest.fixture(scope="module")
def database(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture(scope="module")
def nodes(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    place = tmp_path_factory.mktemp("placing")
    made = [OwnerNode(name, database, place, lease_seconds=LEASE_SECONDS) for name in NAMES]
    with running(made):
        yield made


def ask(node: OwnerNode, verb: str, **arguments: Any) -> Any:
    with node.client() as client:
        return client.control(verb, **arguments)


def row_of(node: OwnerNode, function: str) -> dict[str, Any]:
    return next((row for row in ask(node, "functions") if row["name"] == function), {})


def is_at(nodes: list[OwnerNode], function: str, owner: str) -> bool:
    """Whether all nodes say that this one has the function."""
    return all(row_of(node, function).get("node") == owner for node in nodes)


def everything_has_run(worker: PlainWorker, payloads: set[bytes]) -> bool:
    return payloads <= set(worker.payloads)


def test_a_function_is_placed_beside_another_one_with_its_jobs(nodes: list[OwnerNode], database: str) -> None:
    entry, old, new = nodes
    function, other = function_of(old), function_of(new)
    moved = partition_of(other.encode())
    with entry.client() as client:
        client.control("limit", function=function, concurrency=1)
        client.control("pause", function=function)
        client.control("schedule", name="moves", function=function, every_seconds=86_400)
        stored = [
            client.submit(function, b"%d" % number, unique=f"k{number}", background=True) for number in range(300)
        ]
        waited_for = client.submit(function, b"foreground")
        assert ask(entry, "place", function=function) == {
            "function": function,
            "partition": partition_of(function.encode()),
            "node": old.name,
            "placed": False,
        }
        answer = client.control("place", function=function, beside=other)
        assert answer == {"function": function, "partition": moved, "node": new.name, "placed": True}
        eventually(partial(is_at, nodes, function, new.name), "every node knows", 30)
        eventually(lambda: row_of(entry, function)["ready"] == 301, "the foreground job was submitted again", 30)
        row = row_of(entry, function)
        assert (row["paused"], row["placed"], row["partition"]) == (True, True, moved)
        assert row["policy"]["concurrency"] == 1
        assert client.submit(function, b"x", unique="k7", background=True).handle == stored[7].handle  # the keys, too
        explained = client.control("explain", handle=stored[0].handle)
        assert (explained["node"], explained["placed"]) == (new.name, True)
        (schedule,) = [each for each in client.control("schedules") if each["name"] == "moves"]
        assert schedule["node"] == new.name
        listed = {node["name"]: node["placed"] for node in client.control("nodes")}
        assert listed == {entry.name: [], old.name: [], new.name: [function]}
        with PlainWorker(old, function) as worker:
            client.control("resume", function=function)
            assert waited_for.wait(30) == b"FOREGROUND"
            eventually(
                partial(everything_has_run, worker, {b"%d" % number for number in range(300)}), "all have run", 60
            )
            assert len(worker.payloads) == 301  # each once
        assert client.control("place", function=function, by_name=True)["placed"] is False
        eventually(partial(is_at, nodes, function, old.name), "it is back", 30)
        assert client.control("unschedule", name="moves")
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM sg_place").fetchone() == (0,)


def test_a_running_job_is_waited_for_and_its_worker_reports_to_the_old_owner(nodes: list[OwnerNode]) -> None:
    """Within five seconds, or a lease; here it ends in time."""
    function, other = function_of(nodes[1], 1), function_of(nodes[2], 1)
    begun, may_end = threading.Event(), threading.Event()

    class SlowWorker(PlainWorker):
        def _handle(self, kind: int, body: bytes) -> None:
            if kind == 11:
                begun.set()
                assert may_end.wait(DEADLINE_SECONDS)
            super()._handle(kind, body)

    with SlowWorker(nodes[0], function) as worker, nodes[0].client() as client:
        job = client.submit(function, b"slow", background=True)
        assert begun.wait(DEADLINE_SECONDS)
        moving = threading.Thread(target=ask, args=(nodes[2], "place"), kwargs={"function": function, "beside": other})
        moving.start()
        may_end.set()
        moving.join(DEADLINE_SECONDS)
        eventually(lambda: ask(nodes[1], "job", handle=job.handle)["state"] == "done", "it is done", 30)
        assert worker.payloads == [b"slow"]
        eventually(partial(is_at, nodes, function, nodes[2].name), "it has moved", 30)


def test_what_cannot_be_placed_is_refused(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[1], 2)
    with nodes[0].client() as client:
        for arguments, reason in (
            ({"partition": 64}, "partition: expected"),
            ({"partition": -1}, "partition: expected"),
            ({"partition": 3, "beside": "x"}, "beside and partition contradict each other"),
            ({"by_name": True, "beside": "x"}, "contradict"),
        ):
            with pytest.raises(ServerRefused, match=reason):
                client.control("place", function=function, **arguments)
        with pytest.raises(ServerRefused, match="function is missing"):
            client.control("place", function="", partition=1)


def test_command_library_and_http_place_functions(nodes: list[OwnerNode]) -> None:
    function, other = function_of(nodes[1], 3), function_of(nodes[2], 3)
    url = f"gearman://{HOST}:{nodes[0].port}"
    command = [sys.executable, "-m", "switchgear"]
    environment = {**os.environ, "COLUMNS": "200"}

    def run(*words: str) -> str:
        return subprocess.run(
            [*command, *words, "--server", url], capture_output=True, text=True, check=True, timeout=60, env=environment
        ).stdout

    assert run("place", function).endswith(f", of {nodes[1].name}\n")
    moved = run("place", function, "--beside", other)
    assert moved == f"{function}: partition {partition_of(other.encode())}, of {nodes[2].name}, placed by an operator\n"
    with nodes[0].client() as client:
        client.submit(function, b"x", background=True)
    eventually(lambda: "placed" in run("functions"), "it is listed", 30)
    assert function in run("nodes")
    with App(f"http://{HOST}:{nodes[2].http_port}") as app:
        assert app.place(function, by_name=True)["node"] == nodes[1].name
        assert app.place(function, partition=partition_of(other.encode()))["placed"] is True
        assert app.place(function, by_name=True)["placed"] is False


class Submitting:
    """Clients that submit numbered jobs at two nodes, and count what was acknowledged."""

    def __init__(self, nodes: list[OwnerNode], functions: list[str]) -> None:
        self.acknowledged: dict[str, bytes] = {}
        self.refused: list[str] = []
        self._stop = threading.Event()
        self._functions = functions
        self._threads = [threading.Thread(target=self._submit, args=(node,)) for node in nodes]
        for thread in self._threads:
            thread.start()

    def _submit(self, node: OwnerNode) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                with node.client() as client:
                    while not self._stop.is_set():
                        number += 1
                        payload = f"{node.name}-{number}".encode()
                        function = self._functions[number % len(self._functions)]
                        time.sleep(0.003)  # so that the worker keeps up
                        self.acknowledged[client.submit(function, payload, background=True).handle] = payload
            except ServerRefused as error:
                self.refused.append(str(error))
            except (SwitchgearError, OSError):
                time.sleep(0.1)

    def wait_more(self, count: int = 50) -> None:
        wanted = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= wanted, "more are acknowledged", 60)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
@pytest.mark.parametrize("victim", ["old owner", "new owner"])
def test_nothing_is_lost_or_doubled_when_a_node_dies_while_a_function_moves(
    nodes: list[OwnerNode], number: signal.Signals, victim: str
) -> None:
    """The function moves there and back under load; one of its owners is killed or suspended while it does."""
    entry, old, new = nodes
    place = 10 + 2 * (number == signal.SIGSTOP) + (victim == "new owner")
    function, other = function_of(old, place), function_of(new, place)
    dying = old if victim == "old owner" else new
    with PlainWorker(entry, function) as worker:
        submitting = Submitting([entry], [function])
        try:
            submitting.wait_more()
            moves = threading.Thread(target=try_to_place, args=(entry, function, other))
            moves.start()
            time.sleep(0.01 * place)  # at some moment of the move
            dying.signal(number)
            if number == signal.SIGKILL:
                dying.wait()
            else:
                time.sleep(2 * LEASE_SECONDS)
                dying.signal(signal.SIGCONT)
                assert dying.wait() == 75
            moves.join()
            submitting.wait_more()
            dying.start()
            dying.wait_until_it_answers()
            settled(nodes)
            submitting.wait_more()
            wanted = ask(entry, "place", function=function)
            owner = preferred_node(wanted["partition"], NAMES)
            eventually(partial(is_at, nodes, function, owner), "all nodes agree", 30)
        finally:
            submitting.end()
        eventually(partial(is_empty, entry, function), "everything has ended", 90)
        missing = {
            handle: payload
            for handle, payload in submitting.acknowledged.items()
            if payload not in set(worker.payloads)
        }
        assert not missing
        assert not submitting.refused, submitting.refused[:3]


def is_empty(node: OwnerNode, function: str) -> bool:
    row = row_of(node, function)
    return bool(row) and row["total"] == 0


def try_to_place(node: OwnerNode, function: str, beside: str) -> None:
    try:
        ask(node, "place", function=function, beside=beside)
    except (SwitchgearError, OSError):
        pass  # whether it has moved is what the test finds out


def test_a_placed_function_stays_in_its_partition_when_nodes_come_and_go(nodes: list[OwnerNode]) -> None:
    """Its partition is claimed by others with it, and comes back; all nodes are started again."""
    function, other = function_of(nodes[1], 20), function_of(nodes[2], 20)
    with nodes[0].client() as client:
        handle = client.submit(function, b"kept", background=True).handle
        client.control("place", function=function, beside=other)
    eventually(partial(is_at, nodes, function, nodes[2].name), "it has moved", 30)
    nodes[2].signal(signal.SIGTERM)
    nodes[2].wait()
    partition = partition_of(other.encode())
    heir = preferred_node(partition, NAMES[:2])
    eventually(partial(is_at, nodes[:2], function, heir), "another node has it", 30)
    for node in nodes[:2]:
        node.signal(signal.SIGKILL)
        node.wait()
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_until_it_answers()
    settled(nodes)
    eventually(partial(is_at, nodes, function, nodes[2].name), "it is where it was placed", 30)
    assert ask(nodes[1], "place", function=function)["placed"] is True
    assert ask(nodes[0], "job", handle=handle)["state"] == "ready"
    with PlainWorker(nodes[1], function) as worker:
        eventually(lambda: worker.payloads == [b"kept"], "it runs", 30)
