"""The Python library over HTTP, with a real server: apps and workers, blocking and with asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from switchgear import App, JobCancelled, TaskFailed, chain, current_job, group
from switchgear.client import AsyncClient, Client
from switchgear.errors import (
    AlreadySubmitted,
    ConfigError,
    JobFailed,
    JobUnknown,
    NotFound,
    ServerRefused,
    ServerUnreachable,
)
from tests.app.harness import working
from tests.client.http.stage import HttpServer, running_http_server, running_nginx, speaking
from tests.support.http_client import HttpClient
from tests.support.proxy import cuttable
from tests.support.servers import HOST, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

WAIT = DEADLINE_SECONDS


@pytest.fixture
def app(http_server: HttpServer) -> Iterator[App]:
    with App(http_server.url) as app:
        yield app


# --- submitting, and results ---


def test_jobs_run(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task
    def boom() -> None:
        raise ValueError("no")

    with working(app):
        assert add.submit(1, 2).result(WAIT) == 3
        assert list(add.map([1, 2, 3], [4, 5, 6])) == [5, 7, 9]
        jobs = add.submit_many(range(700), [1] * 700)
        assert list(jobs.results(timeout=WAIT)) == list(range(1, 701))
        with pytest.raises(TaskFailed, match="ValueError: no") as failed:
            boom.submit().result(WAIT)
        assert "raise ValueError" in failed.value.remote_traceback


def test_chains_groups_and_graphs(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with working(app):
        assert chain(add.s(1, 2), add.s(10), add.s(100)).submit().result(WAIT) == 113
        assert list(group(add.s(1, 1), add.s(2, 2)).submit().results(timeout=WAIT)) == [2, 4]
        with app.graph() as graph:
            total = add(add(1, 2), add(3, 4))
        assert graph.job(total).result(WAIT) == 10


def test_a_refused_graph_leaves_nothing() -> None:
    with running_http_server("--set", "limits.jobs=5") as server, App(server.url) as app:

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        with pytest.raises(ServerRefused, match="full"):
            group(add.s(number, number) for number in range(6)).submit()
        with closing(HttpClient(server.url)) as client:
            assert client.call("GET", "/v1/jobs").json["jobs"] == []


def test_a_graph_survives_kill_9_after_its_answer(tmp_path: Path) -> None:
    port = free_port()
    store = f"sqlite:{tmp_path}/jobs.sqlite"
    with running_http_server(store=store, port=port) as server, App(server.url) as app:

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        with app.graph() as graph:
            many = [add(number, number) for number in range(1_500)]  # more than are submitted in one turn
            last = add(many[0], many[-1])
        server.server.process.kill()
        server.server.process.wait()
        with running_http_server(store=store, port=port) as server, closing(HttpClient(server.url)) as client:
            (function,) = client.call("GET", "/v1/functions").json
            assert (function["ready"], function["waiting_or_scheduled"]) == (1_500, 1)
            told = client.call("GET", f"/v1/jobs/{graph.job(last).handle}/explain").json
            assert (told["state"], told["reasons"][0]["word"]) == ("waiting", "waiting_for")


def test_chains_take_results_of_other_jobs(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with working(app):
        first = add.submit(1, 2)
        assert add.submit(first.as_argument, 10).result(WAIT) == 13


def test_with_asyncio(app: App) -> None:
    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def use() -> None:
        jobs = [await double.submit_async(number) for number in range(5)]
        assert await asyncio.gather(*jobs) == [0, 2, 4, 6, 8]
        assert (await jobs[0].status_async()).state == "done"

    with working(app):
        asyncio.run(use())


def test_progress_arrives(app: App) -> None:
    may_go_on = threading.Event()

    @app.task
    def report() -> str:
        current_job().progress(1, 3, "one")
        may_go_on.wait(WAIT)
        current_job().progress(2, 3, "two")
        return "end"

    with working(app):
        job = report.submit()
        seen = []
        for progress in job.updates():
            seen.append((progress.done, progress.total, progress.message))
            may_go_on.set()
        assert seen[0] == (1, 3, "one")
        assert job.result(WAIT) == "end"
        assert job.status().progress is not None


def test_a_running_job_is_cancelled(app: App) -> None:
    begun, noticed = threading.Event(), threading.Event()

    @app.task
    def hold() -> None:
        begun.set()
        while not current_job().cancelled:
            time.sleep(0.01)  # what a task does that looks now and then
        noticed.set()

    with working(app):
        job = hold.submit()
        assert begun.wait(WAIT)
        assert job.cancel()
        with pytest.raises(JobCancelled):
            job.result(WAIT)
        assert noticed.wait(WAIT)


def test_a_timeout_ends_an_attempt(app: App) -> None:
    noticed = threading.Event()

    @app.task(timeout=0.2)
    def hold() -> None:
        while not current_job().cancelled:
            time.sleep(0.01)  # what a task does that looks now and then
        noticed.set()

    with working(app):
        with pytest.raises(JobFailed, match="timed out"):
            hold.submit().result(WAIT)
        assert noticed.wait(WAIT)


def test_retries(app: App) -> None:
    attempts = []

    @app.task(retries=2, backoff=0.01)
    def flaky() -> int:
        attempts.append(current_job().attempt)
        if len(attempts) < 3:
            raise OSError("not yet")
        return len(attempts)

    with working(app):
        assert flaky.submit().result(WAIT) == 3
    assert attempts == [1, 2, 3]


def test_verbs_and_errors(app: App) -> None:
    @app.task(unique=True, unique_policy="reject")
    def once(number: int) -> int:
        return number

    job = once.submit(1)
    with pytest.raises(AlreadySubmitted):
        once.submit(1)
    assert {info.handle for info in app.jobs(task=once)} == {job.handle}
    app.pause(once)
    assert any(function.paused for function in app.functions() if function.name == once.name)
    app.resume(once)
    assert job.explain().state == "ready"
    with pytest.raises(JobUnknown):
        app.job("H:nowhere:1").status()
    with pytest.raises(NotFound):
        app.control("run_schedule", name="none")
    assert app.server().version
    assert job.cancel()


def test_large_payloads_and_results(app: App) -> None:
    @app.task
    def echo(text: str) -> str:
        return text

    with working(app):
        text = "ä" * 1_000_000
        assert echo.submit(text).result(WAIT) == text


# --- the clients below the app ---


def test_the_blocking_client(http_server: HttpServer) -> None:
    with Client(http_server.url) as client, Client(http_server.gearman_url) as other:
        submission = client.submit("client-http", b"\xff\x00", unique="u")
        assert submission.handle
        assert client.status(submission.handle).known
        assert client.echo(b"x") == b"x"
        assert client.control("server")["version"]
        assert other.control("cancel", handle=submission.handle)["cancelled"] == [submission.handle]
        with pytest.raises(JobFailed):
            submission.wait(WAIT)
        background = client.submit("client-http", b"later", background=True, at=time.time() + 1000, priority="high")
        assert other.control("job", handle=background.handle)["priority"] == "high"
        with pytest.raises(Exception, match="needs a gearman:// address"):
            client.admin("status")


def test_the_asyncio_client(http_server: HttpServer) -> None:
    async def use() -> None:
        async with AsyncClient(http_server.url) as client:
            submission = await client.submit("aio-http", b"payload")
            assert (await client.control("cancel", handle=submission.handle))["cancelled"] == [submission.handle]
            with pytest.raises(JobFailed):
                await submission.wait(WAIT)

    asyncio.run(use())


# --- the way to the server ---


def test_behind_nginx(http_server: HttpServer, tmp_path: Path) -> None:
    with running_nginx(http_server.http_port, tmp_path) as url, App(url) as app:

        @app.task
        def reverse(text: str) -> str:
            return text[::-1]

        with working(app):
            assert reverse.submit("abc").result(WAIT) == "cba"
            jobs = reverse.submit_many([str(number) * 10 for number in range(100)])
            assert len(list(jobs.results(timeout=WAIT))) == 100


@pytest.mark.parametrize(
    ("status", "headers", "text"),
    [
        (301, {"Location": "https://elsewhere.example/"}, "redirects to https://elsewhere.example/"),
        (502, {}, "a proxy cannot reach the server: 502"),
        (404, {}, "is not the HTTP interface of a Switchgear server"),
        (200, {}, "is not the HTTP interface of a Switchgear server"),
    ],
)
def test_something_else_answers(status: int, headers: dict[str, str], text: str) -> None:
    with speaking(status, b"<html>", **headers) as url:
        with App(url, connect_seconds=0.1) as app, pytest.raises(ServerUnreachable, match=text):
            app.server()
        with Client(url) as client, pytest.raises(ServerUnreachable, match=text):
            client.control("server")


def test_nobody_is_there() -> None:
    url = f"http://{HOST}:{free_port()}"
    with App(url, connect_seconds=0.1) as app, pytest.raises(ServerUnreachable, match="Connection refused"):
        app.server()
    with Client(url) as client, pytest.raises(ServerUnreachable, match="Connection refused"):
        client.control("server")


def test_a_token_is_not_sent_without_encryption() -> None:
    with App("http://jobs.example.org", token="secret") as app, pytest.raises(ConfigError, match="use https://"):
        app.server()


def test_waiting_survives_a_cut(http_server: HttpServer) -> None:
    with cuttable(http_server.http_port) as proxy, App(f"http://{HOST}:{proxy.port}") as app:

        @app.task
        def cut_short() -> str:
            return "done"

        job = cut_short.submit()
        waiting = threading.Thread(target=job.wait, args=(WAIT,))
        waiting.start()
        proxy.cut()
        with App(http_server.url) as other, working(other, other.task(name=cut_short.name)(cut_short.function)):
            assert job.result(WAIT) == "done"
        waiting.join(WAIT)


# --- workers and a server that goes away ---


def test_a_worker_goes_on_while_the_server_is_away(http_server: HttpServer) -> None:
    begun, may_end = threading.Event(), threading.Event()
    runs = []

    def hold() -> str:
        runs.append(1)
        begun.set()
        may_end.wait(WAIT)
        return "finished"

    with cuttable(http_server.http_port) as proxy, App(f"http://{HOST}:{proxy.port}") as worker_app:
        task = worker_app.task(name="test.http.goes_on")(hold)
        with App(http_server.url) as app, working(worker_app, task):
            job = app.task(name=task.name)(hold).submit()
            assert begun.wait(WAIT)
            proxy.go_away()
            may_end.set()
            connections = proxy.connections_total
            proxy.come_back()
            assert job.result(WAIT) == "finished"
            assert proxy.connections_total > connections
    assert runs == [1]


def test_a_worker_goes_on_while_the_server_is_restarted(tmp_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()
    runs = []

    def hold() -> str:
        runs.append(1)
        begun.set()
        may_end.wait(WAIT)
        return f"run {len(runs)}"

    port, store = free_port(), f"sqlite:{tmp_path}/jobs.db"
    with App(f"http://{HOST}:{port}") as app:
        task = app.task(name="test.http.restarted")(hold)
        with running_http_server(store=store, port=port) as first:
            with App(first.url) as other:
                job = other.task(name=task.name)(hold).submit()
            worker = working(app, task)
            worker.__enter__()
            assert begun.wait(WAIT)
            first.server.kill()
        try:
            with running_http_server(store=store, port=port) as second:
                may_end.set()
                with App(second.url) as other:
                    eventually(lambda: other.job(job.handle).status().state == "done", "the job is done")
        finally:
            worker.__exit__(None, None, None)
