"""What an operator, or a worker, can ask about schedules, and arguments that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.errors import Refused
from switchgear.model import HIGH, SECOND_US, CatchUp
from tests.net.operator_harness import OperatorHarness

NIGHTLY: dict[str, Any] = {"name": "nightly", "function": "f", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}


@pytest.fixture
def operator() -> OperatorHarness:
    return OperatorHarness()


def test_a_schedule_in_all_detail(operator: OperatorHarness) -> None:
    answer = operator.ask(
        "schedule",
        **NIGHTLY,
        payload={"base64": "/w=="},
        catch_up="all",
        overlap=True,
        options={
            "priority": "high",
            "expires": 10,
            "timeout": 2.5,
            "attempts_limit": 3,
            "crash_limit": 1,
            "retention": 60,
            "key": "tenant",
            "requires": "large,gpu",
        },
    )
    at = 1_700_013_600.0  # the next 03:00 in Berlin, 02:00 in UTC
    assert answer == {
        "name": "nightly",
        "function": "f",
        "spec": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "catch_up": "all",
        "overlap": True,
        "paused": False,
        "next_at": at,
        "last_at": None,
        "last_job": None,
        "last_state": None,
        "held_up": "",
        "fired": 0,
        "skipped": 0,
        "missed": 0,
        "refused": 0,
        "payload": {"base64": "/w=="},
        "options": {
            "priority": "high",
            "expires": 10.0,
            "timeout": 2.5,
            "attempts_limit": 3,
            "crash_limit": 1,
            "retention": 60.0,
            "key": "tenant",
            "requires": ["gpu", "large"],
        },
    }
    schedule = operator.engine.schedules[b"nightly"]
    assert (schedule.payload, schedule.priority, schedule.catch_up) == (b"\xff", HIGH, CatchUp.ALL)
    assert (schedule.expires_after_us, schedule.timeout_us) == (10 * SECOND_US, 2_500_000)
    assert (schedule.attempts_limit, schedule.crash_limit, schedule.retention_us) == (3, 1, 60 * SECOND_US)


def test_the_defaults(operator: OperatorHarness) -> None:
    answer = operator.ask("schedule", name="poll", function="f", every_seconds=30)
    assert (answer["spec"], answer["timezone"], answer["catch_up"]) == ("every 30 s", "UTC", "latest")
    assert (answer["overlap"], answer["payload"]) == (False, "")
    assert answer["options"] == {
        "priority": "normal",
        "expires": 0.0,
        "timeout": 0.0,
        "attempts_limit": -1,
        "crash_limit": -1,
        "retention": None,
        "key": "",
        "requires": [],
    }


def test_how_the_last_job_fares(operator: OperatorHarness) -> None:
    operator.ask("schedule", name="poll", function="f", every_seconds=30)
    operator.harness.pass_time(30)
    (poll,) = operator.ask("schedules")
    assert (poll["last_job"], poll["last_state"], poll["fired"]) == ("H:t:1", "ready", 1)
    assert poll["last_at"] == operator.engine.now_us / SECOND_US
    operator.finish()
    (poll,) = operator.ask("schedules")
    assert poll["last_state"] == "done"


def test_a_job_that_is_not_remembered_any_more(operator: OperatorHarness) -> None:
    operator.ask("schedule", name="poll", function="f", every_seconds=30)
    operator.harness.pass_time(30)
    operator.harness.store.unstage([operator.finish()])
    (poll,) = operator.ask("schedules")
    assert (poll["last_job"], poll["last_state"]) == ("H:t:1", None)


def test_they_are_listed_by_name(operator: OperatorHarness) -> None:
    for name in ("b", "c", "a"):
        operator.ask("schedule", name=name, function="f", every_seconds=30)
    assert [each["name"] for each in operator.ask("schedules")] == ["a", "b", "c"]


def test_pausing_and_resuming(operator: OperatorHarness) -> None:
    operator.ask("schedule", **NIGHTLY)
    assert (operator.ask("pause_schedule", name="nightly")["paused"], operator.ask("schedules")[0]["next_at"]) == (
        True,
        None,
    )
    assert operator.ask("resume_schedule", name="nightly")["next_at"] == 1_700_013_600.0


def test_running_it_now(operator: OperatorHarness) -> None:
    operator.ask("schedule", **NIGHTLY)
    assert operator.ask("run_schedule", name="nightly") == {"name": "nightly", "handle": "H:t:1"}
    assert operator.ask("job", job_id=1)["origin"] == "schedule"
    with pytest.raises(Refused, match="its last job is ready"):
        operator.ask("run_schedule", name="nightly")


def test_removing(operator: OperatorHarness) -> None:
    operator.ask("schedule", **NIGHTLY)
    assert operator.ask("unschedule", name="nightly") == {"name": "nightly", "removed": True}
    assert operator.ask("schedules") == []


@pytest.mark.parametrize("verb", ["unschedule", "pause_schedule", "resume_schedule", "run_schedule"])
def test_one_that_there_is_not(operator: OperatorHarness, verb: str) -> None:
    with pytest.raises(LookupError, match="there is no schedule 'nobody'"):
        operator.ask(verb, name="nobody")


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"cron": "61 * * * *"}, r"schedule: cron expression '61 \* \* \* \*': '61' is no minute \(0-59\)"),
        ({"cron": 5}, "schedule: cron: expected a text, got 5"),
        ({"cron": ""}, "a cron expression or an interval in seconds, one of the two"),
        ({"every_seconds": 3}, "one of the two"),
        ({"cron": "", "every_seconds": True}, "schedule: every_seconds: expected a number from 0 to .*, got True"),
        ({"cron": "", "every_seconds": 0.01, "timezone": ""}, "an interval of 0.01 s is out of range"),
        ({"cron": "0 0 */20 * 1L"}, "never comes"),
        ({"timezone": "Europe/Berln"}, "timezone 'Europe/Berln' is unknown"),
        ({"name": ""}, "schedule: name: expected a text of 1 to 512 bytes without NUL, got ''"),
        ({"name": "a\0b"}, "name: expected a text of 1 to 512 bytes without NUL"),
        ({"name": 7}, "name: expected a text of 1 to 512 bytes without NUL, got 7"),
        ({"function": "x" * 513}, "function: expected a text of 1 to 512 bytes"),
        ({"payload": {"base32": "x"}}, "payload: expected a text, or an object with the one key base64"),
        ({"payload": {"base64": "!"}}, "payload: "),
        ({"payload": 5}, "payload: expected a text"),
        ({"payload": "x" * 65_537}, "the payload of a schedule has at most 65536 bytes, not 65537"),
        ({"catch_up": "some"}, "schedule: catch_up: expected one of none, latest, all, got 'some'"),
        ({"catch_up": ["all"]}, "catch_up: expected one of"),
        ({"overlap": "yes"}, "schedule: overlap: expected true or false, got 'yes'"),
        ({"options": {"prio": 1}}, "options: Object contains unknown field `prio`"),
        ({"options": {"priority": "urgent"}}, "priority is one of high, normal, low"),
        ({"options": {"timeout": -1}}, "timeout is out of range"),
        ({"options": {"expires": 1e300}}, "expires is out of range"),
        ({"options": 5}, "schedule: options: expected an object, got 5"),
        ({"colour": "red"}, "schedule: there is no argument 'colour'; there are: name, function"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(f"{key}={text!r:.30}" for key, text in value.items()),
)
def test_arguments_that_make_no_sense(operator: OperatorHarness, wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        operator.ask("schedule", **{**NIGHTLY, **wrong})
    assert operator.ask("schedules") == []


def test_while_the_store_cannot_be_read_the_rest_is_told(
    operator: OperatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.ask("schedule", **NIGHTLY)
    operator.ask("run_schedule", name="nightly")
    operator.harness.read_error = Refused("storage", "disk on fire")
    (nightly,) = operator.ask("schedules")
    assert (nightly["last_job"], nightly["last_state"]) == ("H:t:1", None)
