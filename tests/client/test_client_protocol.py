"""The client protocol, without a connection."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from switchgear import (
    AlreadySubmitted,
    ClientError,
    ExtensionRequired,
    JobFailed,
    JobUnknown,
    NotFound,
    ServerRefused,
    ServerUnreachable,
)
from switchgear.client.gearman.client_protocol import ClientProtocol
from switchgear.client.gearman.error_codes import error_in_line, error_in_packet
from switchgear.client.gearman.job_subscriber import JobEnd, JobSubscriber, Progress
from switchgear.client.gearman.pending_requests import ControlRequest, PendingSubmission, SubscribeRequest
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.client.gearman.submitted_job import Submission
from switchgear.protocols.gearman.codec import REQUEST, GearmanDecoder, response
from switchgear.protocols.gearman.messages import Packet

LOST = ServerUnreachable("gone")


def packets(data: bytes) -> list[tuple[Packet, list[bytes]]]:
    return [(Packet(kind), body.split(b"\0")) for kind, body in GearmanDecoder(REQUEST, 2**32).feed(data)]


def greeted(*answers: bytes) -> ClientProtocol:
    conversation = ClientProtocol("gearman://h:4730")
    conversation.greet()
    conversation.take_outgoing()
    conversation.receive(b"".join(answers))
    return conversation


def switchgear() -> ClientProtocol:
    return greeted(
        response(Packet.OPTION_RES, b"switchgear"),
        response(Packet.OPTION_RES, b"exceptions"),
        response(Packet.ECHO_RES, b"switchgear"),
    )


def gearmand() -> ClientProtocol:
    return greeted(
        response(Packet.ERROR, b"UNKNOWN_OPTION", b"Server does not recognize given option"),
        response(Packet.OPTION_RES, b"exceptions"),
        response(Packet.ECHO_RES, b"switchgear"),
    )


def submit(
    conversation: ClientProtocol, **fields: Any
) -> tuple[PendingSubmission, JobSubscriber, tuple[Packet, list[bytes]]]:
    """The question, who follows the job, and the packet that was sent."""
    follower = JobSubscriber()
    question = PendingSubmission([SubmitRequest(**({"function": b"f", "payload": b"p"} | fields))], [follower])
    question.send(conversation)
    packet = packets(conversation.take_outgoing())[-1]
    return question, follower, packet


# --- the greeting ---


def test_it_begins_with_a_greeting() -> None:
    conversation = ClientProtocol("gearman://h:4730")
    conversation.greet()
    assert packets(conversation.take_outgoing()) == [
        (Packet.OPTION_REQ, [b"switchgear"]),
        (Packet.OPTION_REQ, [b"exceptions"]),
        (Packet.OPTION_REQ, [b"packet_bytes"]),
        (Packet.ECHO_REQ, [b"switchgear"]),
    ]
    assert not conversation.is_ready


def test_servers_are_told_apart() -> None:
    silent = greeted(response(Packet.ECHO_RES, b"switchgear"))
    assert [(c.is_ready, c.is_switchgear) for c in (switchgear(), gearmand(), silent)] == [
        (True, True),
        (True, False),
        (True, False),
    ]


def test_a_greeting_may_come_in_pieces() -> None:
    ready: list[bool] = []
    conversation = ClientProtocol("h", lambda: ready.append(True))
    conversation.greet()
    for byte in response(Packet.OPTION_RES, b"switchgear") + response(Packet.ECHO_RES, b"switchgear"):
        assert ready == []
        conversation.receive(bytes([byte]))
    assert (ready, conversation.is_switchgear) == ([True], True)


# --- submitting to a server of ours ---


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {"priority": "normal", "watch": True}),
        ({"watch": False}, {"priority": "normal"}),
        ({"durable": True}, {"priority": "normal", "watch": True}),
        ({"durable": False}, {"priority": "normal", "wait": True}),
        ({"priority": "high", "run_at": 7.5}, {"priority": "high", "watch": True, "run_at": 7.5}),
        ({"options": {"attempts": 3}}, {"attempts": 3, "priority": "normal", "watch": True}),
    ],
    ids=["plain", "unwatched", "durable", "foreground", "later", "options"],
)
def test_a_submission_says_everything_in_its_options(fields: dict[str, Any], options: dict[str, Any]) -> None:
    _, _, (kind, (function, unique, text, payload)) = submit(switchgear(), unique=b"u", **fields)
    assert (kind, function, unique, payload) == (Packet.SUBMIT_JOB_OPTIONS, b"f", b"u", b"p")
    assert json.loads(text) == options


def test_answers_belong_to_the_oldest_question() -> None:
    conversation = switchgear()
    first, *_ = submit(conversation)
    second, *_ = submit(conversation)
    control = ControlRequest("server", {})
    control.send(conversation)
    third, *_ = submit(conversation)
    conversation.receive(
        response(Packet.JOB_CREATED, b"H:h:1")
        + response(Packet.ERROR, b"QUEUE_ERROR", b"Job queue is full")
        + response(Packet.CONTROL_RES, b'{"pid": 3}')
        + response(Packet.JOB_CREATED, b"H:h:3")
    )
    assert first.future.result() == ["H:h:1"]
    (refusal,) = second.future.result()
    assert isinstance(refusal, ServerRefused)
    assert refusal.code == "QUEUE_ERROR"
    assert control.future.result() == {"pid": 3}
    assert third.future.result() == ["H:h:3"]
    assert conversation.unanswered == 0


def test_a_batch_is_answered_as_a_whole() -> None:
    conversation = switchgear()
    question = PendingSubmission([SubmitRequest(b"f", b"%d" % number) for number in range(3)], [None] * 3)
    question.send(conversation)
    assert [body[-1] for _, body in packets(conversation.take_outgoing())] == [b"0", b"1", b"2"]
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1") + response(Packet.ERROR, b"QUEUE_ERROR", b"full"))
    assert not question.future.done()
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:3"))
    first, second, third = question.future.result()
    assert (first, str(second), third) == ("H:h:1", "QUEUE_ERROR: full", "H:h:3")


def test_a_unique_key_that_is_taken() -> None:
    conversation = switchgear()
    question, *_ = submit(conversation, unique=b"k", options={"unique_policy": "reject"})
    conversation.receive(response(Packet.ERROR, b"ALREADY_SUBMITTED", b'H:h:1, which is ready, has the unique key "k"'))
    assert isinstance(question.future.result()[0], AlreadySubmitted)


def test_an_answer_to_another_question() -> None:
    conversation = switchgear()
    question, *_ = submit(conversation)
    conversation.receive(response(Packet.ECHO_RES, b"what?"))
    (error,) = question.future.result()
    assert isinstance(error, ClientError)
    assert "answered a submission with a packet 17" in str(error)


# --- news ---

ENDS = {
    "done": (response(Packet.WORK_COMPLETE, b"H:h:1", b"re\0sult"), JobEnd("done", b"re\0sult", "succeeded")),
    "failed": (
        response(Packet.JOB_ENDED, b"H:h:1", b"failed", b"ended_badly", b"ValueError: no\n\nTrace\0back"),
        JobEnd("failed", b"", "ended_badly", b"ValueError: no\n\nTrace\0back"),
    ),
    "cancelled": (
        response(Packet.JOB_ENDED, b"H:h:1", b"cancelled", b"skipped", b""),
        JobEnd("cancelled", b"", "skipped"),
    ),
}


@pytest.mark.parametrize(("packet", "end"), ENDS.values(), ids=ENDS)
def test_ends(packet: bytes, end: JobEnd) -> None:
    conversation = switchgear()
    _, follower, _ = submit(conversation)
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1") + packet)  # all in one read
    assert follower.future.result() == end


def test_progress_is_told_on_the_way() -> None:
    conversation = switchgear()
    _, follower, _ = submit(conversation)
    heard: list[Progress | None] = []
    follower.add_listener(heard.append)
    conversation.receive(
        response(Packet.JOB_CREATED, b"H:h:1")
        + response(Packet.WORK_STATUS, b"H:h:1", b"1", b"4")
        + response(Packet.WORK_PROGRESS, b"H:h:1", b"2", b"4", b"half\0way")
        + response(Packet.WORK_STATUS, b"H:h:1", b"x", b"")
        + response(Packet.WORK_DATA, b"H:h:1", b"part ")
        + response(Packet.WORK_COMPLETE, b"H:h:1", b"end")
    )
    assert heard == [Progress(1, 4), Progress(2, 4, "half\0way"), Progress(0, 0), None]
    assert follower.future.result().result == b"part end"
    late: list[Progress | None] = []
    follower.add_listener(late.append)
    assert late == [Progress(0, 0), None]


def test_news_of_other_jobs_are_nobodys() -> None:
    conversation = switchgear()
    _, follower, _ = submit(conversation)
    conversation.receive(
        response(Packet.WORK_COMPLETE, b"H:h:9", b"early")
        + response(Packet.JOB_CREATED, b"H:h:1")
        + response(Packet.WORK_COMPLETE, b"H:h:9", b"late")
    )
    assert not follower.future.done()


def test_watching_a_job() -> None:
    conversation = switchgear()
    follower = JobSubscriber()
    question = SubscribeRequest("H:h:1", follower)
    question.send(conversation)
    assert packets(conversation.take_outgoing()) == [(Packet.WATCH, [b"H:h:1"])]
    conversation.receive(response(Packet.WATCH_RES, b"H:h:1", b"running"))
    assert question.future.result() == "running"
    assert follower.survives_reconnect
    conversation.receive(response(Packet.WORK_COMPLETE, b"H:h:1", b"r"))
    assert follower.future.result().result == b"r"


def test_watching_a_job_that_is_not_there() -> None:
    conversation = switchgear()
    question = SubscribeRequest("H:h:1", JobSubscriber())
    question.send(conversation)
    conversation.receive(response(Packet.WATCH_RES, b"H:h:1", b"unknown"))
    assert question.future.result() == "unknown"
    assert conversation.take_subscribers() == []


def test_asking_about_a_job_that_is_not_there() -> None:
    conversation = switchgear()
    question = ControlRequest("job", {"handle": "H:h:1", "unused": None})
    question.send(conversation)
    assert packets(conversation.take_outgoing()) == [(Packet.CONTROL, [b"job", b'{"handle":"H:h:1"}'])]
    conversation.receive(response(Packet.ERROR, b"JOB_NOT_FOUND", b"there is no such job"))
    assert isinstance(question.future.exception(), JobUnknown)


def test_who_joins_later_is_told_what_was_missed() -> None:
    conversation = switchgear()
    _, first, _ = submit(conversation)
    conversation.receive(
        response(Packet.JOB_CREATED, b"H:h:1")
        + response(Packet.WORK_DATA, b"H:h:1", b"early ")
        + response(Packet.WORK_PROGRESS, b"H:h:1", b"1", b"2", b"on it")
    )
    _, second, _ = submit(conversation)  # a server of ours tells a connection once of a durable job
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1"))
    assert second.progress == Progress(1, 2, "on it")
    conversation.receive(response(Packet.WORK_COMPLETE, b"H:h:1", b"end"))
    assert [follower.future.result().result for follower in (first, second)] == [b"early end"] * 2


def test_who_threw_the_job_away_does_not_take_the_others_news_along() -> None:
    conversation = switchgear()
    _, first, _ = submit(conversation)
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1") + response(Packet.WORK_DATA, b"H:h:1", b"early "))
    del first
    gc.collect()
    conversation.receive(response(Packet.WORK_DATA, b"H:h:1", b"later "))
    _, second, _ = submit(conversation)
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1") + response(Packet.WORK_COMPLETE, b"H:h:1", b"end"))
    assert second.future.result().result == b"early later end"


def test_foreground_submissions_of_one_job_hear_each_piece_once() -> None:
    conversation = switchgear()
    followers = [submit(conversation, durable=False)[1] for _ in range(2)]
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1") * 2)
    for part in (b"one ", b"two "):  # such a server sends a copy for each
        conversation.receive(response(Packet.WORK_DATA, b"H:h:1", part) * 2)
    conversation.receive(response(Packet.WORK_COMPLETE, b"H:h:1", b"end") * 2)
    assert [follower.future.result().result for follower in followers] == [b"one two end"] * 2


# --- plain servers ---


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, (Packet.SUBMIT_JOB, [b"f", b"", b"p"])),
        ({"priority": "high", "unique": b"u"}, (Packet.SUBMIT_JOB_HIGH, [b"f", b"u", b"p"])),
        ({"priority": "low", "durable": False}, (Packet.SUBMIT_JOB_LOW, [b"f", b"", b"p"])),
        ({"durable": True}, (Packet.SUBMIT_JOB_BG, [b"f", b"", b"p"])),
        ({"durable": True, "priority": "high"}, (Packet.SUBMIT_JOB_HIGH_BG, [b"f", b"", b"p"])),
        ({"watch": False}, (Packet.SUBMIT_JOB_BG, [b"f", b"", b"p"])),
        ({"run_at": 7.2}, (Packet.SUBMIT_JOB_EPOCH, [b"f", b"", b"8", b"p"])),
        ({"options": {"attempts": 1, "crashes": 3}}, (Packet.SUBMIT_JOB, [b"f", b"", b"p"])),
    ],
    ids=["foreground", "high", "low", "background", "high background", "unwatched", "later", "defaults"],
)
def test_a_plain_server_is_sent_what_it_knows(fields: dict[str, Any], sent: Any) -> None:
    assert submit(gearmand(), **fields)[2] == sent


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"needs": ("retries",)}, "retries need a Switchgear server"),
        ({"needs": ("expires",)}, "expires needs a Switchgear server"),
        ({"needs": ("retries", "key", "after")}, "retries, key and after need a Switchgear server"),
        ({"needs": ("a job as an argument",)}, "a job as an argument needs a Switchgear server"),
        ({"run_at": 7.0, "durable": False}, "a job for later that is not durable needs a Switchgear server"),
        ({"run_at": 7.0, "priority": "high"}, "a job for later of high priority needs a Switchgear server"),
    ],
    ids=["retries", "expires", "several", "reference", "later in the foreground", "later with priority"],
)
def test_a_plain_server_is_not_asked_for_more(fields: dict[str, Any], complaint: str) -> None:
    conversation = gearmand()
    with pytest.raises(ExtensionRequired) as caught:
        submit(conversation, **fields)
    assert str(caught.value) == f"{complaint}; gearman://h:4730 is a plain Gearman server"
    assert conversation.outgoing == []


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (ControlRequest("cancel", {}), "cancelling a job needs a Switchgear server"),
        (ControlRequest("explain", {}), "an explanation needs a Switchgear server"),
        (SubscribeRequest("H:h:1", JobSubscriber()), "the result of a job by its handle needs a Switchgear server"),
    ],
    ids=["cancel", "explain", "watch"],
)
def test_a_plain_server_is_not_asked_what_it_cannot_answer(question: Any, complaint: str) -> None:
    with pytest.raises(ExtensionRequired, match=complaint):
        question.send(gearmand())


def test_a_background_job_of_a_plain_server_has_no_result() -> None:
    conversation = gearmand()
    _, follower, _ = submit(conversation, durable=True)
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1"))
    with pytest.raises(ExtensionRequired, match="the result of a background job needs a Switchgear server"):
        follower.future.result()


def test_a_plain_servers_news() -> None:
    conversation = gearmand()
    _, done, _ = submit(conversation)
    _, failed, _ = submit(conversation)
    _, raised, _ = submit(conversation)
    conversation.receive(b"".join(response(Packet.JOB_CREATED, b"H:h:%d" % number) for number in (1, 2, 3)))
    conversation.receive(
        response(Packet.WORK_FAIL, b"H:h:2")
        + response(Packet.WORK_EXCEPTION, b"H:h:3", b"out of paper")
        + response(Packet.WORK_COMPLETE, b"H:h:1", b"fine")
    )
    assert done.future.result() == JobEnd("done", b"fine", "succeeded")
    assert failed.future.result() == JobEnd("failed", b"", "ended_badly")
    assert raised.future.result() == JobEnd("failed", b"", "ended_badly", b"out of paper")


def test_a_plain_server_tells_each_submission_of_one_job() -> None:
    conversation = gearmand()
    followers = [submit(conversation, unique=b"u")[1] for _ in range(2)]
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1") * 2)
    conversation.receive(response(Packet.WORK_DATA, b"H:h:1", b"one ") * 2)
    conversation.receive(response(Packet.WORK_COMPLETE, b"H:h:1", b"two") * 2)
    assert [follower.future.result().result for follower in followers] == [b"one two"] * 2


# --- the end of the conversation ---


def test_a_cut_leaves_no_question_without_an_answer() -> None:
    conversation = switchgear()
    submission, *_ = submit(conversation)
    control = ControlRequest("cancel", {"handle": "H:h:1"})
    control.send(conversation)
    conversation.connection_lost(LOST)
    (error,) = submission.future.result()
    assert isinstance(error, ServerUnreachable)
    assert "the job may have been taken or not" in str(error)
    assert control.future.exception() is LOST


def test_what_can_be_asked_again_is() -> None:
    conversation = switchgear()
    questions = [ControlRequest("jobs", {}), ControlRequest("cancel", {})]
    for question in questions:
        question.on_lost = lambda: True  # somebody sees to it
        question.send(conversation)
    conversation.connection_lost(LOST)
    assert [question.future.done() for question in questions] == [False, True]


def test_who_follows_a_job_is_found_after_a_cut() -> None:
    conversation = switchgear()
    _, durable, _ = submit(conversation)
    _, foreground, _ = submit(conversation, durable=False)
    conversation.receive(response(Packet.JOB_CREATED, b"H:h:1") + response(Packet.JOB_CREATED, b"H:h:2"))
    assert conversation.take_subscribers() == [(b"H:h:1", durable), (b"H:h:2", foreground)]
    assert (durable.survives_reconnect, foreground.survives_reconnect) == (True, False)


def test_what_is_no_gearman() -> None:
    with pytest.raises(ServerUnreachable, match="the server does not speak Gearman"):
        switchgear().receive(b"\0BAD" + bytes(20))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ALREADY_SUBMITTED", AlreadySubmitted),
        ("JOB_NOT_FOUND", JobUnknown),
        ("NOT_FOUND", NotFound),
        ("QUEUE_ERROR", ServerRefused),
    ],
)
def test_a_refusal_is_raised_as_what_it_is(code: str, kind: type[ServerRefused]) -> None:
    conversation = switchgear()
    question = ControlRequest("unschedule", {"name": "nobody"})
    question.send(conversation)
    conversation.receive(response(Packet.ERROR, code.encode(), b"why"))
    error = question.future.exception()
    assert type(error) is kind
    assert str(error) == f"{code}: why"
    assert isinstance(error, LookupError) is (kind in (JobUnknown, NotFound))


@pytest.mark.parametrize("body", [b"nonsense", b'"\xf1"', b"[" * 100_000], ids=["no JSON", "no UTF-8", "too deep"])
def test_an_answer_that_is_not_json_is_an_error_of_the_question_alone(body: bytes) -> None:
    protocol = switchgear()
    question = ControlRequest("functions", {})
    question.send(protocol)
    protocol.receive(response(Packet.CONTROL_RES, body))
    with pytest.raises(ClientError, match="not JSON"):
        question.future.result(0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ALREADY_SUBMITTED", AlreadySubmitted),
        ("JOB_NOT_FOUND", JobUnknown),
        ("NOT_FOUND", NotFound),
        ("QUEUE_ERROR", ServerRefused),
        ("A_CODE_OF_TOMORROW", ServerRefused),
    ],
)
def test_a_code_has_one_class_wherever_it_comes_from(code: str, kind: type[ServerRefused]) -> None:
    in_packet = error_in_packet(f"{code}\0some text".encode())
    in_line = error_in_line(f"ERR {code} some+text")
    for error in (in_packet, in_line):
        assert type(error) is kind
        assert error is not None
        assert (error.code, error.text) == (code, "some text")


def test_an_error_that_answers_nothing_is_kept_for_whoever_reads() -> None:
    protocol = ClientProtocol()
    protocol.receive(response(Packet.ERROR, b"QUEUE_ERROR", b"full"))
    assert protocol.unexpected_error is not None
    assert protocol.unexpected_error.code == "QUEUE_ERROR"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ((b"failed", b"ended_badly", b"ValueError: no"), "failed: ValueError: no"),
        ((b"cancelled", b"cancelled", b""), "failed$"),
        ((b"failed",), "failed$"),
    ],
)
def test_an_end_that_was_not_asked_for_in_these_words_is_an_end_too(end: tuple[bytes, ...], reason: str) -> None:
    """A client that has not greeted is sent WORK_FAIL or WORK_EXCEPTION; a server that sends JOB_ENDED all the same
    ends the wait, since nothing more comes of that job."""

    def read_more(deadline: float | None) -> None:
        raise AssertionError("it waits for ever")

    conversation = ClientProtocol("gearman://h:4730")
    job = Submission("H:t:1", background=False, read_more=read_more)
    PendingSubmission([SubmitRequest(b"f", b"", durable=False)], [job]).send(conversation)
    conversation.receive(response(Packet.JOB_CREATED, b"H:t:1") + response(Packet.JOB_ENDED, b"H:t:1", *end))
    with pytest.raises(JobFailed, match=reason):
        job.wait()
