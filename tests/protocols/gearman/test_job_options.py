"""The later options of SUBMIT_JOB_OPTIONS: what each means for the job, and what makes no sense."""

from __future__ import annotations

import json

import pytest

from switchgear.model import EdgePolicy, Job, UniqueScope
from switchgear.protocols.gearman import submit_and_control
from switchgear.protocols.gearman.messages import Packet
from tests.protocols.gearman.harness import NAME_BYTES, Harness, Talker
from tests.support.wire import Kind, request
from tests.support.wire import Packet as Heard


def submit(talker: Talker, options: object, payload: bytes = b"x", unique: bytes = b"", function: bytes = b"f") -> None:
    text = options if isinstance(options, bytes) else json.dumps(options).encode()
    talker.send(request(Packet.SUBMIT_JOB_OPTIONS, function, unique, text, payload))


def submitted(options: object, unique: bytes = b"") -> tuple[Harness, Job]:
    """A harness with two jobs, the second of them submitted with these options."""
    harness = Harness()
    client = harness.talker("client")
    submit(client, {}, function=b"g")
    submit(client, options, unique=unique)
    assert client.heard() == [created(1), created(2)]
    return harness, harness.engine.jobs[2]


def created(job_id: int) -> Heard:
    return Heard(Kind.JOB_CREATED, b"H:t:%d" % job_id)


def run_next(harness: Harness, *report: bytes, kind: int = Kind.WORK_COMPLETE, function: bytes = b"f") -> None:
    """A worker takes a job of the function, and ends it."""
    worker = harness.talker("worker")
    worker.send(request(Kind.RESET_ABILITIES), request(Kind.CAN_DO, function), request(Kind.GRAB_JOB))
    (job,) = worker.heard()
    assert isinstance(job, Heard)
    assert job.type == Kind.JOB_ASSIGN
    worker.send(request(kind, job.body.split(b"\0")[0], *report))


# --- the same again ---


def test_jobs_with_the_same_options_share_what_was_read_of_them() -> None:
    harness = Harness()
    client = harness.talker("client")
    for _ in range(3):
        submit(client, {"attempts": 3, "crashes": 2, "timeout": 1.5, "retention": 9, "priority": "high"})
    submit(client, {"attempts": 4})
    first, second, third, other = harness.engine.jobs.values()
    assert first.details is second.details is third.details
    assert other.details is not first.details
    assert {(job.attempts_limit, job.crash_limit, job.timeout_us, job.retention_us) for job in (first, third)} == {
        (3, 2, 1_500_000, 9_000_000)
    }
    assert [job.priority for job in (first, third, other)] == [first.priority, first.priority, 1]
    first.message = b"its own"
    assert (first.attempts_limit, second.message) == (3, b"")


@pytest.mark.parametrize(
    "options", [{"run_at": 2**33}, {"expires_at": 2**33}, {"name": "n"}, {"key": "k"}, {"reducer": "r"}, {"after": []}]
)
def test_what_is_a_jobs_own_is_not_shared(options: dict[str, object]) -> None:
    harness = Harness()
    client = harness.talker("client")
    if "after" in options:
        submit(client, {}, function=b"g")
        options = {"after": ["H:t:1"], "attempts": 1}
    submit(client, options)
    options = options | ({"name": "m"} if "name" in options else {})
    submit(client, options)
    one, other = list(harness.engine.jobs.values())[-2:]
    assert one.details is not other.details


def test_a_mistake_is_told_each_time() -> None:
    client = Harness().talker("client")
    for _ in range(2):
        submit(client, {"attempts": 1, "priority": "none"})
        submit(client, {"unique_policy": "reject"})
        errors = client.heard()
        assert [error.type for error in errors if isinstance(error, Heard)] == [Kind.ERROR] * 2


def test_no_more_than_so_many_options_are_remembered_and_none_that_are_long() -> None:
    client = Harness().talker("client")
    for number in range(2 * submit_and_control.MOST_REMEMBERED):
        submit(client, {"attempts": number})
    before = dict(submit_and_control._remembered)
    assert 0 < len(before) <= submit_and_control.MOST_REMEMBERED
    submit(client, b'{"attempts": 7%s}' % (b" " * submit_and_control.LONGEST_REMEMBERED_BYTES))
    assert submit_and_control._remembered == before


# --- what they mean ---


def test_a_key() -> None:
    _, job = submitted({"key": "tenant ☺"})
    assert job.key == "tenant ☺".encode()


@pytest.mark.parametrize(("sent", "limit"), [(0, 0), (3, 3), (-1, -1), (-9, -1), (10**30, 1_000_000)])
def test_crashes_stay_within_reason(sent: int, limit: int) -> None:
    _, job = submitted({"crashes": sent})
    assert job.crash_limit == limit


@pytest.mark.parametrize(("sent", "kept_us"), [(0, 0), (1.5, 1_500_000), (None, -1)])
def test_retention(sent: float | None, kept_us: int) -> None:
    _, job = submitted({"retention": sent})
    assert job.retention_us == kept_us


@pytest.mark.parametrize("word", ["wait", "skip", "fail", "run"])
def test_one_word_for_all_predecessors(word: str) -> None:
    _, job = submitted({"after": ["H:t:1"], "on_failure": word})
    assert job.state.name == "WAITING"
    assert list(job.edges or bytes(1)) == [EdgePolicy[word.upper()]]


def test_a_word_for_each_predecessor() -> None:
    harness = Harness()
    client = harness.talker("client")
    for _ in range(3):
        submit(client, {})
    submit(client, {"after": ["H:t:3", "H:t:1", "H:t:2"], "on_failure": ["run", "wait", "fail"]})
    job = harness.engine.jobs[4]
    assert job.predecessors == (3, 1, 2)
    assert list(job.edges) == [EdgePolicy.RUN, EdgePolicy.WAIT, EdgePolicy.FAIL]


def test_a_word_without_predecessors_means_nothing() -> None:
    _, job = submitted({"on_failure": "fail"})
    assert (job.predecessors, job.edges) == ((), b"")


def test_the_same_predecessor_twice_is_one() -> None:
    _, job = submitted({"after": ["H:t:1", "H:t:1"], "on_failure": ["fail", "fail"]})
    assert (job.predecessors, list(job.edges)) == ((1,), [EdgePolicy.FAIL])


def test_a_scope() -> None:
    harness, job = submitted({"unique_scope": "queued"}, unique=b"key")
    assert job.unique_scope == UniqueScope.QUEUED
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))
    submit(harness.talker("client"), {}, unique=b"key")
    assert harness.talker("client").heard() == [created(3)]


@pytest.mark.parametrize(("policy", "job_id"), [("join", 2), ("replace", 3)])
def test_a_policy(policy: str, job_id: int) -> None:
    harness, _ = submitted({}, unique=b"key")
    submit(harness.talker("client"), {"unique_policy": policy}, unique=b"key")
    assert harness.talker("client").heard() == [created(job_id)]


def test_a_policy_that_refuses() -> None:
    harness, _ = submitted({}, unique=b"key")
    submit(harness.talker("client"), {"unique_policy": "reject"}, unique=b"key")
    text = b'ALREADY_SUBMITTED\0H:t:2, which is ready, has the unique key "key"'
    assert harness.talker("client").heard() == [Heard(Kind.ERROR, text)]


# --- keys that outlive their job ---


@pytest.mark.parametrize(
    ("options", "news"),
    [
        ({}, []),
        ({"watch": True}, [Heard(Kind.WORK_COMPLETE, b"H:t:2\0result")]),
        ({"wait": True}, [Heard(Kind.WORK_COMPLETE, b"H:t:2\0result")]),
    ],
    ids=["plain", "watch", "wait"],
)
def test_a_key_that_is_held_gives_the_result_again(options: dict[str, object], news: list[Heard]) -> None:
    harness, job = submitted({"unique_seconds": 60}, unique=b"key")
    run_next(harness, b"result")
    assert job.id not in harness.engine.jobs
    client = harness.talker("client")
    submit(client, options, unique=b"key")
    assert client.heard() == [created(2), *news]
    assert not client.session.subscriptions
    harness.pass_time(60)
    submit(client, options, unique=b"key")
    assert client.heard() == [created(3)]


def test_a_plain_submission_that_waits_gets_it_too() -> None:
    harness, _ = submitted({"unique_seconds": 60}, unique=b"key")
    run_next(harness, b"why", kind=Kind.WORK_EXCEPTION)
    client = harness.talker("client")
    client.send(request(Kind.SUBMIT_JOB, b"f", b"key", b"x"), request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x"))
    assert client.heard() == [created(2), Heard(Kind.WORK_FAIL, b"H:t:2"), created(2)]


def test_the_status_by_key_is_that_of_an_unfinished_job() -> None:
    harness, _ = submitted({"unique_seconds": 60}, unique=b"key")
    client = harness.talker("client")
    client.send(request(Kind.GET_STATUS_UNIQUE, b"key"))
    assert client.heard() == [Heard(Kind.STATUS_RES_UNIQUE, b"key\x001\x000\x000\x000\x000")]
    run_next(harness, b"result")
    client.send(request(Kind.GET_STATUS_UNIQUE, b"key"))
    assert client.heard() == [Heard(Kind.STATUS_RES_UNIQUE, b"key\x000\x000\x000\x000\x000")]
    submit(client, {}, function=b"g", unique=b"key")
    client.send(request(Kind.GET_STATUS_UNIQUE, b"key"))
    assert client.heard() == [created(3), Heard(Kind.STATUS_RES_UNIQUE, b"key\x001\x000\x000\x000\x000")]


# --- what makes no sense ---


@pytest.mark.parametrize(
    ("options", "unique", "code", "text"),
    [
        ({"watch": "yes"}, b"", "INVALID_ARGUMENT", "options: Expected `bool`, got `str` - at `$.watch`"),
        ({"wait": True, "watch": True}, b"", "INVALID_ARGUMENT", "options: wait is for foreground jobs and watch"),
        ({"crashes": "3"}, b"", "INVALID_ARGUMENT", "options: Expected `int`, got `str` - at `$.crashes`"),
        ({"key": "k" * (NAME_BYTES + 1)}, b"", "ARGUMENT_TOO_LARGE", "options: key has at most 64 bytes"),
        ({"key": "\0"}, b"", "INVALID_ARGUMENT", "options: key has a NUL"),
        ({"on_failure": "cry"}, b"", "INVALID_ARGUMENT", "options: on_failure is one of wait, skip, fail, run"),
        (
            {"on_failure": ["fail"]},
            b"",
            "INVALID_ARGUMENT",
            "options: on_failure is one word, or one for each handle of after: 0, not 1",
        ),
        (
            {"after": ["H:t:1"], "on_failure": ["run", "fail"]},
            b"",
            "INVALID_ARGUMENT",
            "options: on_failure is one word, or one for each handle of after: 1, not 2",
        ),
        (
            {"after": ["H:t:1", "H:t:1"], "on_failure": ["run", "fail"]},
            b"",
            "INVALID_ARGUMENT",
            "options: after has H:t:1 twice, with different words of on_failure",
        ),
        ({"unique_scope": "ever"}, b"k", "INVALID_ARGUMENT", "options: unique_scope is one of unfinished, queued"),
        (
            {"unique_policy": "fight"},
            b"k",
            "INVALID_ARGUMENT",
            "options: unique_policy is one of join, reject, replace",
        ),
        ({"unique_seconds": -1}, b"k", "INVALID_ARGUMENT", "options: unique_seconds is out of range"),
        (
            {"unique_seconds": 30 * 86400 + 1},
            b"k",
            "INVALID_ARGUMENT",
            "options: unique_seconds is at most 2592000, which",
        ),
        (
            {"unique_seconds": 5},
            b"",
            "INVALID_ARGUMENT",
            "options: unique_seconds needs a unique key",
        ),
        ({"unique_policy": "reject"}, b"", "INVALID_ARGUMENT", "options: unique_policy needs a unique key"),
        ({"unique_scope": "queued"}, b"", "INVALID_ARGUMENT", "options: unique_scope needs a unique key"),
        ({"retention": -1}, b"", "INVALID_ARGUMENT", "options: retention is out of range"),
        ({"retention": 1e30}, b"", "INVALID_ARGUMENT", "options: retention is out of range"),
        ({"retain": 1}, b"", "INVALID_ARGUMENT", "options: Object contains unknown field `retain`"),
    ],
    ids=str,
)
def test_bad_options(options: object, unique: bytes, code: str, text: str) -> None:
    harness = Harness()
    client = harness.talker("client")
    submit(client, {})
    client.heard()
    submit(client, options, unique=unique)
    (error,) = client.heard()
    assert isinstance(error, Heard)
    assert error.type == Kind.ERROR
    assert error.body.startswith(f"{code}\0{text}".encode()), error
    assert harness.bad_input == [("client", code)]
    assert list(harness.engine.jobs) == [1]
