"""A server that stops, and another that goes on with what was kept."""

from __future__ import annotations

from switchgear.model import DONE, FINAL_STATES, Job
from switchgear.testing import check_engine
from switchgear.testing.simulation.store import Row
from tests.engine.harness import Harness


def restarted(harness: Harness, *jobs: Job, seconds: float = 0) -> tuple[Harness, dict[int, Job]]:
    """A new engine with these jobs as a store would give them back, unfinished or not; the first engine is gone."""
    harness.clock.advance(seconds)
    again = Harness(clock=harness.clock)
    copies = {job.id: Row(job).to_job(again.function(job.function.name)) for job in jobs}
    ended = [job for job in copies.values() if job.state in FINAL_STATES]
    again.engine.restore(
        [job for job in copies.values() if job.state not in FINAL_STATES],
        {job.id: job.state for job in ended if job.state is not DONE},
        harness.engine.next_job_id,
        held=[job for job in ended if job.unique_until_us > harness.now_us],
        unsuccessful_names={job.id: job.name for job in ended if job.state is not DONE and job.name},
    )
    check_engine(again.engine)
    return again, copies
