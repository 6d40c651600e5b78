"""What may happen in one step.  Each deed looks at the world, draws its lots, and does one thing to the engine."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from switchgear.engine.core import REFUSED_CONFLICT, REFUSED_DRAINING, REFUSED_FULL, REFUSED_STORAGE
from switchgear.engine.engine import SubmitOptions
from switchgear.errors import Refused
from switchgear.model import (
    FINAL_STATES,
    READY,
    RUNNING,
    SECOND_US,
    Delivery,
    EdgePolicy,
    Job,
    UniquePolicy,
    UniqueScope,
)
from switchgear.testing.invariants import broken
from switchgear.testing.simulation.actors import Asks, SimulatedWorker
from switchgear.testing.simulation.limits import KEYS, check_turn, set_policy
from switchgear.testing.simulation.schedules import SCHEDULE_DEEDS
from switchgear.testing.simulation.world import World

__all__ = ["choose_deed", "temperament"]

Deed = Callable[[World], None]
T = TypeVar("T")

EXPECTED_REFUSALS: Final = {REFUSED_FULL, REFUSED_DRAINING, REFUSED_STORAGE, REFUSED_CONFLICT, "cycle"}


def temperament(rng: Random) -> list[float]:
    """How often each deed happens in this history.  Some never do, so that others get to do more."""
    factors = [rng.choice((0.4, 1, 1, 2) if deed in ALWAYS else (0, 0.3, 1, 1, 3)) for deed, _ in DEEDS]
    return [weight * factor for (_, weight), factor in zip(DEEDS, factors)]


def choose_deed(world: World, weights: list[float]) -> Deed:
    return world.rng.choices(DEEDS, weights)[0][0]


def some(world: World, things: list[T]) -> T | None:
    return world.rng.choice(things) if things else None


def some_job(world: World) -> Job | None:
    return some(world, list(world.engine.jobs.values()))


def some_ids(world: World) -> tuple[int, ...]:
    """Ids of jobs that are or were there; in a graph most edges are to recent jobs."""
    rng = world.rng
    newest = world.engine.next_job_id - 1
    known = [job_id for job_id in (newest - rng.randrange(12) for _ in range(rng.choice((1, 1, 2, 4)))) if job_id > 0]
    return tuple(job_id for job_id in known if world.store.get(job_id, world.engine) or job_id in world.engine.jobs)


def some_edges(world: World, job_ids: tuple[int, ...]) -> bytes:
    return bytes(world.rng.choices(list(EdgePolicy), k=len(job_ids))) if world.rng.random() < 0.7 else b""


def soon_us(world: World) -> int:
    """A moment in the near past, or in a nearer or farther future."""
    return world.now_us + round(world.rng.choice((-0.1, 0.05, 0.5, 3, 60)) * SECOND_US)


# --- clients ---


def submit(world: World) -> None:
    rng = world.rng
    client = some(world, world.clients) or world.add_client()
    delivery = rng.choice((Delivery.WAIT, Delivery.HANDLE, Delivery.HANDLE, Delivery.THROW_AWAY))
    watcher = client if delivery is Delivery.WAIT or rng.random() < 0.2 else None
    unique = rng.choice((b"", b"", b"", b"", b"red", b"green"))
    function = rng.choice(world.function_names)
    options = some_options(world, unique) if rng.random() < 0.5 else None
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
        return  # and nobody will be told of its end again
    if watcher is not None:
        client.expect(job)
    if delivery:
        world.pledges.append(job)


def some_options(world: World, unique: bytes) -> SubmitOptions:
    rng = world.rng
    predecessors = some_ids(world) if rng.random() < 0.5 else ()
    return SubmitOptions(
        run_at_us=soon_us(world) if rng.random() < 0.4 else 0,
        expires_us=soon_us(world) if rng.random() < 0.3 else 0,
        timeout_us=rng.choice((0, 0, SECOND_US // 10, 5 * SECOND_US)),
        attempts_limit=rng.choice((-1, -1, -1, 0, 1, 2)),
        predecessors=predecessors,
        edges=some_edges(world, predecessors),
        losses_limit=rng.choice((-1, -1, 0, 1, 2)),
        unique_scope=rng.choice((UniqueScope.UNFINISHED, UniqueScope.QUEUED)) if unique else 0,
        unique_policy=rng.choice((*UniquePolicy, UniquePolicy.JOIN)) if unique else 0,
        unique_hold_us=rng.choice((0, 0, SECOND_US // 2, 60 * SECOND_US)) if unique else 0,
        retention_us=rng.choice((-1, 0, SECOND_US)),
        name=rng.choice((b"", b"", b"", b"Anna", b"Bob")),
        job_id=world.reserved_ids.pop() if world.reserved_ids and rng.random() < 0.5 else 0,
        key=rng.choice(KEYS),
    )


def reserve_id(world: World) -> None:
    world.reserved_ids.append(world.engine.reserve_id())


def watch(world: World) -> None:
    client, job = some(world, world.clients), some_job(world)
    if client is not None and job is not None:
        world.tell(f"{client} watches {job}")
        world.engine.watch(job, client)
        client.expect(job)


def client_leaves(world: World) -> None:
    client = some(world, world.clients)
    if client is not None:
        world.clients.remove(client)
        world.engine.unwatch(client)
        client.expects.clear()


def client_comes(world: World) -> None:
    if len(world.clients) < 4:
        world.add_client()


# --- workers come and go ---


def worker_comes(world: World) -> None:
    rng = world.rng
    if len(world.workers) >= 6:
        return
    most = len(world.function_names)
    names = tuple(rng.sample(world.function_names, rng.choice((0, 1, 1, most, most))))
    worker = world.add_worker(rng.choice(list(Asks)), names, rng.choice((0, 0, SECOND_US // 2)))
    if rng.random() < 0.3:
        world.engine.renew_lease(worker.worker, rng.choice((1, 5)) * SECOND_US)
    world.tell(f"{worker} can do {names}")


def worker_leaves(world: World) -> None:
    worker = some(world, world.workers)
    if worker is not None:
        world.tell(f"{worker} with {worker.holds}")
        world.workers.remove(worker)
        world.engine.remove_worker(worker.worker)


def worker_hangs(world: World) -> None:
    worker = some(world, world.workers)
    if worker is not None:
        world.tell(f"{worker} hangs for ever")
        worker.hangs = True


def worker_changes_functions(world: World) -> None:
    worker = some_able_worker(world)
    if worker is None:
        return
    function = world.engine.function_named(world.rng.choice(world.function_names))
    verb = world.rng.choice(("can", "can", "cannot", "forgets"))
    world.tell(f"{worker} {verb} {function}")
    if verb == "can":
        world.engine.can_do(worker.worker, function, world.rng.choice((0, SECOND_US)))
    elif verb == "cannot":
        world.engine.cannot_do(worker.worker, function)
    else:
        world.engine.forget_functions(worker.worker)


def worker_renews_lease(world: World) -> None:
    worker = some_able_worker(world)
    if worker is None or not worker.worker.lease_until_us:
        return
    if world.rng.random() < 0.1:
        world.engine.suspend_lease(worker.worker)
    if world.rng.random() < 0.95:
        world.engine.renew_lease(worker.worker, world.rng.choice((1, 2, 10)) * SECOND_US // 2)


def some_able_worker(world: World) -> SimulatedWorker | None:
    """One that does not hang; those whose lease has expired may still try to speak."""
    return some(world, [worker for worker in world.workers if not worker.hangs])


# --- workers at work ---


def worker_asks(world: World) -> None:
    rng = world.rng
    patient = rng.random() < 0.9  # most wait until they are woken
    worker = some(world, [w for w in world.workers if not w.hangs and not (patient and w.asleep)])
    if worker is None:
        return
    if (worker.asks is Asks.PUSH) == (rng.random() < 0.95):  # now and then one asks in another way than usual
        worker_grants(world, worker)
        return
    runnable = [function for function in worker.worker.order if world.engine._has_work(function)]
    worker.asleep = False
    ready = [job for job in world.engine.jobs.values() if job.state is READY]
    if runnable and rng.random() < 0.1:
        function, priority = rng.choice(runnable), rng.randrange(4)
        runnable = [function] if world.engine._offers(function, priority) else []
        job = world.engine.take_of(worker.worker, function, priority)
    else:
        job = world.engine.take(worker.worker)
    world.tell(f"{worker} is given {job}")
    if job is not None:
        worker.receive(job)
        check_turn(job, ready)
    limit = world.settings.jobs_per_worker
    if (job is None) != (not runnable) and not (limit and len(worker.worker.running) >= limit):
        broken(f"{worker} was given {job}, and there were jobs of {runnable}")
    if job is None and (worker.asks is Asks.SLEEP) == (rng.random() < 0.95):
        worker.asleep = world.engine.sleep(worker.worker)


def worker_grants(world: World, worker: SimulatedWorker) -> None:
    rng = world.rng
    if rng.random() < 0.1:
        world.engine.withdraw_credit(worker.worker)
        worker.tickets.clear()
    elif rng.random() < 0.4:
        ticket = world.engine.grant_until(worker.worker, max(world.now_us, soon_us(world)))
        world.tell(f"{worker} waits with ticket {ticket}")
        if ticket:
            worker.tickets.append(ticket)
    elif rng.random() < 0.2:
        worker.alarms.append(world.engine.alarm(worker.worker, max(world.now_us, soon_us(world))))
    elif worker.alarms and rng.random() < 0.2:
        world.engine.cancel_alarm(worker.worker, worker.alarms.pop())
    elif worker.worker.credits < 3:
        world.engine.grant(worker.worker, rng.randint(1, 3))


def worker_reports(world: World) -> None:
    """Usually on a job that it has; now and then on one that it had, or never had."""
    rng = world.rng
    busy = [worker for worker in world.workers if not worker.hangs and (worker.holds or worker.reported)]
    worker = some(world, busy)
    if worker is None:
        return
    if worker.holds and rng.random() < 0.9:
        job_id = rng.choice(worker.holds)
    else:
        job_id = rng.choice([*worker.reported, 999_999])
    job = worker.worker.running.get(job_id)
    has_it = job is not None and job.worker is worker.worker
    verb = rng.choices(REPORTS, REPORT_WEIGHTS)[0]
    world.tell(f"{worker} {verb.__name__} job {job_id}{'' if has_it else ', which it does not have'}")
    answer = verb(world, worker, job_id)
    if (answer is None) != (job is None):
        broken(f"{worker} reported on job {job_id} and was answered {answer}")
    if not has_it and answer is not None and answer.worker is worker.worker:
        broken(f"{worker} was given {answer} for a report on a job that it did not have")


def completes(world: World, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.complete(worker.worker, job_id, b"result")


def fails(world: World, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.fail(worker.worker, job_id, 7, b"oh no")


def wants_to_retry(world: World, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    delay_us = world.rng.choice((0, SECOND_US))
    return world.engine.retry_later(worker.worker, job_id, delay_us, b"not now", world.rng.choice((-1, -1, 2)))


def hands_back(world: World, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.hand_back(worker.worker, job_id)


def gives_figures(world: World, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.progress(worker.worker, job_id, 1, 2, 3, message=b"halfway")


def sends_data(world: World, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.data(worker.worker, job_id, b"seven..")


def warns(world: World, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.warning(worker.worker, job_id, b"warning")


def is_still_at_it(world: World, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.renew_run(worker.worker, job_id)


REPORTS: Final = (completes, fails, wants_to_retry, hands_back, gives_figures, sends_data, warns, is_still_at_it)
REPORT_WEIGHTS: Final = (10, 2, 2, 1, 1, 2, 1, 3)


# --- operators ---


def cancel(world: World) -> None:
    job = some_job(world) or some(world, list(world.ended_jobs.values()))
    if job is None:
        return
    cascade = world.rng.random() < 0.3
    was_there = job.id in world.engine.jobs
    ended = world.engine.cancel(job, cascade=cascade)
    world.tell(f"cancelled: {ended}")
    if (job in ended) != was_there or (len(ended) > 1 and not cascade):
        broken(f"cancelling {job} ended {ended}")
    if cascade and world.engine.graph.waiting_for(job.id):
        broken(f"{job} was cancelled with all that wait for it, and some still do")


def retry(world: World) -> None:
    """Of a job that the engine has just let go of, or of a copy that the store has."""
    job = some(world, list(world.ended_jobs.values()))
    if job is not None and world.rng.random() < 0.5:
        world.stage()
        job = world.store.get(job.id, world.engine)
    if job is None or job.id in world.history.forgotten:
        return
    try:
        world.engine.retry(job)
    except Refused as refused:
        world.tell(f"{job} refused: {refused}")
        if refused.reason not in EXPECTED_REFUSALS:
            raise
        return
    world.tell(f"{job} retried")
    world.pledges.append(job)


def add_predecessors(world: World) -> None:
    job = some_job(world) or some(world, list(world.ended_jobs.values()))
    if job is None:
        return
    job_ids = some_ids(world)
    edges = some_edges(world, job_ids)
    world.tell(f"{job} shall wait for {job_ids}, {edges!r}")
    try:
        world.engine.add_predecessors(job, job_ids, edges)
    except Refused as refused:
        world.tell(f"refused: {refused}")
        if refused.reason not in EXPECTED_REFUSALS:
            raise


def settle(world: World) -> None:
    """Somebody has done a job that he was not given, or that was taken from him."""
    job = some_job(world) or some(world, list(world.ended_jobs.values()))
    if job is None:
        return
    can_be = world.engine.jobs.get(job.id) is job and job.state in (READY, RUNNING)
    world.tell(f"{job} settled")
    if world.engine.settle(job, b"settled") != can_be or (can_be and job.result != b"settled"):
        broken(f"settling {job}, which {'can' if can_be else 'cannot'} be, gave {job.result!r}")


def pause(world: World) -> None:
    world.engine.pause(world.engine.function_named(world.rng.choice(world.function_names)))


def resume(world: World) -> None:
    paused = [function for function in world.engine.functions.values() if function.paused]
    function = some(world, paused)
    if function is not None:
        world.engine.resume(function)


def set_limits(world: World) -> None:
    limits = [world.rng.choice((0, 3, 10)) for _ in range(3)]
    world.engine.set_limits(world.engine.function_named(world.rng.choice(world.function_names)), *limits)


def drop_function(world: World) -> None:
    function = some(world, list(world.engine.functions.values()))
    if function is not None and world.engine.drop_function(function):
        world.restored.pop(function, None)


def drain(world: World) -> None:
    if not world.store_fails:
        world.engine.drain()


def end_drain(world: World) -> None:
    if not world.store_fails:
        world.engine.refusal = None
        world.engine.start_handing_out()


# --- time, the store, and disaster ---


def moment_passes(world: World) -> None:
    world.pass_time(world.rng.randrange(SECOND_US // 5))


def deadline_comes(world: World) -> None:
    next_us = world.engine.next_deadline_us
    if next_us is not None:
        world.pass_time(max(0, next_us - world.now_us))


def hours_pass(world: World) -> None:
    world.pass_time(world.rng.randrange(5 * 3600 * SECOND_US))


def clock_is_set(world: World) -> None:
    world.set_clock(round(world.rng.choice((-3600, -2, -0.3, 0.3, 2, 3600)) * SECOND_US))


def store_works(world: World) -> None:
    """A commit begins, or the one under way succeeds."""
    if world.store.in_flight is None:
        world.begin_commit()
    else:
        world.end_commit()


def store_fails(world: World) -> None:
    if world.store.in_flight is not None:
        world.fail_commit()


def turn_ends(world: World) -> None:
    world.stage()


def log_is_pruned(world: World) -> None:
    spared = set(world.engine.graph.successors) | world.ended_jobs.keys()
    rows = [row for row in world.store.finished() if not row.holds_key(world.now_us)]
    old = [row.id for row in rows if row.id not in spared and row.id not in world.engine.jobs]
    dropped = [job_id for job_id in old if world.rng.random() < 0.5]
    world.store.forget(dropped)
    world.history.forget(dropped)


def server_crashes(world: World) -> None:
    world.crash(in_flight_is_kept=world.rng.random() < 0.5)


DEEDS: Final[tuple[tuple[Deed, float], ...]] = (
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
    (settle, 1.5),
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
    (log_is_pruned, 0.5),
    (server_crashes, 1),
    (moment_passes, 6),
)
# Without these a history soon has nothing more to tell.
ALWAYS: Final = {submit, worker_comes, worker_asks, worker_reports, resume, end_drain, store_works, moment_passes}
