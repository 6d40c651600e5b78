"""What workers do in a history: they come and go, ask for jobs, and report on them."""

from __future__ import annotations

from typing import Final

from switchgear.model import READY, SECOND_US, Job
from switchgear.testing.invariants import broken
from switchgear.testing.simulation.actors import Asks, SimulatedWorker
from switchgear.testing.simulation.limits import check_turn
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

# --- workers come and go ---


def worker_comes(world: SimulatedCluster) -> None:
    rng = world.rng
    if len(world.workers) >= 6:
        return
    most = len(world.function_names)
    names = tuple(rng.sample(world.function_names, rng.choice((0, 1, 1, most, most))))
    worker = world.add_worker(rng.choice(list(Asks)), names, rng.choice((0, 0, SECOND_US // 2)))
    if rng.random() < 0.3:
        world.engine.renew_lease(worker.worker, rng.choice((1, 5)) * SECOND_US)
    world.tell(f"{worker} can do {names}")


def worker_leaves(world: SimulatedCluster) -> None:
    worker = some(world, world.workers)
    if worker is not None:
        world.tell(f"{worker} with {worker.holds}")
        world.workers.remove(worker)
        world.engine.remove_worker(worker.worker)


def worker_hangs(world: SimulatedCluster) -> None:
    worker = some(world, world.workers)
    if worker is not None:
        world.tell(f"{worker} hangs for ever")
        worker.hangs = True


def worker_changes_functions(world: SimulatedCluster) -> None:
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


def worker_renews_lease(world: SimulatedCluster) -> None:
    worker = some_able_worker(world)
    if worker is None or not worker.worker.lease_until_us:
        return
    if world.rng.random() < 0.1:
        world.engine.suspend_lease(worker.worker)
    if world.rng.random() < 0.95:
        world.engine.renew_lease(worker.worker, world.rng.choice((1, 2, 10)) * SECOND_US // 2)


def some_able_worker(world: SimulatedCluster) -> SimulatedWorker | None:
    """One that does not hang; those whose lease has expired may still try to speak."""
    return some(world, [worker for worker in world.workers if not worker.hangs])


# --- workers at work ---


def worker_asks(world: SimulatedCluster) -> None:
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
    ready = [job for job in world.engine.unfinished_jobs() if job.state is READY]
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
        worker.alarms.append(world.engine.alarm(worker.worker, max(world.now_us, soon_us(world))))
    elif worker.alarms and rng.random() < 0.2:
        world.engine.cancel_alarm(worker.worker, worker.alarms.pop())
    elif worker.worker.credits < 3:
        world.engine.grant(worker.worker, rng.randint(1, 3))


def worker_reports(world: SimulatedCluster) -> None:
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


def completes(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.complete(worker.worker, job_id, b"result")


def fails(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.fail(worker.worker, job_id, 7, b"oh no")


def wants_to_retry(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    delay_us = world.rng.choice((0, SECOND_US))
    return world.engine.retry_later(worker.worker, job_id, delay_us, b"not now", world.rng.choice((-1, -1, 2)))


def hands_back(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    worker.put_down(job_id)
    return world.engine.hand_back(worker.worker, job_id)


def gives_figures(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.progress(worker.worker, job_id, 1, 2, 3, message=b"halfway")


def sends_data(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.data(worker.worker, job_id, b"seven..")


def warns(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.warning(worker.worker, job_id, b"warning")


def is_still_at_it(world: SimulatedCluster, worker: SimulatedWorker, job_id: int) -> Job | None:
    return world.engine.renew_run(worker.worker, job_id)


REPORTS: Final = (completes, fails, wants_to_retry, hands_back, gives_figures, sends_data, warns, is_still_at_it)
REPORT_WEIGHTS: Final = (10, 2, 2, 1, 1, 2, 1, 3)
