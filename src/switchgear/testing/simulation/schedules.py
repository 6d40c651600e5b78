"""Schedules in the simulation: random declarations, pauses and runs, and a count of the jobs of each tick."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from switchgear.errors import Refused
from switchgear.model import BEST_FIRST, SECOND_US, URGENT, CatchUp, Schedule
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_DRAINING, REFUSED_FULL, REFUSED_STORAGE
from switchgear.testing.invariants import broken
from switchgear.testing.simulation.simulated_cluster import SimulatedCluster
from switchgear.timetable import Cron, Every

__all__ = ["SCHEDULE_DEEDS"]

TIMETABLES: Final = (
    Every(300 * SECOND_US),
    Every(3600 * SECOND_US),
    Cron("*/20 * * * *", "Europe/Berlin"),
    Cron("30 */2 * * *", "America/New_York"),
)
EXPECTED_REFUSALS: Final = {REFUSED_FULL, REFUSED_DRAINING, REFUSED_STORAGE, REFUSED_CONFLICT}


def declare_schedule(world: SimulatedCluster) -> None:
    """Declare a new schedule, or an existing one, changed or not. A name is never used again, so that jobs can be
    counted."""
    rng = world.rng
    known = _some_schedule(world)
    if known is not None and rng.random() < 0.6:
        before = (known.next_us, known.paused)
        same = rng.random() < 0.5
        wanted = replace(known, payload=b"new", timetable=known.timetable if same else rng.choice(TIMETABLES))
        if world.engine.set_schedule(wanted) is not known or (same and before != (known.next_us, known.paused)):
            broken(f"{known} was declared again and has changed")
        world.told.schedule(known, "declared")
        return
    world.schedule_count += 1
    wanted = Schedule(
        b"schedule %d" % world.schedule_count,
        rng.choice(TIMETABLES),
        rng.choice(world.function_names),
        priority=rng.choice([priority for priority in BEST_FIRST if priority != URGENT]),
        catch_up=rng.choice(list(CatchUp)),
        overlap=rng.random() < 0.5,
        expires_after_us=rng.choice((0, 0, 900 * SECOND_US)),
        timeout_us=rng.choice((0, SECOND_US)),
        attempts_limit=rng.choice((-1, 0, 1)),
    )
    world.told.schedule(world.engine.set_schedule(wanted), "declared")
    world.tell(f"{wanted} declared")


def change_schedule(world: SimulatedCluster) -> None:
    """Remove, pause or resume a schedule."""
    schedule = _some_schedule(world)
    if schedule is None:
        return
    engine = world.engine
    change = world.rng.choice((engine.pause_schedule, engine.resume_schedule, engine.remove_schedule))
    change(schedule)
    world.told.schedule(schedule, change.__name__)
    world.tell(f"{schedule}: {change.__name__}")


def run_schedule(world: SimulatedCluster) -> None:
    """Run a schedule at once."""
    schedule = _some_schedule(world)
    if schedule is None:
        return
    try:
        job = world.engine.run_schedule_now(schedule)
        world.told.job(None, job, "run", world, only_exists=True)
        world.pledges.append(job)
    except Refused as refused:
        world.tell(f"{schedule} refused: {refused}")
        if refused.reason not in EXPECTED_REFUSALS:
            raise


def _some_schedule(world: SimulatedCluster) -> Schedule | None:
    schedules = list(world.engine.schedules.values())
    return world.rng.choice(schedules) if schedules else None


SCHEDULE_DEEDS: Final = ((declare_schedule, 1.0), (change_schedule, 0.3), (run_schedule, 0.5))
