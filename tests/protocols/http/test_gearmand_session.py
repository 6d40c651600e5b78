"""gearmand's HTTP interface: one request on a connection, and its answer."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.errors import Refused
from switchgear.model import HIGH, LOW, NORMAL, Job, Worker
from switchgear.protocols.http.gearmand_session import GearmandHttpSession
from switchgear.refusals import REFUSED_STORAGE
from switchgear.testing.recording_peer import RecordingPeer
from tests.protocols.http.harness import Answer, HttpHarness, read_answer, request
from tests.protocols.recording_transport import RecordingTransport


class GearmandPeer:
    """One connection, seen from the other end."""

    def __init__(self, harness: HttpHarness, *, any_host: bool = False) -> None:
        self.harness = harness
        self.wire = RecordingTransport(harness, "127.0.0.1")
        self.session = self.wire.session = GearmandHttpSession(harness, self.wire, harness.setup, any_host=any_host)

    def send(self, data: bytes) -> None:
        self.harness.engine.advance(self.harness.clock.now_us())
        if not self.wire.is_closed:
            self.session.receive(data)
        self.harness.turn()

    def answer(self, method: str = "POST") -> Answer:
        read = read_answer(self.wire.written, method, is_over=self.wire.is_closed)
        assert read is not None, self.wire.written
        assert not read[1]
        assert self.wire.is_closed
        return read[0]


class GearmandHarness(HttpHarness):
    """A server with gearmand's HTTP interface, and one worker."""

    def __init__(self, *, keeps: bool = False) -> None:
        super().__init__(keeps=keeps)
        self.worker: Worker = self.engine.add_worker(RecordingPeer(), "test")
        self.engine.can_do(self.worker, self.engine.function_named(b"f"))

    def post(self, target: str = "/f", body: bytes = b"payload", **headers: str) -> GearmandPeer:
        peer = GearmandPeer(self)
        words = {f"X-Gearman-{name.capitalize()}": value for name, value in headers.items()}
        peer.send(request("POST", target, body, words))
        return peer

    def take(self) -> Job:
        job = self.engine.take(self.worker)
        assert job is not None
        return job

    def complete(self, result: bytes) -> Job:
        job = self.take()
        self.engine.complete(self.worker, job.id, result)
        self.turn()
        return job


@pytest.fixture
def harness() -> GearmandHarness:
    return GearmandHarness()


def test_the_answer_has_the_result(harness: GearmandHarness) -> None:
    client = harness.post(body=b"cat.png")
    assert client.wire.written == b""
    job = harness.complete(b"done")
    answer = client.answer()
    assert (job.payload, answer.status, answer.body) == (b"cat.png", 200, b"done")
    assert answer.headers["x-gearman-job-handle"] == f"H:t:{job.id}"
    assert answer.headers["x-gearman-command"] == "WORK_COMPLETE"
    assert answer.headers["connection"] == "close"


def test_a_long_result_is_a_long_answer(harness: GearmandHarness) -> None:
    client = harness.post()
    harness.complete(b"x" * 100_000)
    assert client.answer().body == b"x" * 100_000


def test_parts_of_a_result_are_joined_and_warnings_left_out(harness: GearmandHarness) -> None:
    client = harness.post()
    job = harness.take()
    harness.engine.data(harness.worker, job.id, b"one, ")
    harness.engine.warning(harness.worker, job.id, b"careful")
    harness.engine.complete(harness.worker, job.id, b"two")
    harness.turn()
    assert client.answer().body == b"one, two"


def test_a_result_whose_parts_are_missing_is_no_result(harness: GearmandHarness) -> None:
    client = harness.post()
    job = harness.take()
    harness.engine.data(harness.worker, job.id, b"x" * (harness.engine.settings.collected_bytes + 1))
    harness.engine.complete(harness.worker, job.id, b"end")
    harness.turn()
    answer = client.answer()
    assert (answer.status, answer.headers["x-gearman-command"]) == (500, "ERROR")


def test_a_failed_job_is_an_answer_without_a_body(harness: GearmandHarness) -> None:
    client = harness.post()
    job = harness.take()
    harness.engine.fail(harness.worker, job.id)
    harness.turn()
    answer = client.answer()
    assert (answer.status, answer.headers["x-gearman-command"], answer.body) == (200, "WORK_FAIL", b"")


@pytest.mark.parametrize(("word", "priority"), [("high", HIGH), ("HIGH", HIGH), ("low", LOW), ("other", NORMAL)])
def test_headers_name_key_and_priority(harness: GearmandHarness, word: str, priority: int) -> None:
    harness.post(unique="k", priority=word)
    job = harness.take()
    assert (job.priority, job.unique) == (priority, b"k")


def test_equal_payloads_share_a_job_unless_a_key_is_named(harness: GearmandHarness) -> None:
    first, second = harness.post(body=b"same"), harness.post(body=b"same")
    third = harness.post(body=b"same", unique="k")
    harness.complete(b"once")
    assert first.answer().body == second.answer().body == b"once"
    harness.complete(b"again")
    assert third.answer().body == b"again"


def test_a_background_job_is_answered_when_it_is_stored() -> None:
    harness = GearmandHarness(keeps=True)
    client = harness.post(background="true")
    assert client.wire.written == b""
    harness.keep()
    answer = client.answer()
    assert (answer.headers["x-gearman-command"], answer.headers["x-gearman-job-handle"]) == ("JOB_CREATED", "H:t:1")


def test_a_background_job_that_cannot_be_stored_is_refused() -> None:
    harness = GearmandHarness(keeps=True)
    client = harness.post(background="true")
    harness.fail_to_keep(Refused(REFUSED_STORAGE, "disk full"))
    answer = client.answer()
    assert (answer.status, answer.headers["x-gearman-command"]) == (503, "ERROR")
    assert answer.body.startswith(b"QUEUE_ERROR ")


def test_a_job_that_nobody_waits_for_any_more_is_dropped(harness: GearmandHarness) -> None:
    client = harness.post()
    client.session.closed()
    harness.turn()
    assert harness.engine.take(harness.worker) is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT"])
def test_the_four_methods_submit(harness: GearmandHarness, method: str) -> None:
    client = GearmandPeer(harness)
    client.send(request(method, "/f", b"p" if method in ("POST", "PUT") else None))
    harness.complete(b"result")
    answer = client.answer(method)
    assert answer.headers["content-length"] == "6"
    assert answer.body == (b"" if method == "HEAD" else b"result")


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("POST", "/", 404), ("GET", "//", 404), ("HEAD", "/", 200), ("TRACE", "/f", 405), ("DELETE", "/f", 405)],
)
def test_what_is_no_submission(harness: GearmandHarness, method: str, target: str, status: int) -> None:
    client = GearmandPeer(harness)
    client.send(request(method, target, b"x" if method == "POST" else None))
    assert client.answer(method).status == status
    assert harness.engine.take(harness.worker) is None


def test_the_name_is_the_target_as_it_is_written(harness: GearmandHarness) -> None:
    harness.engine.can_do(harness.worker, harness.engine.function_named(b"a%20b?c=d"))
    harness.post("///a%20b?c=d")
    assert harness.take().function.name == b"a%20b?c=d"


def test_too_long_words_are_errors(harness: GearmandHarness) -> None:
    answer = harness.post(unique="u" * 65).answer()
    assert (answer.status, answer.body) == (400, b"ARGUMENT_TOO_LARGE Unique value too large\n")
    assert harness.post("/" + "n" * 65).answer().body.startswith(b"ARGUMENT_TOO_LARGE the name of the function")


def test_broken_requests_are_answered_and_counted(harness: GearmandHarness) -> None:
    client = GearmandPeer(harness)
    client.send(b"POST /f HTTP/1.1\nContent-Length: 1\n\nx")
    assert client.answer().status == 400
    assert [code for code, _ in harness.bad_input] == ["malformed_request"]
    client = GearmandPeer(harness)
    client.send(b"POST /f HTTP/1.1\r\nContent-Length: 10001\r\n\r\n")
    assert client.answer().status == 413


def test_requests_after_the_first_are_ignored(harness: GearmandHarness) -> None:
    client = GearmandPeer(harness)
    client.send(request("POST", "/f", b"one") * 3)
    client.send(b"anything" * 1000)
    harness.complete(b"1")
    assert client.answer().body == b"1"
    assert harness.engine.take(harness.worker) is None


def test_an_announced_body_is_asked_for(harness: GearmandHarness) -> None:
    client = GearmandPeer(harness)
    data = request("POST", "/f", b"body", {"Expect": "100-continue"})
    client.send(data[:-4])
    assert client.wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(data[-4:])
    assert harness.complete(b"ok").payload == b"body"
    assert client.answer().body == b"ok"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "rebound.example"}, 421),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_other_sites_submit_nothing(
    harness: GearmandHarness, method: str, headers: dict[str, str], status: int
) -> None:
    client = GearmandPeer(harness)
    client.send(request(method, "/f", b"x" if method == "POST" else None, headers))
    assert client.answer().status == status
    assert harness.engine.take(harness.worker) is None


def test_a_listener_for_other_machines_has_any_name(harness: GearmandHarness) -> None:
    client = GearmandPeer(harness, any_host=True)
    client.send(request("POST", "/f", b"x", {"Host": "jobs.example"}))
    assert harness.take().payload == b"x"
    client = GearmandPeer(harness, any_host=True)
    client.send(b"GET /f HTTP/1.1\r\n\r\n")
    assert harness.take().payload == b""


def test_a_full_server_refuses(harness: GearmandHarness) -> None:
    harness.engine.drain()
    answer = harness.post().answer()
    assert (answer.status, answer.headers["x-gearman-command"]) == (503, "ERROR")


@given(st.lists(st.integers(0, 200), max_size=6))
def test_slicing_never_matters(cuts: list[int]) -> None:
    harness = GearmandHarness()
    client = GearmandPeer(harness)
    data = request("POST", "/f", b"some payload", {"X-Gearman-Unique": "k", "X-Gearman-Priority": "low"})
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        client.send(data[start:end])
    job = harness.complete(b"r")
    assert (job.payload, job.unique, job.priority) == (b"some payload", b"k", LOW)
    assert client.answer().body == b"r"
    assert client.session.buffered_bytes <= 2


@given(st.binary(max_size=300), st.sampled_from([b"", b"POST /f HTTP/1.1\r\n", b"GET /f HTTP/1.1\r\nX: "]))
def test_no_bytes_break_it(data: bytes, start: bytes) -> None:
    harness = GearmandHarness()
    client = GearmandPeer(harness)
    client.send(start + data)
    client.session.eof()
    harness.turn()
    assert not client.wire.written or client.wire.written.startswith(b"HTTP/1.1 ")
