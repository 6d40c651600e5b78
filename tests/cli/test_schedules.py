"""Schedules from the shell, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from switchgear.client import Client
from tests.cli.commands import call, call_json
from tests.client.background import reverse, url_of, working
from tests.support.servers import Server, running_gearmand, running_switchgear
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


@pytest.fixture(autouse=True)
def no_schedules(server: Server) -> Iterator[None]:
    yield
    with Client(url_of(server)) as client:
        for each in client.control("schedules"):
            client.control("unschedule", name=each["name"])


def test_adding_and_listing(server: Server) -> None:
    added = call(server, "schedule", "add", "nightly", "report", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
    assert added.exit_code == 0, added.output
    assert added.stdout.startswith("nightly 0 3 * * * Europe/Berlin: next at ")
    call(server, "schedule", "add", "invoices", "bill", "--every", "31d")
    heads, invoices, nightly = call(server, "schedules").stdout.splitlines()
    assert heads.split() == ["NAME", "FUNCTION", "WHEN", "NEXT", "LAST", "LAST", "JOB", "FIRED", "SKIPPED", "MISSED"]
    assert invoices.startswith("invoices  bill      every 2678400 s")
    assert nightly.startswith("nightly   report    0 3 * * * Europe/Berlin  in ")
    assert nightly.split()[-3:] == ["0", "0", "0"]


def test_everything_that_can_be_said(server: Server) -> None:
    answer = call_json(
        server,
        *("schedule", "add", "full", "sweep", '{"all": true}', "--every", "1h", "--catch-up", "all", "--overlap"),
        *("--priority", "low", "--expires", "5m", "--timeout", "90", "--attempts", "0", "--crashes", "2"),
        *("--retention", "0", "--key", "tenant", "--requires", "large,gpu"),
    )
    assert (answer["payload"], answer["catch_up"], answer["overlap"]) == ('{"all": true}', "all", True)
    assert answer["options"] == {
        "priority": "low",
        "expires": 300.0,
        "timeout": 90.0,
        "attempts_limit": 0,
        "crash_limit": 2,
        "retention": 0.0,
        "key": "tenant",
        "requires": ["gpu", "large"],
    }
    assert call_json(server, "schedules") == [answer]


def test_a_payload_from_standard_input(server: Server) -> None:
    result = call(server, "schedule", "add", "raw", "sweep", "-", "--every", "1h", "--json", stdin=b"\xff")
    assert json.loads(result.stdout)["payload"] == {"base64": "/w=="}


def test_its_jobs_are_made_and_run(server: Server) -> None:
    with working(url_of(server), {"tick": reverse}) as heard:
        call(server, "schedule", "add", "often", "tick", "hello", "--every", "0.1")
        for _ in range(3):
            heard.until("started")
        call(server, "schedule", "pause", "often")
        (often,) = call_json(server, "schedules")
        assert often["fired"] >= 3
        assert (often["paused"], often["next_at"]) == (True, None)
        eventually(lambda: call_json(server, "schedules")[0]["last_state"] == "done", "the last job is done")
        assert "paused" in call(server, "schedules").stdout
        run = call(server, "schedule", "run", "often")
        assert run.stdout.startswith("often submitted H:")
        handle = run.stdout.split()[-1]
        done = eventually(lambda: call(server, "job", handle, "--json").stdout.count('"done"'), "it is done")
        assert done
        assert call(server, "schedule", "resume", "often").stdout == "often resumed\n"
        assert call(server, "schedule", "remove", "often").stdout == "often removed\n"
        assert call_json(server, "schedules") == []


def test_one_that_is_refused_does_not_keep_the_others_from_it(server: Server) -> None:
    call(server, "schedule", "add", "real", "sweep", "--every", "1h")
    result = call(server, "schedule", "pause", "nobody", "real")
    assert (result.exit_code, result.stdout) == (1, "real paused\n")
    assert result.stderr == "switchgear: nobody: there is no schedule 'nobody'\n"
    result = call(server, "schedule", "resume", "nobody", "real", "--json")
    answer = json.loads(result.stdout)
    assert [each["name"] for each in answer["schedules"]] == ["real"]
    assert [each["name"] for each in answer["problems"]] == ["nobody"]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--cron", "61 * * * *"], "cron expression '61 * * * *': '61' is no minute (0-59)"),
        (["--cron", "* * * *"], "has 4 fields, not five"),
        (["--cron", "@daily", "--timezone", "Berlin"], "timezone 'Berlin' is unknown"),
        (["--every", "0.01"], "an interval of 0.01 s is out of range"),
        (["--every", "soon"], "'soon' is no duration"),
        (["--every", "60", "--timezone", "Europe/Berlin"], "a timezone goes with a cron expression"),
        (["--cron", "@daily", "--every", "60"], "Give --cron EXPRESSION or --every SECONDS."),
        ([], "Give --cron EXPRESSION or --every SECONDS."),
        (["--cron", "@daily", "--catch-up", "some"], "'some' is not one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_slip_of_the_pen(args: list[str], complaint: str) -> None:
    result = call("gearman://127.0.0.1:1", "schedule", "add", "name", "function", *args)
    assert result.exit_code == 2
    assert complaint in result.stderr.replace("\n", " ")


def test_one_that_never_comes(server: Server) -> None:
    result = call(server, "schedule", "add", "never", "f", "--cron", "0 0 */20 * 1L")
    assert result.exit_code == 1
    assert "never comes" in result.stderr


@pytest.mark.interop
def test_another_server_has_none() -> None:
    with running_gearmand() as gearmand:
        for args in (["schedules"], ["schedule", "run", "x"]):
            result = call(gearmand, *args)
            assert result.exit_code == 1
            assert "UNKNOWN_EXTENSION" in result.stderr or "does not know" in result.stderr
