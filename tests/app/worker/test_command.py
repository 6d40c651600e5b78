"""`switchgear worker MODULE:APP`: usage and what it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from switchgear.app.worker.executor_choice import DEFAULT_ASYNC_SLOTS, DEFAULT_SLOTS
from switchgear.app.worker.process_autoscaler import AutoscaleLimits
from switchgear.cli.main import main
from switchgear.cli.worker_pools import slots_of_pool
from switchgear.errors import JobFailed
from tests.app.worker.harness import TARGET
from tests.app.worker.tasks import make_app
from tests.cli.commands import call, call_json, running
from tests.client.background import url_of
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

NOWHERE = "gearman://localhost:1"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere_at_all"], "there is no module nowhere_at_all"),
        (["tests.app.worker.tasks:nothing"], "has no nothing; it has app"),
        (["tests.app.worker.tasks:add"], "is not a switchgear.App but a function"),
        (["tests/app/worker/tasks.py"], "did you mean tests.app.worker.tasks?"),
        ([TARGET, "another"], "there is no module another"),
        ([TARGET, "--functions", "ad"], "the app has no task ad"),
        ([TARGET, "--slots", "-1"], "--slots"),
        ([TARGET, "--slots", "0", "--functions", "add"], "no slots for any task: add"),
        ([TARGET, "--queues", "mail=0"], "'mail=0' is no queue: NAME, or NAME=SLOTS"),
        ([TARGET, "--queues", "=3"], "'=3' is no queue"),
        ([TARGET, "--queues", "nobody"], "there are no tasks of the queues nobody"),
        (["f", "--exec", "cat", "--queues", "mail"], "--queues is for workers of an app"),
        ([TARGET, "--jobs", "2"], "--jobs is for workers that run a command"),
        ([TARGET, "--count", "2", "--timeout", "3"], "--timeout, --count is for workers that run a command"),
        ([TARGET, "--prefetch", "much"], "'much' is neither auto nor a number of jobs from 0 to 100000"),
        ([TARGET, "--prefetch", "1" * 5000], "is neither auto nor a number of jobs from 0 to 100000"),
        ([TARGET, "--prefetch", "-1"], "'-1' is neither auto nor a number"),
        (["f", "--exec", "cat", "--prefetch", "2"], "--prefetch is for workers of an app"),
        ([TARGET, "--max-memory-per-process", "much"], "'much' is no size: write bytes, or a number with K, M, G"),
        ([TARGET, "--max-memory-per-process", "-5M"], "not a possible size"),
        ([TARGET, "--max-memory-per-process", "9" * 5000], "not a possible size"),
        ([TARGET, "--max-memory-per-process", "500"], "more memory than 500 B; 1MiB is the least"),
        (["f", "--exec", "cat", "--max-memory-per-process", "1G"], "--max-memory-per-process is for workers of an app"),
        (
            [TARGET, "--functions", "add", "--kill-above-memory", "1G", "--max-jobs-per-process", "9"],
            "--max-jobs-per-process, --kill-above-memory: no task runs in a child process; add --processes",
        ),
        ([TARGET, "--concurrency", "2"], "--concurrency is for a --pool: threads, processes, asyncio, solo, prefork"),
        ([TARGET, "--pool", "forks"], "'forks' is not one of 'threads', 'processes', 'asyncio', 'solo', 'prefork'"),
        ([TARGET, "--pool", "gevent"], "--pool gevent: there are no green threads here; write tasks that wait"),
        ([TARGET, "--pool", "eventlet", "--concurrency", "9"], "or use --pool threads"),
        ([TARGET, "--pool", "threads", "--concurrency", "0"], "--concurrency"),
        ([TARGET, "--pool", "threads", "--slots", "2"], "another way to write the number of slots; leave out --slots"),
        ([TARGET, "--pool", "solo", "--slots", "0", "--async-slots", "2"], "leave out --slots, --async-slots"),
        ([TARGET, "--pool", "solo", "--concurrency", "2"], "--pool solo runs one job at a time"),
        (["f", "--exec", "cat", "--pool", "solo", "--concurrency", "1"], "--pool, --concurrency is for workers of an"),
        ([TARGET, "--autoscale", "5"], "the least and the most, such as 2,10"),
        ([TARGET, "--autoscale", "10,2"], "the least number of processes comes first"),
        ([TARGET, "--autoscale", "1,2", "--processes", "2"], "--autoscale sets the number of processes; leave out"),
        ([TARGET, "--autoscale", "1,2", "--pool", "threads"], "--autoscale sets the number of processes; leave out"),
        ([TARGET, "--autoscale", "1,2", "--pool", "processes", "--concurrency", "2"], "leave out --processes, --conc"),
        ([TARGET, "--autoscale", "1,2", "--pool", "processes", "--slots", "2"], "leave out --slots"),
        (["f", "--exec", "cat", "--autoscale", "1,2"], "--autoscale is for workers of an app"),
        (["f", "--exec", "cat", "--slots", "2"], "--slots is for workers of an app"),
        (["f", "--exec", "cat", "--reload", "--burst"], "--reload, --burst is for workers of an app"),
        (["f", "--exec", "cat", "--kill-after", "2"], "--kill-after is for workers of an app"),
        (["f", "--exec", "cat", "--log-level", "info"], "--log-level is for workers of an app"),
        ([], "Missing argument"),
    ],
    ids=lambda value: " ".join(value)[:80] if isinstance(value, list) else "",
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    result = call(NOWHERE, "worker", *arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("pool", "concurrency", "found"),
    [
        (None, None, {}),
        ("threads", 3, {"slots": 3}),
        ("threads", None, {"slots": DEFAULT_SLOTS}),
        ("processes", 3, {"processes": 3}),
        ("processes", None, {"processes": os.cpu_count()}),
        ("prefork", 3, {"processes": 3}),
        ("asyncio", 3, {"async_slots": 3}),
        ("asyncio", None, {"async_slots": DEFAULT_ASYNC_SLOTS}),
        ("solo", 1, {}),
        ("solo", None, {}),
    ],
)
def test_the_options_that_a_pool_stands_for(pool: str | None, concurrency: int | None, found: dict[str, int]) -> None:
    options = {"pool": pool, "concurrency": concurrency, "slots": None, "processes": None, "async_slots": None}
    assert slots_of_pool(options | {"autoscale": None}) == found


@pytest.mark.parametrize("pool", [None, "processes"])
def test_autoscaling_sets_the_most_processes(pool: str | None) -> None:
    options = {"pool": pool, "concurrency": None, "slots": None, "processes": None, "async_slots": None}
    assert slots_of_pool(options | {"autoscale": AutoscaleLimits(2, 5)}) == {"processes": 5}


@pytest.mark.parametrize(
    ("arguments", "serving"),
    [
        (
            ["--autoscale", "1,3"],
            {
                "asyncio": {"slots": 100, "tasks": ["add_async"]},
                "processes": {"least": 1, "slots": 3, "tasks": ["add"]},
            },
        ),
        (["--pool", "solo"], {"processes": {"slots": 1, "tasks": ["add", "add_async"]}}),
        (
            ["--pool", "threads", "--concurrency", "3"],
            {"threads": {"slots": 3, "tasks": ["add"]}, "asyncio": {"slots": 100, "tasks": ["add_async"]}},
        ),
    ],
    ids=["autoscale", "solo", "threads"],
)
def test_a_worker_with_a_pool(server: Server, arguments: list[str], serving: dict[str, object]) -> None:
    with make_app(url_of(server)) as app:
        jobs = [app.tasks[task].submit(1) for task in ("add", "add_async") for _ in range(2)]
        out, _ = work_once(server, "--functions", "add,add_async", "--json", *arguments)
        assert [job.result(DEADLINE_SECONDS) for job in jobs] == [2] * 4
    first = json.loads(out[0])
    assert {kind: found for kind, found in first.items() if isinstance(found, dict)} == serving


def test_an_error_in_the_users_module_comes_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_user.py").write_text("def f():\n    return 1 / 0\nf()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = call(NOWHERE, "worker", "of_a_user:app")
    assert result.exit_code == 2
    assert "of_a_user cannot be imported" in result.output
    assert "line 2, in f" in result.output
    assert "ZeroDivisionError" in result.output


@pytest.fixture
def twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of two apps that have a task of the same name."""
    app = "from switchgear import App\napp = App({url!r}, run_here=False)\n"
    task = "@app.task(name='mail.send', queue={queue!r})\ndef send() -> None: ...\n"
    for name, url, queue in (
        ("twin_of_shop", "embedded:queue", "shop"),
        ("twin_of_blog", "embedded:./queue", "blog"),
        ("twin_elsewhere", "embedded:another", "shop"),
    ):
        (tmp_path / f"{name}.py").write_text(app.format(url=url) + task.format(queue=queue))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("twins")
@pytest.mark.parametrize(
    ("second", "options"),
    [
        ("twin_of_blog:app", []),
        ("twin_of_blog:app", ["--functions", "mail.send"]),
        ("twin_of_blog:app", ["--queues", "shop,blog=2"]),
        ("twin_elsewhere:app", ["--server", NOWHERE]),
    ],
)
def test_two_apps_with_a_task_of_the_same_name_at_one_server(second: str, options: list[str]) -> None:
    """The server would give the jobs of either to any of the two functions."""
    result = CliRunner().invoke(main, ["worker", "twin_of_shop:app", second, "--burst", *options])
    assert result.exit_code == 2
    assert f"twin_of_shop:app and {second} both have a task mail.send, and work for the same server" in result.output


@pytest.mark.usefixtures("twins")
@pytest.mark.parametrize(
    ("second", "options"), [("twin_elsewhere:app", []), ("twin_of_blog:app", ["--queues", "shop"])]
)
def test_apps_may_share_the_name_of_a_task_that_only_one_of_them_runs_at_a_server(
    second: str, options: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "switchgear", "worker", "twin_of_shop:app", second, "--burst", *options],
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_help_tells_both_forms() -> None:
    text = call(NOWHERE, "worker", "--help").stdout
    for word in ("switchgear worker myapp:app", "switchgear worker reverse --exec rev", "--async-slots", "--burst"):
        assert word in text


def test_what_it_says_to_people(server: Server) -> None:
    arguments = (
        "worker",
        TARGET,
        "--functions",
        "add,add_async,fail,flaky",
        "--slots",
        "3",
        "--server",
        url_of(server),
    )
    with make_app(url_of(server)) as app, running(server, *arguments) as worker:
        assert "serves threads (3): add, fail, flaky; asyncio (100): add_async" in worker.until("serves")
        worker.until(f"connected to {url_of(server)} (threads), ready for jobs")
        job = app.tasks["add"].submit(1)
        worker.until(f"{job.handle} (add) started")
        worker.until(f"{job.handle} (add) done in")
        app.tasks["flaky"].submit(1)
        assert "OSError: attempt 1" in worker.until("next attempt in 20 ms")
        with pytest.raises(JobFailed):
            app.tasks["fail"].submit("too bad").result(DEADLINE_SECONDS)
        assert "ValueError: too bad" in worker.until("(fail) failed in")
        worker.until("Traceback")


def test_quiet_says_problems_only(server: Server) -> None:
    arguments = ("worker", TARGET, "--functions", "add,fail", "--quiet", "--server", url_of(server))
    with make_app(url_of(server)) as app, running(server, *arguments) as worker:
        assert app.tasks["add"].submit(1).result(DEADLINE_SECONDS) == 2
        with pytest.raises(JobFailed):
            app.tasks["fail"].submit("too bad").result(DEADLINE_SECONDS)
        assert "failed" in worker.until("switchgear worker:")


def test_what_it_says_to_programs(server: Server) -> None:
    arguments = ("worker", TARGET, "--functions", "add", "--json", "--name", "tester", "--server", url_of(server))
    with make_app(url_of(server)) as app, running(server, *arguments) as worker:
        serving = json.loads(worker.until("serving"))
        assert serving["threads"] == {"slots": 8, "tasks": ["add"]}
        connected = json.loads(worker.until("connected"))
        assert (connected["server"], connected["again"], connected["plain"]) == (url_of(server), False, False)
        eventually(lambda: call_json(server, "workers"), "the worker has registered")
        assert [found["name"] for found in call_json(server, "workers")] == ["tester/threads"]
        job = app.tasks["add"].submit(1)
        done = json.loads(worker.until("done"))
        assert (done["event"], done["handle"], done["function"]) == ("done", job.handle, "add")
        worker.send(signal.SIGTERM)
        assert json.loads(worker.until("stopping"))["signal"] == "SIGTERM"
        assert worker.exit_code() == 0


def work_once(server: Server, *arguments: str) -> tuple[list[str], list[str]]:
    """Do what is to be done; the lines on standard output, and those on standard error."""
    command = [sys.executable, "-m", "switchgear", "worker", TARGET, "--burst", "--server", url_of(server), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True)
    return done.stdout.splitlines(), done.stderr.splitlines()


@pytest.mark.parametrize("task", ["log_and_print", "log_and_print_in_process"])
def test_what_tasks_print_does_not_come_between_reports_for_programs(server: Server, task: str) -> None:
    with make_app(url_of(server)) as app:
        job = app.tasks[task].submit("something")
        out, err = work_once(server, "--functions", task, "--json")
    events = [json.loads(line) for line in out]
    assert [event["handle"] for event in events if event["event"] == "done"] == [job.handle]
    assert "printed something" in err
    assert "echoed something" in err


def test_reports_for_programs_go_on_after_a_fresh_start(server: Server) -> None:
    with make_app(url_of(server)) as app:
        handles = [app.tasks["log_and_print"].submit("something").handle for _ in range(3)]
        out, err = work_once(server, "--functions", "log_and_print", "--slots", "1", "--json", "--restart-after", "1")
    events = [json.loads(line) for line in out]
    assert [event["handle"] for event in events if event["event"] == "done"] == handles
    assert err.count("printed something") == 3


@pytest.mark.parametrize("task", ["log_and_print", "log_and_print_in_process"])
def test_what_tasks_print_is_on_standard_output(server: Server, task: str) -> None:
    with make_app(url_of(server)) as app:
        app.tasks[task].submit("something")
        out, _ = work_once(server, "--functions", task)
    assert sorted(out) == ["echoed something", "printed something"]


@pytest.mark.parametrize("task", ["log_and_print", "log_and_print_in_process"])
@pytest.mark.parametrize(
    ("arguments", "levels"),
    [([], ["INFO"]), (["--log-level", "debug"], ["INFO", "DEBUG"]), (["--log-level", "warning"], [])],
    ids=["by default", "debug", "warning"],
)
def test_what_tasks_log_is_on_standard_error(
    server: Server, task: str, arguments: list[str], levels: list[str]
) -> None:
    with make_app(url_of(server)) as app:
        app.tasks[task].submit("something")
        _, err = work_once(server, "--functions", task, *arguments)
    logged = [line for line in err if "shop.mail" in line]
    assert len(logged) == len(levels)
    for line, level in zip(logged, levels, strict=True):
        assert re.fullmatch(rf"{TIME} {level} shop\.mail: {level.lower()} something", line)


def test_logging_that_the_app_has_set_up_is_left_alone(server: Server, tmp_path: Path) -> None:
    (tmp_path / "with_logging.py").write_text(
        "import logging\nfrom switchgear import App\n"
        "logging.basicConfig(level='ERROR', format='mine: %(message)s')\n"
        f"app = App({url_of(server)!r})\n"
        "@app.task(name='f')\ndef f(): logging.info('unimportant'); logging.error('important')\n"
    )
    with make_app(url_of(server)) as app:
        app.task(name="f")(lambda: None).submit()
        command = [sys.executable, "-m", "switchgear", "worker", "with_logging:app", "--burst", "--log-level", "debug"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True
        )
    assert "mine: important\n" in done.stderr
    assert "unimportant" not in done.stderr


def test_its_own_lines_have_a_time_and_a_traceback_is_told_once(server: Server) -> None:
    with make_app(url_of(server)) as app:
        job = app.tasks["fail"].submit("too bad")
        _, err = work_once(server, "--functions", "fail")
    begin = next(number for number, line in enumerate(err) if "(fail) failed in" in line)
    pattern = rf"{TIME} switchgear worker: {re.escape(job.handle)} \(fail\) failed in [^:]*: ValueError: too bad"
    assert re.fullmatch(pattern, err[begin])
    assert err[begin + 1] == "    Traceback (most recent call last):"
    assert err[-1] == "    ValueError: too bad"
    assert all(line.startswith("    ") for line in err[begin + 1 :])
    assert all(re.match(f"{TIME} switchgear worker: ", line) for line in err[: begin + 1])


def test_the_servers_of_the_app_are_used_unless_others_are_given(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable for the other commands does not lead a worker away from where its app submits."""
    monkeypatch.setenv("SWITCHGEAR_URL", url_of(server))
    with running("gearman://127.0.0.1:2", "worker", TARGET, "--functions", "add") as worker:
        assert url_of(server) in worker.until("connected")


def test_an_app_that_is_the_only_one_in_its_module(server: Server) -> None:
    with running(
        server, "worker", "tests.app.worker.tasks", "--functions", "add", "--server", url_of(server)
    ) as worker:
        worker.until("connected")


@pytest.mark.parametrize("task", ["hand_on", "hand_on_in_process"])
def test_tasks_submit_where_the_worker_works(server: Server, task: str) -> None:
    """Whatever the app's own URL says: here nobody is there."""
    arguments = ("worker", TARGET, "--functions", f"{task},add", "--server", url_of(server))
    with make_app(url_of(server)) as app, running(NOWHERE, *arguments) as worker:
        worker.until("connected")
        assert app.job(app.tasks[task].submit(4).result(DEADLINE_SECONDS)).result(DEADLINE_SECONDS) == 5
