"""The other side of a Gearman core, without I/O: packets in, requests out, responses in, packets out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchgear.client.gearman.graph_request import GraphEncoder, GraphIds
from switchgear.client.gearman.packets import response_decoder
from switchgear.client.gearman.submit_request import SubmitRequest
from switchgear.client.http.answers import AnswerParser, HttpAnswer
from switchgear.client.http.exchange import HttpExchange
from switchgear.client.http.packet_translator import PacketTranslator
from switchgear.errors import PeerError
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n'
)


@pytest.mark.parametrize("size", [1, 2, 7, len(ANSWER)])
def test_slicing_never_matters(size: int) -> None:
    parser = AnswerParser()
    data = ANSWER + b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    found = []
    for start in range(0, len(data), size):
        found += parser.feed(data[start : start + size])
    first, second = found
    assert (first.status, first.json(), second.status, second.body) == (200, {"a": 1}, 204, b"")
    assert not parser.keeps_alive


def test_an_answer_may_end_with_its_connection() -> None:
    parser = AnswerParser()
    assert parser.feed(b"HTTP/1.0 502 Bad Gateway\r\n\r\n<html>") == []
    (answer,) = parser.end()
    assert (answer.status, answer.body, parser.keeps_alive) == (502, b"<html>", False)
    assert "a proxy cannot reach the server: 502 Bad Gateway" in answer.obstacle()


def test_an_answer_that_is_cut_off_is_none() -> None:
    parser = AnswerParser()
    assert parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") == []
    assert parser.end() == []


def test_an_answer_counts_whatever_follows_it() -> None:
    parser = AnswerParser()
    (answer,) = parser.feed(b"HTTP/1.1 404 X\r\nContent-Length: 4\r\n\r\nnonenonsense")
    assert (answer.status, answer.body, parser.keeps_alive) == (404, b"none", False)


def test_interim_answers_are_passed_over() -> None:
    parser = AnswerParser()
    (answer,) = parser.feed(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
    assert answer.status == 201


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0RES\0\0\0\x10\0\0\0\0",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_not_http(data: bytes) -> None:
    with pytest.raises(PeerError):
        AnswerParser().feed(data)


class Core:
    """What a core says and hears."""

    def __init__(self) -> None:
        self.translator = PacketTranslator("http://test")
        self._decoder = response_decoder()

    def say(self, *packets: bytes) -> list[HttpExchange]:
        self.translator.receive(b"".join(packets))
        return self.translator.take_exchanges()

    def hear(self) -> list[tuple[Packet, bytes]]:
        return [(Packet(kind), body) for kind, body in self._decoder.feed(self.translator.take_output())]

    def answer(self, exchange: HttpExchange, body: Any, status: int = 200) -> list[HttpExchange]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.translator.on_answer(exchange, HttpAnswer(status, "", {"content-type": kind}, data))
        return self.translator.take_exchanges()


def problem(code: str) -> dict[str, str]:
    return {"code": code, "detail": "why"}


def test_answers_leave_in_the_order_of_their_requests() -> None:
    core = Core()
    control = request(Packet.CONTROL, b"server", b"{}")
    first, second = core.say(control, request(Packet.SUBMIT_JOB_BG, b"f", b"", b"x"))
    (submission, asked) = (first, second) if first.target == "/v1/jobs" else (second, first)
    core.answer(submission, {"handle": "H:1"}, 201)
    assert core.hear() == []
    core.answer(asked, {"version": "1"})
    assert [kind for kind, _ in core.hear()] == [Packet.CONTROL_RES, Packet.JOB_CREATED]


def test_jobs_gather_while_a_request_is_on_its_way() -> None:
    core = Core()
    job = request(Packet.SUBMIT_JOB_BG, b"f", b"", b"x")
    (first,) = core.say(job)
    assert core.say(job, job) == []
    (batch,) = core.answer(first, {"handle": "H:1"}, 201)
    assert batch.target == "/v1/jobs/batch"
    assert len(batch.body.splitlines()) == 2
    lines = b'{"line":1,"handle":"H:2"}\n{"line":2,"problem":{"code":"full","detail":"no room"}}\n'
    assert core.answer(batch, lines) == []
    assert core.hear() == [
        (Packet.JOB_CREATED, b"H:1"),
        (Packet.JOB_CREATED, b"H:2"),
        (Packet.ERROR, b"QUEUE_ERROR\0no room"),
    ]
    (alone,) = core.say(request(Packet.SUBMIT_JOB_BG, b"f", b"", b"x"))
    with pytest.raises(PeerError, match="without a handle"):
        core.answer(alone, {})


def test_a_job_is_followed_after_its_submission() -> None:
    core = Core()
    (submission,) = core.say(request(Packet.SUBMIT_JOB, b"f", b"", b"x"))
    (wait,) = core.answer(submission, {"handle": "H:1"}, 201)
    assert json.loads(wait.body) == {"jobs": [{"handle": "H:1", "seen": [0, 0, ""]}]}
    told = {"handle": "H:1", "state": "running", "numerator": 1, "denominator": 2, "message": "", "result": None}
    (again,) = core.answer(wait, {"jobs": [told]})
    assert json.loads(again.body)["jobs"][0]["seen"] == [1, 2, ""]
    end = told | {"state": "done", "result": {"base64": "/w=="}, "error": None, "cause": "succeeded"}
    assert core.answer(again, {"jobs": [end]}) == []
    assert core.hear() == [
        (Packet.JOB_CREATED, b"H:1"),
        (Packet.WORK_STATUS, b"H:1\x001\x002"),
        (Packet.WORK_COMPLETE, b"H:1\0\xff"),
    ]


POLLED = {
    "handle": "H:1", "function": "f", "attempt": 3, "payload": "p", "trace": "", "unique": "", "attempts": 2,
    "losses": 0, "attempts_limit": 0, "timeout": 0.25,
}  # fmt: skip


def polling_worker(core: Core) -> HttpExchange:
    (registration,) = core.say(request(Packet.CAN_DO, b"f"), request(Packet.CREDIT, b"2", b"15000"))
    assert json.loads(registration.body)["lease"] == 15
    (poll,) = core.answer(registration, {"id": "w-1"}, 201)
    assert poll.target == "/v1/workers/w-1/poll?max=2&wait=5"
    return poll


def test_a_worker_polls_and_reports() -> None:
    core = Core()
    poll = polling_worker(core)
    (poll,) = core.answer(poll, {"jobs": [POLLED], "revoked": []})
    assert core.hear() == [(Packet.JOB_PUSH, b"H:1\0f\0\x002\x000\x000\x00250\0p")]
    assert "max=1" in poll.target
    echo = request(Packet.ECHO_REQ, b"done")
    (report,) = core.say(request(Packet.WORK_DATA, b"H:1", b"a"), request(Packet.WORK_COMPLETE, b"H:1", b"b"), echo)
    assert (report.method, report.target, report.body, report.attempt) == ("PUT", "/v1/jobs/H:1/result", b"ab", 3)
    assert core.hear() == []
    core.answer(report, b"", 204)
    assert core.hear() == [(Packet.ECHO_RES, b"done")]


def test_a_repeated_poll_names_the_jobs_of_the_worker() -> None:
    core = Core()
    (poll,) = core.answer(polling_worker(core), {"jobs": [POLLED], "revoked": []})
    assert poll.on_repeat is not None
    poll.on_repeat()
    assert json.loads(poll.body) == {"held": [{"handle": "H:1", "attempt": 3}]}


def test_a_server_that_was_restarted_gets_the_worker_anew() -> None:
    core = Core()
    (poll,) = core.answer(polling_worker(core), {"jobs": [POLLED], "revoked": []})
    (registration,) = core.answer(poll, problem("worker_not_found"), 404)
    assert registration.target == "/v1/workers"
    (poll,) = core.answer(registration, {"id": "w-2"}, 201)
    core.hear()
    core.answer(poll, {"jobs": [{**POLLED, "attempt": 4}], "revoked": []})
    assert [kind for kind, _ in core.hear()] == [Packet.REVOKE, Packet.JOB_PUSH]


def test_a_job_is_not_released_to_the_worker_itself() -> None:
    core = Core()
    (poll,) = core.answer(polling_worker(core), {"jobs": [POLLED], "revoked": []})
    (without_room,) = core.say(request(Packet.CREDIT, b"-1", b"15000"), request(Packet.HAND_BACK, b"H:1"))
    assert "max=0" in without_room.target
    (release,) = core.answer(poll, {"jobs": [], "revoked": []})
    assert release.target == "/v1/jobs/H:1/release"


def test_a_grabbing_worker_sleeps_and_is_woken() -> None:
    core = Core()
    (registration,) = core.say(request(Packet.CAN_DO, b"f"), request(Packet.GRAB_JOB_UNIQ))
    (poll,) = core.answer(registration, {"id": "w"}, 201)
    assert "max=1&wait=0" in poll.target
    core.answer(poll, {"jobs": [], "revoked": []})
    assert core.hear() == [(Packet.NO_JOB, b"")]
    (poll,) = core.say(request(Packet.PRE_SLEEP))
    assert "max=1" in poll.target
    core.answer(poll, {"jobs": [POLLED], "revoked": []})
    assert core.hear() == [(Packet.NOOP, b"")]
    core.say(request(Packet.GRAB_JOB_UNIQ))
    assert core.hear() == [(Packet.JOB_ASSIGN_UNIQ, b"H:1\0f\0\0p")]


def test_what_http_does_not_have() -> None:
    core = Core()
    assert core.say(request(Packet.SUBMIT_JOB_BG, b"\xff", b"", b"")) == []
    (name,) = core.hear()
    assert b"UTF-8" in name[1]


def test_a_graph_is_an_atomic_batch() -> None:
    core = Core()
    (reservation,) = core.say(request(Packet.GRAPH_BEGIN, b"2"))
    assert (reservation.target, reservation.body) == ("/v1/jobs/handles", b'{"count":2}')
    core.answer(reservation, {"first": "H:t:5", "count": 2}, 201)
    assert core.hear() == [(Packet.GRAPH_IDS, b"H:t:5")]
    encoder = GraphEncoder(GraphIds("H:t:5", 2, 0))
    encoder.add(SubmitRequest(b"f", b"one", options={"timeout": 5}))
    after = {"after": ["H:t:5", "H:t:1"], "on_failure": ["wait", "run"]}
    encoder.add(SubmitRequest(b"g", b"\xff", options=after, durable=False))
    parts = [request(Packet.GRAPH_PART, b"H:t:5", part) for part in encoder.parts()]
    (batch,) = core.say(*parts, request(Packet.GRAPH_COMMIT, b"H:t:5"))
    assert batch.target == "/v1/jobs/batch?atomic=1&first=H:t:5"
    assert [json.loads(line) for line in batch.body.splitlines()] == [
        {"function": "f", "timeout": 5, "priority": "normal", "payload": "one"},
        {"function": "g", "priority": "normal", "payload": {"base64": "/w=="}, **after},
    ]
    core.answer(batch, b'{"line":1}\n{"line":2}\n')
    assert core.hear() == [(Packet.GRAPH_CREATED, b"H:t:5\x002")]


def test_the_first_wrong_job_of_a_graph_is_its_refusal() -> None:
    core = Core()
    (reservation,) = core.say(request(Packet.GRAPH_BEGIN, b"1"))
    core.answer(reservation, {"first": "H:t:5", "count": 1}, 201)
    (batch,) = core.say(request(Packet.GRAPH_COMMIT, b"H:t:5"))
    refusal = json.dumps({"line": 1, "problem": {"code": "invalid_field", "detail": "wrong"}}).encode()
    core.translator.on_answer(batch, HttpAnswer(422, "", {"content-type": "application/x-ndjson"}, refusal + b"\n"))
    assert core.hear()[-1] == (Packet.ERROR, b"INVALID_ARGUMENT\0wrong")
    assert core.say(request(Packet.GRAPH_COMMIT, b"H:t:5")) == []
    assert core.hear()[0][1].startswith(b"GRAPH_NOT_FOUND")
