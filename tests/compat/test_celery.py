"""Programs written for Celery, with their import changed: the behaviours that Celery documents."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from switchgear.compat.celery import Celery, Task, chain, chord, group, shared_task, signals, signature
from switchgear.compat.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    NotRegistered,
    SoftTimeLimitExceeded,
    TaskRevokedError,
)
from switchgear.compat.celery.result import AsyncResult, ResultSet
from switchgear.compat.celery.schedules import crontab
from switchgear.compat.celery.utils.log import get_task_logger
from switchgear.compat.not_supported import NotSupported
from switchgear.testing import in_memory
from switchgear.testing.in_memory_server import InMemoryServer

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)

app = Celery("celery_shop", broker="gearman://127.0.0.1:1")
seen: list[Any] = []


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def mul(x: int, y: int) -> int:
    return x * y


@app.task
def xsum(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="shop.note")
def note(*args: Any, **kwargs: Any) -> None:
    seen.append((args, kwargs))


@app.task
def fail(text: str = "broken") -> None:
    raise ValueError(text)


@app.task
def on_error(request: Any, exc: BaseException, traceback: str) -> None:
    seen.append((request.id, type(exc), str(exc), "ValueError" in traceback))


@app.task(bind=True, max_retries=2, default_retry_delay=60)
def stubborn(self: Any) -> None:
    seen.append(self.request.retries)
    try:
        raise ConnectionError("no line")
    except ConnectionError as error:
        raise self.retry(exc=error) from error


@app.task(bind=True)
def give_up(self: Any) -> None:
    self.retry(countdown=0, max_retries=0)


@app.task(autoretry_for=(OSError,), dont_autoretry_for=(FileExistsError,), retry_backoff=5, retry_jitter=False)
def automatic(kind: str) -> None:
    seen.append(kind)
    raise FileExistsError(kind) if kind == "exists" else OSError(kind)


@app.task(bind=True)
def long_work(self: Any) -> dict[str, Any]:
    self.update_state(state="PROGRESS", meta={"current": 3, "total": 4})
    result = AsyncResult(self.request.id, app=app)
    return {"state": result.state, "info": result.info}


@pytest.fixture
def server() -> Iterator[InMemoryServer]:
    seen.clear()
    with in_memory(app.switchgear_app, start=NOW.timestamp()) as server:
        yield server


# --- calling ---


def test_a_task_is_a_function(server: InMemoryServer) -> None:
    assert add(2, 3) == 5
    assert add.name == "tests.compat.test_celery.add"
    assert app.tasks["shop.note"] is note


def test_delay_and_apply_async(server: InMemoryServer) -> None:
    assert add.delay(2, 3).get(timeout=1) == 5
    assert add.apply_async((2,), {"y": 4}).get() == 6
    assert app.send_task("tests.compat.test_celery.add", (1, 1)).get() == 2


def test_wrong_arguments_are_refused_at_once(server: InMemoryServer) -> None:
    with pytest.raises(TypeError):
        add.delay(1, 2, 3)


def test_a_result_can_be_found_by_its_id(server: InMemoryServer) -> None:
    id = add.delay(2, 3).id
    result = AsyncResult(id, app=app)
    assert (result.state, result.status, result.ready(), result.successful(), result.result) == (
        "SUCCESS", "SUCCESS", True, True, 5,
    )  # fmt: skip
    assert add.AsyncResult(id).get() == 5
    assert AsyncResult("H:memory:999", app=app).state == "PENDING"


def test_values_that_json_does_not_have(server: InMemoryServer) -> None:
    values = [NOW, NOW.date(), Decimal("1.50"), uuid.UUID(int=7), b"\0\xff"]

    @app.task(name="shop.same")
    def same(values: Any) -> Any:
        return values

    assert same.delay(values).get() == values


def test_countdown_and_eta(server: InMemoryServer) -> None:
    later = note.apply_async(("countdown",), countdown=60)
    at = note.apply_async(("eta",), eta=NOW + timedelta(minutes=2))
    utc = note.apply_async(("utc",), eta=datetime(2026, 1, 5, 12, 3))
    assert (later.state, at.state, seen) == ("PENDING", "PENDING", [])
    server.advance(60)
    assert [args for args, _ in seen] == [("countdown",)]
    server.advance(60)
    server.advance(60)
    assert [args for args, _ in seen] == [("countdown",), ("eta",), ("utc",)]
    assert utc.successful()


def test_expires(server: InMemoryServer) -> None:
    result = note.apply_async(countdown=60, expires=NOW + timedelta(seconds=30))
    server.advance(61)
    assert (result.state, seen) == ("REVOKED", [])
    with pytest.raises(TaskRevokedError):
        result.get()


def test_revoke(server: InMemoryServer) -> None:
    result = note.apply_async(countdown=60)
    app.control.revoke(result.id)
    server.advance(61)
    assert (result.state, seen) == ("REVOKED", [])


@pytest.mark.parametrize(("number", "name"), [(0, "low"), (5, "normal"), (9, "high")])
def test_priorities(server: InMemoryServer, number: int, name: str) -> None:
    result = note.apply_async(countdown=9, priority=number)
    assert app.switchgear_app.job(result.id).status().priority == name


def test_a_queue_is_a_tag_of_workers(server: InMemoryServer) -> None:
    result = note.apply_async(countdown=9, queue="video")
    assert app.switchgear_app.job(result.id).status().details["requires"] == ["video"]
    app.conf.task_routes = {"shop.*": {"queue": "shop"}}
    try:
        routed = note.apply_async(countdown=9)
    finally:
        app.conf.task_routes = None
    assert app.switchgear_app.job(routed.id).status().details["requires"] == ["shop"]


# --- failures ---


def test_exceptions_come_back_as_themselves(server: InMemoryServer) -> None:
    result = fail.delay("broken")
    with pytest.raises(ValueError, match=r"^broken$"):
        result.get()
    assert (result.state, result.failed(), repr(result.result)) == ("FAILURE", True, "ValueError('broken')")
    assert repr(result.get(propagate=False)) == "ValueError('broken')"
    assert "raise ValueError(text)" in (result.traceback or "")


def test_retry_runs_the_task_again(server: InMemoryServer) -> None:
    result = stubborn.delay()
    assert (seen, result.state) == ([0], "RETRY")
    server.advance(60)
    server.advance(60)
    assert (seen, result.state) == ([0, 1, 2], "FAILURE")
    with pytest.raises(ConnectionError, match="no line"):
        result.get()


def test_without_an_exception_used_up_retries_have_one_of_their_own(server: InMemoryServer) -> None:
    with pytest.raises(MaxRetriesExceededError):
        give_up.delay().get()


def test_autoretry_with_backoff(server: InMemoryServer) -> None:
    result = automatic.delay("line")
    for seconds in (5, 10, 20):
        assert result.state == "RETRY"
        server.advance(seconds)
    assert (seen, result.state) == (["line"] * 4, "FAILURE")


def test_exceptions_that_are_not_retried(server: InMemoryServer) -> None:
    assert automatic.delay("exists").state == "FAILURE"
    assert seen == ["exists"]


def test_ignore_is_no_failure(server: InMemoryServer) -> None:
    @app.task(name="shop.ignored")
    def ignored() -> None:
        raise Ignore

    assert ignored.delay().get() is None


def test_soft_time_limit(server: InMemoryServer) -> None:
    @app.task(name="shop.slow", soft_time_limit=0.01)
    def slow() -> str:
        try:
            while True:
                pass
        except SoftTimeLimitExceeded:
            return "cleaned up"

    assert slow.delay().get() == "cleaned up"


# --- inside of a task ---


def test_states_of_its_own(server: InMemoryServer) -> None:
    assert long_work.delay().get() == {"state": "PROGRESS", "info": {"current": 3, "total": 4}}


def test_waiting_inside_of_a_task_is_refused(server: InMemoryServer) -> None:
    @app.task(name="shop.nested")
    def nested() -> int:
        value: int = add.delay(1, 1).get()
        return value

    with pytest.raises(RuntimeError, match="Never call"):
        nested.delay().get()


def test_handlers_of_a_base_class(server: InMemoryServer) -> None:
    class Noted(Task):
        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            seen.append(("success", retval))

        def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
            seen.append(("failure", str(exc)))

        def after_return(self, status: str, *others: Any) -> None:
            seen.append(status)

    @app.task(base=Noted, name="shop.noted")
    def noted(number: int) -> float:
        return 1 / number

    noted.delay(1)
    noted.delay(0)
    assert seen == [("success", 1.0), "SUCCESS", ("failure", "division by zero"), "FAILURE"]


def test_tasks_that_are_classes(server: InMemoryServer) -> None:
    class Cube(Task):
        name = "shop.cube"

        def run(self, number: int) -> int:
            return number**3

    cube = app.register_task(Cube())
    assert (cube.delay(3).get(), cube(2)) == (27, 8)


def test_signals(server: InMemoryServer) -> None:
    def before(task_id: str, task: Any, **others: Any) -> None:
        seen.append(("before", task.name))

    def failed(exception: BaseException, **others: Any) -> None:
        seen.append(("failed", str(exception)))

    signals.task_prerun.connect(before, sender=fail)
    signals.task_failure.connect(failed)
    try:
        fail.delay("x")
        add.delay(1, 1)
    finally:
        assert signals.task_prerun.disconnect(before)
        assert signals.task_failure.disconnect(failed)
    assert seen == [("before", fail.name), ("failed", "x")]


def test_a_logger_for_tasks() -> None:
    assert get_task_logger("shop").name == "shop"


# --- canvas ---


def test_partial_arguments_go_before_those_of_the_signature(server: InMemoryServer) -> None:
    @app.task(name="shop.minus")
    def minus(x: int, y: int) -> int:
        return x - y

    assert minus.s(2).delay(10).get() == 8
    assert minus.si(5, 2).delay(10).get() == 3
    assert signature(minus, args=(3, 1)).delay().get() == 2


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: chain(add.s(2, 2), add.s(4), mul.s(8)), 64),
        (lambda: add.s(2, 2) | add.s(4) | mul.s(8), 64),
        (lambda: chain(add.s(2), mul.s(3)).clone((1,)), 9),
        (lambda: chain(add.si(1, 1), add.si(2, 2)), 4),
        (lambda: group(add.s(i, i) for i in range(4)), [0, 2, 4, 6]),
        (lambda: chord([add.s(i, i) for i in range(10)], xsum.s()), 90),
        (lambda: group(add.s(i, i) for i in range(4)) | xsum.s() | add.s(1), 13),
        (lambda: add.s(1, 1) | group(add.s(1), mul.s(10)), [3, 20]),
        (lambda: add.s(1, 1) | group(add.s(1), mul.s(10)) | xsum.s(), 23),
        (lambda: group(add.s(1, 1) | mul.s(5), group(add.s(2, 2), add.s(3, 3))), [10, [4, 6]]),
        (lambda: chord([add.s(1, 1) | mul.s(5), add.s(2, 2)], xsum.s()), 14),
    ],
)
def test_canvas(server: InMemoryServer, build: Any, expected: Any) -> None:
    assert build()().get() == expected
    assert build().apply().get() == expected


def test_a_chord_is_called_with_its_body(server: InMemoryServer) -> None:
    assert chord(add.s(i, i) for i in range(3))(xsum.s()).get() == 6


def test_link_runs_on_success_only(server: InMemoryServer) -> None:
    add.apply_async((2, 2), link=note.s("linked"))
    fail.apply_async(link=note.s("never"))
    assert seen == [((4, "linked"), {})]


def test_link_error_runs_on_failure_only(server: InMemoryServer) -> None:
    add.apply_async((2, 2), link_error=on_error.s())
    assert seen == []
    result = fail.apply_async(("x",), link_error=on_error.s())
    assert seen == [(result.id, ValueError, "x", True)]


@pytest.mark.parametrize(
    "build",
    [
        lambda: add.s(2, 2).on_error(on_error.s()),
        lambda: chain(add.s(1, 1), add.s(2)).on_error(on_error.s()),
        lambda: group([add.s(1, 1), add.s(1, 1)]) | xsum.s().on_error(on_error.s()),
        lambda: chord([add.s(1, 1), add.s(1, 1)], xsum.s()).on_error(on_error.s()),
    ],
)
def test_on_error_returns_what_it_is_called_on(server: InMemoryServer, build: Any) -> None:
    assert build().delay().get() == 4
    assert seen == []


def test_a_chord_tells_of_a_failure_once(server: InMemoryServer) -> None:
    chord([add.s(1, 1), fail.si("x")], xsum.s()).on_error(on_error.s()).delay()
    assert [each[1:3] for each in seen] == [(ValueError, "x")]


def test_callbacks_of_a_chain_follow_its_last_task(server: InMemoryServer) -> None:
    steps = chain(add.s(1, 2), mul.s(4))
    assert steps.apply_async(link=note.s("given")).get() == 12
    assert seen == [((12, "given"), {})]
    steps.link(note.s("linked"))
    assert steps.apply_async().get() == 12
    assert seen[1:] == [((12, "linked"), {})]


def test_an_error_callback_of_a_chain_is_told_of_any_step(server: InMemoryServer) -> None:
    chain(fail.si("first"), add.si(1, 1)).apply_async(link_error=on_error.s())
    chain(add.si(1, 1), fail.si("last")).apply_async(link_error=on_error.s())
    assert {each[2] for each in seen} == {"first", "last"}


def test_callbacks_of_a_chord_follow_its_body(server: InMemoryServer) -> None:
    chord([add.s(1, 1), add.s(1, 1)], xsum.s()).apply_async(link=note.s("body"))
    assert seen == [((4, "body"), {})]


def test_set_changes_the_node_itself(server: InMemoryServer) -> None:
    for node in (chain(add.s(1, 1), add.s(2)), group([add.s(1, 1)]), chord([add.s(1, 1)], xsum.s())):
        assert node.set(countdown=60) is node
        result = node.delay()
        assert not result.ready()
        server.advance(60)
        assert result.ready()


def test_a_signature_takes_its_options_in_a_mapping_too(server: InMemoryServer) -> None:
    result = add.signature(args=(1, 2), options={"countdown": 60}).delay()
    assert result.state == "PENDING"
    server.advance(60)
    assert result.get() == 3


def test_several_results_are_waited_for_together(server: InMemoryServer) -> None:
    results = ResultSet([add.delay(1, 1)])
    results.add(add.delay(2, 2))
    results.update(results.results)
    assert (len(results), results.get(), results.join_native(), list(results.iterate())) == (2, [2, 4], [2, 4], [2, 4])
    results.remove(results[0])
    with pytest.raises(KeyError):
        results.remove("another")
    results.add(fail.delay("x"))
    with pytest.raises(ValueError, match="x"):
        results.maybe_throw()
    results.discard(results[1])
    results.clear()
    assert results.successful()


@pytest.mark.parametrize("name", ["as_tuple", "build_graph", "graph", "iterdeps"])
def test_what_a_result_cannot_do_says_what_to_do(server: InMemoryServer, name: str) -> None:
    result = add.delay(1, 1)
    with pytest.raises(NotSupported, match=f"AsyncResult.{name} is not supported: "):
        getattr(result, name)
    with pytest.raises(AttributeError, match="nonsense"):
        result.nonsense  # noqa: B018
    assert (result.args, result.kwargs, result.queue, result.worker) == (None, None, None, None)


def test_an_error_callback_with_one_argument_gets_the_id(server: InMemoryServer) -> None:
    @app.task(name="shop.by_id")
    def by_id(task_id: str) -> None:
        seen.append(task_id)

    result = fail.apply_async(link_error=by_id.s())
    assert seen == [result.id]


def test_a_failed_step_fails_the_chain_with_its_exception(server: InMemoryServer) -> None:
    result = chain(add.s(1, 1), fail.si("step two"), note.s())()
    with pytest.raises(ValueError, match="step two"):
        result.get()
    assert seen == []


def test_a_group_knows_how_many_are_done(server: InMemoryServer) -> None:
    results = group(add.s(1, 1), add.s(2, 2), fail.s())()
    assert (results.completed_count(), results.ready(), results.successful(), results.failed()) == (
        2,
        True,
        False,
        True,
    )


# --- configuration ---


def test_beat_schedule_needs_no_beat() -> None:
    other = Celery("beat", broker="gearman://127.0.0.1:1", set_as_current=False)

    @other.task(name="beat.tick")
    def tick(text: str) -> None:
        seen.append(text)

    @other.on_after_configure.connect
    def periodic(sender: Any, **others: Any) -> None:
        sender.add_periodic_task(20.0, tick.s("often"), name="often")

    other.conf.beat_schedule = {
        "at seven": {"task": "beat.tick", "schedule": crontab(hour=7, minute=30), "args": ("seven",)},
        "each minute": {"task": "beat.tick", "schedule": timedelta(minutes=1), "args": ("minute",)},
    }
    other.conf.timezone = "Europe/London"
    other.__switchgear_app__()
    seen.clear()
    with in_memory(other.switchgear_app, start=NOW.timestamp()) as server:
        other.switchgear_app.declare()
        plans = {plan.name: (plan.spec, plan.timezone) for plan in other.switchgear_app.schedules.list()}
        assert plans["at seven"] == ("30 7 * * *", "Europe/London")
        assert plans.keys() == {"at seven", "each minute", "often"}
        server.advance(60)
    assert sorted(seen) == ["minute", "often", "often", "often"]


def test_always_eager() -> None:
    eager = Celery("eager", broker="gearman://127.0.0.1:1", set_as_current=False)
    eager.conf.update(task_always_eager=True)

    @eager.task(name="eager.add", bind=True)
    def eager_add(self: Any, x: int, y: int) -> tuple[int, bool]:
        return x + y, self.request.is_eager

    assert eager_add.delay(1, 2).get() == (3, True)


def test_settings_of_an_object_with_a_prefix() -> None:
    class Settings:
        CELERY_TASK_ALWAYS_EAGER = True
        CELERY_RESULT_EXPIRES = timedelta(hours=1)
        DEBUG = True

    other = Celery("settings", broker="gearman://127.0.0.1:1", set_as_current=False)
    other.config_from_object(Settings, namespace="CELERY")
    assert (other.conf.task_always_eager, other.conf.result_seconds, "debug" in other.conf) == (True, 3600.0, False)


def test_shared_tasks_belong_to_the_current_app() -> None:
    @shared_task(name="shared.double")
    def double(number: int) -> int:
        return 2 * number

    mine = Celery("mine", broker="gearman://127.0.0.1:1")
    try:
        with in_memory(mine.switchgear_app):
            assert double.delay(4).get() == 8
        assert mine.tasks["shared.double"] is double
    finally:
        app.set_default()


def test_another_broker_is_not_used_and_the_program_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_URL", "gearman://127.0.0.1:7")
    with pytest.warns(UserWarning, match=r"the broker \(redis://\) is not used: jobs go to gearman://127.0.0.1:7"):
        other = Celery("other", broker="redis://:secret@localhost:6379/0", set_as_current=False)
    assert [location.url for location in other.switchgear_app.locations] == ["gearman://127.0.0.1:7"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: add.apply_async((1, 1), task_id="mine"), "task_id is not supported: the server gives jobs their ids"),
        (lambda: add.apply_async((1, 1), routing_key="a.b"), "use queue="),
        (lambda: app.control.inspect(), "see switchgear --help"),
        (lambda: app.worker_main(["worker"]), "switchgear worker MODULE:APP"),
        (lambda: add.delay(1, 1).then(print), "use link="),
        (lambda: add.delay(1, 1).get_leaf(), r"its last task: get"),
        (lambda: add.replace(add.s(1, 1)), r"current_job\(\).spawn"),
        (lambda: crontab(nowfun=print), "timezone"),
    ],
)
def test_what_is_not_supported_says_what_to_use(server: InMemoryServer, call: Any, text: str) -> None:
    with pytest.raises(NotSupported, match=text):
        call()


def test_an_unknown_task() -> None:
    with pytest.raises(NotRegistered):
        app.signature("no.such.task")


@pytest.mark.parametrize("error", [KeyError("nø"), OSError(2, "no such file"), ValueError()], ids=repr)
def test_an_exception_keeps_its_arguments(server: InMemoryServer, error: Exception) -> None:
    @app.task(name="shop.raise_it")
    def raise_it() -> None:
        raise error

    found = raise_it.delay().get(propagate=False)
    assert (type(found), found.args) == (type(error), error.args)


def test_a_traceback_has_no_line_of_ours(server: InMemoryServer) -> None:
    @app.task(name="shop.look_up")
    def look_up() -> None:
        raise KeyError("x")

    traceback = look_up.delay().traceback
    assert traceback is not None
    assert traceback.splitlines()[-1] == "KeyError: 'x'"


def test_the_result_of_a_chain_knows_those_before_it(server: InMemoryServer) -> None:
    last = chain(add.s(2, 2), add.s(4), mul.s(8))()
    assert (last.get(), last.parent.get(), last.parent.parent.get(), last.parent.parent.parent) == (64, 8, 4, None)
    summed = (add.s(1, 1) | group(add.s(1), add.s(2)) | xsum.s())()
    assert (summed.get(), summed.parent.get(), summed.parent.parent.get()) == (7, [3, 4], 2)
    results = group(chain(add.s(1, 1), add.s(5)), add.s(0, 1))()
    assert (results[0].parent.get(), results[1].parent) == (2, None)
    here = chain(add.s(2, 2), add.s(4)).apply()
    assert (here.get(), here.parent.get()) == (8, 4)


def test_map_and_starmap_make_all_calls_in_one_job(server: InMemoryServer) -> None:
    assert xsum.map([[0, 1, 2], [5]]).delay().get() == [3, 5]
    assert add.starmap(zip(range(3), range(3), strict=True)).apply_async().get() == [0, 2, 4]
    assert add.starmap([(1, 1), (2, 2)]).apply().get() == [2, 4]
    assert (add.starmap([(1, 1), (2, 2)]) | xsum.s())().get() == 6
    assert (~add.s(2, 3), ~add.starmap([])) == (5, [])


def test_chunks_are_a_group_of_jobs(server: InMemoryServer) -> None:
    chunks = add.chunks(zip(range(5), range(5), strict=True), 2)
    assert chunks().get() == [[0, 2], [4, 6], [8]]
    assert len(chunks.group()) == 3
    assert (chunks | note.s())().get() is None
    assert seen == [(([[0, 2], [4, 6], [8]],), {})]
