"""What a node of a cluster reports about its machine and about the other nodes."""

from __future__ import annotations

import asyncio
import time

import pytest

from switchgear.config import Config
from switchgear.config.settings import ClusterConfig
from switchgear.net.cluster import ClusterMember
from switchgear.storage.postgres import PostgresStore
from switchgear.storage.postgres_nodes import NodeRow


class RememberedNodes:
    """In place of the table of nodes."""

    def __init__(self) -> None:
        self.rows: list[NodeRow] = []
        self.seconds_ahead = 0.0  # of PostgreSQL's clock

    async def announce(self, node: NodeRow) -> float:
        return time.time() + self.seconds_ahead

    async def read(self) -> list[NodeRow]:
        return self.rows


@pytest.fixture
def nodes() -> RememberedNodes:
    return RememberedNodes()


@pytest.fixture
def member(nodes: RememberedNodes) -> ClusterMember:
    url = "postgresql://jobs@db.invalid/jobs"
    store = PostgresStore(url)
    store.nodes = nodes  # type: ignore[assignment]
    return ClusterMember(Config(store=url, cluster=ClusterConfig(enabled=True, name="ada")), store)


def exchange(member: ClusterMember) -> None:
    asyncio.run(member._exchange())


@pytest.mark.parametrize(("seconds", "words"), [(3600.0, "3600.0 s behind"), (-3600.0, "3600.0 s ahead of")])
def test_a_wrong_clock_is_reported_once(
    member: ClusterMember, nodes: RememberedNodes, caplog: pytest.LogCaptureFixture, seconds: float, words: str
) -> None:
    exchange(member)
    assert not caplog.messages
    nodes.seconds_ahead = seconds
    exchange(member)
    exchange(member)
    (message,) = caplog.messages
    assert f"the clock of this machine is {words} the clock of PostgreSQL" in message
    nodes.seconds_ahead = 0.0
    exchange(member)
    nodes.seconds_ahead = seconds
    exchange(member)
    assert len(caplog.messages) == 2


def test_another_node_with_the_same_name_is_reported_once(
    member: ClusterMember, nodes: RememberedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    """If it is alive: a node that was killed and started again may find its former row."""
    for _ in range(3):
        nodes.rows = [NodeRow(1, "ada", "10.0.0.2:4730", False, "0.1.0", 5), NodeRow(2, "bob", "", False, "0.1.0", 5)]
        exchange(member)
    assert not caplog.messages
    for beat in range(6, 10):
        nodes.rows = [
            NodeRow(1, "ada", "10.0.0.2:4730", False, "0.1.0", beat),
            NodeRow(2, "bob", "", False, "0.1.0", beat),
        ]
        exchange(member)
    (message,) = caplog.messages
    assert "another node is named ada too, at 10.0.0.2:4730" in message
