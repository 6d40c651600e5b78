"""A worker inside the user's own process, and plain Gearman servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchgear import Job, JobGroup
from switchgear.app.app import App
from switchgear.app.worker.background_worker import start_background
from switchgear.client import Client
from switchgear.errors import ConfigError, JobFailed
from tests.app.worker.harness import wait_for, working
from tests.app.worker.tasks import make_app
from tests.client.background import url_of
from tests.support.servers import Server, running_gearmand
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


def test_submit_and_run_in_one_process(server: Server) -> None:
    with make_app(url_of(server)) as app, start_background(app, slots=2) as worker:
        assert app.tasks["add"].submit(1).result(DEADLINE_SECONDS) == 2
        assert app.tasks["add_async"].submit(1).result(DEADLINE_SECONDS) == 2
        eventually(lambda: worker.finished_jobs == 2, "both are counted")
        assert worker.connected


def test_stopping_hands_back_what_is_left(server: Server, tmp_path: Path) -> None:
    with make_app(url_of(server)) as app:
        worker = start_background(app, slots=1, functions=["hold"])
        job = app.tasks["hold"].submit(str(tmp_path))
        wait_for(tmp_path, "started")
        worker.stop(drain_seconds=0)
        assert job.status().state == "ready"
        assert job.status().attempts == 0
        worker.stop()  # once more does no harm


BLOCKING: dict[str, Callable[[App, Job[int]], object]] = {
    "result": lambda app, job: job.result(),
    "wait": lambda app, job: job.wait(1),
    "updates": lambda app, job: list(job.updates()),
    "status": lambda app, job: job.status(),
    "submit": lambda app, job: app.tasks["never"].submit(),
    "submit_many": lambda app, job: app.tasks["never"].submit_many([1]),
    "map": lambda app, job: list(app.tasks["never"].map([1])),
    "group": lambda app, job: JobGroup(app, None, [job.handle]).wait(),
    "control": lambda app, job: app.pause("never"),
}


@pytest.mark.parametrize("way", BLOCKING)
def test_a_coroutine_must_not_block_the_loop_of_the_others(server: Server, way: str) -> None:
    with App(url_of(server)) as app:

        @app.task(name="never")
        def never(number: int = 0) -> None: ...

        @app.task(name="meet")
        async def meet(handle: str) -> str:
            with pytest.raises(RuntimeError, match="await it instead"):
                BLOCKING[way](app, app.job(handle))
            await asyncio.to_thread(app.job(handle).status)  # elsewhere it may
            return (await never.job(handle).status_async()).state

        waiting = never.submit()
        with start_background(app, functions=["meet"]):
            assert meet.submit(waiting.handle).result(DEADLINE_SECONDS) == "ready"
        assert len(list(app.jobs(task=never, limit=None))) == 1  # nothing was submitted on the way
        waiting.cancel()


def test_in_an_event_loop_of_their_own_users_may_block(server: Server) -> None:
    async def cell() -> int:
        result: int = app.tasks["add"].submit(1).result(DEADLINE_SECONDS)
        return result

    with make_app(url_of(server)) as app, start_background(app):
        assert asyncio.run(cell()) == 2


def test_problems_are_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with make_app(url_of(server)) as app, start_background(app):
        with pytest.raises(JobFailed):
            app.tasks["fail"].submit("too bad").result(DEADLINE_SECONDS)
        eventually(lambda: "too bad" in caplog.text, "it is logged")
    assert {record.levelno for record in caplog.records if "too bad" in record.message} == {logging.WARNING}


def test_an_app_without_tasks_is_refused(server: Server) -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        start_background(App(url_of(server)))


# --- gearmand ---


@pytest.fixture
def gearmand() -> Iterator[Server]:
    with running_gearmand() as server:
        yield server


@pytest.mark.parametrize("task", ["add", "add_async", "add_in_process"])
def test_gearmand_gives_jobs_too(gearmand: Server, task: str) -> None:
    with working(gearmand, task), Client(url_of(gearmand)) as client:
        jobs = [client.submit(task, b'{"a": %d}' % number) for number in range(20)]
        assert [job.wait(DEADLINE_SECONDS) for job in jobs] == [b"%d" % (number + 1) for number in range(20)]


def test_what_gearmand_cannot_do_is_said_at_the_start_and_fails(gearmand: Server) -> None:
    with working(gearmand, "flaky") as crew, Client(url_of(gearmand)) as client:
        note = crew.recorder.until("note")
        assert "plain Gearman server" in note
        assert "retries (of flaky" in note
        with pytest.raises(JobFailed) as caught:
            client.submit("flaky", b'{"failures": 1}').wait(DEADLINE_SECONDS)
        assert caught.value.error.startswith(b"OSError: attempt 1")


def test_a_process_past_its_time_limit_is_killed_without_the_help_of_the_server(
    gearmand: Server, tmp_path: Path
) -> None:
    task = "resist_limited_in_process"
    with working(gearmand, f"{task} add_in_process") as crew, Client(url_of(gearmand)) as client:
        client.submit(task, b'{"place": "%s"}' % str(tmp_path).encode(), background=True)
        assert crew.recorder.until("dropped") == "timed_out"
        assert client.submit("add_in_process", b'{"a": 1}').wait(DEADLINE_SECONDS) == b"2"


def test_a_plain_server_and_one_of_ours_at_once(server: Server, gearmand: Server) -> None:
    with working([server, gearmand], "add", slots=1) as crew, Client(url_of(gearmand)) as client:
        for number in range(10):
            assert crew.run("add", number) == number + 1
            assert client.submit("add", b"[%d]" % number).wait(DEADLINE_SECONDS) == b"%d" % (number + 1)


def test_two_plain_servers_and_one_slot(gearmand: Server) -> None:
    with (
        running_gearmand() as other,
        working([gearmand, other], "add", slots=1),
        Client(url_of(gearmand)) as one,
        Client(url_of(other)) as two,
    ):
        jobs = [client.submit("add", b"[1]") for _ in range(20) for client in (one, two)]
        assert [job.wait(DEADLINE_SECONDS) for job in jobs] == [b"2"] * 40
