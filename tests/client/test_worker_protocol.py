"""The worker protocol as transcripts: what the server sends, and what the worker answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, RetryLater, Stopped
from switchgear.client.gearman.worker_events import (
    JobAssigned,
    JobRevoked,
    JobUnrunnable,
    ReadyJobsCounted,
    RefusedByServer,
    ReportsConfirmed,
    WorkerEvent,
    WorkerSubscribed,
)
from switchgear.client.gearman.worker_protocol import ENVELOPE_BYTES, WorkerIntroduction, WorkerProtocol
from switchgear.errors import PeerError
from switchgear.protocols.gearman.codec import REQUEST, GearmanDecoder, request, response
from switchgear.protocols.gearman.messages import Packet

LIMIT = ("limit", {"function": "f", "concurrency": 1})


def names(function: str, payload: bytes) -> list[str]:
    """References are written as `@HANDLE` in these transcripts."""
    return [word[1:] for word in payload.decode().split() if word.startswith("@")]


class Talk:
    """A conversation, and somebody who plays the server."""

    def __init__(self, *declarations: Any, functions: dict[str, float] | None = None) -> None:
        self.worker = WorkerProtocol(
            WorkerIntroduction("me", functions or {"f": 0.0, "slow": 1.5}, declarations, 15.0, references=names)
        )
        self.worker.set_room(2)

    def hear(self, *packets: tuple[Packet, str]) -> list[WorkerEvent]:
        """Let the server say this, all at once."""
        return self.worker.receive(b"".join(response(kind, text.encode()) for kind, text in packets))

    def said(self) -> list[tuple[str, str]]:
        """What the worker has to say, a space for each NUL."""
        packets = GearmanDecoder(REQUEST, 10**6).feed(self.worker.take_output())
        return [(Packet(kind).name, body.decode().replace("\0", " ")) for kind, body in packets]


def extended(*declarations: Any) -> Talk:
    """Past the introductions, with one of our own servers and room for two."""
    talk = Talk(*declarations)
    talk.hear((Packet.OPTION_RES, "switchgear"))
    talk.said()
    return talk


def plain() -> Talk:
    """The same with somebody else's."""
    talk = Talk()
    talk.hear((Packet.ERROR, "UNKNOWN_OPTION\0Server does not recognize given option"))
    talk.said()
    return talk


def push(handle: str = "H:a:1", payload: str = "{}", function: str = "f", numbers: str = "1\0000\0000\0000") -> Any:
    return (Packet.JOB_PUSH, "\0".join((handle, function, "", numbers, payload)))


# --- introductions ---


def test_it_asks_first_whom_it_talks_to() -> None:
    talk = Talk()
    assert talk.said() == [("OPTION_REQ", "switchgear"), ("SET_CLIENT_ID", "me")]
    assert not talk.worker.subscribed


def test_with_our_own_server_it_grants_credit() -> None:
    talk = Talk()
    talk.said()
    assert talk.hear((Packet.OPTION_RES, "switchgear")) == [WorkerSubscribed(extended=True)]
    assert talk.said() == [
        ("OPTION_REQ", "packet_bytes"),
        ("OPTION_REQ", "traces"),
        ("CAN_DO", "f"),
        ("CAN_DO_TIMEOUT", "slow 1500"),
        ("CREDIT", "2 15000"),
    ]


def test_declarations_come_before_the_first_credit() -> None:
    talk = Talk(LIMIT, ("schedule", {"name": "nightly", "function": "f"}))
    talk.said()
    assert talk.hear((Packet.OPTION_RES, "switchgear")) == []
    said = ["OPTION_REQ", "OPTION_REQ", "CAN_DO", "CAN_DO_TIMEOUT", "CONTROL", "CONTROL"]
    assert [name for name, _ in talk.said()] == said
    assert talk.hear((Packet.CONTROL_RES, "{}")) == []
    assert talk.said() == []
    assert talk.hear((Packet.CONTROL_RES, "{}")) == [WorkerSubscribed(extended=True)]
    assert talk.said() == [("CREDIT", "2 15000")]


def test_a_declaration_that_is_refused_is_told_and_the_work_goes_on() -> None:
    talk = Talk(LIMIT)
    refused, subscribed = talk.hear((Packet.OPTION_RES, "switchgear"), (Packet.ERROR, "INVALID_ARGUMENT\0no"))
    assert isinstance(refused, RefusedByServer)
    assert (refused.about, str(refused.error)) == ("limit f", "INVALID_ARGUMENT: no")
    assert subscribed == WorkerSubscribed(extended=True)


def test_a_plain_server_is_asked_for_jobs() -> None:
    talk = Talk(LIMIT)
    talk.said()
    assert talk.hear((Packet.ERROR, "UNKNOWN_OPTION\0no such option")) == [WorkerSubscribed(extended=False)]
    assert talk.said() == [("CAN_DO", "f"), ("CAN_DO", "slow"), ("GRAB_JOB_UNIQ", "")]


def test_a_server_that_passes_over_the_question_is_a_plain_one() -> None:
    talk = Talk()
    talk.worker.heartbeat()
    assert talk.hear((Packet.ECHO_RES, "alive")) == [WorkerSubscribed(extended=False)]


# --- credits ---


def test_a_pushed_job() -> None:
    talk = extended()
    assert talk.hear(push("H:a:1", "{}", "slow", "3\0001\0004\000250")) == [
        JobAssigned(AssignedJob("H:a:1", "slow", b"{}", "", 3, 1, 4, 0.25))
    ]
    assert talk.worker.granted == 1


def test_the_limit_of_the_task_counts_if_the_job_has_none() -> None:
    arrived = extended().hear(push(function="slow"))
    assert arrived == [JobAssigned(AssignedJob("H:a:1", "slow", b"{}", timeout_seconds=1.5))]


def test_report_and_new_credit_are_sent_together() -> None:
    talk = extended()
    talk.hear(push())
    talk.worker.report("H:a:1", Complete(b"3"))
    talk.worker.set_room(2)
    assert talk.said() == [("WORK_COMPLETE", "H:a:1 3"), ("CREDIT", "1 15000")]


@pytest.mark.parametrize(
    ("room", "says"),
    [(2, []), (3, [("CREDIT", "1 15000")]), (1, [("CREDIT", "-1 15000")]), (-5, [("CREDIT", "-2 15000")])],
    ids=["the same", "more", "less", "none"],
)
def test_credit_follows_the_room(room: int, says: Sequence[tuple[str, str]]) -> None:
    talk = extended()
    talk.worker.set_room(room)
    assert talk.said() == says


def test_a_job_that_crosses_the_credit_that_was_taken_back() -> None:
    talk = extended()
    talk.worker.set_room(0)
    talk.hear(push())
    assert talk.worker.granted == 0
    assert talk.worker.release("H:a:1")
    assert talk.said() == [("CREDIT", "-2 15000"), ("HAND_BACK", "H:a:1")]


# --- reports ---


@pytest.mark.parametrize(
    ("outcome", "to_ours", "to_plain"),
    [
        (Complete(b"x\0y"), ("WORK_COMPLETE", "H:a:1 x y"), ("WORK_COMPLETE", "H:a:1 x y")),
        (Fail("E: no"), ("WORK_EXCEPTION", "H:a:1 E: no"), ("WORK_EXCEPTION", "H:a:1 E: no")),
        (RetryLater(1.2345, "E: no", 4), ("RETRY_LATER", "H:a:1 1235 4 E: no"), ("WORK_EXCEPTION", "H:a:1 E: no")),
        (Stopped("the worker stops"), ("HAND_BACK", "H:a:1"), None),
        (Stopped("timed_out"), None, ("WORK_EXCEPTION", "H:a:1 TimeoutError: it took too long, and was stopped")),
    ],
    ids=["complete", "fail", "retry", "stopped", "stopped by our own watch"],
)
def test_each_outcome(outcome: Any, to_ours: Any, to_plain: Any) -> None:
    ours = extended()
    ours.hear(push())
    ours.worker.report("H:a:1", outcome)
    assert ours.said() == [packet for packet in [to_ours] if packet]
    theirs = plain()
    theirs.hear((Packet.JOB_ASSIGN_UNIQ, "H:a:1\0f\0\0{}"))
    theirs.worker.report("H:a:1", outcome)
    assert theirs.said() == [packet for packet in [to_plain] if packet]


def test_progress() -> None:
    ours, theirs = extended(), plain()
    ours.worker.progress("H:a:1", 3, 10, "resizing")
    theirs.worker.progress("H:a:1", 3, 10, "resizing")
    assert ours.said() == [("WORK_PROGRESS", "H:a:1 3 10 resizing")]
    assert theirs.said() == [("WORK_STATUS", "H:a:1 3 10")]


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("cancelled", [("WORK_FAIL", "H:a:1")]),
        ("done", [("WORK_FAIL", "H:a:1")]),
        ("timed_out", [("HAND_BACK", "H:a:1")]),
        ("held_back", [("HAND_BACK", "H:a:1")]),
    ],
)
def test_what_is_reported_of_a_revoked_job(reason: str, says: list[Any]) -> None:
    talk = extended()
    assert talk.hear(push(), (Packet.REVOKE, f"H:a:1\0{reason}"))[1:] == [JobRevoked("H:a:1", reason)]
    talk.worker.progress("H:a:1", 1, 2, "")
    talk.worker.data("H:a:1", b"part")
    talk.worker.warning("H:a:1", b"careful")
    talk.worker.report("H:a:1", Complete(b"3"))
    assert talk.said() == says


def test_a_job_that_timed_out_may_come_again() -> None:
    talk = extended()
    talk.hear(push(), (Packet.REVOKE, "H:a:1\0timed_out"), push())
    talk.worker.report("H:a:1", Complete(b"3"))
    assert talk.said() == [("HAND_BACK", "H:a:1"), ("WORK_COMPLETE", "H:a:1 3")]


def test_a_revocation_that_crosses_the_report_changes_nothing() -> None:
    talk = extended()
    talk.hear(push())
    talk.worker.report("H:a:1", Complete(b"3"))
    talk.hear((Packet.REVOKE, "H:a:1\0cancelled"))
    talk.worker.forget("H:a:1")
    assert talk.said() == [("WORK_COMPLETE", "H:a:1 3")]
    assert not talk.worker._cancelled


@pytest.mark.parametrize(("surplus", "kind"), [(0, Complete), (1, Fail)], ids=["just fits", "too large"])
def test_a_result_that_is_too_large_for_the_server_is_a_failure(surplus: int, kind: type[object]) -> None:
    talk = extended()
    talk.hear((Packet.OPTION_RES, "packet_bytes\0001000"))
    outcome = talk.worker.within_limits(Complete(bytes(1000 - ENVELOPE_BYTES + surplus)))
    assert isinstance(outcome, kind)
    if isinstance(outcome, Fail):
        assert outcome.error.startswith("ResultError: the result has 745 bytes, and the server takes at most 1000\n\n")


def test_a_function_that_nobody_announced() -> None:
    talk = extended()
    (event,) = talk.hear(push(function="g"))
    assert isinstance(event, JobUnrunnable)
    assert talk.said() == [("WORK_EXCEPTION", "H:a:1 LookupError: this worker has no task g")]


# --- results of other jobs ---


def test_results_are_fetched_before_a_job_is_announced() -> None:
    talk = extended()
    assert talk.hear(push(payload="@H:a:7 @H:a:8 @H:a:7")) == []
    assert talk.said() == [("WATCH", "H:a:7"), ("WATCH", "H:a:8")]
    assert talk.worker.waiting_jobs == 1
    assert talk.hear((Packet.WATCH_RES, "H:a:7\0done"), (Packet.WORK_COMPLETE, "H:a:7\0seven")) == []
    (event,) = talk.hear((Packet.WATCH_RES, "H:a:8\0failed"), (Packet.JOB_ENDED, "H:a:8\0failed\0ended_badly\0E: no"))
    assert isinstance(event, JobAssigned)
    assert event.assignment.results == {"H:a:7": b"seven", "H:a:8": None}
    assert talk.worker.waiting_jobs == 0


def test_one_result_for_two_jobs_is_fetched_once() -> None:
    talk = extended()
    talk.hear(push("H:a:1", "@H:a:7"), push("H:a:2", "@H:a:7"))
    assert talk.said() == [("WATCH", "H:a:7")]
    events = talk.hear((Packet.WATCH_RES, "H:a:7\0done"), (Packet.WORK_COMPLETE, "H:a:7\0seven"))
    assert [event.assignment.handle for event in events if isinstance(event, JobAssigned)] == ["H:a:1", "H:a:2"]


@pytest.mark.parametrize(
    ("state", "words"),
    [("unknown", "the server does not know that job"), ("running", "that job is running")],
)
def test_a_result_that_cannot_be_had_fails_the_job(state: str, words: str) -> None:
    talk = extended()
    talk.hear(push(payload="@H:a:7"))
    talk.said()
    (event,) = talk.hear((Packet.WATCH_RES, f"H:a:7\0{state}"))
    assert isinstance(event, JobUnrunnable)
    ((name, text),) = talk.said()
    assert name == "WORK_EXCEPTION"
    assert "H:a:7" in text
    assert words in text


def test_a_plain_server_keeps_no_results() -> None:
    talk = plain()
    talk.hear((Packet.JOB_ASSIGN_UNIQ, "H:a:1\0f\0\0@H:a:7"))
    ((name, text),) = talk.said()
    assert name == "WORK_EXCEPTION"
    assert "plain Gearman server" in text


@pytest.mark.parametrize(
    ("reason", "says"), [("cancelled", [("WORK_FAIL", "H:a:1")]), ("timed_out", [("HAND_BACK", "H:a:1")])]
)
def test_a_job_that_is_revoked_while_its_arguments_are_fetched(reason: str, says: list[Any]) -> None:
    talk = extended()
    talk.hear(push(payload="@H:a:7"))
    talk.said()
    assert talk.hear((Packet.REVOKE, f"H:a:1\0{reason}")) == []
    assert talk.said() == says
    assert talk.worker.waiting_jobs == 0
    assert talk.hear((Packet.WATCH_RES, "H:a:7\0done"), (Packet.WORK_COMPLETE, "H:a:7\0seven")) == []


def test_results_that_the_server_cannot_read_now_are_asked_for_again_with_the_next_beat() -> None:
    talk = extended()
    talk.hear(push(payload="@H:a:7"))
    talk.said()
    (refused,) = talk.hear((Packet.ERROR, "QUEUE_ERROR\0the disk is ill"))
    assert isinstance(refused, RefusedByServer)
    assert refused.about == "results of other jobs"
    assert (talk.worker.waiting_jobs, talk.said()) == (1, [])
    talk.worker.heartbeat()
    assert talk.said() == [("ECHO_REQ", "alive"), ("WATCH", "H:a:7")]
    talk.worker.heartbeat()
    assert talk.said() == [("ECHO_REQ", "alive")]
    (arrived,) = talk.hear((Packet.WATCH_RES, "H:a:7\0done"), (Packet.WORK_COMPLETE, "H:a:7\0seven"))
    assert isinstance(arrived, JobAssigned)


def test_a_worker_that_stops_hands_back_what_waits_for_its_arguments() -> None:
    talk = extended()
    talk.hear(push(payload="@H:a:7"))
    talk.said()
    talk.worker.release_waiting()
    assert talk.said() == [("HAND_BACK", "H:a:1")]


# --- the dance of plain servers ---


def test_ask_sleep_wake_ask() -> None:
    talk = plain()
    assert talk.worker.grabbing
    talk.hear((Packet.NO_JOB, ""))
    assert talk.said() == [("PRE_SLEEP", "")]
    assert talk.worker.sleeps
    talk.worker.set_room(2)
    assert talk.said() == []
    talk.hear((Packet.NOOP, ""))
    talk.worker.set_room(2)
    assert talk.said() == [("GRAB_JOB_UNIQ", "")]


def test_one_question_at_a_time_and_only_with_room() -> None:
    talk = plain()
    talk.worker.set_room(2)
    assert talk.said() == []
    talk.hear((Packet.JOB_ASSIGN_UNIQ, "H:a:1\0f\0key\0{}"))
    talk.worker.set_room(0)
    assert talk.said() == []
    talk.worker.set_room(1)
    assert talk.said() == [("GRAB_JOB_UNIQ", "")]


def test_nothing_can_be_handed_back_to_a_plain_server() -> None:
    assert not plain().worker.release("H:a:1")


# --- signs of life, and the rest ---


def test_beats_and_settling() -> None:
    talk = extended()
    talk.worker.heartbeat()
    talk.worker.request_confirmation()
    assert talk.said() == [("ECHO_REQ", "alive"), ("ECHO_REQ", "done")]
    assert talk.hear((Packet.ECHO_RES, "alive"), (Packet.ECHO_RES, "done")) == [ReportsConfirmed()]


def test_looking_at_queues() -> None:
    talk = extended()
    talk.worker.count_ready_jobs()
    assert talk.said() == [("CONTROL", "functions {}")]
    rows = '[{"name":"f","ready":2},{"name":"slow","ready":9,"paused":true},{"name":"other","ready":5}]'
    assert talk.hear((Packet.CONTROL_RES, rows)) == [ReadyJobsCounted(2)]


def test_an_error_is_told() -> None:
    (event,) = extended().hear((Packet.ERROR, "JOB_NOT_FOUND\0not yours"))
    assert isinstance(event, RefusedByServer)
    assert event.error.code == "JOB_NOT_FOUND"


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n" * 400,
        response(Packet.JOB_PUSH, b"H:a:1", b"f"),
        response(Packet.JOB_PUSH, *[b"x"] * 8),
        response(Packet.REVOKE, b"H:a:1"),
        response(Packet.CONTROL_RES, b"nonsense"),
        response(Packet.CONTROL_RES, b'[{"name": ' + b"[" * 100_000),
        b"\0FOO" + bytes(8),
        request(Packet.CAN_DO, b"f"),
    ],
    ids=["http", "few fields", "no numbers", "no reason", "not JSON", "JSON that is too deep", "magic", "a request"],
)
def test_nonsense_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(PeerError):
        extended().worker.receive(data)


# --- a worker that does not ask for extensions ---


def without_extensions() -> WorkerProtocol:
    return WorkerProtocol(WorkerIntroduction("me", {"f": 0.0, "g": 0.0}, uses_extensions=False))


def sent(worker: WorkerProtocol) -> list[str]:
    return [Packet(kind).name for kind, _ in GearmanDecoder(REQUEST, 10**6).feed(worker.take_output())]


def test_without_extensions_functions_are_announced_at_once() -> None:
    worker = without_extensions()
    assert worker.take_events() == [WorkerSubscribed(extended=False)]
    assert sent(worker) == ["SET_CLIENT_ID", "CAN_DO", "CAN_DO"]
    assert worker.can_grab


def test_there_is_one_grab_at_a_time() -> None:
    worker = without_extensions()
    worker.take_output()
    worker.set_room(2)
    worker.set_room(2)
    assert sent(worker) == ["GRAB_JOB_UNIQ"]
    assert not worker.can_grab


def test_a_worker_that_stops_does_not_say_that_it_sleeps() -> None:
    worker = without_extensions()
    worker.set_room(1)
    worker.stop_taking()
    worker.take_output()
    worker.receive(response(Packet.NO_JOB))
    assert (sent(worker), worker.grabbing, worker.can_grab) == ([], False, False)


def test_a_failure_without_a_reason_is_a_plain_failure() -> None:
    worker = without_extensions()
    worker.take_output()
    assert worker.report("H:a:1", Fail(""))
    assert sent(worker) == ["WORK_FAIL"]
