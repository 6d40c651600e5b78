"""Tasks: their names, what they are when called, and what they ask a server for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear import App, ArgumentError, Job, JobGroup
from switchgear.client.gearman.submit_request import SubmitRequest

NOW = 1_900_000_000.0


@pytest.fixture
def app() -> App:
    app = App("gearman://127.0.0.1", name="")
    app.now = lambda: NOW
    return app


def request(task: Any, *args: Any, **kwargs: Any) -> SubmitRequest:
    asked: SubmitRequest = task.request(args, kwargs)
    return asked


def shrink(path: str, width: int = 128) -> str:
    """Make it smaller."""
    return f"{path}@{width}"


# --- names ---


def test_a_task_is_called_like_its_function(app: App) -> None:
    assert app.task(shrink).name == "tests.app.test_tasks.shrink"
    assert app.task(name="resize")(shrink).name == "resize"
    assert list(app.tasks) == ["tests.app.test_tasks.shrink", "resize"]


@pytest.mark.parametrize("command", [["hello.py"], ["-m", "hello"]], ids=["script", "module"])
def test_a_program_calls_its_tasks_like_those_who_import_it(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "hello.py").write_text(
        "from switchgear import App\napp = App('gearman://127.0.0.1')\n@app.task\ndef greet(): ...\nprint(greet.name)\n"
    )
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = subprocess.run(
        [sys.executable, "-c", "import hello"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == imported.stdout == "hello.greet\n"


def test_two_functions_do_not_share_a_name(app: App) -> None:
    def other(path: str) -> str:
        return path

    app.task(name="resize")(shrink)
    with pytest.raises(ValueError, match=r"there is a task resize already, in tests\.app\.test_tasks"):
        app.task(name="resize")(other)
    assert app.task(name="resize")(shrink).name == "resize"  # a module that is loaded again


def test_a_lambda_needs_a_name(app: App) -> None:
    with pytest.raises(ValueError, match="a lambda has no name that a worker could know"):
        app.task(lambda x: x)
    assert app.task(name="same")(lambda x: x)(3) == 3


def test_what_is_no_function(app: App) -> None:
    with pytest.raises(TypeError, match="a task is made of a function, not of 3"):
        app.task()(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="shrink is a task already"):
        app.task(app.task(shrink))


# --- calling ---


def test_a_call_is_a_call(app: App) -> None:
    task = app.task(shrink)
    assert task("a.png", width=3) == "a.png@3"
    assert (task.__name__, task.__doc__) == ("shrink", "Make it smaller.")  # type: ignore[attr-defined]
    assert repr(task) == "<Task tests.app.test_tasks.shrink>"


def test_a_call_of_a_coroutine_function_is_a_coroutine(app: App) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    assert double.is_async
    assert asyncio.run(double(4)) == 8


# --- what the server is asked for ---


def test_the_least_that_is_asked_for(app: App) -> None:
    assert request(app.task(name="shrink")(shrink), "a.png") == SubmitRequest(
        function=b"shrink",
        payload=b'{"path":"a.png"}',
        options={"attempts_limit": 1, "crash_limit": 3},
    )


def test_everything_that_can_be_asked_for(app: App) -> None:
    task = app.task(
        name="shrink",
        retries=2,
        crash_limit=5,
        timeout=30,
        expires=600,
        retention=3600,
        priority="high",
        unique=lambda path, **_: path,
        unique_scope="queued",
        unique_policy="replace",
        unique_for=60,
        key=lambda width: width,
    )(shrink)
    asked = request(task.options(delay=60, after=["H:h:1", ("H:h:2", "run")], on_failure="skip"), "a.png")
    assert asked == SubmitRequest(
        function=b"shrink",
        payload=b'{"path":"a.png"}',
        unique=b"a.png",
        priority="high",
        run_at=NOW + 60,
        options={
            "attempts_limit": 3,
            "crash_limit": 5,
            "timeout": 30.0,
            "retention": 3600.0,
            "expires_at": NOW + 600,
            "key": "128",
            "unique_scope": "queued",
            "unique_policy": "replace",
            "unique_for": 60.0,
            "after": ["H:h:1", "H:h:2"],
            "on_failure": ["skip", "run"],
        },
        needs=(
            *("retries", "crash_limit", "expires", "retention", "key", "after"),
            *("unique_scope", "unique_for", "unique_policy"),
        ),
    )


def test_a_timeout_of_its_own_needs_the_server_and_that_of_the_task_does_not(app: App) -> None:
    task = app.task(timeout=30)(shrink)
    assert request(task, "a").needs == ()
    assert request(task.options(timeout=5), "a").needs == ("timeout",)


@pytest.mark.parametrize(
    "before",
    [
        lambda app: "H:h:1",
        lambda app: ["H:h:1"],
        lambda app: ("H:h:1", "fail"),
        lambda app: app.job("H:h:1"),
        lambda app: [app.job("H:h:1")],
        lambda app: JobGroup(app, None, ["H:h:1"]),
        lambda app: (JobGroup(app, None, ["H:h:1"]), "fail"),
        lambda app: {"H:h:1"},
    ],
    ids=["handle", "handles", "pair", "job", "jobs", "group", "group and policy", "set"],
)
def test_ways_to_say_after(app: App, before: Callable[[App], Any]) -> None:
    options = request(app.task(shrink).options(after=before(app)), "a").options
    assert (options["after"], options["on_failure"]) == (["H:h:1"], ["fail"])


def test_after_something_else(app: App) -> None:
    with pytest.raises(TypeError, match="after: expected a job, a group or a handle, not 3"):
        request(app.task(shrink).options(after=3), "a")
    with pytest.raises(ValueError, match="after: a policy is one of wait, skip, fail, run, error, not 'panic'"):
        request(app.task(shrink).options(after=[("H:h:1", "panic")]), "a")


def test_a_job_as_an_argument_is_waited_for(app: App) -> None:
    asked = request(app.task(shrink), app.job("H:h:1"))
    assert (asked.options["after"], asked.options["on_failure"]) == (["H:h:1"], ["fail"])
    assert asked.needs == ("a job as an argument",)
    asked = request(app.task(shrink).options(after=[(app.job("H:h:1"), "run")]), app.job("H:h:1"))
    assert (asked.options["after"], asked.options["on_failure"]) == (["H:h:1"], ["run"])


@pytest.mark.parametrize(
    "asking",
    [
        lambda task, job: request(task, job),
        lambda task, job: request(task, {"deep": [job]}),
        lambda task, job: request(task, JobGroup(job.app, None, [job.handle])),
        lambda task, job: request(task.options(after=job), "a"),
        lambda task, job: request(task.options(after=[(JobGroup(job.app, None, [job.handle]), "run")]), "a"),
    ],
    ids=["argument", "inside", "group", "after", "after a group"],
)
def test_a_job_of_another_app_would_be_another_job_here(tmp_path: Path, asking: Callable[[Any, Job[Any]], Any]) -> None:
    here, there = App(f"embedded:{tmp_path}/here"), App(f"embedded:{tmp_path}/there")
    task = here.task(name="shrink")(shrink_anything)
    with pytest.raises(ArgumentError) as caught:
        asking(task, there.job("H:h:1"))
    assert f"is of another app: it is at embedded:{tmp_path}/there, and this task at embedded:{tmp_path}/here" in str(
        caught.value
    )
    same_place = App(f"embedded:{tmp_path}/elsewhere/../here")
    assert asking(task, same_place.job("H:h:1")).options["after"] == ["H:h:1"]


def shrink_anything(path: Any) -> None: ...


def test_bytes_of_another_app(app: App) -> None:
    def pack(data: bytes) -> None: ...

    other = App("gearman://elsewhere")
    with pytest.raises(ArgumentError, match="pack: data: job H:h:1 is of another app: it is at gearman://elsewhere"):
        request(app.task(name="pack")(pack), other.job("H:h:1"))


def test_an_app_of_several_servers_takes_jobs_of_each() -> None:
    both = App(["gearman://a", "gearman://b"])
    asked = request(both.task(shrink), App("gearman://b").job("H:h:1"))
    assert asked.options["after"] == ["H:h:1"]


def test_wrong_arguments_ask_for_nothing(app: App) -> None:
    with pytest.raises(ArgumentError, match=r"shrink: path: expected str, got int"):
        app.task(shrink).submit(3)  # type: ignore[arg-type]


# --- unique keys ---


def unique_of(app: App, unique: Any, *args: Any, **kwargs: Any) -> bytes:
    return request(app.task(unique=unique)(shrink), *args, **kwargs).unique


def test_unique_by_all_arguments_however_they_are_written(app: App) -> None:
    keys = {
        unique_of(app, True, "a"),
        unique_of(app, True, path="a"),
        unique_of(app, True, "a", 128),
        unique_of(app, True, width=128, path="a"),
    }
    assert len(keys) == 1
    assert len(keys.pop()) == 32
    assert unique_of(app, True, "b") != unique_of(app, True, "a") != unique_of(app, True, "a", 64)


@pytest.mark.parametrize(
    ("unique", "key"),
    [
        ("fixed", b"fixed"),
        (lambda path: path, b"a.png"),
        (lambda path, **_: path, b"a.png"),
        (lambda width, path: (path, width), b'["a.png",128]'),
        (lambda **all_of_them: all_of_them, b'{"path":"a.png","width":128}'),
        (lambda path: None, b""),
        (lambda path, missing=3: missing, b"3"),
    ],
    ids=["text", "one", "one of all", "two", "all", "none", "default"],
)
def test_unique_keys(app: App, unique: Any, key: bytes) -> None:
    assert unique_of(app, unique, "a.png") == key


@pytest.mark.parametrize("path", ["x" * 65, "", "-", "a\0b"], ids=["long", "empty", "dash", "nul"])
def test_a_key_that_servers_would_not_take_is_hashed(app: App, path: str) -> None:
    key = unique_of(app, lambda path: path, path)
    assert len(key) == 32
    assert key != unique_of(app, lambda path: path, path + "!" * 65)


def test_what_no_key_can_be_made_of(app: App) -> None:
    with pytest.raises(ArgumentError, match="a key cannot be made of <object"):
        unique_of(app, lambda path: object(), "a")


def test_unique_bytes(app: App) -> None:
    def pack(data: bytes) -> bytes:
        return data

    task = app.task(unique=True)(pack)
    assert request(task, b"\xff").unique == request(task, b"\xff").unique != request(task, b"\0").unique


# --- schedules ---


def test_a_schedule_makes_a_task_and_is_declared(app: App) -> None:
    @app.every("*/5 * * * *", timezone="Europe/Berlin", catch_up="all", retries=2, kwargs={"days": 3})
    def clean(days: int = 1) -> None: ...

    assert app.tasks == {clean.name: clean}
    assert app.declarations() == [
        (
            "schedule",
            {
                "name": clean.name,
                "function": clean.name,
                "payload": '{"days":3}',
                "cron": "*/5 * * * *",
                "timezone": "Europe/Berlin",
                "catch_up": "all",
                "overlap": False,
                "options": {"attempts_limit": 3, "crash_limit": 3, "priority": "normal"},
            },
        )
    ]


def test_a_task_may_have_several_schedules(app: App) -> None:
    @app.every(30, name="often")
    @app.every("1h", name="seldom", overlap=True)
    @app.task(priority="low", expires=10, key="k")
    def clean() -> None: ...

    assert [
        (told["name"], told["every_seconds"], told["overlap"], told["options"]) for _, told in app.declarations()
    ] == [
        (
            "seldom",
            3600.0,
            True,
            {"attempts_limit": 1, "crash_limit": 3, "priority": "low", "expires": 10.0, "key": "k"},
        ),
        ("often", 30.0, False, {"attempts_limit": 1, "crash_limit": 3, "priority": "low", "expires": 10.0, "key": "k"}),
    ]


@pytest.mark.parametrize(
    ("when", "given", "complaint"),
    [
        (0, {}, "every takes more than 0 seconds"),
        (-3, {}, "every is a number of seconds or a timedelta, not -3"),
        ("often", {}, "every takes seconds, a duration such as"),
        ("61 * * * *", {}, "61"),
        (30, {"timezone": "Europe/Berlin"}, "timezone"),
        ("0 4 * * *", {"timezone": "Europe/Atlantis"}, "Europe/Atlantis"),
        ("0 4 * * *", {"catch_up": "some"}, "catch_up is one of latest, none, all, not 'some'"),
        ("0 4 * * *", {"overlap": 3}, "overlap is True or False, not 3"),
        ("0 4 * * *", {"retrys": 3}, "there is no option retrys"),
    ],
    ids=["zero", "negative", "word", "cron", "timezone of seconds", "timezone", "catch up", "overlap", "option"],
)
def test_a_bad_schedule_is_found_at_decoration(app: App, when: Any, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        app.every(when, **given)
    assert complaint in str(caught.value)


def test_a_schedule_whose_arguments_do_not_fit(app: App) -> None:
    with pytest.raises(ArgumentError, match="missing a required argument: 'path'"):
        app.every(30)(shrink)


def test_options_belong_to_the_task(app: App) -> None:
    with pytest.raises(TypeError, match=r"is a task already: give its options to @app\.task"):
        app.every(30, retries=3)(app.task(shrink))


# --- where the server is ---


def test_an_app_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_URL", "gearman://a, gearman://b:99")
    assert [place.url for place in App().locations] == ["gearman://a:4730", "gearman://b:99"]
    assert repr(App(["gearman://c"])) == "<App gearman://c:4730>"


def test_an_app_of_nothing_is_embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SWITCHGEAR_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    assert App().locations[0].url.startswith("embedded:")
    assert os.listdir(tmp_path) == []  # nothing is made before it is used


def test_a_job_is_shown_and_compared_by_its_handle(app: App) -> None:
    job = app.task(name="shrink")(shrink).job("H:h:1")
    assert repr(job) == "<Job H:h:1 shrink>"
    assert job == Job(app, None, "H:h:1") != Job(app, None, "H:h:2")
    assert len({job, app.job("H:h:1")}) == 1
    assert job.as_argument is job  # type: ignore[comparison-overlap]
