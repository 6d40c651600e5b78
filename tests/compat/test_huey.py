"""Programs written for Huey, with their import changed: the behaviours that Huey documents."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from switchgear.compat.huey import CancelExecution, Huey, ResultTimeout, RetryTask, SqliteHuey, TaskException, crontab
from switchgear.compat.huey.signals import SIGNAL_COMPLETE, SIGNAL_ERROR
from switchgear.compat.not_supported import NotSupported
from switchgear.testing import in_memory
from switchgear.testing.in_memory_server import InMemoryServer
from tests.app.harness import url_of
from tests.compat.programs import output_of, running
from tests.support.servers import running_switchgear

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
huey = Huey("huey_shop", url="gearman://127.0.0.1:1")
seen: list[Any] = []


@huey.task()
def add(a: int, b: int) -> int:
    return a + b


@huey.task()
def note(*args: Any, **kwargs: Any) -> None:
    seen.append((args, kwargs))


@huey.task(retries=2, retry_delay=10)
def flaky() -> str:
    seen.append("flaky")
    if len(seen) < 3:
        raise ConnectionError("no line")
    return "at last"


@huey.task(context=True)
def with_context(task: Any = None) -> str:
    return str(task.id)


@huey.task(context=True, retries=2)
def counted_down(task: Any = None) -> str:
    seen.append(task.retries)
    if task.retries:
        raise ValueError("again")
    return "at last"


@huey.task()
def fail() -> None:
    raise ValueError("broken")


@pytest.fixture
def server() -> Iterator[InMemoryServer]:
    seen.clear()
    with in_memory(huey.switchgear_app, start=NOW.timestamp()) as server:
        yield server


def test_calling_a_task_enqueues_it(server: InMemoryServer) -> None:
    result = add(3, 4)
    assert (result(), result.get(), result(blocking=True, timeout=1), result.is_ready()) == (7, 7, 7, True)
    assert add.call_local(1, 1) == 2
    assert huey.result(result.id) == 7


def test_a_result_that_is_not_there_yet() -> None:
    with in_memory(huey.switchgear_app, mode="step") as server:
        result = add(1, 2)
        assert (result(), result.is_ready(), huey.pending_count(), len(huey)) == (None, False, 1, 1)
        server.run_all()
        assert result() == 3


def test_a_late_result(server: InMemoryServer) -> None:
    with pytest.raises(ResultTimeout):
        add.schedule((1, 2), delay=60).get(blocking=True, timeout=0)


def test_scheduling(server: InMemoryServer) -> None:
    note.schedule(("delay",), delay=60)
    note.schedule(120)
    note.schedule(("eta",), eta=NOW + timedelta(minutes=3))
    result = note.s("late", delay=240)
    huey.enqueue(result)
    for _ in range(4):
        server.advance(60)
    assert [args for args, _ in seen] == [("delay",), (), ("eta",), ("late",)]


def test_retries(server: InMemoryServer) -> None:
    result = flaky()
    server.advance(10)
    assert len(seen) == 2
    server.advance(10)
    assert result() == "at last"


def test_a_task_knows_how_often_it_is_tried_again(server: InMemoryServer) -> None:
    result = counted_down()
    server.advance(1)
    server.advance(1)
    assert (result(), seen) == ("at last", [2, 1, 0])


def test_a_failed_task(server: InMemoryServer) -> None:
    with pytest.raises(TaskException, match="ValueError: broken") as raised:
        fail()()
    assert "raise ValueError" in raised.value.metadata["traceback"]


def test_tasks_that_decide_themselves(server: InMemoryServer) -> None:
    @huey.task(name="again", retries=1)
    def again() -> str:
        seen.append("again")
        if len(seen) == 1:
            raise RetryTask(delay=5)
        return "done"

    @huey.task(name="never")
    def never() -> None:
        raise CancelExecution

    result = again()
    server.advance(5)
    assert (seen, result(), never()()) == (["again", "again"], "done", None)


def test_revoking(server: InMemoryServer) -> None:
    result = note.schedule(("x",), delay=60)
    result.revoke()
    assert result.is_revoked()
    server.advance(60)
    assert seen == []
    assert result.restore()
    note.revoke()
    assert note.is_revoked()
    note("y")
    assert seen == [(("x",), {})]
    assert note.restore()
    server.run_until_idle()
    assert seen == [(("x",), {}), (("y",), {})]


def test_context_and_map(server: InMemoryServer) -> None:
    result = with_context()
    assert result() == result.id
    assert add.map([(1, 1), (2, 2)]).get(blocking=True) == [2, 4]


def test_pipelines(server: InMemoryServer) -> None:
    assert huey.enqueue(add.s(1, 1).then(add, 3).then(add, 10)).get(blocking=True) == [2, 5, 15]
    huey.enqueue(fail.s().error(note, "failed"))
    huey.enqueue(add.s(1, 1).error(note, "never"))
    assert seen == [(("failed", "ValueError: broken"), {})]


def test_hooks_and_signals(server: InMemoryServer) -> None:
    other = Huey("hooks", url="gearman://127.0.0.1:1")
    other.pre_execute()(lambda task: seen.append(("before", task.name)))
    other.post_execute()(lambda task, value, error: seen.append(("after", value, type(error))))
    other.on_startup()(lambda: seen.append("startup"))

    @other.signal(SIGNAL_COMPLETE, SIGNAL_ERROR)
    def receive(signal: str, task: Any, error: Any = None) -> None:
        seen.append(signal)

    @other.task()
    def divide(a: int, b: int) -> float:
        return a / b

    with in_memory(other.switchgear_app):
        divide(1, 1)
        divide(1, 0)
    before = ("before", "divide")
    assert seen == [
        "startup", before, ("after", 1.0, type(None)), "complete", before, "error", ("after", None, ZeroDivisionError),
    ]  # fmt: skip


def test_periodic_tasks() -> None:
    other = SqliteHuey("periodic", url="gearman://127.0.0.1:1")

    @other.periodic_task(crontab(minute="*/5"))
    def every_five() -> None:
        seen.append("tick")

    seen.clear()
    with in_memory(other.switchgear_app, start=NOW.timestamp()) as server:
        other.switchgear_app.declare()
        server.advance(600)
    assert seen == ["tick", "tick"]


def test_immediate() -> None:
    other = Huey("immediate", url="gearman://127.0.0.1:1", immediate=True)

    @other.task()
    def double(number: int) -> int:
        return 2 * number

    assert double(4)() == 8


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: huey.lock_task("x"), "--concurrency 1"),
        (lambda: huey.rate_limit("x", 1, 2), "--rate"),
        (lambda: huey.periodic_task(lambda moment: True), "crontab"),
        (lambda: add(1, 2, id="mine"), "gives jobs their ids"),
        (lambda: huey.create_consumer(), "switchgear worker"),
        (lambda: crontab(day=1, day_of_week=1), "both kinds"),
    ],
)
def test_what_is_not_supported_says_what_to_use(server: InMemoryServer, call: Any, text: str) -> None:
    with pytest.raises(NotSupported, match=text):
        call()


def test_a_project_with_a_worker(tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(
        "from switchgear.compat.huey import RedisHuey\n"
        "huey = RedisHuey('demo', host='localhost')\n"
        "@huey.task()\n"
        "def add(a, b):\n    return a + b\n"
    )
    (tmp_path / "submit.py").write_text("from demo import add\nprint(add(1, 2)(blocking=True, timeout=60))\n")
    with running_switchgear() as server:
        url = url_of(server)
        with running(tmp_path, "-m", "switchgear", "worker", "demo:huey", url=url):
            assert output_of(tmp_path, "submit.py", url=url).strip() == "3"


def test_jobs_that_wait_are_counted_and_not_listed(server: InMemoryServer) -> None:
    add.schedule((1, 2), delay=60)
    assert (huey.pending_count(), huey.scheduled_count()) == (0, 1)
    for unsupported in (huey.pending, huey.scheduled, huey.put, huey.get):
        with pytest.raises(NotSupported, match="is not supported: "):
            unsupported("key")
