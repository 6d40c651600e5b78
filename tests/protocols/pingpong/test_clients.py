"""The client's side: envelopes, answers, failures, and requests that make no sense."""

from __future__ import annotations

import pytest

from switchgear.engine.engine import EngineSettings
from switchgear.model import Job, Peer, Worker
from tests.protocols.pingpong.harness import READY, Broker, failed


@pytest.fixture
def broker() -> Broker:
    return Broker()


class ElsewhereWorker(Peer):
    """A worker that speaks another protocol, and can say more about its job."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker
        self.worker: Worker = broker.engine.add_worker(self, "other")
        broker.engine.can_do(self.worker, broker.engine.function_named(b"pingpong"))

    def take(self) -> Job:
        job = self.broker.engine.take(self.worker)
        assert job is not None
        return job


# --- envelopes ---


def test_what_is_before_the_delimiter_comes_back_before_the_delimiter(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.frontend.send(b"c", b"tag", b"another", b"", b"job")
    assert broker.heard_by_worker(b"w") == [[b"", b"job"]]
    broker.worker_says(b"w", [b"", b"result"])
    assert broker.heard_by_client(b"c") == [[b"tag", b"another", b"", b"result"]]


def test_several_requests_of_one_client_are_told_apart_by_their_tags(broker: Broker) -> None:
    for worker in (b"v", b"w"):
        broker.worker_says(worker, READY)
    broker.frontend.send(b"c", b"1", b"", b"slow")
    broker.frontend.send(b"c", b"2", b"", b"fast")
    broker.worker_says(b"w", [b"", b"result of fast"])
    broker.worker_says(b"v", [b"", b"result of slow"])
    assert broker.heard_by_client(b"c") == [[b"2", b"", b"result of fast"], [b"1", b"", b"result of slow"]]


def test_the_first_empty_frame_is_the_delimiter_and_the_job_may_be_empty(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.frontend.send(b"c", b"", b"")
    assert broker.heard_by_worker(b"w") == [[b"", b""]]


def test_equal_jobs_of_two_clients_are_two_jobs(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    for client in (b"c", b"d"):
        broker.client_asks(client, b"job")
    broker.worker_says(b"w", [b"", b"first"])
    broker.worker_says(b"w", [b"", b"second"])
    assert broker.heard_by_client(b"c") == [[b"", b"first"]]
    assert broker.heard_by_client(b"d") == [[b"", b"second"]]


# --- requests that make no sense ---


@pytest.mark.parametrize("frames", [[b"job"], [b"tag", b"job"]], ids=["one frame", "two"])
def test_without_a_delimiter_there_is_nowhere_to_send_an_answer(broker: Broker, frames: list[bytes]) -> None:
    broker.frontend.send(b"c", *frames)
    assert broker.bad_input == ["MALFORMED"]
    assert broker.heard_by_client(b"c") == []
    assert not broker.engine.jobs


@pytest.mark.parametrize(
    ("frames", "envelope", "text"),
    [
        ([b""], [], "a request is one frame after the delimiter, not 0"),
        ([b"tag", b""], [b"tag"], "a request is one frame after the delimiter, not 0"),
        ([b"", b"two", b"frames"], [], "a request is one frame after the delimiter, not 2"),
        ([b"", b"", b""], [], "a request is one frame after the delimiter, not 2"),
        ([b"t"] * 17 + [b"", b"job"], [b"t"] * 17, "more than 16 frames and 4096 bytes before the delimiter"),
        ([b"t" * 4096, b"", b"job"], [b"t" * 4096], "more than 16 frames and 4096 bytes before the delimiter"),
    ],
)
def test_any_other_mistake_is_answered_with_a_failure(
    broker: Broker, frames: list[bytes], envelope: list[bytes], text: str
) -> None:
    broker.frontend.send(b"c", *frames)
    assert broker.bad_input == ["MALFORMED"]
    assert broker.heard_by_client(b"c") == [[*envelope, *failed(text)]]
    assert not broker.engine.jobs


def test_as_many_frames_as_may_be_before_the_delimiter(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.frontend.send(b"c", *[b"t"] * 16, b"", b"job")
    broker.worker_says(b"w", [b"", b"result"])
    assert broker.heard_by_client(b"c") == [[*[b"t"] * 16, b"", b"result"]]


# --- how a job may end ---


def test_a_failure_that_a_worker_of_another_protocol_explained(broker: Broker) -> None:
    other = ElsewhereWorker(broker)
    broker.client_asks(b"c", b"job")
    broker.do(broker.engine.fail, other.worker, other.take().id, 1, b"no such image")
    assert broker.heard_by_client(b"c") == [failed("no such image")]


def test_a_failure_that_nobody_explained(broker: Broker) -> None:
    other = ElsewhereWorker(broker)
    broker.client_asks(b"c", b"job")
    broker.do(broker.engine.fail, other.worker, other.take().id, 7)
    assert broker.heard_by_client(b"c") == [failed("failed with code 7")]


def test_a_result_that_came_in_parts_is_put_together(broker: Broker) -> None:
    other = ElsewhereWorker(broker)
    broker.client_asks(b"c", b"job")
    job = other.take()
    broker.do(broker.engine.data, other.worker, job.id, b"one ")
    broker.do(broker.engine.complete, other.worker, job.id, b"two")
    assert broker.heard_by_client(b"c") == [[b"", b"one two"]]


def test_a_result_of_which_parts_are_missing_is_no_result() -> None:
    broker = Broker(settings=EngineSettings(collected_bytes=5))
    other = ElsewhereWorker(broker)
    broker.client_asks(b"c", b"job")
    job = other.take()
    for part in (b"12345", b"6"):
        broker.do(broker.engine.data, other.worker, job.id, part)
    broker.do(broker.engine.complete, other.worker, job.id, b"7")
    assert broker.heard_by_client(b"c") == [failed("the result came in parts of more than 5 bytes")]


def test_cancelled(broker: Broker) -> None:
    broker.client_asks(b"c", b"job")
    broker.do(broker.engine.cancel, broker.only_job())
    assert broker.heard_by_client(b"c") == [failed("cancelled")]


def test_a_full_queue() -> None:
    broker = Broker(settings=EngineSettings(jobs=1))
    broker.client_asks(b"c", b"one")
    broker.frontend.send(b"c", b"tag", b"", b"two")
    assert broker.heard_by_client(b"c") == [[b"tag", *failed("Job queue is full")]]
    assert broker.bad_input == []  # nobody is to blame


def test_a_server_that_is_being_stopped(broker: Broker) -> None:
    broker.engine.drain()
    broker.client_asks(b"c", b"job")
    assert broker.heard_by_client(b"c") == [failed("server is shutting down")]


def test_a_client_that_is_gone_does_not_matter(broker: Broker) -> None:
    broker.worker_says(b"w", READY)
    broker.client_asks(b"gone", b"job")
    broker.frontend.socket.gone.add(b"gone")
    broker.worker_says(b"w", [b"", b"result"])
    assert broker.ready_queue() == [b"w"]
    assert not broker.engine.jobs


# --- the server stops ---


def test_whoever_still_waits_when_the_server_stops_is_told_so(broker: Broker) -> None:
    broker.frontend.send(b"c", b"tag", b"", b"job")
    broker.frontend.session.closed()
    broker.harness.turn()
    assert broker.heard_by_client(b"c") == [[b"tag", *failed("the server is shutting down")]]
    assert not broker.engine.jobs
