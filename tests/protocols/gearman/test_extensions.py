"""SUBMIT_JOB_OPTIONS and CONTROL, the packets that only this server knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchgear.model import CANCELLED, EXPIRED, HIGH, LOW, NORMAL, READY, SECOND_US, Delivery, Job
from switchgear.protocols.gearman.messages import Packet
from switchgear.testing.clock import START_US
from tests.protocols.gearman.harness import Harness, Talker
from tests.support.reads import kept_job
from tests.support.unreadable_store import UnreadableStore
from tests.support.wire import Kind, request
from tests.support.wire import Packet as Heard

NOW = START_US // SECOND_US


def submit(talker: Talker, options: object, payload: bytes = b"x", unique: bytes = b"", function: bytes = b"f") -> None:
    text = options if isinstance(options, bytes) else json.dumps(options).encode()
    talker.send(request(Packet.SUBMIT_JOB_OPTIONS, function, unique, text, payload))


def submitted(options: object) -> tuple[Harness, Job]:
    """A harness with one job that was submitted with these options."""
    harness = Harness()
    client = harness.talker("client")
    submit(client, options)
    assert client.heard() == [Heard(Kind.JOB_CREATED, b"H:t:1")]
    return harness, harness.engine.jobs[1]


def control(talker: Talker, verb: str, **arguments: object) -> Any:
    """The answer, or the code of the error."""
    talker.send(request(Packet.CONTROL, verb.encode(), json.dumps(arguments).encode()))
    (answer,) = talker.heard()
    assert isinstance(answer, Heard)
    if answer.type == Kind.ERROR:
        return answer.body.split(b"\0")[0].decode()
    assert answer.type == Packet.CONTROL_RES
    return json.loads(answer.body)


# --- SUBMIT_JOB_OPTIONS ---


@pytest.mark.parametrize("options", [{}, b"", b" {} "])
def test_no_options_make_a_plain_background_job(options: object) -> None:
    _, job = submitted(options)
    assert job.delivery == Delivery.HANDLE
    assert job.priority == NORMAL
    assert job.state is READY
    assert job.payload == b"x"
    assert job.attempts_limit == -1


@pytest.mark.parametrize(("word", "priority"), [("high", HIGH), ("normal", NORMAL), ("low", LOW)])
def test_priority(word: str, priority: int) -> None:
    _, job = submitted({"priority": word})
    assert job.priority == priority


def test_wait_makes_a_foreground_job() -> None:
    harness, job = submitted({"wait": True})
    assert job.delivery == Delivery.WAIT
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB), request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    assert harness.talker("client").heard() == [Heard(Kind.WORK_COMPLETE, b"H:t:1\0done")]


def test_a_job_for_later() -> None:
    harness, job = submitted({"run_at": NOW + 1.5})
    assert job.state.name == "SCHEDULED"
    assert job.run_at_us == START_US + 1_500_000
    harness.pass_time(1.5)
    assert job.state is READY


def test_a_job_that_nobody_wants_later() -> None:
    harness, job = submitted({"expires_at": NOW + 2, "wait": True})
    harness.pass_time(2)
    assert job.state is EXPIRED
    assert harness.talker("client").heard() == [Heard(Kind.WORK_FAIL, b"H:t:1")]


def test_a_time_limit_and_attempts() -> None:
    harness, job = submitted({"timeout": 0.25, "attempts": 1})
    assert job.timeout_us == 250_000
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))
    harness.pass_time(0.25)
    assert job.is_dead


@pytest.mark.parametrize(("sent", "limit"), [(0, 0), (7, 7), (-1, -1), (-5, -1), (10**30, 1_000_000)])
def test_attempts_stay_within_reason(sent: int, limit: int) -> None:
    _, job = submitted({"attempts": sent})
    assert job.attempts_limit == limit


def test_the_shortest_time_limit_is_still_one() -> None:
    _, job = submitted({"timeout": 1e-9})
    assert job.timeout_us == 1


def test_predecessors() -> None:
    harness, first = submitted({})
    client = harness.talker("client")
    submit(client, {"after": ["H:t:1"]})
    second = harness.engine.jobs[2]
    assert second.state.name == "WAITING"
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB), request(Kind.GRAB_JOB))
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b""))
    assert second.state is READY
    # One that is done and forgotten is still known to have been.
    submit(client, {"after": ["H:t:1"]})
    assert harness.engine.jobs[3].state is READY
    assert first.id == 1


def test_a_name_is_taken_while_its_job_lives() -> None:
    harness, job = submitted({"name": "nightly"})
    client = harness.talker("client")
    assert job.name == b"nightly"
    submit(client, {"name": "nightly"})
    (error,) = client.heard()
    assert isinstance(error, Heard)
    assert error.body.startswith(b"INVALID_ARGUMENT\0there is an unfinished job named")
    harness.engine.cancel(job)
    submit(client, {"name": "nightly"})
    assert client.heard() == [Heard(Kind.JOB_CREATED, b"H:t:2")]


def test_a_reducer() -> None:
    harness, _ = submitted({"reducer": "sum"})
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB_ALL))
    assert worker.heard() == [Heard(Kind.JOB_ASSIGN_ALL, b"H:t:1\0f\0\0sum\0x")]


def test_unique_keys_join_here_too() -> None:
    harness = Harness()
    client = harness.talker("client")
    submit(client, {}, unique=b"key")
    submit(client, {"priority": "high"}, unique=b"key")
    submit(client, {}, unique=b"-", payload=b"same")
    submit(client, {}, unique=b"-", payload=b"same")
    assert [m.body for m in client.heard() if isinstance(m, Heard)] == [b"H:t:1", b"H:t:1", b"H:t:2", b"H:t:2"]


@pytest.mark.parametrize(
    "options",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"\xff": 1}',
        b'{"name": "\xff"}',
        b'{"after": ' + b"[" * 9_000,
        b'{"\\u0000": 1}',
        {"unknown": 1},
        {"wait": "yes"},
        {"wait": None},
        {"priority": "urgent"},
        {"priority": 1},
        {"run_at": -1},
        {"run_at": 1e300},
        b'{"run_at": 1e999}',
        {"run_at": "now"},
        {"expires_at": -0.5},
        {"timeout": 10**20},
        {"attempts": 1.5},
        {"after": "H:t:1"},
        {"after": ["H:t:1"]},
        {"after": ["H:t:0"]},
        {"after": ["nonsense"]},
        {"after": [1]},
        {"after": ["\x00\n"]},
        {"name": 5},
        {"name": "n" * 65},
        b'{"name": "\\ud800"}',
        b'{"reducer": "\\ud800"}',
        b'{"after": ["\\ud800"]}',
        {"reducer": "r" * 65},
        {"reducer": "a\0b"},
    ],
)
def test_bad_options_are_answered(options: object) -> None:
    harness = Harness()
    client = harness.talker("client")
    submit(client, options)
    (error,) = client.heard()
    assert isinstance(error, Heard)
    assert error.type == Kind.ERROR
    assert error.body.split(b"\0")[0] in (b"INVALID_ARGUMENT", b"ARGUMENT_TOO_LARGE")
    assert not harness.engine.jobs
    assert not harness.engine.functions
    assert len(harness.bad_input) == 1


def test_a_job_may_wait_for_many_but_not_for_any_number() -> None:
    harness = Harness(packet_bytes=10_000_000)
    client = harness.talker("client")
    submit(client, {})
    client.take_bytes()
    submit(client, {"after": ["H:t:1"] * 100_000, "on_failure": ["fail"] * 100_000, "priority": "high"})
    assert client.heard() == [Heard(Kind.JOB_CREATED, b"H:t:2")]
    submit(client, {"after": ["H:t:1"] * 100_001})
    (error,) = client.heard()
    assert isinstance(error, Heard)
    assert error.body.startswith(b"ARGUMENT_TOO_LARGE\0")
    assert harness.engine.memory.input_bytes == 0


@pytest.mark.parametrize(
    "options",
    [
        {"after": ["H:t:1"] * 5_000 + ["H:t:99"]},
        {"after": ["H:t:1"] * 5_000 + ["nonsense"]},
        {"after": ["H:t:1"] * 5_000, "on_failure": ["fail"] * 4_999 + ["cry"]},
        {"after": ["H:t:1"] * 5_000, "on_failure": ["fail"] * 4_999 + ["run"]},
    ],
)
def test_a_mistake_late_in_a_long_list_is_an_answer_and_changes_nothing(options: object) -> None:
    harness = Harness(packet_bytes=10_000_000)
    client = harness.talker("client")
    submit(client, {})
    client.take_bytes()
    text = json.dumps(options).encode()
    echo = request(Kind.ECHO_REQ, b"?")
    client.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", text, b"x"), echo)
    error, echoed = client.heard()
    assert isinstance(error, Heard)
    assert error.body.startswith(b"INVALID_ARGUMENT\0options: ")
    assert echoed == Heard(Kind.ECHO_RES, b"?")
    assert (harness.engine.job_count(), harness.engine.memory.input_bytes) == (1, 0)


def test_a_job_that_waits_for_very_many_is_watched_and_joined_like_any_other() -> None:
    harness = Harness(packet_bytes=10_000_000)
    client, other, worker = (harness.talker(name) for name in ("client", "other", "worker"))
    for _ in range(2_000):
        submit(client, {})
    client.take_bytes()
    client.send(request(Kind.OPTION_REQ, b"switchgear"))
    client.take_bytes()
    after = [f"H:t:{number}" for number in range(1, 2_001)]
    submit(client, {"after": after, "watch": True}, unique=b"sum", function=b"sum")
    submit(other, {"after": after}, unique=b"sum", function=b"sum")
    assert client.heard() == other.heard() == [Heard(Kind.JOB_CREATED, b"H:t:2001")]
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.CAN_DO, b"sum"))
    for number in range(1, 2_002):
        worker.send(request(Kind.GRAB_JOB), request(Kind.WORK_COMPLETE, b"H:t:%d" % number, b"done"))
    assert [heard.type for heard in client.heard() if isinstance(heard, Heard)] == [Kind.WORK_COMPLETE]


# --- CONTROL ---


def story() -> Harness:
    """One job that is done, one that runs, one that is dead, one that is ready, one that waits for it."""
    harness = Harness()
    client, worker = harness.talker("client"), harness.talker("worker")
    worker.send(request(Kind.SET_CLIENT_ID, b"hand"), request(Kind.CAN_DO, b"f"))
    submit(client, {}, payload=b"one")
    worker.send(request(Kind.GRAB_JOB), request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    submit(client, {"priority": "high"}, payload=b"two")
    worker.send(request(Kind.GRAB_JOB))
    submit(client, {"attempts": 1}, payload=b"three")
    lost = harness.talker("lost")
    lost.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))
    lost.leave()
    submit(client, {"name": "four"}, payload=b"\xff", unique=b"key")
    submit(client, {"after": ["H:t:4"], "run_at": NOW + 9}, payload=b"five", function=b"g")
    client.take_bytes()
    worker.take_bytes()
    return harness


def test_server() -> None:
    harness = story()
    answer = control(harness.talker("admin"), "server")
    assert answer["jobs"] == 3
    assert answer["functions"] == 2
    assert answer["workers"] == 1
    assert answer["store"] == "memory:"
    assert answer["draining"] is False
    assert answer["events"]["job_died"] == 1


def test_functions() -> None:
    f, g = control(story().talker("admin"), "functions")
    assert (f["name"], f["total"], f["ready"], f["running"], f["workers"]) == ("f", 2, 1, 1, 1)
    assert (f["submitted"], f["done"], f["failed"]) == (4, 1, 1)
    assert (g["name"], g["total"], g["waiting_or_scheduled"], g["oldest_ready_seconds"]) == ("g", 1, 1, None)


def test_workers() -> None:
    (worker,) = control(story().talker("admin"), "workers")
    assert worker["name"] == "hand"
    assert worker["functions"] == ["f"]
    assert worker["running"] == ["H:t:2"]
    assert worker["address"] == "10.0.0.1:40002"


def test_jobs() -> None:
    answer = control(story().talker("admin"), "jobs")
    assert [job["handle"] for job in answer["jobs"]] == ["H:t:5", "H:t:4", "H:t:3", "H:t:2", "H:t:1"]
    assert [job["state"] for job in answer["jobs"]] == ["waiting", "ready", "failed", "running", "done"]
    assert answer["next_before_id"] is None


def test_job() -> None:
    admin = story().talker("admin")
    waiting = control(admin, "job", handle="H:t:5")
    assert waiting["payload"] == "five"
    assert waiting["predecessors"] == ["H:t:4"]
    assert waiting["run_at"] == NOW + 9
    assert control(admin, "job", handle="H:t:4")["payload"] == {"base64": "/w=="}
    assert control(admin, "job", handle="H:t:1")["result"] == "done"
    dead = control(admin, "job", handle="H:t:3")
    assert dead["dead"] is True
    assert [entry["cause"] for entry in dead["log"]] == ["submitted", "taken", "exhausted"]


def test_cancel_alone_and_with_all_that_wait() -> None:
    harness = story()
    admin = harness.talker("admin")
    assert control(admin, "cancel", handle="H:t:4", cascade=True) == {"cancelled": ["H:t:4", "H:t:5"]}
    assert control(admin, "cancel", handle="H:t:4") == "JOB_NOT_FOUND"
    assert control(admin, "cancel", handle="H:t:2") == {"cancelled": ["H:t:2"]}
    found = kept_job(harness.store, 2)
    assert found is not None
    assert found.state is CANCELLED


def test_retry_one_and_all_that_are_dead() -> None:
    harness = story()
    admin = harness.talker("admin")
    assert control(admin, "retry", handle="H:t:1") == "INVALID_ARGUMENT"
    assert control(admin, "retry") == "INVALID_ARGUMENT"
    assert control(admin, "retry", all_dead=True)["retried"] == ["H:t:3"]
    assert harness.engine.jobs[3].state is READY
    assert control(admin, "retry", handle="H:t:3") == "INVALID_ARGUMENT"


def test_a_number_is_a_handle() -> None:
    """Logs and lists name jobs by their numbers."""
    admin = story().talker("admin")
    assert control(admin, "job", handle="1")["handle"] == "H:t:1"
    assert control(admin, "job", handle=1)["handle"] == "H:t:1"
    assert control(admin, "explain", handle="3")["handle"] == "H:t:3"
    assert control(admin, "retry", handle="3") == {"retried": ["H:t:3"]}
    assert control(admin, "cancel", handle="3") == {"cancelled": ["H:t:3"]}


@pytest.mark.parametrize("handle", ["999", "0", "-1", "01", "+1", "1.0", "\u0661", "1" * 5000, "", True, [1]], ids=repr)
def test_numbers_that_are_none(handle: object) -> None:
    assert control(story().talker("admin"), "job", handle=handle) == "JOB_NOT_FOUND"


def test_pause_and_resume() -> None:
    harness = story()
    admin, worker = harness.talker("admin"), harness.talker("worker")
    assert control(admin, "pause", function="f") == {"function": "f", "paused": True}
    worker.send(request(Kind.GRAB_JOB), request(Kind.PRE_SLEEP))
    assert worker.heard() == [Heard(Kind.NO_JOB, b"")]
    assert control(admin, "resume", function="f") == {"function": "f", "paused": False}
    assert worker.heard() == [Heard(Kind.NOOP, b"")]


@pytest.mark.parametrize(
    ("verb", "arguments", "waits"),
    [
        ("cancel", {"handle": "H:t:4"}, True),
        ("retry", {"handle": "H:t:3"}, True),
        ("pause", {"function": "f"}, True),
        ("resume", {"function": "f"}, True),
        ("jobs", {}, False),
        ("cancel", {"handle": "H:t:99"}, False),
    ],
)
def test_what_changed_is_kept_before_it_is_answered(verb: str, arguments: dict[str, str], waits: bool) -> None:
    harness = story()
    harness.is_durable = harness.engine.reports_changes = harness.engine.is_durable = True
    session = harness.talker("operator").session
    session.receive(request(Packet.CONTROL, verb.encode(), json.dumps(arguments).encode()))
    assert session.out
    assert session.awaits_commit == waits


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        (b"nonsense", b"{}", "INVALID_ARGUMENT"),
        (b"\xff\0", b"{}", "INVALID_ARGUMENT"),
        (b"__init__", b"{}", "INVALID_ARGUMENT"),
        (b"server", b"{", "INVALID_ARGUMENT"),
        (b"server", b"[]", "INVALID_ARGUMENT"),
        (b"server", b"null", "INVALID_ARGUMENT"),
        (b"server", b'{"\xff": 1}', "INVALID_ARGUMENT"),
        (b"server", b'{"x": "\xff"}', "INVALID_ARGUMENT"),
        (b"server", b'{"x": ' + b"[" * 9_000, "INVALID_ARGUMENT"),
        (b"server", b'{"x": ' + b'{"x":' * 1_900, "INVALID_ARGUMENT"),
        (b"server", b'{"x": 1}', "INVALID_ARGUMENT"),
        (b"server", b'{"self": 1}', "INVALID_ARGUMENT"),
        (b"job", b"{}", "INVALID_ARGUMENT"),
        (b"job", b'{"handle": null}', "INVALID_ARGUMENT"),
        (b"job", b'{"handle": "H:t:99"}', "JOB_NOT_FOUND"),
        (b"job", b'{"handle": "H:t:9999999999999999999"}', "JOB_NOT_FOUND"),
        (b"job", b'{"handle": "\\ud800"}', "INVALID_ARGUMENT"),
        (b"job", b'{"handle": ["H:t:1"]}', "JOB_NOT_FOUND"),
        (b"job", b'{"handle": "other"}', "JOB_NOT_FOUND"),
        (b"states", b"{}", "INVALID_ARGUMENT"),
        (b"states", b'{"handles": "H:t:1"}', "INVALID_ARGUMENT"),
        (b"states", b'{"handles": ["\\ud800"]}', "INVALID_ARGUMENT"),
        (b"unschedule", b'{"name": "nobody"}', "NOT_FOUND"),
        (b"run_schedule", b'{"name": "nobody"}', "NOT_FOUND"),
        (b"pause", b'{"function": "%b"}' % (b"n" * 65), "ARGUMENT_TOO_LARGE"),
        (b"pause", b'{"function": 5}', "INVALID_ARGUMENT"),
        (b"jobs", b'{"function": 5}', "INVALID_ARGUMENT"),
    ],
)
def test_bad_requests_are_answered(verb: bytes, arguments: bytes, code: str) -> None:
    harness = story()
    admin = harness.talker("admin")
    admin.send(request(Packet.CONTROL, verb, arguments))
    (error,) = admin.heard()
    assert isinstance(error, Heard)
    assert error.type == Kind.ERROR
    assert error.body.split(b"\0")[0].decode() == code
    assert len(harness.engine.functions) == 2


def test_the_states_of_several_jobs() -> None:
    harness = Harness()
    client = harness.talker("client")
    submit(client, {})
    submit(client, {"run_at": NOW + 60})
    client.heard()
    answer = control(client, "states", handles=["H:t:2", "H:t:1", "H:other:1", 5])
    assert answer["states"] == ["scheduled", "ready", "unknown", "unknown"]
    assert answer["counts"] == {"scheduled": 1, "ready": 1, "unknown": 2}


def test_a_refusal_names_jobs_by_their_handles() -> None:
    harness = Harness()
    client = harness.talker("client")
    options = b'{"after":["H:t:1"],"on_failure":"fail"}'
    client.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", b"{}", b""))
    client.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"", options, b""))
    client.send(request(Packet.CONTROL, b"cancel", b'{"handle":"H:t:1"}'))
    client.heard()
    client.send(request(Packet.CONTROL, b"retry", b'{"handle":"H:t:2"}'))
    (error,) = client.heard()
    assert isinstance(error, Heard)
    text = b"H:t:2 would fail at once, because H:t:1, which it waits for, was cancelled; retry H:t:1 first"
    assert (error.type, error.body) == (Kind.ERROR, b"INVALID_ARGUMENT\0" + text)


def test_a_store_that_cannot_be_read_is_told_of() -> None:
    harness = story()
    harness.store = UnreadableStore()
    assert control(harness.talker("admin"), "job", handle="H:t:1") == "QUEUE_ERROR"
