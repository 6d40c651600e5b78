"""`http.redact`: payloads and results that are hidden in answers, and from whom."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest

from switchgear.access.access_file import HASH_PREFIX, AccessEntry, AccessList
from switchgear.access.identities import Identities, ListenerAccess
from switchgear.access.tokens import digest_of
from switchgear.protocols.http.redaction import MARK, MOST_SEARCHED_BYTES, Redaction
from switchgear.protocols.http.routes import ROUTES
from switchgear.protocols.http.routing import Route
from switchgear.verbs.access import Role
from switchgear.verbs.table import VERBS
from tests.protocols.http.harness import HttpHarness
from tests.protocols.http.test_submitting import finish, submit, take

SECRET = json.dumps({"user": "ann", "login": [{"Password": "s3cret"}]})
SHOWN = {"user": "ann", "login": [{"Password": MARK}]}


def harness_with(*rules: str) -> HttpHarness:
    harness = HttpHarness()
    harness.setup.use_redaction(rules)
    return harness


def done_job(harness: HttpHarness, payload: str = SECRET, result: str = SECRET) -> None:
    submit(harness, payload=payload)
    taken = take(harness)
    assert taken.body == payload.encode(), "a worker gets the whole payload"
    finish(harness, taken, result.encode())
    harness.heard("worker")


def identified(harness: HttpHarness, **roles: frozenset[Role]) -> None:
    """From now on, tokens with these names have these roles."""
    entries = {
        name: AccessEntry(name, given, tokens=(HASH_PREFIX + digest_of(name.encode()).hex(),))
        for name, given in roles.items()
    }
    anonymous = AccessEntry("anonymous", frozenset({Role.ADMIN}))
    harness.access = ListenerAccess(Identities(access=AccessList(anonymous, entries)))


def token(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


# --- what is hidden ---


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", b""),
        (b"12", b"12"),
        (b'{"a": 1}', b'{"a": 1}'),  # as it was, with its spaces
        (b'{"password": {"a": 1}}', b'{"password":"[redacted]"}'),
        (b'[[{"PASSWORD": 1}], {"a": {"token": null}}]', b'[[{"PASSWORD":"[redacted]"}],{"a":{"token":"[redacted]"}}]'),
        (b'{"password": 1, "password": 2}', b'{"password":"[redacted]"}'),
        (b'{"pass\\u0077ord": 1}', b'{"password":"[redacted]"}'),
        (b'{"password": 1} trailing', None),
        (b"password=s3cret", None),
        (b"\x00\xff", None),
        (b"\xef\xbb\xbf{}", None),
        (b"[" * 50_000, None),
        (b"[" * 900 + b"]" * 900, b"[" * 900 + b"]" * 900),
        (b'{"password": 1, "n": 1' + b"0" * 400 + b"}", b'{"password":"[redacted]","n":1' + b"0" * 400 + b"}"),
        (b'{"password": 1, "n": 1' + b"0" * 5000 + b"}", None),
        (b'{"a": {"password": 1}, "a": 2}', b'{"a":2}'),  # readers differ about which one they take
        ('{"password": 1, "name": "Zoë"}'.encode(), '{"password":"[redacted]","name":"Zoë"}'.encode()),
        (b'{"password": 1, "name": "\\ud800"}', None),
        (b'"' + b"x" * MOST_SEARCHED_BYTES + b'"', None),
    ],
)
def test_fields(data: bytes, shown: bytes | None) -> None:
    redaction = Redaction(["f*:password", "f:token"])
    assert redaction.redacted(b"f", data) == shown
    assert redaction.redacted(b"g", data) == data


def test_globs() -> None:
    redaction = Redaction(["pay.*", "a?b"])
    for function in (b"pay.roll", b"pay.", b"a:b", b"a\xffb"):
        assert redaction.redacted(function, b"{}") is None, function
        assert redaction.redacted(function, b"") == b""
    for function in (b"pay", b"PAY.roll", b"xpay.roll", b""):
        assert redaction.redacted(function, b"{}") == b"{}", function


def test_names_of_functions_do_not_pile_up() -> None:
    redaction = Redaction(["f*"])
    for number in range(2_500):
        assert redaction.concerns(b"f%d" % number)
    assert len(redaction._by_function) <= 1_000


# --- answers ---


def test_fields_in_every_answer() -> None:
    harness = harness_with("*:password")
    done_job(harness)
    job = harness.ask("c", "GET", "/v1/jobs/H:t:1?contents=yes").json
    assert json.loads(job["payload"]) == json.loads(job["result"]) == SHOWN
    assert job["redacted"] is True
    assert job["payload_bytes"] == len(SECRET)
    for part in ("payload", "result"):
        answer = harness.ask("c", "GET", f"/v1/jobs/H:t:1/{part}")
        assert (answer.status, answer.json, answer.headers["switchgear-redacted"]) == (200, SHOWN, "yes")
    by_verb = harness.ask("c", "POST", "/v1/verbs/job", {"handle": "H:t:1"}).json
    assert json.loads(by_verb["payload"]) == json.loads(by_verb["result"]) == SHOWN


def test_whole_payloads_in_every_answer() -> None:
    harness = harness_with("f")
    done_job(harness, "s3cret", "s3cret")
    job = harness.ask("c", "GET", "/v1/jobs/H:t:1?contents=yes").json
    assert (job["payload"], job["result"], job["redacted"]) == (MARK, MARK, True)
    for target in ("payload", "result", "result?wait=1"):
        answer = harness.ask("c", "GET", f"/v1/jobs/H:t:1/{target}")
        assert (answer.status, answer.code) == (403, "redacted")
        assert b"s3cret" not in answer.body


def test_a_result_that_is_waited_for_is_hidden_too() -> None:
    harness = harness_with("f")
    submit(harness)
    harness.send("c", "GET", "/v1/jobs/H:t:1/result?wait=9")
    finish(harness, take(harness), b"s3cret")
    (answer,) = harness.heard("c")
    assert (answer.status, answer.code) == (403, "redacted")


@pytest.mark.parametrize("rule", ["f", "f:password"])
def test_parts_of_a_result_in_a_stream_of_events(rule: str) -> None:
    harness = harness_with(rule)
    submit(harness)
    taken = take(harness)
    harness.send("c", "GET", "/v1/jobs/H:t:1/events")
    job = harness.engine.jobs[1]
    harness.connections["c"].session.job_data(job, b"12345")
    harness.connections["c"].session.job_warning(job, b"hot")
    harness.turn()
    finish(harness, taken, b"")
    heard = harness.connections["c"].heard_raw()
    assert b"12345" not in heard
    assert MARK.encode() in heard
    assert b"hot" in heard


def test_schedules() -> None:
    harness = harness_with("f:password")
    wanted = {"function": "f", "every_seconds": 60, "payload": SECRET}
    answers = [
        harness.ask("c", "PUT", "/v1/schedules/s", wanted).json,
        harness.ask("c", "GET", "/v1/schedules/s").json,
        *harness.ask("c", "GET", "/v1/schedules").json,
        harness.ask("c", "POST", "/v1/verbs/pause_schedule", {"name": "s"}).json,
    ]
    for answer in answers:
        assert (json.loads(answer["payload"]), answer["redacted"]) == (SHOWN, True)
    assert harness.engine.schedules[b"s"].payload == SECRET.encode()


def test_nothing_is_said_of_what_is_not_hidden() -> None:
    harness = harness_with("g", "f:token")
    done_job(harness)
    job = harness.ask("c", "GET", "/v1/jobs/H:t:1?contents=yes").json
    assert (job["payload"], job["result"], "redacted" in job) == (SECRET, SECRET, False)
    assert "switchgear-redacted" not in harness.ask("c", "GET", "/v1/jobs/H:t:1/payload").headers


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/v1/jobs?q=s3", None),
        ("GET", "/v1/jobs?q=s3&function=f", None),
        ("POST", "/v1/verbs/jobs", {"contains": "s3"}),
        ("POST", "/v1/verbs/bulk", {"action": "cancel", "contains": "s3", "dry_run": True}),
    ],
)
def test_hidden_payloads_cannot_be_guessed_by_a_search(method: str, target: str, body: Any) -> None:
    harness = harness_with("f")
    submit(harness, payload=SECRET)
    answer = harness.ask("c", method, target, body)
    assert (answer.status, answer.code) == (403, "redacted")


def test_other_payloads_can_be_searched() -> None:
    harness = harness_with("f")
    submit(harness, function="g", payload=SECRET)
    assert len(harness.ask("c", "GET", "/v1/jobs?q=s3&function=g").json["jobs"]) == 1
    assert len(harness.ask("c", "GET", "/v1/jobs?function=f").json["jobs"]) == 0


@pytest.mark.parametrize("route", [route for route in ROUTES if route.method == "GET"], ids=lambda route: route.path)
def test_answers_without_contents_are_as_before(route: Route) -> None:
    bodies: list[bytes] = []
    for rules in ((), ("nobody",)):
        harness = harness_with(*rules)
        done_job(harness)
        target = route.path.replace("{handle}", "1").replace("{function}", "f")
        harness.send("c", "GET", target)
        bodies.append(harness.connections["c"].heard_raw())
    assert bodies[0] == bodies[1] != b""


def test_contents_are_where_they_are_looked_for() -> None:
    """Only rows of jobs and schedules have contents: alone, or as a list."""
    for verb in VERBS.values():
        text = str(verb.answer)
        fields = get_type_hints(verb.answer) if isinstance(verb.answer, type) and verb.answer is not list else {}
        if {"payload", "result"} & fields.keys():
            assert "function" in fields, verb.name
        for name, kind in fields.items():
            assert "JobAnswer" not in str(kind), (verb.name, name, text)
            assert "ScheduleAnswer" not in str(kind), (verb.name, name, text)


# --- who sees them ---


def test_only_administrators_with_an_identity_see_contents() -> None:
    harness = harness_with("f")
    done_job(harness)
    identified(harness, root=frozenset({Role.ADMIN}), ops=frozenset({Role.OPERATE}))
    target = "/v1/jobs/H:t:1/payload"
    assert harness.ask("new", "GET", target, headers=token("root")).body == SECRET.encode()
    assert harness.ask("new", "GET", "/v1/jobs?q=s3", headers=token("root")).status == 200
    assert harness.ask("new", "GET", target, headers=token("ops")).code == "redacted"
    assert harness.ask("new", "GET", target).code == "redacted", "of whoever may do everything, unidentified"
    assert harness.ask("new", "GET", target, headers=token("root")).status == 200


def test_submitters_get_the_results_of_their_jobs() -> None:
    harness = harness_with("f")
    body = {"function": "f", "payload": SECRET}
    harness.send("c", "POST", "/v1/jobs", json.dumps(body).encode(), {"Prefer": "wait=9"})
    harness.send("raw", "POST", "/v1/functions/f/jobs", SECRET.encode(), {"Prefer": "wait=9"})
    for _ in range(2):
        finish(harness, take(harness), b"s3cret")
        harness.heard("worker")
    (answer,) = harness.heard("c")
    assert (answer.json["payload"], answer.json["result"]) == (MARK, "s3cret")
    (answer,) = harness.heard("raw")
    assert answer.body == b"s3cret"

    identified(harness, app=frozenset({Role.SUBMIT}), viewer=frozenset({Role.READ}))
    wanted = {"jobs": [{"handle": "H:t:1"}]}
    results = {
        name: harness.ask("new", "POST", "/v1/jobs/wait", wanted, token(name)).json["jobs"][0]["result"]
        for name in ("app", "viewer")
    }
    assert results == {"app": "s3cret", "viewer": MARK}


def test_without_rules_nothing_is_made() -> None:
    harness = harness_with()
    assert harness.setup.redaction is None
    done_job(harness)
    assert harness.ask("c", "GET", "/v1/jobs/H:t:1/result").body == SECRET.encode()
