"""Tasks that wait without a worker: sleep, signals, approvals, remembered steps, spawned jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from switchgear import App, TaskFailed, chain, current_job, group
from switchgear.app.current_job import CurrentJob, NotInAJob
from switchgear.app.durable_tasks import Approval
from switchgear.errors import ArgumentError, JobUnknown, ServerRefused
from switchgear.testing import in_memory
from switchgear.testing.in_memory_server import InMemoryServer

app = App("gearman://127.0.0.1:1", name="durable")
ran: list[object] = []


@dataclass
class Payment:
    amount: float
    payer: str


@pytest.fixture
def server() -> Iterator[InMemoryServer]:
    ran.clear()
    with in_memory(app, raise_errors=True) as server:
        yield server


def charge(number: int) -> int:
    ran.append(("charge", number))
    return 2 * number


@app.task
def sleeper(seconds: float) -> float:
    ran.append("begin")
    current_job().sleep(seconds)
    ran.append("awake")
    current_job().sleep(seconds)
    return seconds


@app.task
def refund(number: int) -> str:
    job = current_job()
    charged = job.step("charge", charge, number)
    approval = job.wait_for_approval(timeout=3600)
    return f"{charged} {'approved' if approval else 'rejected'} by {approval.by}: {approval.comment}"


@app.task
def paid(timeout: float | None = None) -> str:
    payment = current_job().wait_for("paid", timeout, kind=Payment)
    return f"{payment.amount} from {payment.payer}"


@app.task
async def paid_async() -> float:
    job = current_job()
    await job.sleep_async(5)

    async def double(number: int) -> int:
        ran.append("double")
        return 2 * number

    doubled = await job.step_async("double", double, 4)
    payment = await job.wait_for_async("paid", kind=Payment)
    return payment.amount + doubled


@app.task
def part(number: int) -> int:
    ran.append(("part", number))
    if number < 0:
        raise ValueError("negative")
    return number * number


@app.task
def split(count: int) -> int:
    job = current_job()
    spawned = job.spawn(group(part.s(number) for number in range(count)))
    ran.append(("spawned", list(spawned.handles)))
    job.sleep(1)
    return count


@app.task
def after(count: int) -> str:
    return f"{count}: {sum(entry[0] == 'part' for entry in ran if isinstance(entry, tuple))} parts before"


@app.task
def spawn_failing() -> int:
    current_job().spawn(part.s(-1))
    return 1


def test_a_sleep_takes_no_slot_and_no_attempt(server: InMemoryServer) -> None:
    job = sleeper.submit(60)
    assert job.status().state == "waiting"
    assert "waits for H:memory:2 (sleep 1 of H:memory:1), which is scheduled" in str(job.explain())
    server.advance(59)
    assert (job.status().state, ran) == ("waiting", ["begin"])
    server.advance(2)
    assert (job.status().state, ran) == ("waiting", ["begin", "begin", "awake"])
    assert "which expired" not in str(job.explain())
    server.advance(60)
    assert (job.result(), job.status().attempts) == (60, 1)
    assert ran == ["begin", "begin", "awake", "begin", "awake"]


def test_idle_time_passes_by_itself(server: InMemoryServer) -> None:
    job = sleeper.submit(3000)
    server.run_until_idle()
    assert job.result() == 3000


def test_an_approval_and_a_step_that_is_made_once(server: InMemoryServer) -> None:
    job = refund.submit(4)
    assert [entry.label for entry in app.jobs(task="switchgear.event", states=["scheduled"])] == [
        f"signal approval of {job.handle}"
    ]
    assert app.approve(job, by="ann", comment="fine")
    assert job.result() == "8 approved by ann: fine"
    assert ran == [("charge", 4)]


def test_a_rejection(server: InMemoryServer) -> None:
    job = refund.submit(4)
    assert app.reject(job.handle, by="bob", comment="no")
    assert job.result() == "8 rejected by bob: no"


def test_only_the_first_signal_counts_and_it_may_come_first(server: InMemoryServer) -> None:
    job = paid.options(delay=10).submit()
    assert app.signal(job, "paid", Payment(2.5, "ann"))
    assert not app.signal(job, "paid", Payment(9, "bob"))
    assert app.signal(job, "other")
    server.advance(10)
    assert job.result() == "2.5 from ann"
    with pytest.raises(ServerRefused, match="is done: it waits for nothing any more"):
        app.signal(job, "paid", Payment(1, "c"))


def test_a_signal_that_does_not_come(server: InMemoryServer) -> None:
    job = paid.submit(30)
    server.advance(31)
    with pytest.raises(TaskFailed, match="no signal 'paid' came within 30 s"):
        job.result()


def test_a_signal_of_another_kind(server: InMemoryServer) -> None:
    job = paid.submit()
    app.signal(job, "paid", {"amount": "much"})
    with pytest.raises(TaskFailed, match="expected float, got str at "):
        job.result()


def test_signals_to_jobs_that_are_not_there(server: InMemoryServer) -> None:
    with pytest.raises(JobUnknown):
        app.signal("H:memory:77", "paid")
    job = paid.submit()
    with pytest.raises(ArgumentError, match="the name of a signal is a text"):
        app.signal(job, "")
    with pytest.raises(TypeError):
        app.signal(job, "paid", object())
    with pytest.raises(TypeError, match="expected a job or the handle of one"):
        app.signal(7, "paid")  # type: ignore[arg-type]


def test_with_asyncio() -> None:
    async def main() -> float:
        async with in_memory(app) as server:
            job = await paid_async.submit_async()
            await server.advance_async(6)
            assert await app.signal_async(job, "paid", Payment(1.5, "ann"))
            return await job

    ran.clear()
    assert asyncio.run(main()) == 9.5
    assert ran == ["double"]


def test_successors_wait_for_spawned_jobs(server: InMemoryServer) -> None:
    job = chain(split.s(3), after.s()).submit()
    server.run_until_idle()
    assert job.result() == "3: 3 parts before"
    spawned = [entry for entry in ran if isinstance(entry, tuple) and entry[0] == "spawned"]
    assert len(spawned) == 2  # the task was called twice
    assert spawned[0] == spawned[1]  # but the jobs were submitted once
    assert len([entry for entry in ran if isinstance(entry, tuple) and entry[0] == "part"]) == 3


def test_a_successor_fails_if_a_spawned_job_does(server: InMemoryServer) -> None:
    job = chain(spawn_failing.s(), after.s()).submit()
    assert job.wait() == "failed"
    assert "negative" in str(job.status().error)


def test_a_task_that_does_something_else_when_called_again(server: InMemoryServer) -> None:
    counts = iter((1, 2))

    @app.task(name="fickle")
    def fickle() -> None:
        current_job().spawn(group(part.s(number) for number in range(next(counts))))
        current_job().sleep(1)

    job = fickle.submit()
    server.advance(2)
    with pytest.raises(TaskFailed, match="has to do the same as before"):
        job.result()


def test_a_retried_job_goes_on_where_it_was(server: InMemoryServer) -> None:
    fails = [True]

    @app.task(name="fragile")
    def fragile() -> str:
        job = current_job()
        charged = job.step("charge", charge, 1)
        value = job.wait_for("go", kind=int)
        if fails[0]:
            raise OSError("no connection")
        return f"{charged} {value}"

    job = fragile.submit()
    app.signal(job, "go", 5)
    assert job.wait() == "failed"
    fails[0] = False
    job.retry()
    assert job.result() == "2 5"
    assert ran == [("charge", 1)]


def test_a_cancelled_job_does_not_come_back(server: InMemoryServer) -> None:
    job = paid.submit()
    assert job.cancel()
    assert job.status().state == "cancelled"
    with pytest.raises(ServerRefused):
        app.signal(job, "paid", Payment(1, "c"))


def test_results_of_steps_and_times_that_cannot_be_kept(server: InMemoryServer) -> None:
    @app.task(name="unkept")
    def unkept() -> None:
        current_job().step("handle", lambda: object())

    @app.task(name="too_long")
    def too_long() -> None:
        current_job().sleep(40 * 86_400)

    with pytest.raises(TaskFailed, match="the result of a step of H:memory:1 cannot be kept as JSON"):
        unkept.submit().result()
    with pytest.raises(TaskFailed, match="a sleep is at most 29 days"):
        too_long.submit().result()


def test_two_steps_of_one_name_are_refused(server: InMemoryServer) -> None:
    ran.clear()

    @app.task(name="send_all")
    def send_all(people: list[str], numbered: bool) -> int:
        for number, _ in enumerate(people):
            current_job().step(f"send-{number}" if numbered else "send", charge, number)
        current_job().sleep(1)
        return len(people)

    job = send_all.submit(["ann", "bob"], numbered=False)
    with pytest.raises(TaskFailed, match=r"has made the step send already in this run: give each step a name"):
        job.result()
    assert ran == [("charge", 0)]
    numbered = send_all.submit(["ann", "bob"], numbered=True)
    server.advance(1)  # its steps are recalled in the second run
    assert numbered.result() == 2
    assert ran == [("charge", 0), ("charge", 0), ("charge", 1)]


def test_a_step_that_failed_may_be_made_again(server: InMemoryServer) -> None:
    tries: list[int] = []

    def fail_once() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no connection")
        return "there"

    @app.task(name="persistent")
    def persistent() -> str:
        try:
            return current_job().step("fetch", fail_once)
        except OSError:
            return current_job().step("fetch", fail_once)

    assert persistent.submit().result() == "there"


def test_a_job_is_completed_without_a_run(server: InMemoryServer) -> None:
    job = part.options(delay=600).submit(3)
    job.complete(10)
    assert (job.result(), ran) == (10, [])
    with pytest.raises(ServerRefused, match="it cannot be completed"):
        job.complete(11)


def test_the_verbs_of_waiting_refuse_what_makes_no_sense(server: InMemoryServer) -> None:
    first, second, done = part.options(delay=60).submit(1), part.options(delay=60).submit(2), part.submit(3)
    wait_for = {"handle": first.handle, "after": [second.handle]}
    assert app.control("wait_for", **wait_for) == {"waits": True}
    for verb, arguments, text in (
        ("wait_for", {"handle": second.handle, "after": [first.handle]}, "H:memory:2 -> H:memory:1 -> H:memory:2"),
        ("wait_for", {"handle": first.handle, "after": [first.handle]}, "H:memory:1 -> H:memory:1"),
        ("wait_for", {"handle": done.handle, "after": [first.handle]}, "it is done"),
        ("wait_for", {"handle": first.handle, "after": ["H:x:1"]}, "there is no job H:x:1"),
        ("spawn", {"handle": second.handle, "jobs": [first.handle]}, "H:memory:1 -> H:memory:1"),
        ("spawn", {"handle": done.handle, "jobs": [first.handle]}, "it is done"),
        ("complete", {"handle": done.handle, "result": "1"}, "cannot be completed"),
    ):
        with pytest.raises(ServerRefused) as caught:
            app.control(verb, **arguments)
        assert text in str(caught.value)


def test_outside_of_a_worker() -> None:
    with pytest.raises(NotInAJob, match="is not run by a worker of an app"):
        CurrentJob("H:x:1", "f").sleep(1)
    assert not Approval(False)
