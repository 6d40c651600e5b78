"""Every kind of hold, dropped in turn: a peer then hears of something that a crash at that moment would undo.

Each scenario lets a peer bring about a durable change while no commit is done.  What the peers concerned are told about
it must wait for the commit.  A mutant of the engine forgets one kind of hold; some scenario must notice.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.gearman.messages import Packet
from tests.protocols.gearman.harness import Harness
from tests.protocols.hold_mutants import MUTANTS, ONLY_PLAIN_SOURCES, mutated
from tests.support.wire import Kind, request

pytestmark = ONLY_PLAIN_SOURCES

SUBMIT = request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x")
ECHO = request(Kind.ECHO_REQ, b"?")
TO_WORKER = (request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))


def harness_with_job(attempts: int = 0) -> Harness:
    """A server whose store has a job, and commits only when told to from now on."""
    harness = Harness(keeps=True, settings=EngineSettings(attempts=attempts))
    harness.talker("client").send(SUBMIT)
    harness.commits_at_once = False
    return harness


def taken(harness: Harness) -> Harness:
    harness.talker("worker").send(*TO_WORKER)
    harness.keep()
    return harness


def say(harness: Harness, who: str, *packets: bytes) -> None:
    harness.talker(who).send(*packets, ECHO)


def a_submission() -> tuple[Harness, str]:
    harness = harness_with_job()
    say(harness, "other", request(Kind.SUBMIT_JOB_BG, b"f", b"", b"y"))
    return harness, "other"


def joining_a_submission_that_is_not_stored() -> tuple[Harness, str]:
    harness, _ = a_submission()
    harness.talker("first").send(request(Kind.SUBMIT_JOB_BG, b"f", b"new", b"y"))
    say(harness, "second", request(Kind.SUBMIT_JOB_BG, b"f", b"new", b"y"))
    return harness, "second"


def a_start_that_counts() -> tuple[Harness, str]:
    harness = harness_with_job(attempts=1)
    harness.talker("worker").send(*TO_WORKER)
    return harness, "worker"


def a_report(*report: bytes) -> tuple[Harness, str]:
    harness = taken(harness_with_job())
    harness.talker("worker").take_bytes()
    say(harness, "worker", *report)
    return harness, "worker"


def a_report_on_a_job_that_was_cancelled(*report: bytes) -> tuple[Harness, str]:
    """If the cancelling were lost, the job would run again after its worker was told that its report is stored."""
    harness = taken(harness_with_job())
    harness.talker("worker").take_bytes()
    harness.talker("operator").send(b"cancel job H:t:1\n")
    say(harness, "worker", *report)
    return harness, "worker"


def an_end_told_to_a_subscriber() -> tuple[Harness, str]:
    harness = harness_with_job()
    harness.talker("waiting").send(request(Kind.OPTION_REQ, b"switchgear"), request(Packet.WATCH, b"H:t:1"))
    taken(harness)
    harness.talker("waiting").take_bytes()
    harness.talker("worker").send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    return harness, "waiting"


def an_end_that_is_asked_for() -> tuple[Harness, str]:
    harness, _ = a_report(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    harness.talker("late").send(request(Packet.WATCH, b"H:t:1"))
    return harness, "late"


def a_command(*packets: bytes) -> tuple[Harness, str]:
    harness = harness_with_job()
    say(harness, "operator", *packets)
    return harness, "operator"


def a_command_that_changes_nothing() -> tuple[Harness, str]:
    harness, _ = a_command(control(b"pause", b'{"function": "f"}'))
    say(harness, "another", control(b"pause", b'{"function": "f"}'))
    return harness, "another"


def a_retry() -> tuple[Harness, str]:
    harness, _ = a_command(b"cancel job H:t:1\n")
    harness.keep()
    harness.talker("operator").take_bytes()
    say(harness, "operator", control(b"retry", b'{"handle": "H:t:1"}'))
    return harness, "operator"


def a_change_that_changes_nothing() -> tuple[Harness, str]:
    """The job has this priority already, but a crash would undo that."""
    harness, _ = a_command(control(b"change", b'{"handle": "H:t:1", "priority": "high"}'))
    say(harness, "another", control(b"change", b'{"handle": "H:t:1", "priority": "high"}'))
    return harness, "another"


def control(verb: bytes, arguments: bytes) -> bytes:
    return request(Packet.CONTROL, verb, arguments)


SCENARIOS: dict[str, Callable[[], tuple[Harness, str]]] = {
    "submit": a_submission,
    "join": joining_a_submission_that_is_not_stored,
    "start": a_start_that_counts,
    "complete": lambda: a_report(request(Kind.WORK_COMPLETE, b"H:t:1", b"done")),
    "fail": lambda: a_report(request(Kind.WORK_FAIL, b"H:t:1")),
    "retry later": lambda: a_report(request(Packet.RETRY_LATER, b"H:t:1", b"1000", b"", b"")),
    "hand back": lambda: a_report(request(Packet.HAND_BACK, b"H:t:1")),
    "complete what was cancelled": lambda: a_report_on_a_job_that_was_cancelled(
        request(Kind.WORK_COMPLETE, b"H:t:1", b"done")
    ),
    "fail what was cancelled": lambda: a_report_on_a_job_that_was_cancelled(request(Kind.WORK_FAIL, b"H:t:1")),
    "hand back what was cancelled": lambda: a_report_on_a_job_that_was_cancelled(request(Packet.HAND_BACK, b"H:t:1")),
    "end": an_end_told_to_a_subscriber,
    "asked for": an_end_that_is_asked_for,
    "cancel": lambda: a_command(b"cancel job H:t:1\n"),
    "maxqueue": lambda: a_command(b"maxqueue f 5\n"),
    "pause": lambda: a_command(control(b"pause", b'{"function": "f"}')),
    "pause what is paused": a_command_that_changes_nothing,
    "retry": a_retry,
    "change": lambda: a_command(control(b"change", b'{"handle": "H:t:1", "priority": "high"}')),
    "change to the same": a_change_that_changes_nothing,
}


def hears_too_early(name: str) -> bool:
    """Whether a peer is told of what no commit has."""
    harness, who = SCENARIOS[name]()
    return bool(harness.talker(who).take_bytes())


def test_a_report_on_a_job_whose_cancelling_is_stored_needs_no_other_change_to_be_answered() -> None:
    harness = taken(harness_with_job())
    harness.talker("operator").send(b"cancel job H:t:1\n")
    harness.keep()
    harness.talker("worker").take_bytes()
    harness.commits_at_once = True
    say(harness, "worker", request(Kind.WORK_FAIL, b"H:t:1"))
    assert harness.talker("worker").take_bytes()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_peer_hears_of_a_change_when_it_is_stored(name: str) -> None:
    harness, who = SCENARIOS[name]()
    assert not harness.talker(who).take_bytes()
    harness.keep()
    assert harness.talker(who).take_bytes()


@pytest.mark.parametrize("kind", [kind for kind in MUTANTS if kind != "a job that waits for more"])  # that is dwork's
def test_a_server_that_forgets_one_kind_of_hold_is_found_out(kind: str) -> None:
    with mutated(kind):
        assert [name for name in SCENARIOS if hears_too_early(name)], f"nobody notices: {kind}"
