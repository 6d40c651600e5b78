"""The worker's flow, against servers without a wire."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchgear.client import ReconnectBackoff, ServerAddress
from switchgear.client.draft.worker_flow import (
    DraftTask,
    DraftTiming,
    DraftWorkerConnection,
    DraftWorkerFlow,
    failed,
    succeeded,
)
from switchgear.errors import JobFailed
from switchgear.protocols.gearman_draft.messages import Result
from tests.client.draft_network import RecordingObserver, SimulatedNetwork
from tests.support.draft_wire import (
    ASK,
    SLEEP,
    THROW_AWAY,
    WAIT,
    ErrorCode,
    Kind,
    create,
    numbers,
    packet,
    split_packets,
)
from tests.support.reads import kept_job

PACE = DraftTiming(
    sleep_threshold_seconds=1.0, pause_seconds=0.25, sleep_seconds=30.0, backoff=ReconnectBackoff(rng=lambda: 1.0)
)
HAPPENINGS = ("sleeping", "woken", "started", "ended")


class Shop:
    """A worker in a network."""

    def __init__(self, servers: int = 1, timing: DraftTiming = PACE) -> None:
        self.network = SimulatedNetwork(servers)
        self.diary = RecordingObserver()
        self.working = DraftWorkerFlow(
            self.network.urls, ["f", "g"], timing, self.diary, self.network.announce, self.network.clock
        )

    def run(self) -> None:
        self.network.perform(self.working.work())

    def stop(self) -> None:
        self.working.stopping = True

    def stop_after(self, seconds: float) -> None:
        self.network.after(seconds, self.stop)

    def submit(self, port: int, args: bytes = b"x", name: bytes = b"f") -> None:
        peer = self.network.peer(port, "app")
        peer.send(create(name, args, THROW_AWAY))
        peer.take_bytes()

    def asked(self) -> list[int]:
        """The ports at which a task was asked for, in order."""
        return [port for port, data in self.network.sent if data.startswith(ASK)]

    def asleep(self) -> list[bool]:
        """Which servers know that the worker sleeps."""
        return [
            worker.asleep for harness in self.network.harnesses.values() for worker in harness.engine.workers.values()
        ]


def test_one_task_from_each_server_in_turn() -> None:
    shop = Shop(servers=3)
    for port in (1, 2, 3):
        for n in (1, 2):
            shop.submit(port, b"%d-%d" % (port, n))
    shop.stop_after(10)
    shop.run()
    started = shop.diary.started()
    assert sorted(started[:3]) == [b"1-1", b"2-1", b"3-1"]
    assert sorted(started[3:]) == [b"1-2", b"2-2", b"3-2"]
    assert not any(harness.engine.jobs for harness in shop.network.harnesses.values())


def test_every_server_is_asked_in_turn_until_the_threshold_and_then_told_of_the_sleep() -> None:
    shop = Shop(servers=3)
    shop.network.after(5, lambda: asleep.extend(shop.asleep()))
    asleep: list[bool] = []
    shop.stop_after(6)
    shop.run()
    # The connections are there after the first round; one second has four pauses of a quarter.
    assert shop.asked()[:12] == [1, 2, 3] * 4
    assert asleep == [True, True, True]
    first_sleep = next(place for place, (_, data) in enumerate(shop.network.sent) if data == SLEEP)
    assert [port for port, data in shop.network.sent[first_sleep : first_sleep + 3]] == [1, 2, 3]


@pytest.mark.parametrize("port", [1, 2, 3])
def test_a_sleeping_worker_is_woken_by_whichever_server_has_work(port: int) -> None:
    shop = Shop(servers=3)
    shop.network.after(10, lambda: shop.submit(port))
    shop.stop_after(15)
    shop.run()
    happenings = shop.diary.of(*HAPPENINGS)
    place = happenings.index(("woken", port))
    assert happenings[place - 1] == ("sleeping",)
    assert happenings[place + 1 : place + 4] == [("started", port, b"x"), ("ended", b"x", 0), ("sleeping",)]


def test_a_sleeping_worker_gets_up_when_the_time_is_over() -> None:
    shop = Shop(servers=2)
    shop.stop_after(100)
    shop.run()
    assert shop.diary.of("sleeping", "woken").count(("woken", None)) == 3  # 100 s are three times 31 s and a rest
    assert not shop.diary.of("refused", "disconnected")


def test_the_result_and_the_progress_reach_the_application() -> None:
    shop = Shop()

    def handler(task: DraftTask) -> tuple[int, bytes]:
        task.progress(1, 4, 30)
        task.progress(2, 4)
        task.progress(3, 4, 0.2)
        return 17, task.args[::-1]

    shop.network.handler = handler
    app = shop.network.peer(1, "app")
    app.send(create(b"g", b"abc", WAIT))
    shop.stop_after(2)
    shop.run()
    assert [heard.body for heard in app.packets()] == [
        b"",
        numbers(1, 4, 30),
        numbers(2, 4, 0),
        numbers(3, 4, 1),  # less than a second is still a second: none would mean that nobody knows
        numbers(1) + b"\x11cba",
    ]


def test_a_handler_that_fails_ends_its_task_and_nothing_else() -> None:
    shop = Shop()

    def handler(task: DraftTask) -> bytes:
        raise RuntimeError(f"cannot do {task.args!r}")

    shop.network.handler = handler
    shop.submit(1, b"1")
    shop.submit(1, b"2")
    shop.stop_after(3)
    shop.run()
    assert shop.diary.of("ended") == [("ended", b"1", 1), ("ended", b"2", 1)]
    job = kept_job(shop.network.harnesses[1].store, 1)
    assert job is not None
    assert (job.result_code, job.result) == (1, b"RuntimeError: cannot do b'1'")


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (b"data", Result(0, b"data")),
        (None, Result(0, b"")),
        ((3, b"data"), Result(3, b"data")),
        ((0, b""), Result(0, b"")),
    ],
)
def test_what_a_handler_may_return(value: bytes | tuple[int, bytes] | None, result: Result) -> None:
    assert succeeded(value) == result


@pytest.mark.parametrize("value", ["text", (256, b""), (-1, b""), (1, "text"), (1, b"", b""), 5, ("1", b"x")])
def test_what_a_handler_may_not_return(value: object) -> None:
    assert succeeded(value).code == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ValueError("no"), Result(1, b"ValueError: no")),
        (JobFailed("no", b"reason"), Result(1, b"reason")),
        (JobFailed("no"), Result(1, b"no")),
    ],
)
def test_what_a_handler_may_raise(error: Exception, result: Result) -> None:
    assert failed(error) == result


def test_so_many_tasks_and_no_more() -> None:
    shop = Shop(timing=DraftTiming(tasks_total=2))
    for n in range(5):
        shop.submit(1, b"%d" % n)
    shop.run()
    assert shop.diary.started() == [b"0", b"1"]
    assert len(shop.network.harnesses[1].engine.jobs) == 3


def test_a_worker_that_is_stopped_finishes_its_task_and_says_goodbye() -> None:
    shop = Shop(servers=2)

    def handler(task: DraftTask) -> bytes:
        shop.stop()
        return b"done"

    shop.network.handler = handler
    shop.submit(1, b"1")
    shop.submit(2, b"2")
    shop.run()
    assert len(shop.diary.of("ended")) == 1
    assert not any(harness.engine.workers for harness in shop.network.harnesses.values())
    assert sum(len(harness.engine.jobs) for harness in shop.network.harnesses.values()) == 1
    assert not any(line.is_open for line in shop.working.connections)


# --- servers that come and go ---


def test_a_server_that_is_not_there_is_tried_again_and_the_others_are_served() -> None:
    shop = Shop(servers=2)
    shop.network.kill(1)
    shop.submit(2, b"now")
    shop.network.after(20, lambda: shop.network.start(1))
    shop.network.after(21, lambda: shop.submit(1, b"later"))
    shop.stop_after(60)
    shop.run()
    assert shop.diary.started() == [b"now", b"later"]
    attempts = shop.diary.of("disconnected").count(("disconnected", 1))
    assert 5 <= attempts <= 10  # pauses of 0.1, 0.2, 0.4 ... seconds


def test_a_server_that_is_lost_during_the_sleep_is_called_again_at_once() -> None:
    shop = Shop(servers=2)
    shop.network.after(10, lambda: shop.network.kill(2))
    shop.network.after(10, lambda: shop.network.start(2))
    shop.network.after(10.5, lambda: shop.submit(2))
    shop.stop_after(12)
    shop.run()
    assert ("disconnected", 2) in shop.diary.entries
    assert shop.diary.of("started") == [("started", 2, b"x")]


def test_a_task_whose_server_is_lost_is_dropped() -> None:
    shop = Shop(servers=2)

    def handler(task: DraftTask) -> bytes:
        if task.args == b"doomed":
            shop.network.kill(1)
        return b"done"

    shop.network.handler = handler
    shop.submit(1, b"doomed")
    shop.submit(2, b"fine")
    shop.stop_after(5)
    shop.run()
    assert ("dropped", b"doomed") in shop.diary.entries
    assert shop.diary.of("ended") == [("ended", b"fine", 0)]


def test_a_server_that_does_not_answer_is_given_up() -> None:
    shop = Shop(servers=2)
    shop.network.silent.add(1)
    shop.network.after(1, lambda: shop.submit(2))
    shop.stop_after(25)
    shop.run()
    assert ("disconnected", 1) in shop.diary.entries
    assert shop.diary.of("started") == [("started", 2, b"x")]


def test_a_worker_needs_a_server_and_a_name() -> None:
    make: list[Callable[[], DraftWorkerFlow]] = [
        lambda: DraftWorkerFlow([], ["f"], PACE, None, lambda task, data: None),
        lambda: DraftWorkerFlow("gearman://host", [], PACE, None, lambda task, data: None),
    ]
    for attempt in make:
        with pytest.raises(ValueError, match="needs a server and a name"):
            attempt()


# --- two meanings of noop ---

NOOP = packet(Kind.noop)
TASK = packet(Kind.job_assign_res, b"f\0args")
FENCED = packet(Kind.error, bytes([ErrorCode.unknown_handle]) + b"unknown")


def line_that_slept() -> tuple[DraftWorkerConnection, RecordingObserver]:
    diary = RecordingObserver()
    line = DraftWorkerConnection(ServerAddress("server", 1), [b"f"], diary, ReconnectBackoff())
    line.opening()
    assert line.opened() == packet(Kind.worker_connect, b"f")
    assert line.task_request() == ASK
    line.receive(NOOP)
    assert line.is_answered()
    assert line.sleep() == SLEEP
    return line, diary


def test_who_was_called_asks_plainly() -> None:
    line, _ = line_that_slept()
    line.receive(NOOP)
    assert line.calls
    assert line.task_request() == ASK


def test_who_gets_up_by_itself_asks_with_a_fence() -> None:
    line, _ = line_that_slept()
    kinds = [sent.kind for sent in split_packets(line.task_request())]
    assert kinds == [Kind.job_assign_req, Kind.job_status_req]


def test_a_call_that_crosses_the_question_is_not_taken_for_the_answer() -> None:
    line, diary = line_that_slept()
    line.task_request()
    line.receive(NOOP)
    assert not line.is_answered()
    line.receive(TASK)
    assert line.is_answered()
    assert line.take_assignment() == (b"f", b"args")
    line.receive(FENCED)  # comes when nobody waits for it any more
    assert not diary.of("refused")
    assert line.task_request() == ASK


@pytest.mark.parametrize("noops", [1, 2])
def test_the_fence_tells_that_there_is_no_task(noops: int) -> None:
    line, _ = line_that_slept()
    line.task_request()
    line.receive(NOOP * noops)
    assert not line.is_answered()
    line.receive(FENCED)
    assert line.is_answered()
    assert line.take_assignment() is None
    assert not line.calls


def test_a_fence_that_is_late_does_not_answer_the_next_question() -> None:
    line, _ = line_that_slept()
    line.task_request()
    line.receive(TASK)
    line.task_request()
    line.receive(FENCED)
    assert not line.is_answered()
    line.receive(NOOP)
    assert line.is_answered()


def test_an_error_answers_the_question() -> None:
    line, diary = line_that_slept()
    line.receive(NOOP)
    line.task_request()
    line.receive(packet(Kind.error, bytes([ErrorCode.busy]) + b"busy"))
    assert line.is_answered()
    assert diary.of("refused") == [("refused", 1, "BUSY")]


def test_a_task_that_nobody_asked_for_ends_the_conversation() -> None:
    line, _ = line_that_slept()
    line.receive(TASK)
    assert not line.is_open


# --- servers that know only the fourteen packets of the draft ---


class PlainServer:
    """Answers a worker as the draft says, and does nothing about a handle that it has not given."""

    def __init__(self, line: DraftWorkerConnection) -> None:
        self.line = line
        self.tasks = 0
        self.fences = 0

    def take(self, data: bytes) -> None:
        for sent in split_packets(data):
            if sent.kind == Kind.job_assign_req:
                self.line.receive(TASK if self.tasks else NOOP)
                self.tasks = max(0, self.tasks - 1)
            elif sent.kind == Kind.job_status_req:
                self.fences += 1


def test_a_noop_counts_as_the_answer_if_the_fence_stays_away() -> None:
    line, diary = line_that_slept()
    server = PlainServer(line)
    server.take(line.task_request())
    assert line.is_settled()
    assert not line.is_answered()
    assert line.seconds_for_second_answer == 1.0
    line.take_noop_as_answer()
    assert line.is_answered()
    line.sleep()
    server.take(line.task_request())
    assert server.fences == 1, "such a server is sent no second fence"
    assert line.seconds_for_second_answer == 0.05
    assert not diary.of("refused")


def test_a_task_that_comes_after_the_noop_that_was_taken_for_the_answer_is_run() -> None:
    line, _ = line_that_slept()
    line.task_request()
    line.receive(NOOP)
    line.take_noop_as_answer()
    line.receive(TASK)
    assert line.is_open
    assert line.calls, "a worker that sleeps meanwhile is woken"
    assert line.has_assignment
    assert line.take_assignment() == (b"f", b"args")
    assert not line.has_assignment


def test_a_status_is_an_answer_to_the_fence_too() -> None:
    line, _ = line_that_slept()
    line.task_request()
    line.receive(NOOP + packet(Kind.job_status_res, numbers(0, 0, 0)))
    assert line.is_answered()
    assert line.answers_fences


def test_a_server_that_closes_the_connection_at_a_fence_is_sent_no_other() -> None:
    line, _ = line_that_slept()
    line.task_request()
    line.lost("closed")
    line.opening()
    line.opened()
    line.sleep()
    assert line.task_request() == ASK


def test_a_server_that_has_answered_fences_and_is_silent_is_given_up() -> None:
    shop = Shop(timing=DraftTiming(sleep_threshold_seconds=0.0, sleep_seconds=5.0))
    shop.network.after(12.0, lambda: shop.network.silent.add(1))
    shop.stop_after(40)
    shop.run()
    assert shop.working.connections[0].answers_fences
    assert ("disconnected", 1) in shop.diary.entries


def test_a_real_server_answers_the_fence_in_order() -> None:
    shop = Shop(timing=DraftTiming(sleep_threshold_seconds=0.0, sleep_seconds=5.0))
    for seconds in (5.0, 10.0, 15.0):  # just when the worker gets up by itself
        shop.network.after(seconds, lambda: shop.submit(1))
    shop.stop_after(40)
    shop.run()
    assert len(shop.diary.of("ended")) == 3
    assert not shop.diary.of("refused", "disconnected", "dropped")
