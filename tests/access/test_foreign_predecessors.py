"""An identity that is restricted to functions learns nothing about jobs of others by letting its jobs wait for them.

Handles contain consecutive numbers, so whoever can submit can name any job. A job that waits for a failed one ends with
its error.
"""

import json
from typing import Any

import pytest

from switchgear.access.permissions import Permissions
from switchgear.protocols.gearman.messages import Packet
from switchgear.verbs.access import Role
from tests.access.test_every_verb import http_access
from tests.protocols.gearman.harness import Harness as GearmanHarness
from tests.protocols.http.harness import Answer, HttpHarness
from tests.support.wire import request

TOKEN = {"Authorization": "Bearer token"}


def restricted(role: Role = Role.SUBMIT) -> HttpHarness:
    """Jobs of `payroll`, ready (1), failed (2) and done (3), and of `mail`, ready (4) and failed (5), for an
    identity that may use `mail` only."""
    harness = HttpHarness()
    for function in ("payroll", "payroll", "payroll", "mail", "mail"):
        harness.ask("admin", "POST", "/v1/jobs", {"function": function, "priority": "normal", "label": "secret label"})
    engine = harness.engine
    for job_id in (2, 5):
        engine.change(engine.jobs[job_id], priority=0)
    for function, error in (("payroll", "secret error"), ("mail", "no such box")):
        answer = harness.ask("admin", "POST", f"/v1/functions/{function}/take")
        headers = {"Switchgear-Attempt": answer.headers["switchgear-attempt"]}
        path = f"/v1/jobs/{answer.headers['switchgear-job']}"
        assert harness.ask("admin", "POST", f"{path}/fail", {"error": error}, headers).status == 204
    engine.complete_without_run(engine.jobs[3], b"")
    harness.turn()
    harness.access = http_access(role, "mail*")
    return harness


def submit(harness: HttpHarness, *after: str, **fields: Any) -> Answer:
    body = {"function": "mail", "after": list(after), **fields}
    return harness.ask("peer", "POST", "/v1/jobs", body, TOKEN)


@pytest.mark.parametrize("handle", ["H:t:1", "H:t:2"])
@pytest.mark.parametrize("policy", ["fail", "skip", "run", "error"])
def test_a_job_cannot_wait_for_a_job_of_another_function(handle: str, policy: str) -> None:
    harness = restricted()
    answer = submit(harness, handle, on_failure=policy)
    assert (answer.status, answer.code) == (403, "not_allowed")
    assert b"payroll" not in answer.body
    assert b"secret" not in answer.body
    query = f"/v1/functions/mail/jobs?after={handle}"
    assert harness.ask("peer", "POST", query, b"", TOKEN).status == 403
    assert harness.engine.job_count() == 2


@pytest.mark.parametrize("handle", ["H:t:4", "H:t:5"])
def test_it_can_wait_for_jobs_of_functions_that_the_identity_may_use(handle: str) -> None:
    assert submit(restricted(), handle).status == 201


@pytest.mark.parametrize("query", ["", "?atomic=1"])
def test_neither_can_the_lines_of_a_batch(query: str) -> None:
    harness = restricted()
    lines = b'{"function": "mail"}\n{"function": "mail", "after": ["H:t:2"]}\n'
    answer = harness.ask("peer", "POST", f"/v1/jobs/batch{query}", lines, TOKEN)
    assert answer.lines[-1]["line"] == 2
    assert answer.lines[-1]["problem"]["code"] == "not_allowed"
    assert harness.engine.job_count() == (2 if query else 3)


def test_nor_can_a_line_of_an_atomic_batch_with_very_many_predecessors() -> None:
    harness = restricted()
    line = json.dumps({"function": "mail", "after": ["H:t:4"] * 300 + ["H:t:2"]}).encode()
    answer = harness.ask("peer", "POST", "/v1/jobs/batch?atomic=1", line, TOKEN)
    assert answer.lines[-1]["problem"]["code"] == "not_allowed"
    assert harness.engine.job_count() == 2


@pytest.mark.parametrize("verb", ["wait_for", "spawn"])
def test_nor_can_a_job_that_exists(verb: str) -> None:
    harness = restricted()
    other = "jobs" if verb == "spawn" else "after"
    for handle in ("H:t:1", "H:t:2", "H:t:3"):
        answer = harness.ask("peer", "POST", f"/v1/verbs/{verb}", {"handle": "H:t:4", other: [handle]}, TOKEN)
        assert (answer.status, answer.code) == (403, "not_allowed"), handle


@pytest.mark.parametrize("verb", ["wait_for", "spawn"])
def test_a_job_that_exists_can_wait_for_those_that_the_identity_may_use(verb: str) -> None:
    other = "jobs" if verb == "spawn" else "after"
    answer = restricted().ask("peer", "POST", f"/v1/verbs/{verb}", {"handle": "H:t:4", other: ["H:t:5"]}, TOKEN)
    assert answer.status == 200, answer


def test_nor_over_gearman() -> None:
    harness = GearmanHarness()
    harness.engine.submit(b"payroll", b"", b"", 1, 1)
    peer = harness.talker("peer")
    peer.session.identify(Permissions("somebody", [Role.SUBMIT], ["mail*"]))
    peer.send(request(Packet.SUBMIT_JOB_OPTIONS, b"mail", b"", b'{"after": ["H:t:1"]}', b""))
    assert b"NOT_ALLOWED" in peer.take_bytes()
    assert harness.engine.job_count() == 1


def test_explain_names_no_label_of_a_job_of_another_function() -> None:
    harness = restricted(Role.READ)
    harness.access = http_access(Role.ADMIN)
    assert submit(harness, "H:t:1").status == 201
    answer = harness.ask("peer", "GET", "/v1/jobs/6/explain", None, TOKEN)
    assert "secret label" in answer.json["reasons"][0]["text"]
    harness.leave("peer")
    harness.access = http_access(Role.READ, "mail*")
    answer = harness.ask("peer", "GET", "/v1/jobs/6/explain", None, TOKEN)
    assert answer.json["reasons"][0]["text"] == "waits for H:t:1"
    assert answer.json["reasons"][0]["data"] == {"handle": "H:t:1", "on_failure": "wait"}


@pytest.mark.parametrize("target", ["", "/explain", "/payload", "/graph", "/attempts", "/events"])
@pytest.mark.parametrize("handle", ["1", "2", "3"])
def test_a_refusal_does_not_name_the_function_of_a_job(target: str, handle: str) -> None:
    answer = restricted(Role.READ).ask("peer", "GET", f"/v1/jobs/{handle}{target}", None, TOKEN)
    assert (answer.status, answer.code) == (403, "not_allowed")
    assert b"payroll" not in answer.body
