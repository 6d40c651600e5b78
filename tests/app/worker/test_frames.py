"""What a worker and its child processes say to each other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.app.worker.child_messages import (
    CancelJob,
    ChildProgress,
    ChildReady,
    Frame,
    FrameReader,
    JobEnded,
    StartJob,
    encode,
    ended,
    outcome_of,
    start,
)
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, RetryLater, Stopped

FRAMES: list[Frame] = [
    ChildReady(),
    StartJob(1, AssignedJob("H:a:1", "f", b"\x00\xff" * 1000, "key", 2, 1, 3, 0.5, {"H:a:7": b"x", "H:a:8": None})),
    CancelJob(1, "cancelled"),
    ChildProgress(1, 3, 10, "resizing"),
    JobEnded(1, "complete", b"result"),
]


@given(st.lists(st.integers(1, 4000), max_size=20))
def test_slicing_never_matters(cuts: list[int]) -> None:
    data = b"".join(map(encode, FRAMES))
    reader = FrameReader()
    heard: list[Frame] = []
    position = 0
    for size in [*cuts, len(data)]:
        heard += reader.feed(data[position : position + size])
        position += size
    assert heard == FRAMES


@pytest.mark.parametrize(
    "outcome", [Complete(b"x"), Fail("E: no"), RetryLater(1.5, "E: no", 3), Stopped("cancelled")], ids=repr
)
def test_each_outcome_comes_back_with_the_memory_that_was_measured(outcome: Any) -> None:
    assert ended(7, outcome).resident_bytes == 0
    (frame,) = FrameReader().feed(encode(ended(7, outcome, 4096)))
    assert isinstance(frame, JobEnded)
    assert frame.resident_bytes == 4096
    assert frame.attempt == 7
    assert outcome_of(frame) == outcome


def test_a_unique_key_need_not_be_text() -> None:
    assigned = AssignedJob("H:a:1", "f", b"", b"key \xff".decode(errors="surrogateescape"))
    (frame,) = FrameReader().feed(encode(start(1, assigned)))
    assert isinstance(frame, StartJob)
    assert frame.assignment.unique == "key \ufffd"
