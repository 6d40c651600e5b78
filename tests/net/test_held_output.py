"""Output that waits for answers of other nodes, after its commit is done."""

from __future__ import annotations

from collections.abc import Sequence

from switchgear.errors import Refused
from switchgear.model import Job
from tests.net.harness import BACKGROUND, Connected, HubHarness, created, echo, echoed, idle, in_turns, open_harness


class OtherNodes:
    """Other nodes, which have answered about some jobs."""

    def __init__(self) -> None:
        self.refused: dict[int, Refused] = {}
        self.joined: dict[int, int] = {}
        self.unanswered: set[int] = set()

    def must_wait(self, promised: Sequence[tuple[int, Job]]) -> bool:
        return any(job.id in self.unanswered for _, job in promised)

    def lost_reports(self, promised: Sequence[tuple[int, Job]]) -> list[int]:
        return []


async def unanswered_harness() -> tuple[HubHarness, OtherNodes, Connected]:
    """One with a client whose first submission is stored, and about which another node has not answered."""
    harness = await open_harness()
    others = OtherNodes()
    others.unanswered.add(1)
    harness.hub.commits.output.owners = others
    client = harness.connect()
    client.send(BACKGROUND)
    await idle()
    await harness.store.succeed()
    assert client.heard() == []
    return harness, others, client


@in_turns
async def test_an_answer_of_another_node_releases_nothing_that_came_in_the_same_turn() -> None:
    harness, others, client = await unanswered_harness()
    client.send(BACKGROUND)
    others.unanswered.clear()
    harness.hub.commits.owners_answered()  # in the same turn
    assert client.heard() == [created(1)]
    await idle()
    assert client.heard() == []
    await harness.store.succeed()
    assert client.heard() == [created(2)]


@in_turns
async def test_what_need_not_wait_comes_after_an_answer_of_another_node() -> None:
    harness, others, client = await unanswered_harness()
    client.send(echo(b"1"))
    await idle()
    assert client.heard() == []
    client.send(echo(b"2"))
    others.unanswered.clear()
    harness.hub.commits.owners_answered()
    await idle()
    assert client.heard() == [created(1), echoed(b"1"), echoed(b"2")]
