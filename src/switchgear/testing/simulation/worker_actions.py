"""The actions of simulated workers: register, deregister, take jobs, and report on them."""

from __future__ import annotations

from typing import Final

from switchgear.model import BEST_FIRST, DONE, READY, SECOND_US, Function, Job
from switchgear.states import LateReport
from switchgear.testing.invariants import broken
from switchgear.testing.simulation.actors import Asks, SimulatedWorker
from switchgear.testing.simulation.limits import RESOURCES, TAG_SETS, check_turn
from switchgear.testing.simulation.random_picks import some, soon_us
from switchgear.testing.simulation.simulated_cluster import SimulatedCluster

__all__ = [
    "worker_asks",
    "worker_changes_functions",
    "worker_comes",
    "worker_hangs",
    "worker_leaves",
    "worker_renews_lease",
    "worker_reports",
]

# --- registration ---


def worker_comes(world: SimulatedCluster) -> None:
    rng = world.rng
    if len(world.workers) >= 6:
        return
    most = len(world.function_names)
    names = tuple(rng.sample(world.function_names, rng.choice((0, 1, 1, most, most))))
    worker = world.add_worker(rng.choice(list(Asks)), names, rng.choice((0, 0, SECOND_US // 2)), some_priorities(world))
    world.engine.describe_worker(worker.worker, rng.choice(TAG_SETS), rng.choice(RESOURCES))
    if rng.random() < 0.3:
        world.engine.renew_lease(worker.worker, rng.choice((1, 5)) * SECOND_US)
    world.tell(f"{worker} can do {names}, {worker.worker.priorities}")


def some_priorities(world: SimulatedCluster) -> tuple[int, ...]:
    """The priorities of a worker: usually all."""
    rng = world.rng
    return tuple(rng.sample(BEST_FIRST, rng.randint(1, 3))) if rng.random() < 0.2 else ()


def worker_leaves(world: SimulatedCluster) -> None:
    worker = some(world, world.workers)
    if worker is not None:
        world.tell(f"{worker} with {worker.holds}")
        names = tuple(function.name for function in worker.worker.order)
        world.workers.remove(worker)
        world.engine.remove_worker(worker.worker)
        if worker.holds and world.rng.random() < 0.3:
            reports_late(world, worker, world.rng.choice(worker.holds))
        elif worker.holds and world.rng.random() < 0.4:
            comes_back(world, worker, names)
        worker.set_timers.clear()
        world.engine.unsubscribe(worker)


def comes_back(world: SimulatedCluster, gone: SimulatedWorker, names: tuple[bytes, ...]) -> None:
    """A worker that has lost its connection, and goes on with its jobs."""
    rng = world.rng
    back = world.add_worker(gone.asks, names, 0, ())
    back.starts |= gone.starts
    for job_id in gone.holds:
        before = world.engine.job(job_id)
        attempt = before.attempts if before is not None and rng.random() < 0.8 else rng.randint(0, 3)
        may = before is not None and before.state is READY and 0 < attempt >= before.attempts
        world.engine.speaker = back
        job = world.engine.resume_attempt(back.worker, job_id, attempt)
        world.tell(f"{back} resumes attempt {attempt} of job {job_id}: {job}")
        if job is not None:
            world.history.resumed.add(job_id)
            back.receive(job)
            if not may or job.attempts > attempt:
                broken(f"{back} was given {job} for attempt {attempt}")


def worker_hangs(world: SimulatedCluster) -> None:
    worker = some(world, world.workers)
    if worker is not None:
        world.tell(f"{worker} hangs for ever")
        worker.hangs = True


def worker_changes_functions(world: SimulatedCluster) -> None:
    worker = some_able_worker(world)
    if worker is None:
        return
    if world.rng.random() < 0.3:
        tags, resources = world.rng.choice((None, *TAG_SETS)), world.rng.choice((None, *RESOURCES))
        world.tell(f"{worker} has {tags} and {resources}")
        world.engine.describe_worker(worker.worker, tags, resources)
        return
    function = world.engine.function_named(world.rng.choice(world.function_names))
    verb = world.rng.choice(("can", "can", "cannot", "forgets"))
    world.tell(f"{worker} {verb} {function}")
    if verb == "can":
        world.engine.can_do(worker.worker, function, world.rng.choice((0, SECOND_US)), some_priorities(world))
    elif verb == "cannot":
        world.engine.cannot_do(worker.worker, function)
    else:
        world.engine.forget_functions(worker.worker)


def worker_renews_lease(world: SimulatedCluster) -> None:
    worker = some_able_worker(world)
    if worker is None or not worker.worker.lease_until_us:
        return
    if world.rng.random() < 0.1:
        world.engine.suspend_lease(worker.worker)
    if world.rng.random() < 0.95:
        world.engine.renew_lease(worker.worker, world.rng.choice((1, 2, 10)) * SECOND_US // 2)


def some_able_worker(world: SimulatedCluster) -> SimulatedWorker | None:
    """A worker that does not hang; a worker whose lease has expired may still send messages."""
    return some(world, [worker for worker in world.workers if not worker.hangs])


# --- taking and reporting ---


def worker_asks(world: SimulatedCluster) -> None:
    rng = world.rng
    patient = rng.random() < 0.9  # most wait until they are woken
    worker = some(world, [w for w in world.workers if not w.hangs and not (patient and w.asleep)])
    if worker is None:
        return
    if (worker.asks is Asks.PUSH) == (rng.random() < 0.95):  # sometimes a worker asks in an unusual way
        worker_grants(world, worker)
        return
    world.engine.speaker = worker
    runnable = [function for function in worker.worker.order if has_work_for(world, worker, function)]
    worker.asleep = False
    ready = [job for job in world.engine.unfinished_jobs() if job.state is READY]
    if runnable and rng.random() < 0.1:
        function, priority = rng.choice(runnable), rng.randrange(4)
        runnable = [function] if world.engine.limiters.offers(function, priority, worker.worker) else []
        worker.asks_for_any = True
        job = world.engine.take_of(worker.worker, function, priority)
        if job is None and world.engine.wanted_payloads:
            runnable = []  # the payload of the next job is not in memory
    else:
        job = world.engine.take(worker.worker)
        if job is None and world.engine.wanted_payloads:
            runnable = [function for function in worker.worker.order if has_work_for(world, worker, function)]
            if worker.worker.priorities is not None:
                runnable = []  # the payload of the next job of its priorities is not in memory
        elif job is not None and worker.worker.priorities is not None and job.function.unloaded is not None:
            runnable = [job.function]  # the payload being read is of another priority
    world.tell(f"{worker} is given {job}")
    if job is not None:
        worker.receive(job)
        if not world.has_policy:
            check_turn(world, worker.worker, job, ready)
    elif world.has_policy:
        runnable = []  # whatever there is, the policy does not want this worker to have it
    worker.asks_for_any = False
    limit = world.settings.jobs_per_worker
    if (job is None) != (not runnable) and not (limit and len(worker.worker.running) >= limit):
        broken(f"{worker} was given {job}, and there were jobs of {runnable}")
    if job is None and (worker.asks is Asks.SLEEP) == (rng.random() < 0.95):
        worker.asleep = world.engine.sleep(worker.worker)


def has_work_for(world: SimulatedCluster, worker: SimulatedWorker, function: Function) -> bool:
    """Whether there is a job of the function that this worker takes."""
    allowed = (worker.worker.priorities or {}).get(function, BEST_FIRST)
    has_work = world.engine.dispatcher.chooser.has_work_for(function, worker.worker)
    return has_work and any(world.engine.limiters.offers(function, priority, worker.worker) for priority in allowed)


def worker_grants(world: SimulatedCluster, worker: SimulatedWorker) -> None:
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
        at_us = max(world.now_us, soon_us(world))
        timer = world.engine.set_timer(worker, at_us)
        worker.set_timers[timer] = world.span_us + at_us - world.now_us
    elif worker.set_timers and rng.random() < 0.2:
        world.engine.cancel_timer(worker.set_timers.popitem()[0])
    elif worker.worker.credits < 3:
        world.engine.grant(worker.worker, rng.randint(1, 3))


def worker_reports(world: SimulatedCluster) -> None:
    """Report, usually on a job that the worker has; sometimes on one that it had, or never had."""
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
    verb = rng.choices(REPORTS, HESITANT_WEIGHTS if world.has_hesitant_workers else REPORT_WEIGHTS)[0]
    world.tell(f"{worker} {verb.__name__} job {job_id}{'' if has_it else ', which it does not have'}")
    world.engine.speaker = worker
    answer = verb(world, worker, job_id)
    if answer is not None and verb in ANSWERED_REPORTS:
        world.told.job(worker, answer, verb.__name__, world)
        if world.has_hesitant_workers and verb in (wants_to_retry, hands_back) and has_it:
            world.crash_is_next = rng.random() < 0.7
    if (answer is None) != (job is None):
        broken(f"{worker} reported on job {job_id} and was answered {answer}")
    if not has_it and answer is not None and answer.worker is worker.worker:
        broken(f"{worker} was given {answer} for a report on a job that it did not have")


def reports_late(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> None:
    """Report the result of a job that was taken from the worker."""
    job = world.engine.job(job_id)
    start = worker.starts[job_id]
    had_it = world.engine.has_lost(job_id, worker, start)
    world.engine.speaker = worker
    verdict = world.engine.report_late(job_id, worker, start, b"late")
    if job is not None and verdict is LateReport.ACCEPTED:
        world.told.job(worker, job, "reported late on", world)
    world.tell(f"{worker} reports late on start {start} of job {job_id}: {verdict.name}")
    if had_it and verdict is LateReport.UNKNOWN:
        broken(f"{worker} has lost job {job_id}, and was not believed")
    if (verdict is LateReport.ACCEPTED) != (job is not None and job.state is DONE and job.result == b"late"):
        broken(f"a late report on {job} was {verdict.name}")


def completes(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.complete(worker.worker, job_id, b"result", start_of(world, worker, job_id))


def start_of(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> int:
    """The start number of a report; some protocols have none."""
    return worker.starts.get(job_id, 0) if world.rng.random() < 0.7 else 0


def fails(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.fail(worker.worker, job_id, 7, b"oh no")


def wants_to_retry(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    delay_us = world.rng.choice((0, SECOND_US))
    return world.engine.retry_later(worker.worker, job_id, delay_us, b"not now", world.rng.choice((-1, -1, 2)))


def hands_back(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.release(worker.worker, job_id)


def gives_figures(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.progress(worker.worker, job_id, 1, 2, 3, message=b"halfway")


def sends_data(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.data(worker.worker, job_id, b"seven..")


def warns(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.warning(worker.worker, job_id, b"warning")


def is_still_at_it(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.renew_run(worker.worker, job_id)


REPORTS: Final = (completes, fails, wants_to_retry, hands_back, gives_figures, sends_data, warns, is_still_at_it)
ANSWERED_REPORTS: Final = (completes, fails, wants_to_retry, hands_back)
REPORT_WEIGHTS: Final = (10, 2, 2, 1, 1, 2, 1, 3)
HESITANT_WEIGHTS: Final = (4, 1, 8, 8, 1, 1, 1, 1)
