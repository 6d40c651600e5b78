"""Every kind of hold, dropped in turn: a peer then hears of something that a crash at that moment would undo.

Each scenario lets a peer bring about a durable change while no commit is done.  What the peers concerned are told about
it must wait for the commit.  A mutant of the engine forgets one kind of hold; some scenario must notice.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.gearman.messages import Packet
from tests.protocols.gearman.house import House
from tests.protocols.hold_mutants import MUTANTS, ONLY_PLAIN_SOURCES, mutated
from tests.support.wire import Kind, request

pytestmark = ONLY_PLAIN_SOURCES

SUBMIT = request(Kind.SUBMIT_JOB_BG, b"f", b"key", b"x")
ECHO = request(Kind.ECHO_REQ, b"?")
TO_WORKER = (request(Kind.CAN_DO, b"f"), request(Kind.GRAB_JOB))


def house_with_job(attempts: int = 0) -> House:
    """A server whose store has a job, and commits only when told to from now on."""
    house = House(keeps=True, settings=EngineSettings(attempts=attempts))
    house.talker("client").send(SUBMIT)
    house.commits_at_once = False
    return house


def taken(house: House) -> House:
    house.talker("worker").send(*TO_WORKER)
    house.keep()
    return house


def say(house: House, who: str, *packets: bytes) -> None:
    house.talker(who).send(*packets, ECHO)


def a_submission() -> tuple[House, str]:
    house = house_with_job()
    say(house, "other", request(Kind.SUBMIT_JOB_BG, b"f", b"", b"y"))
    return house, "other"


def joining_a_submission_that_is_not_stored() -> tuple[House, str]:
    house, _ = a_submission()
    house.talker("first").send(request(Kind.SUBMIT_JOB_BG, b"f", b"new", b"y"))
    say(house, "second", request(Kind.SUBMIT_JOB_BG, b"f", b"new", b"y"))
    return house, "second"


def a_start_that_counts() -> tuple[House, str]:
    house = house_with_job(attempts=1)
    house.talker("worker").send(*TO_WORKER)
    return house, "worker"


def a_report(*report: bytes) -> tuple[House, str]:
    house = taken(house_with_job())
    house.talker("worker").take_bytes()
    say(house, "worker", *report)
    return house, "worker"


def a_report_on_a_job_that_was_cancelled(*report: bytes) -> tuple[House, str]:
    """If the cancelling were lost, the job would run again after its worker was told that its report is stored."""
    house = taken(house_with_job())
    house.talker("worker").take_bytes()
    house.talker("operator").send(b"cancel job H:t:1\n")
    say(house, "worker", *report)
    return house, "worker"


def an_end_told_to_a_subscriber() -> tuple[House, str]:
    house = house_with_job()
    house.talker("waiting").send(request(Kind.OPTION_REQ, b"switchgear"), request(Packet.WATCH, b"H:t:1"))
    taken(house)
    house.talker("waiting").take_bytes()
    house.talker("worker").send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    return house, "waiting"


def an_end_that_is_asked_for() -> tuple[House, str]:
    house, _ = a_report(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"))
    house.talker("late").send(request(Packet.WATCH, b"H:t:1"))
    return house, "late"


def a_command(*packets: bytes) -> tuple[House, str]:
    house = house_with_job()
    say(house, "operator", *packets)
    return house, "operator"


def a_command_that_changes_nothing() -> tuple[House, str]:
    house, _ = a_command(control(b"pause", b'{"function": "f"}'))
    say(house, "another", control(b"pause", b'{"function": "f"}'))
    return house, "another"


def a_retry() -> tuple[House, str]:
    house, _ = a_command(b"cancel job H:t:1\n")
    house.keep()
    house.talker("operator").take_bytes()
    say(house, "operator", control(b"retry", b'{"handle": "H:t:1"}'))
    return house, "operator"


def a_change_that_changes_nothing() -> tuple[House, str]:
    """The job has this priority already, but a crash would undo that."""
    house, _ = a_command(control(b"change", b'{"handle": "H:t:1", "priority": "high"}'))
    say(house, "another", control(b"change", b'{"handle": "H:t:1", "priority": "high"}'))
    return house, "another"


def control(verb: bytes, arguments: bytes) -> bytes:
    return request(Packet.CONTROL, verb, arguments)


SCENARIOS: dict[str, Callable[[], tuple[House, str]]] = {
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
    house, who = SCENARIOS[name]()
    return bool(house.talker(who).take_bytes())


def test_a_report_on_a_job_whose_cancelling_is_stored_needs_no_other_change_to_be_answered() -> None:
    house = taken(house_with_job())
    house.talker("operator").send(b"cancel job H:t:1\n")
    house.keep()
    house.talker("worker").take_bytes()
    house.commits_at_once = True
    say(house, "worker", request(Kind.WORK_FAIL, b"H:t:1"))
    assert house.talker("worker").take_bytes()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_peer_hears_of_a_change_when_it_is_stored(name: str) -> None:
    house, who = SCENARIOS[name]()
    assert not house.talker(who).take_bytes()
    house.keep()
    assert house.talker(who).take_bytes()


@pytest.mark.parametrize("kind", [kind for kind in MUTANTS if kind != "a job that waits for more"])  # that is dwork's
def test_a_server_that_forgets_one_kind_of_hold_is_found_out(kind: str) -> None:
    with mutated(kind):
        assert [name for name in SCENARIOS if hears_too_early(name)], f"nobody notices: {kind}"
