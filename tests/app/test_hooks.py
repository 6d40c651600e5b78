"""Middleware around submissions, jobs and processes, and resources that tasks are given."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from switchgear import INJECTED, App, Middleware, TaskSubmission, group
from switchgear.app.current_job import CurrentJob
from switchgear.errors import ConfigError, ServerRefused, ServerUnreachable, TaskFailed
from switchgear.testing import in_memory
from tests.app.harness import working
from tests.support.waiting import DEADLINE_SECONDS

STEPS: list[str] = []


@pytest.fixture
def app() -> App:
    STEPS.clear()
    return App("gearman://127.0.0.1:1")


class Tracing(Middleware):
    """Notes everything."""

    def __init__(self, name: str) -> None:
        self.name = name

    def note(self, text: str) -> None:
        STEPS.append(f"{self.name} {text}")

    def before_submit(self, submission: TaskSubmission) -> None:
        self.note(f"submits {submission.task}{submission.args}")

    @contextmanager
    def around_run(self, job: CurrentJob) -> Iterator[None]:
        self.note(f"enters attempt {job.attempt}")
        try:
            yield
        finally:
            self.note("leaves")

    def on_retry(self, job: CurrentJob, error: BaseException, delay_seconds: float) -> None:
        self.note(f"retries after {error}")

    async def on_failure(self, job: CurrentJob, error: BaseException) -> None:
        self.note(f"gives up after {error}")

    def on_process_start(self) -> None:
        self.note("starts")

    def on_process_stop(self) -> None:
        self.note("stops")


def test_the_first_middleware_is_outermost(app: App) -> None:
    @app.task(name="add")
    def add(a: int) -> int:
        STEPS.append("runs")
        return a + 1

    app.add_middleware(Tracing("one"), Tracing("two"))
    with in_memory(app):
        assert add.submit(1).result() == 2
    assert [
        *("one starts", "two starts"),
        *("one submits add(1,)", "two submits add(1,)"),
        *("one enters attempt 1", "two enters attempt 1", "runs", "two leaves", "one leaves"),
        *("two stops", "one stops"),
    ] == STEPS


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_retries_and_failures(app: App, is_async: bool) -> None:
    async def broken_coroutine() -> None:
        raise OSError("disk full")

    def broken() -> None:
        raise OSError("disk full")

    task = app.task(name="broken", retries=1, backoff="none")(broken_coroutine if is_async else broken)
    app.add_middleware(Tracing("one"))
    with in_memory(app) as server:
        job = task.submit()
        server.run_until_idle()
        with pytest.raises(TaskFailed):
            job.result()
    assert [
        *("one starts", "one submits broken()"),
        *("one enters attempt 1", "one leaves", "one retries after disk full"),
        *("one enters attempt 2", "one leaves", "one gives up after disk full"),
        "one stops",
    ] == STEPS


def test_a_submission_can_be_changed_and_refused(app: App) -> None:
    class Tenants(Middleware):
        def before_submit(self, submission: TaskSubmission) -> None:
            if submission.kwargs.get("tenant") == "banned":
                raise PermissionError("not you")
            submission.set_options(label=f"for {submission.kwargs['tenant']}", priority="high")

    @app.task(name="bill")
    def bill(tenant: str) -> None: ...

    app.add_middleware(Tenants())
    with in_memory(app, "step"):
        status = bill.submit(tenant="good").status()
        assert (status.priority, status.details["label"]) == ("high", "for good")
        with pytest.raises(PermissionError, match="not you"):
            bill.submit(tenant="banned")


class Outcomes(Middleware):
    """Notes what became of submissions."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def after_submit(self, submission: TaskSubmission, handle: str) -> None:
        STEPS.append(f"{self.name}{submission.task}{submission.args} is {handle.rpartition(':')[2]}")

    def on_submit_error(self, submission: TaskSubmission, error: Exception) -> None:
        STEPS.append(f"{self.name}{submission.task}{submission.args} failed: {type(error).__name__}")


def test_what_became_of_a_submission(app: App) -> None:
    app.add_middleware(Outcomes("outer "), Outcomes("inner "))

    @app.task(name="add", retries=0)
    def add(number: int) -> int:
        return number + 1

    with in_memory(app):
        add.submit(1)
    assert STEPS == ["inner add(1,) is 1", "outer add(1,) is 1"]


def test_what_became_of_each_of_many_submissions(app: App) -> None:
    app.add_middleware(Outcomes())

    @app.task(name="add")
    def add(number: int) -> int:
        return number + 1

    async def all_ways() -> None:
        async with in_memory(app):
            await add.submit_async(0)
            await add.submit_many_async(range(1, 3))
            assert [result async for result in add.amap(range(3, 5))] == [4, 5]

    asyncio.run(all_ways())
    assert [f"add({number},) is {number + 1}" for number in range(5)] == STEPS
    STEPS.clear()
    with in_memory(app):
        add.submit_many(range(600))  # more than one batch
        assert list(add.map([600, 601])) == [601, 602]
        group(add.s(602), add.s(603)).submit()
    assert [f"add({number},) is {number + 1}" for number in range(604)] == STEPS


def test_a_refused_submission_is_told(app: App) -> None:
    app.add_middleware(Outcomes())

    @app.task(name="add")
    def add(number: int) -> int:
        return number + 1

    with in_memory(app):
        job = add.options(delay=60).submit(1)
        STEPS.clear()
        with pytest.raises(ServerRefused):
            add.options(after=[job.handle + "9"]).submit(2)
        with pytest.raises(ServerRefused):
            add.options(after=[job.handle + "9"]).submit_many([3, 4])
    assert [f"add({number},) failed: ServerRefused" for number in (2, 3, 4)] == STEPS


def test_an_unreachable_server_is_told() -> None:
    STEPS.clear()
    with App("gearman://127.0.0.1:1", connect_seconds=0.05) as app:
        app.add_middleware(Outcomes())

        @app.task(name="add")
        def add(number: int) -> int:
            return number + 1

        with pytest.raises(ServerUnreachable):
            add.submit(1)
        assert STEPS == ["add(1,) failed: ServerUnreachable"]


def test_a_failing_hook_after_a_submission_changes_nothing(app: App, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Middleware):
        def after_submit(self, submission: TaskSubmission, handle: str) -> None:
            raise RuntimeError("no")

    app.add_middleware(Outcomes(), Failing())

    @app.task(name="add")
    def add(number: int) -> int:
        return number + 1

    with in_memory(app):
        assert add.submit(1).result() == 2
    assert STEPS == ["add(1,) is 1"]
    assert "a hook of the middleware has failed" in caplog.text


def test_an_exception_of_a_middleware_counts_as_one_of_the_task(app: App) -> None:
    class Locked(Middleware):
        def around_run(self, job: CurrentJob) -> None:  # type: ignore[override]
            raise BlockingIOError("locked")

    @app.task
    def never() -> None:
        STEPS.append("runs")

    app.add_middleware(Locked())
    with in_memory(app), pytest.raises(TaskFailed, match="BlockingIOError: locked"):
        never.submit().result()
    assert STEPS == []


def test_a_failing_hook_changes_nothing(app: App, caplog: pytest.LogCaptureFixture) -> None:
    class Careless(Middleware):
        def on_failure(self, job: CurrentJob, error: BaseException) -> None:
            raise LookupError("in the hook")

    @app.task
    def broken() -> None:
        raise ValueError("in the task")

    app.add_middleware(Careless())
    with in_memory(app), pytest.raises(TaskFailed, match="in the task"):
        broken.submit().result()
    assert "a hook of the middleware has failed" in caplog.text


def test_only_middleware_can_be_added(app: App) -> None:
    with pytest.raises(TypeError, match="a middleware is an object of a subclass of Middleware"):
        app.add_middleware(Tracing)  # type: ignore[arg-type]


# --- resources ---


class Database:
    """Something to be opened once."""


class Session:
    """Something to be opened for each job."""

    def __init__(self, database: Database) -> None:
        self.database = database


def define(app: App) -> None:
    @app.resource
    def database() -> Iterator[Database]:
        STEPS.append("open database")
        yield Database()
        STEPS.append("close database")

    @app.resource(scope="job")
    def session(of: Database) -> Iterator[Session]:
        STEPS.append("open session")
        yield Session(of)
        STEPS.append("close session")


def test_a_task_is_given_resources_by_their_types(app: App) -> None:
    define(app)

    @app.task
    def count(number: int, session: Session = INJECTED, database: Database = INJECTED) -> int:
        assert session.database is database
        STEPS.append("run")
        return number

    with in_memory(app):
        assert [count.submit(7).result(), count.submit(number=8).result()] == [7, 8]
    each = ["open session", "run", "close session"]
    assert ["open database", *each, *each, "close database"] == STEPS


def test_a_call_is_given_what_it_does_not_name(app: App) -> None:
    define(app)

    @app.task
    def count(number: int, session: Session = INJECTED) -> bool:
        return isinstance(session, Session)

    assert count(1)
    assert not count(1, session=None)  # type: ignore[arg-type]
    assert STEPS == ["open database", "open session", "close session"]


def test_asynchronous_resources(app: App) -> None:
    class Client:
        """An asynchronous one."""

    define(app)

    async def client(of: Database) -> AsyncIterator[Client]:
        STEPS.append("open client")
        yield Client()
        STEPS.append("close client")

    client.__annotations__["return"] = AsyncIterator[Client]
    app.resource(client)

    async def fetch(url: str, client: object = INJECTED, session: Session = INJECTED) -> str:
        STEPS.append("run")
        return url

    fetch.__annotations__["client"] = Client
    task = app.task(name="fetch")(fetch)
    with in_memory(app):
        assert task.submit("x").result() == "x"
    opened = ["open database", "open client", "open session"]
    assert [*opened, "run", "close session", "close client", "close database"] == STEPS


def test_a_resource_that_is_not_there(app: App) -> None:
    @app.task(name="count")
    def count(session: Session = INJECTED) -> None: ...

    with in_memory(app), pytest.raises(TaskFailed, match="count: session is to be a Session, and the app has no such"):
        count.submit().result()


def test_a_plain_function_cannot_be_given_an_asynchronous_resource(app: App) -> None:
    @app.resource
    async def database() -> Database:
        return Database()

    @app.task(name="count")
    def count(database: Database = INJECTED) -> None: ...

    with in_memory(app), pytest.raises(TaskFailed, match="which only coroutine functions can be given"):
        count.submit().result()


def test_a_resource_of_the_process_cannot_need_one_of_a_job(app: App) -> None:
    @app.resource(scope="job")
    def database() -> Database:
        return Database()

    @app.resource
    def session(database: Database) -> Session:
        return Session(database)

    @app.task(name="count")
    def count(session: Session = INJECTED) -> None: ...

    with in_memory(app), pytest.raises(TaskFailed, match="is for the process, and needs one of a job"):
        count.submit().result()


def test_a_resource_says_its_type(app: App) -> None:
    with pytest.raises(TypeError, match="tasks find a resource by its type"):

        @app.resource
        def untyped():  # type: ignore[no-untyped-def]
            return 1

    with pytest.raises(ValueError, match="scope is one of process, job, not 'week'"):
        app.resource(scope="week")(lambda: None)  # type: ignore[call-overload]


# --- real workers ---

PROGRAM = """
import os
from collections.abc import Iterator
from contextlib import contextmanager
from switchgear import App, INJECTED, Middleware

def note(text: str) -> None:
    with open("steps", "a") as steps:
        steps.write(f"{text}\\n")

class Notes(Middleware):
    async def on_worker_start(self) -> None: note("worker starts")
    async def on_worker_stop(self) -> None: note("worker stops")
    def on_process_start(self) -> None: note("process starts")
    def on_process_stop(self) -> None: note("process stops")

class Database: ...

app = App("embedded:queue", run_here=False)
app.add_middleware(Notes())

@app.resource
def database() -> Iterator[Database]:
    note("open")
    yield Database()
    note("close")

@app.task
def plain(database: Database = INJECTED) -> None: note("plain")

@app.task
async def coroutine(database: Database = INJECTED) -> None: note("coroutine")

if __name__ == "__main__":
    plain.submit()
    plain.submit()
    coroutine.submit()
"""


@pytest.mark.system
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_real_worker_starts_and_stops_everything_once(tmp_path: Path, executor: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["--processes", "1"] if executor == "processes" else []
    commands = [["program.py"], ["-m", "switchgear", "worker", "program", "--burst", *options]]
    for command in commands:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=3 * DEADLINE_SECONDS
        )
        assert done.returncode == 0, done.stderr
    steps = (tmp_path / "steps").read_text().splitlines()
    assert (steps[0], steps[-1]) == ("worker starts", "worker stops")
    processes = 2 if executor == "processes" else 1  # coroutine functions run in the worker itself
    assert (steps.count("process starts"), steps.count("process stops")) == (processes, processes)
    assert (steps.count("open"), steps.count("close")) == (processes, processes)
    assert (steps.count("plain"), steps.count("coroutine")) == (2, 1)


def test_a_worker_checks_the_resources_of_its_tasks_first(app: App) -> None:
    @app.task(name="count")
    def count(session: Session = INJECTED) -> None: ...

    with pytest.raises(ConfigError, match="the app has no such resource"), working(app):
        pass
