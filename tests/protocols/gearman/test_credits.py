"""Workers that grant credit and are pushed to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.engine.engine import SubmitOptions
from switchgear.model import NORMAL, READY, Delivery, Job, UniquePolicy
from switchgear.protocols.gearman.messages import Packet
from switchgear.testing import check_engine
from tests.protocols.gearman.harness import Harness, Talker
from tests.protocols.gearman.transcript import MANNERS, Transcript, load, play
from tests.support.wire import Kind, request
from tests.support.wire import Packet as Heard


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", load("credits"), ids=str)
def test_conversations(transcript: Transcript, manner: str) -> None:
    play(transcript, manner)


# --- why a worker should stop ---


def replace(harness: Harness, job: Job) -> None:
    options = SubmitOptions(unique_policy=UniquePolicy.REPLACE)
    harness.engine.submit(b"f", b"key", b"x", NORMAL, Delivery.HANDLE, None, options)


@pytest.mark.parametrize(
    ("reason", "cause", "holds"),
    [
        (b"cancelled", lambda harness, job: harness.engine.cancel(job), True),
        (b"cancelled", replace, True),
        (b"done", lambda harness, job: harness.engine.complete_unowned(job, b"by another"), True),
        (b"held_back", lambda harness, job: harness.engine.add_predecessors(job, (2,)), False),
        (b"timed_out", lambda harness, job: harness.pass_time(60), False),
    ],
    ids=["cancelled", "replaced", "settled", "held back", "timed out"],
)
def test_reasons(reason: bytes, cause: Callable[[Harness, Job], object], holds: bool) -> None:
    """After some of them the job is the worker's until it reports, after others it is its no more."""
    harness = Harness()
    client, worker = harness.talker("client"), harness.talker("worker")
    client.send(request(Packet.SUBMIT_JOB_OPTIONS, b"f", b"key", b'{"timeout":60}', b"x"))
    client.send(request(Kind.SUBMIT_JOB_BG, b"g", b"", b"y"))
    worker.send(request(Kind.CAN_DO, b"f"), request(Packet.CREDIT, b"1", b"0"))
    assert len(worker.heard()) == 1
    cause(harness, harness.engine.jobs[1])
    harness.end_turn()
    assert worker.heard() == [Heard(Packet.REVOKE, b"H:t:1\0" + reason)]
    worker.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"late"))
    assert bool(worker.heard()) != holds
    check_engine(harness.engine)


# --- the end of a conversation ---


def test_nothing_is_pushed_to_a_worker_that_has_stopped_sending() -> None:
    harness = Harness()
    client, worker = harness.talker("client"), harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Packet.CREDIT, b"5", b"0"))
    worker.session.eof()
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x"))
    assert worker.heard() == []
    job = harness.engine.jobs[1]
    assert (job.attempts, job.function.ready) == (0, 1)


def test_a_job_that_would_go_down_with_the_connection_has_lost_nothing() -> None:
    harness = Harness()
    client, worker = harness.talker("client"), harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Packet.CREDIT, b"5", b"0"))
    worker.session.closing = True  # it is about to be hung up on
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x"), request(Kind.SUBMIT_JOB_BG, b"f", b"", b"y"))
    assert worker.heard() == []
    assert [(job.attempts, job.state) for job in harness.engine.jobs.values()] == [(0, READY), (0, READY)]
    check_engine(harness.engine)


def test_a_lease_ends_with_its_worker() -> None:
    harness = Harness()
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Packet.CREDIT, b"5", b"1000"))
    worker.leave()
    harness.pass_time(10)
    assert not harness.engine.workers


def test_silence_means_nothing_while_nobody_listens() -> None:
    harness = Harness()
    worker = harness.talker("worker")
    worker.send(request(Kind.CAN_DO, b"f"), request(Packet.CREDIT, b"5", b"1000"))
    worker.session.not_read()
    harness.pass_time(10)
    worker.session.read_again()
    harness.pass_time(0.999)
    assert not worker.wire.is_closed
    harness.pass_time(0.001)
    assert worker.wire.is_closed


def test_long_words_of_progress_are_cut() -> None:
    harness = Harness()
    client, worker = harness.talker("client"), harness.talker("worker")
    client.send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x"))
    worker.send(request(Kind.CAN_DO, b"f"), request(Packet.CREDIT, b"1", b"0"))
    worker.send(request(Packet.WORK_PROGRESS, b"H:t:1", b"1", b"2", b"m" * 5000))
    assert len(harness.engine.jobs[1].message) == 1024


# --- never more than the credit, and never less than there is to do ---


class Account:
    """A worker, and what it may still be sent."""

    def __init__(self, talker: Talker, functions: tuple[bytes, ...]) -> None:
        self.talker = talker
        self.credit = 0
        self.held: list[bytes] = []  # handles
        talker.send(*(request(Kind.CAN_DO, function) for function in functions))

    def change(self, number: int) -> None:
        self.credit = max(0, self.credit + number)
        self.talker.send(request(Packet.CREDIT, b"%d" % number, b"0"))

    def look(self) -> None:
        """What has come since, each job for a credit."""
        for packet in self.talker.heard():
            assert isinstance(packet, Heard)
            if packet.type == Packet.JOB_PUSH:
                self.credit -= 1
                self.held.append(packet.body.split(b"\0")[0])
            else:
                assert packet.type == Packet.REVOKE
            assert self.credit >= 0, "more jobs than credit"

    def report(self, kind: int, *words: bytes) -> None:
        if self.held:
            self.talker.send(request(kind, self.held.pop(0), *words))


ACTIONS = st.one_of(
    st.tuples(st.just("credit"), st.integers(0, 1), st.integers(-4, 4)),
    st.tuples(st.just("submit"), st.integers(0, 1), st.integers(1, 4)),
    st.tuples(st.just("complete"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("retry"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("hand back"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("cancel"), st.integers(0, 1), st.integers(1, 20)),
    st.tuples(st.just("pause"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("time"), st.integers(0, 1), st.just(0)),
)
REPORTS = {
    "complete": (Kind.WORK_COMPLETE, b"done"),
    "retry": (Packet.RETRY_LATER, b"500", b"", b"busy"),
    "hand back": (Packet.HAND_BACK,),
}


def act(harness: Harness, accounts: list[Account], action: tuple[str, int, int]) -> None:
    word, which, number = action
    function = harness.engine.function_named((b"f", b"g")[which])
    if word == "credit":
        accounts[which].change(number)
    elif word == "submit":
        harness.talker("client").send(*[request(Kind.SUBMIT_JOB_BG, function.name, b"", b"x")] * number)
        harness.talker("client").take_bytes()
    elif word in REPORTS:
        kind, *words = REPORTS[word]
        accounts[which].report(int(kind), *(bytes(word) for word in words if isinstance(word, bytes)))
    elif word == "cancel":
        harness.talker("client").send(b"cancel job H:t:%d\n" % number)
        harness.talker("client").take_bytes()
    elif word == "pause":
        (harness.engine.resume if function.paused else harness.engine.pause)(function)
        harness.end_turn()
    elif word == "read":
        harness.peers_read = not harness.peers_read
        for account in accounts:
            if harness.peers_read and account.talker.session.write_paused:
                account.talker.session.go_on()
        harness.end_turn()
    else:
        harness.pass_time(1)


@pytest.mark.parametrize("long_bytes", [1, 8 * 1024 * 1024], ids=["slow readers", "fast readers"])
@settings(max_examples=150, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=40))
def test_credit_is_never_exceeded_and_always_used(long_bytes: int, actions: list[tuple[str, int, int]]) -> None:
    harness = Harness(long_bytes=long_bytes)
    accounts = [Account(harness.talker("first"), (b"f", b"g")), Account(harness.talker("second"), (b"g",))]
    for action in actions:
        act(harness, accounts, action)
        for account in accounts:
            account.look()
        check_engine(harness.engine)
    if not harness.peers_read:
        act(harness, accounts, ("read", 0, 0))
    for account in accounts:
        account.look()
    for name, able in ((b"f", accounts[:1]), (b"g", accounts)):
        function = harness.engine.function_named(name)
        if not function.paused and function.ready:
            assert not any(account.credit for account in able), "a job lies ready, and there is credit for it"
