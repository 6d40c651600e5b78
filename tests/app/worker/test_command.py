"""`switchgear worker MODULE:APP`: usage and what it says."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from switchgear.errors import JobFailed
from tests.app.worker.house import TARGET
from tests.app.worker.tasks import make_app
from tests.cli.commands import call, call_json, running
from tests.client.background import url_of
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.system

NOWHERE = "gearman://localhost:1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere_at_all"], "there is no module nowhere_at_all"),
        (["tests.app.worker.tasks:nothing"], "has no nothing; it has app"),
        (["tests.app.worker.tasks:add"], "is not a switchgear.App but a function"),
        (["tests/app/worker/tasks.py"], "did you mean tests.app.worker.tasks?"),
        ([TARGET, "another"], "one app at a time"),
        ([TARGET, "--functions", "ad"], "the app has no task ad"),
        ([TARGET, "--slots", "-1"], "--slots"),
        ([TARGET, "--slots", "0", "--functions", "add"], "no slots for any task: add"),
        ([TARGET, "--jobs", "2"], "--jobs is for workers that run a command"),
        ([TARGET, "--count", "2", "--timeout", "3"], "--timeout, --count is for workers that run a command"),
        (["f", "--exec", "cat", "--slots", "2"], "--slots is for workers of an app"),
        (["f", "--exec", "cat", "--reload", "--burst"], "--reload, --burst is for workers of an app"),
        (["f", "--exec", "cat", "--kill-after", "2"], "--kill-after is for workers of an app"),
        ([], "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    result = call(NOWHERE, "worker", *arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_an_error_in_the_users_module_comes_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_user.py").write_text("def f():\n    return 1 / 0\nf()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = call(NOWHERE, "worker", "of_a_user:app")
    assert result.exit_code == 2
    assert "of_a_user cannot be imported" in result.output
    assert "line 2, in f" in result.output
    assert "ZeroDivisionError" in result.output


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
        assert [found["name"] for found in call_json(server, "workers")] == ["tester/threads"]
        job = app.tasks["add"].submit(1)
        done = json.loads(worker.until("done"))
        assert (done["event"], done["handle"], done["function"]) == ("done", job.handle, "add")
        worker.send(signal.SIGTERM)
        assert json.loads(worker.until("stopping"))["signal"] == "SIGTERM"
        assert worker.exit_code() == 0


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
