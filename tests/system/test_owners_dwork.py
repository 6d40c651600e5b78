"""dwork at every node: the tasks of a listener are the jobs of one function, which one of the nodes owns."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.client.dwork.blocking import DworkClient
from switchgear.partitions import partition_of, preferred_node
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_nodes import DWORK_FUNCTION, NAMES, OwnerNode, running

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(100)]

OWNER = preferred_node(partition_of(DWORK_FUNCTION.encode()), NAMES)


@pytest.fixture
def nodes(postgres: Cluster, tmp_path: Path) -> Iterator[list[OwnerNode]]:
    """The owner of the tasks is the first."""
    url = postgres.new_url()
    made = [OwnerNode(name, url, tmp_path, lease_seconds=2.0) for name in sorted(NAMES, key=OWNER.__ne__)]
    with running(made):
        yield made


def client_at(node: OwnerNode, location: str) -> DworkClient:
    return DworkClient(f"dwork://{HOST}:{node.dwork_port}", location=location, timeout_seconds=15)


def test_tasks_are_created_stolen_and_listed_at_any_node(nodes: list[OwnerNode]) -> None:
    with (
        client_at(nodes[1], "creator") as creator,
        client_at(nodes[2], "worker") as worker,
        client_at(nodes[0], "other") as other,
    ):
        assert creator.create(["a", ("b", ["a"]), ("c", ["a", "b"])]) == 3
        assert [task.name for task in other.tasks()] == ["a", "b", "c"]
        for name in "abc":
            stolen = worker.steal()
            assert [task.name for task in stolen.tasks] == [name]
            worker.complete(name)
        assert worker.steal().all_done


def test_tasks_survive_the_kill_of_their_owner(nodes: list[OwnerNode]) -> None:
    """The clients are connected to another node, and go on with the next owner; what was complete stays so."""
    with client_at(nodes[1], "creator") as creator, client_at(nodes[2], "worker") as worker:
        creator.create(["a", ("b", ["a"]), ("c", ["b"])])
        assert [task.name for task in worker.steal().tasks] == ["a"]
        worker.complete("a")
        assert [task.name for task in worker.steal().tasks] == ["b"]
        nodes[0].signal(signal.SIGKILL)
        nodes[0].wait()
        worker.complete("b")
        names: list[str] = []

        def has_stolen() -> bool:
            names.extend(task.name for task in worker.steal().tasks)
            return bool(names)

        eventually(has_stolen, "the next owner has the tasks", 60)
        assert names == ["c"]
        worker.complete("c")
        assert creator.steal().all_done
