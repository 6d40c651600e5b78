"""Whatever strangers send: nothing raises, the tables agree (`MessageHarness.turn` looks), memory is bounded."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.engine import one_job_workers
from switchgear.engine.engine import EngineSettings
from switchgear.protocols.pingpong.broker import ClientsSession, WorkersSession
from tests.protocols.pingpong.harness import Broker, come_back, lose

frames = st.one_of(
    st.sampled_from([b"", b"READY", b"PING", b"PONG", b"LEAVE", b"FAILED"]),
    st.binary(max_size=5),
)
messages = st.lists(frames, min_size=1, max_size=5)
sensible = st.sampled_from([[b"", b"READY"], [b"", b"PING"], [b"", b"result"], [b"", b"", b"LEAVE"], [b"", b"job"]])
peers = st.sampled_from([b"a", b"b", b"c", b"\0\1\2\3\4"])

happenings = st.one_of(
    st.tuples(st.just("client"), peers, messages | sensible),
    st.tuples(st.just("worker"), peers, messages | sensible),
    st.tuples(st.just("time"), st.sampled_from([0.0, 0.5, 1.0, 3.0, 5.0]), st.none()),
    st.tuples(st.sampled_from(["lose", "come back"]), peers, st.none()),
    st.tuples(st.sampled_from(["background", "cancel", "pause", "resume", "keep", "clock"]), st.none(), st.none()),
)
MOST_OWING = 2


def happen(broker: Broker, kind: str, about: object, message: list[bytes] | None) -> None:
    match kind, about:
        case "client", bytes(peer):
            assert message is not None
            broker.frontend.send(peer, *message)
        case "worker", bytes(peer):
            assert message is not None
            broker.backend.send(peer, *message)
        case "time", float(seconds):
            broker.pass_time(seconds)
        case "lose", bytes(peer):
            lose(broker.backend, peer)
            lose(broker.frontend, peer)
        case "come back", bytes(peer):
            come_back(broker.backend, peer)
            come_back(broker.frontend, peer)
        case "background", _:
            broker.submit(b"from elsewhere")
        case "cancel", _:
            for job in list(broker.engine.jobs.values())[:1]:
                broker.do(broker.engine.cancel, job)
        case "pause", _:
            broker.do(broker.engine.pause, broker.engine.function_named(b"pingpong"))
        case "resume", _:
            broker.do(broker.engine.resume, broker.engine.function_named(b"pingpong"))
        case "keep", _:
            broker.harness.keep()
        case _:
            broker.harness.clock.set_wall_clock(-1000)
            broker.do(broker.engine.clock_moved, broker.harness.clock.follow_wall_clock())


def check_tables(broker: Broker) -> None:
    """What the sessions remember is what the engine knows, and no more."""
    clients, session = broker.frontend.session, broker.backend.session
    assert isinstance(clients, ClientsSession)
    assert isinstance(session, WorkersSession)
    workers = session.workers
    assert clients.envelopes.keys() == clients.subscriptions.keys()
    assert {record.worker for record in workers.known.values()} == set(broker.engine.workers.values())
    assert not workers.known.keys() & workers.owing.keys()
    assert len(workers.owing) <= MOST_OWING
    for record in workers.known.values():
        assert record.worker is not None
        running = list(record.worker.running)
        assert running == ([record.job_id] if record.sent is not None else [])
        assert record.worker.credits == (0 if running else 1)
        assert bool(record.worker.lease_until_us) == (not running)
    for record in workers.owing.values():
        assert (record.worker, record.sent) == (None, None)
        assert record.job_id


@settings(max_examples=400, deadline=None)
@given(st.lists(happenings, max_size=40), st.booleans())
def test_whatever_happens_the_tables_agree(story: list[tuple[str, object, list[bytes] | None]], keeps: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_job_workers, "MOST_OWING", MOST_OWING)
        broker = Broker(expire_seconds=2, resend_seconds=4, keeps=keeps, settings=EngineSettings(attempts=2))
        for kind, about, message in story:
            happen(broker, kind, about, message)
            check_tables(broker)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(peers, messages | sensible), max_size=40))
def test_every_ping_is_answered_by_one_pong(story: list[tuple[bytes, list[bytes]]]) -> None:
    broker = Broker()
    for peer, message in story:
        broker.backend.send(peer, *message)
    pings = Counter(peer for peer, message in story if message == [b"", b"PING"])
    pongs = Counter(message[0] for message in broker.backend.heard_by_all() if message[1:] == [b"", b"PONG"])
    assert pongs == pings


@settings(max_examples=200, deadline=None)
@given(st.lists(messages, max_size=20))
def test_every_request_with_a_delimiter_is_answered_once(requests: list[list[bytes]]) -> None:
    broker = Broker()
    for number, request in enumerate(requests):
        broker.frontend.send(b"client %d" % number, *request)
    broker.worker_says(b"w", [b"", b"READY"])
    while broker.engine.jobs:
        broker.worker_says(b"w", [b"", b"result"])
    for number, request in enumerate(requests):
        answers = broker.heard_by_client(b"client %d" % number)
        assert len(answers) == (b"" in request)
        for answer in answers:
            envelope = request[: request.index(b"") + 1]
            assert answer[: len(envelope)] == envelope
            assert answer[len(envelope) :][:2] in ([b"result"], [b"", b"FAILED"])
