"""Whole stories, on a server that keeps its tasks and on one that does not."""

from __future__ import annotations

import pytest

from switchgear.testing.invariants import check_engine
from tests.protocols.dwork.house import DworkHouse
from tests.protocols.dwork.story import Story, load, play

FILES = ("pairs", "order", "failures", "waiting", "odd")
STORIES = [story for name in FILES for story in load(name)]


@pytest.mark.parametrize("keeps", [False, True], ids=["memory", "durable"])
@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story(story: Story, keeps: bool) -> None:
    if not keeps and ("restart", "") in story.steps:
        pytest.skip("nothing would be left")
    world = DworkHouse(keeps=keeps, lease_seconds=60)
    play(story, world)
    check_engine(world.engine)
