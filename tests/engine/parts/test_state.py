"""`EngineState`: changes that are reported, names that are taken, and memory that is counted."""

from __future__ import annotations

import pytest

from switchgear.engine.state import EngineSettings
from switchgear.errors import IllegalMove, Refused
from switchgear.model import READY, RUNNING, Cause
from tests.engine.parts.parts import Parts


def test_changes_are_taken_once_and_each_job_is_among_them_once() -> None:
    parts = Parts()
    job, function = parts.job(), parts.function()
    parts.state.note(job)
    parts.state.note(job)
    parts.state.note_function(function)
    parts.state.note_function(function)
    assert parts.state.take_changes() == ([job], [function])
    assert parts.state.take_changes() == ([], [])


def test_a_move_that_the_lifecycle_does_not_have_is_a_defect() -> None:
    parts = Parts()
    job = parts.job()
    with pytest.raises(IllegalMove):
        parts.state.move(job, Cause.SUCCEEDED)
    assert job.state is READY
    parts.state.move(job, Cause.TAKEN)
    assert (job.state, job.log[-1]) == (RUNNING, (Cause.TAKEN, parts.state.now_us))


def test_a_name_is_taken_by_a_job_or_reserved() -> None:
    parts = Parts()
    parts.state.names[b"Anna"] = parts.job()
    parts.state.reserved_names.append({b"Bea"})
    parts.state.refuse_taken_name(b"Cleo")
    for name in (b"Anna", b"Bea"):
        with pytest.raises(Refused, match=name.decode()):
            parts.state.refuse_taken_name(name)


def test_what_a_job_holds_is_counted_once_and_dropped() -> None:
    parts = Parts()
    job = parts.job()
    held = parts.state.memory.job_bytes
    parts.state.count_contents(job)
    assert parts.state.memory.job_bytes == held > 0
    parts.state.set_result(job, b"12345")
    parts.state.set_error(job, b"123")
    parts.state.count_more(job, 10)
    assert parts.state.memory.job_bytes == held + 18
    parts.state.drop_contents(job)
    parts.state.count_more(job, 10)  # it is not counted any more
    assert parts.state.memory.job_bytes == 0


def test_memory_that_is_full_is_reported_and_refused() -> None:
    parts = Parts(memory_bytes=10_000)
    with pytest.raises(Refused, match="no memory for 1000000 bytes more"):
        parts.state.refuse_without_memory(1_000_000)


def test_a_limit_that_was_set_for_one_function_stays() -> None:
    parts = Parts(jobs_per_function=5)
    usual, special = parts.function(b"usual"), parts.function(b"special")
    special.limits = [1, 1, 1]
    parts.state.apply_settings(EngineSettings(jobs_per_function=7))
    assert (usual.limits, special.limits) == ([7, 7, 7], [1, 1, 1])
