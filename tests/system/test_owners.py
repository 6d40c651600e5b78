"""Several nodes on one PostgreSQL that each own some functions: what is submitted at one is run at any."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from switchgear.errors import ServerRefused
from tests.support.postgres import Cluster
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def database(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture(scope="module")
def nodes(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OwnerNode]]:
    place = tmp_path_factory.mktemp("owners")
    made = [OwnerNode(name, database, place) for name in NAMES]
    with ExitStack() as stack:
        for node in made:
            stack.callback(node.end)
        for node in made:
            node.start()
        for node in made:
            node.wait_until_it_answers()
        settled(made)
        yield made


def test_nodes_share_all_partitions(nodes: list[OwnerNode]) -> None:
    shares = [node.partitions() for node in nodes]
    assert shares[0] == shares[1] == shares[2]
    assert sum(shares[0].values()) == 64
    assert min(shares[0].values()) > 8


def test_a_job_is_submitted_at_one_node_owned_by_another_and_run_at_a_third(nodes: list[OwnerNode]) -> None:
    submitter, owner, runner = nodes
    function = function_of(owner)
    with PlainWorker(runner, function) as worker, submitter.client() as client:
        assert client.submit(function, b"one").wait(20) == b"ONE"
        handle = client.submit(function, b"two", background=True).handle
        eventually(lambda: b"two" in worker.payloads, "the background job ran")
        assert worker.handles[1].decode() == handle
        for node in nodes:
            with node.client() as other:
                eventually(
                    lambda other=other: other.control("job", handle=handle)["state"] == "done", "its end is known"
                )


def test_a_unique_key_is_taken_once_wherever_it_is_submitted(nodes: list[OwnerNode], database: str) -> None:
    """Each node submits the same keys at the same time."""
    function = function_of(nodes[1], 1)
    keys = 300
    handles: dict[str, list[str]] = {node.name: [] for node in nodes}

    def submit_all(node: OwnerNode) -> None:
        with node.client() as client:
            for key in range(keys):
                handles[node.name].append(client.submit(function, b"x", unique=f"k{key}", background=True).handle)

    threads = [threading.Thread(target=submit_all, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handles["ada"] == handles["bob"] == handles["cleo"]
    assert len(set(handles["ada"])) == keys
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT count(*) FROM sg_job JOIN sg_function ON sg_function.id = function_id WHERE sg_function.name = %s",
            [function.encode()],
        ).fetchone()
    assert row == (keys,)


def test_what_the_mode_cannot_do_is_refused(nodes: list[OwnerNode]) -> None:
    function = function_of(nodes[1], 2)
    with nodes[0].client() as client, pytest.raises(ServerRefused, match="cannot|not possible"):
        client.submit(function, b"x", background=True, name="a-name")
