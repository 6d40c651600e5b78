"""The actions of a simulation step: each makes random picks, and calls the engine once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import (
    FINAL_STATES,
    QUEUED_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    SECOND_US,
    Delivery,
    UniquePolicy,
    UniqueScope,
)
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_DRAINING, REFUSED_FULL, REFUSED_STORAGE, REFUSED_UNIQUE
from switchgear.testing.invariants import broken
from switchgear.testing.simulation.limits import KEYS, REQUIREMENTS, set_policy
from switchgear.testing.simulation.payload_reads import payload_is_lost, payload_is_spilled, read_ends, read_fails
from switchgear.testing.simulation.random_picks import some, some_edges, some_ids, some_job, soon_us
from switchgear.testing.simulation.schedules import SCHEDULE_DEEDS
from switchgear.testing.simulation.simulated_cluster import SimulatedCluster
from switchgear.testing.simulation.worker_actions import (
    worker_asks,
    worker_changes_functions,
    worker_comes,
    worker_hangs,
    worker_leaves,
    worker_renews_lease,
    worker_reports,
)

__all__ = ["action_weights", "choose_action"]

Action = Callable[[SimulatedCluster], None]

EXPECTED_REFUSALS: Final = {
    REFUSED_FULL,
    REFUSED_DRAINING,
    REFUSED_STORAGE,
    REFUSED_CONFLICT,
    REFUSED_UNIQUE,
    "cycle",
}


def action_weights(rng: Random) -> list[float]:
    """How often each action happens in this run. Some never do, so that others happen more often."""
    factors = [rng.choice((0.4, 1, 1, 2) if action in ALWAYS else (0, 0.3, 1, 1, 3)) for action, _ in ACTIONS]
    return [weight * factor for (_, weight), factor in zip(ACTIONS, factors)]


def choose_action(world: SimulatedCluster, weights: list[float]) -> Action:
    if world.crash_is_next:
        world.crash_is_next = False
        return server_crashes
    if world.has_hesitant_workers and world.rng.random() < 0.2:
        return store_works  # so that a worker is answered at once, unless its report itself has to be stored
    return world.rng.choices(ACTIONS, weights)[0][0]


# --- clients ---


def submit(world: SimulatedCluster) -> None:
    rng = world.rng
    client = some(world, world.clients) or world.add_client()
    delivery = rng.choice((Delivery.WAIT, Delivery.HANDLE, Delivery.HANDLE, Delivery.THROW_AWAY))
    watcher = client if delivery is Delivery.WAIT or rng.random() < 0.2 else None
    unique = rng.choice((b"", b"", b"", b"", b"red", b"green"))
    function = rng.choice(world.function_names)
    options = some_options(world, unique) if rng.random() < 0.5 else None
    world.engine.speaker = client
    try:
        job = world.engine.submit(function, unique, b"payload", rng.randrange(4), delivery, watcher, options)
    except Refused as refused:
        world.tell(f"refused: {refused}")
        if refused.reason not in EXPECTED_REFUSALS:
            raise
        return
    world.tell(f"{client} has {job}, {delivery.name}, {options}")
    if job.state in FINAL_STATES:
        if not unique or job.unique_until_us <= world.now_us:
            broken(f"{client} was given {job}, which does not hold its key")
        world.told.job(client, job, "the end of", world)
        return  # its end will not be reported again
    if watcher is not None:
        client.expect(job)
    if delivery:
        world.told.job(client, job, "submitted", world, only_exists=True)
        world.pledges.append(job)


def some_options(world: SimulatedCluster, unique: bytes) -> SubmitOptions:
    rng = world.rng
    predecessors = some_ids(world) if rng.random() < 0.5 else ()
    return SubmitOptions(
        run_at_us=soon_us(world) if rng.random() < 0.4 else 0,
        expires_us=soon_us(world) if rng.random() < 0.3 else 0,
        timeout_us=rng.choice((0, 0, SECOND_US // 10, 5 * SECOND_US)),
        attempts_limit=rng.choice((-1, -1, -1, 0, 1, 2)),
        predecessors=predecessors,
        edges=some_edges(world, predecessors),
        crash_limit=rng.choice((-1, -1, 0, 1, 2)),
        unique_scope=rng.choice((UniqueScope.UNFINISHED, UniqueScope.QUEUED)) if unique else 0,
        unique_policy=rng.choice((*UniquePolicy, UniquePolicy.JOIN)) if unique else 0,
        unique_for_us=rng.choice((0, 0, SECOND_US // 2, 60 * SECOND_US)) if unique else 0,
        retention_us=rng.choice((-1, 0, SECOND_US)),
        name=rng.choice((b"", b"", b"", b"Anna", b"Bob")),
        job_id=world.reserved_ids.pop() if world.reserved_ids and rng.random() < 0.5 else 0,
        key=rng.choice(KEYS),
        requires=rng.choice(REQUIREMENTS),
    )


def reserve_id(world: SimulatedCluster) -> None:
    world.reserved_ids.append(world.engine.reserve_id())


def watch(world: SimulatedCluster) -> None:
    client, job = some(world, world.clients), some_job(world)
    if client is not None and job is not None:
        world.tell(f"{client} watches {job}")
        world.engine.subscribe(job, client)
        client.expect(job)


def client_leaves(world: SimulatedCluster) -> None:
    client = some(world, world.clients)
    if client is not None:
        world.clients.remove(client)
        world.engine.unsubscribe(client)
        client.expects.clear()


def client_comes(world: SimulatedCluster) -> None:
    if len(world.clients) < 4:
        world.add_client()


# --- operators ---


def cancel(world: SimulatedCluster) -> None:
    job = some_job(world) or some(world, list(world.ended_jobs.values()))
    if job is None:
        return
    cascade = world.rng.random() < 0.3
    was_there = job.id in world.engine.jobs
    ended = world.engine.cancel(job, cascade=cascade)
    world.tell(f"cancelled: {ended}")
    for each in ended:
        world.told.job(None, each, "cancelled", world)
    if (job in ended) != was_there or (len(ended) > 1 and not cascade):
        broken(f"cancelling {job} ended {ended}")
    if cascade and world.engine.dependencies.waiting_for(job.id):
        broken(f"{job} was cancelled with all that wait for it, and some still do")


def retry(world: SimulatedCluster) -> None:
    """Retry a job that the engine has just dropped, or a copy from the store."""
    job = some(world, list(world.ended_jobs.values()))
    if job is not None and world.rng.random() < 0.5:
        world.stage()
        job = world.store.get(job.id, world.engine)
    if job is None or job.id in world.history.forgotten:
        return
    try:
        if world.links_later and world.engine.predecessor_commands.has_room(job):
            exhaust(world.engine.retry_in_steps(job))
        else:
            world.engine.retry(job)
    except Refused as refused:
        world.tell(f"{job} refused: {refused}")
        if refused.reason not in EXPECTED_REFUSALS:
            raise
        return
    world.tell(f"{job} retried")
    world.told.job(None, job, "retried", world)
    world.pledges.append(job)


def exhaust(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def add_predecessors(world: SimulatedCluster) -> None:
    job = some_job(world) or some(world, list(world.ended_jobs.values()))
    if job is None:
        return
    job_ids = some_ids(world)
    edges = some_edges(world, job_ids)
    world.tell(f"{job} shall wait for {job_ids}, {edges!r}")
    try:
        if world.links_later and world.engine.predecessor_commands.has_room(job):
            exhaust(world.engine.add_predecessors_in_steps(job, job_ids, edges))
        else:
            world.engine.add_predecessors(job, job_ids, edges)
    except Refused as refused:
        world.tell(f"refused: {refused}")
        if refused.reason not in EXPECTED_REFUSALS:
            raise
        return
    world.told.job(None, job, "has predecessors:", world)


def change(world: SimulatedCluster) -> None:
    """Change the priority or the run-at time of a job."""
    job = some_job(world) or some(world, list(world.ended_jobs.values()))
    if job is None:
        return
    priority = world.rng.choice((-1, 0, 1, 2))
    run_at_us = world.rng.choice((-1, 0, world.now_us, soon_us(world)))
    can_be = world.engine.jobs.get(job.id) is job and job.state in QUEUED_STATES
    expected_priority = job.priority if priority < 0 else priority
    world.tell(f"{job} shall have the priority {priority} and the time {run_at_us}")
    try:
        world.engine.change(job, priority=priority, run_at_us=run_at_us)
    except Refused as refused:
        world.tell(f"refused: {refused}")
        if can_be and not 0 < job.expires_us <= world.now_us:
            raise
        return
    if not can_be or job.priority != expected_priority:
        broken(f"{job}, which {'can' if can_be else 'cannot'} be changed, has the priority {job.priority}")
    if job.state is SCHEDULED and (job.run_at_us <= world.now_us or run_at_us not in (-1, job.run_at_us)):
        broken(f"{job} waits for {job.run_at_us}, and not for {run_at_us}")
    world.told.job(None, job, "changed", world)


def complete_unowned(world: SimulatedCluster) -> None:
    """Complete a job on the report of a worker that does not, or no longer, have it."""
    job = some_job(world) or some(world, list(world.ended_jobs.values()))
    if job is None:
        return
    can_be = world.engine.jobs.get(job.id) is job and job.state in (READY, RUNNING)
    world.tell(f"{job} completed without a worker")
    if world.engine.complete_unowned(job, b"completed") != can_be or (can_be and job.result != b"completed"):
        broken(f"completing {job}, which {'can' if can_be else 'cannot'} be, gave {job.result!r}")
    if can_be:
        world.told.job(None, job, "completed", world)


def pause(world: SimulatedCluster) -> None:
    function = world.engine.function_named(world.rng.choice(world.function_names))
    world.engine.pause(function)
    world.told.function(function, "paused")


def resume(world: SimulatedCluster) -> None:
    paused = [function for function in world.engine.functions.values() if function.paused]
    function = some(world, paused)
    if function is not None:
        world.engine.resume(function)
        world.told.function(function, "resumed")


def set_limits(world: SimulatedCluster) -> None:
    limits = [world.rng.choice((0, 3, 10)) for _ in range(3)]
    function = world.engine.function_named(world.rng.choice(world.function_names))
    world.engine.set_limits(function, *limits)
    world.told.function(function, "limited")


def drop_function(world: SimulatedCluster) -> None:
    function = some(world, list(world.engine.functions.values()))
    if function is not None and world.engine.drop_function(function):
        world.restored.pop(function, None)
        world.told.forget_function(function)


def drain(world: SimulatedCluster) -> None:
    if not world.store_fails:
        world.engine.drain()


def end_drain(world: SimulatedCluster) -> None:
    if not world.store_fails:
        world.engine.refusal = None
        world.engine.start_handing_out()


# --- time, the store, and crashes ---


def moment_passes(world: SimulatedCluster) -> None:
    world.pass_time(world.rng.randrange(SECOND_US // 5))


def deadline_comes(world: SimulatedCluster) -> None:
    next_us = world.engine.next_deadline_us
    if next_us is not None:
        world.pass_time(max(0, next_us - world.now_us))


def hours_pass(world: SimulatedCluster) -> None:
    world.pass_time(world.rng.randrange(5 * 3600 * SECOND_US))


def clock_is_set(world: SimulatedCluster) -> None:
    world.set_clock(round(world.rng.choice((-3600, -2, -0.3, 0.3, 2, 3600)) * SECOND_US))


def store_works(world: SimulatedCluster) -> None:
    """Begin a commit, or complete the one in progress."""
    if world.store.in_flight is None:
        world.begin_commit()
    else:
        world.end_commit()


def store_fails(world: SimulatedCluster) -> None:
    if world.store.in_flight is not None:
        world.fail_commit()


def turn_ends(world: SimulatedCluster) -> None:
    world.stage()
    world.put_away()


def log_is_pruned(world: SimulatedCluster) -> None:
    spared = set(world.engine.dependencies.successors) | world.ended_jobs.keys()
    rows = [row for row in world.store.finished() if not row.holds_key(world.now_us)]
    old = [row.id for row in rows if row.id not in spared and not world.engine.has_job(row.id)]
    dropped = [job_id for job_id in old if world.rng.random() < 0.5]
    world.store.forget(dropped)
    world.history.forget(dropped)
    world.told.forget(dropped)


def server_crashes(world: SimulatedCluster) -> None:
    world.crash(in_flight_is_kept=world.rng.random() < 0.5)


ACTIONS: Final[tuple[tuple[Action, float], ...]] = (
    (submit, 22),
    (reserve_id, 1),
    (watch, 2),
    (client_comes, 1),
    (client_leaves, 1),
    (worker_comes, 5),
    (worker_leaves, 1.5),
    (worker_hangs, 0.7),
    (worker_changes_functions, 2),
    (worker_renews_lease, 2),
    (worker_asks, 22),
    (worker_reports, 16),
    (cancel, 1.5),
    (retry, 3),
    (add_predecessors, 2),
    (change, 2),
    (complete_unowned, 1.5),
    (pause, 0.7),
    (resume, 2),
    (set_limits, 0.2),
    (set_policy, 1.5),
    *SCHEDULE_DEEDS,
    (drop_function, 0.3),
    (drain, 0.2),
    (end_drain, 1),
    (deadline_comes, 6),
    (hours_pass, 0.5),
    (clock_is_set, 1),
    (turn_ends, 8),
    (store_works, 12),
    (store_fails, 1),
    (payload_is_spilled, 3),
    (read_ends, 8),
    (read_fails, 0.5),
    (payload_is_lost, 0.1),
    (log_is_pruned, 0.5),
    (server_crashes, 1),
    (moment_passes, 6),
)
# Without these, little happens in a run.
ALWAYS: Final = {
    submit,
    worker_comes,
    worker_asks,
    worker_reports,
    resume,
    end_drain,
    store_works,
    read_ends,
    moment_passes,
}
