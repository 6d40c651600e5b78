"""What stays exact while functions change their owners.  TEST_TAKEOVERS and TEST_UNIQUE_KEYS say how often
and how many."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from switchgear.client.gearman.blocking import Client
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_nodes import LEASE_SECONDS, OwnerNode, function_of, packet, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(600)]

NAMES = ("ada", "bob")
# Far less than the time for which a submission waits for an owner, however busy the machine is.
TAKEOVERS = int(os.environ.get("TEST_TAKEOVERS", "2"))
KEYS = int(os.environ.get("TEST_UNIQUE_KEYS", "1000"))
SOON_SECONDS = LEASE_SECONDS + 15.0


@pytest.fixture
def nodes(postgres: Cluster, tmp_path: Path) -> Iterator[list[OwnerNode]]:
    store = postgres.new_url()
    made = [OwnerNode(name, store, tmp_path) for name in NAMES]
    with ExitStack() as stack:
        for node in made:
            stack.callback(node.end)
            node.start()
            node.wait_until_it_answers()
        settled(made)
        yield made


def test_a_submission_that_waits_for_an_owner_goes_to_this_node_when_it_takes_over(nodes: list[OwnerNode]) -> None:
    ada, bob = nodes
    function = function_of(ada, names=NAMES)
    with Client(f"gearman://{HOST}:{bob.port}", timeout_seconds=60) as client:
        client.submit(function, b"before", background=True)
        ada.signal(signal.SIGSTOP)
        begun_s = time.monotonic()
        client.submit(function, b"meanwhile", background=True)
        assert time.monotonic() - begun_s < SOON_SECONDS


def submit_keys(node: OwnerNode, function: str, handles: list[bytes]) -> None:
    """Submit all keys without a look at the answers, and then read the handles."""
    with socket.create_connection((HOST, node.port)) as peer, peer.makefile("rb") as answers:
        packets = (packet(18, function.encode(), b"key %d" % number, b"x") for number in range(KEYS))
        sender = threading.Thread(target=peer.sendall, args=(b"".join(packets),))
        sender.start()
        for _ in range(KEYS):
            header = answers.read(12)
            assert header[4:8] == b"\0\0\0\x08", header  # JOB_CREATED
            handles.append(answers.read(int.from_bytes(header[8:], "big")))
        sender.join()


def test_keys_that_are_submitted_at_all_nodes_at_once_make_one_job_each(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[0], names=NAMES)
    found: list[list[bytes]] = [[], [], []]
    ways = [nodes[0], nodes[1], nodes[1]]
    threads = [threading.Thread(target=submit_keys, args=each) for each in zip(ways, [function] * 3, found)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == KEYS
    with nodes[1].client() as client:
        assert client.control("functions")[0]["ready"] == KEYS


def test_each_tick_of_a_schedule_comes_once_whoever_owns_its_function(nodes: list[OwnerNode]) -> None:
    """The owner of a schedule of every second is killed, and comes back, again and again; missed ticks are made up
    for."""
    function = function_of(nodes[0], names=NAMES)
    with nodes[1].client() as client:
        client.control("schedule", name="often", function=function, every_seconds=1, catch_up="all", overlap=True)
        begun_s = time.time()
        for _ in range(TAKEOVERS):
            nodes[0].signal(signal.SIGKILL)
            nodes[0].wait()
            eventually(lambda: nodes[1].partitions().get("bob") == 64, "the other node has taken over", 60)
            nodes[0].start()
            nodes[0].wait_until_it_answers()
            settled(nodes)
        client.control("pause_schedule", name="often")
        seconds = time.time() - begun_s
        jobs = client.control("jobs", function=function, limit=1000)["jobs"]
    assert seconds - 2 <= len(jobs) <= seconds + 2
