"""Whole stories, on a server that keeps its tasks and on one that does not."""

from __future__ import annotations

import pytest

from switchgear.testing.invariants import check_engine
from tests.protocols.dwork.harness import DworkHarness
from tests.protocols.dwork.story import Story, load, play

FILES = ("pairs", "order", "failures", "waiting", "odd")
STORIES = [story for name in FILES for story in load(name)]


@pytest.mark.parametrize("story", [story for story in STORIES if ("restart", "") not in story.steps], ids=str)
def test_story_in_memory(story: Story) -> None:
    play_in(DworkHarness(keeps=False, lease_seconds=60), story)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story_with_a_store(story: Story) -> None:
    play_in(DworkHarness(keeps=True, lease_seconds=60), story)


def play_in(world: DworkHarness, story: Story) -> None:
    play(story, world)
    check_engine(world.engine)
