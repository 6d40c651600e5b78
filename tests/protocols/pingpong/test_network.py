"""Workers and a broker with a network between them that takes its time.

A result does not say which job it belongs to, so every mistake about who is at work on what shows in the same way: a
client gets the result of another's job.  Here the worker of the library talks to the broker over connections that delay
every message, reconnect, and lose what was on its way; workers are slow, fail, vanish and leave; the broker stalls;
jobs are cancelled.  Each client must get exactly one answer, and if that is a result, its own.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from switchgear.client.pingpong.worker_protocol import (
    Action,
    ConnectStep,
    DisconnectStep,
    PingPongWorkerProtocol,
    SendMessage,
    StartWork,
)
from tests.protocols.pingpong.harness import Broker

EXPIRE_SECONDS = 3
RESEND_SECONDS = 6
JOBS = 25
WORKERS = 4
MOST_DELAY_SECONDS = 0.45  # so that nothing needs longer than the broker timeout to cross the wire
LONG_ENOUGH_SECONDS = 600


def result_of(job: bytes) -> bytes:
    return b"result of " + job


class SimulatedNetwork:
    """Everything that happens, in the order of its time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.broker = Broker(expire_seconds=EXPIRE_SECONDS, resend_seconds=RESEND_SECONDS)
        self.now = 0.0
        self.stalled_until = 0.0
        self.inbox: list[Callable[[], None]] = []  # of the broker
        self.answers: dict[bytes, list[list[bytes]]] = {}
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._coming, (moment, next(self._number), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def run(self) -> None:
        """Until every client has its answer, and a while longer, for answers that should not come."""
        until = float(LONG_ENOUGH_SECONDS)
        while self._coming[0][0] <= until:
            if len(self.answers) == JOBS:
                until = min(until, self.now + 30)
            moment, _, action = heapq.heappop(self._coming)
            self.now = max(self.now, moment)
            action()

    # --- the broker ---

    def at_broker(self, action: Callable[[], None]) -> None:
        """Have the broker do something; if it stalls, when that is over, in the order in which things arrived."""
        self.inbox.append(action)
        if self.now < self.stalled_until:
            self.at(self.stalled_until, self.handle)
        else:
            self.handle()

    def handle(self) -> None:
        if self.now < self.stalled_until:
            self.at(self.stalled_until, self.handle)
            return
        self.catch_up()
        inbox, self.inbox = self.inbox, []
        for action in inbox:
            action()
            self.deliver()

    def catch_up(self) -> None:
        passed = max(0.0, self.now - self.broker_now())
        if self.stalled_until:
            self.stalled_until = 0.0
            self.broker.jump(passed)
        else:
            self.broker.pass_time(passed)
        self.deliver()

    def broker_now(self) -> float:
        return (self.broker.harness.clock.now_us() - self.started_us) / 1e6

    def deliver(self) -> None:
        for identity, *frames in self.broker.backend.heard_by_all():
            if identity in self.workers:
                self.workers[identity].is_sent(frames)
        for identity, *frames in self.broker.frontend.heard_by_all():
            self.answers.setdefault(identity, []).append(frames)

    def tick(self) -> None:
        """The broker's own timer."""
        self.at_broker(lambda: None)
        self.after(0.1, self.tick)

    # --- the story ---

    def play(self) -> None:
        random = self.random
        self.started_us = self.broker.harness.clock.now_us()
        self.workers: dict[bytes, SimulatedWorker] = {}
        for number in range(WORKERS):
            self.start_worker(b"worker %d" % number)
        for number in range(JOBS):
            job = b"job %d" % number
            self.at(random.uniform(0, 30), lambda job=job: self.submit(job))  # type: ignore[misc]
        for _ in range(3):
            self.at(random.uniform(0, 40), self.stall)
            self.at(random.uniform(0, 40), self.cancel_one)
        self.tick()
        self.run()

    def start_worker(self, identity: bytes) -> None:
        worker = self.workers[identity] = SimulatedWorker(self, identity)
        worker.perform(worker.dialogue.start(self.now))
        worker.look_after()

    def submit(self, job: bytes) -> None:
        self.at_broker(lambda: self.broker.frontend.send(b"client of " + job, b"", job))

    def stall(self) -> None:
        self.stalled_until = self.now + self.random.choice([0.5, 2.0, 5.0])

    def cancel_one(self) -> None:
        def cancel() -> None:
            jobs = list(self.broker.engine.jobs.values())
            if jobs:
                self.broker.do(self.broker.engine.cancel, self.random.choice(jobs))

        self.at_broker(cancel)


class SimulatedWorker:
    """The library's dialogue, at the end of a slow line."""

    def __init__(self, network: SimulatedNetwork, identity: bytes) -> None:
        self.network = network
        self.identity = identity
        self.dialogue = PingPongWorkerProtocol()
        self.is_busy = False
        self.inbox: list[list[bytes]] = []
        self.connection = 0  # its number; 0: none
        self._connections = itertools.count(1)
        self._last_arrival = {"to": 0.0, "from": 0.0}

    def perform(self, actions: list[Action]) -> None:
        network = self.network
        for action in actions:
            match action:
                case ConnectStep():
                    self.inbox.clear()
                    self.connection = next(self._connections)
                case DisconnectStep():
                    self.inbox.clear()
                    self.connection = 0
                case SendMessage(frames):
                    self._send(frames)
                case StartWork(job):
                    self.is_busy = True
                    seconds = network.random.choice([0.0, 0.01, 0.3, 0.9, 1.5, 5.0, 8.0, 20.0])
                    network.after(seconds, lambda job=job: self._end_work(job))  # type: ignore[misc]

    def _send(self, frames: list[bytes]) -> None:
        network = self.network
        network.at(
            self._arrival("from"),
            lambda: network.at_broker(lambda: network.broker.backend.send(self.identity, *frames)),
        )

    def is_sent(self, frames: list[bytes]) -> None:
        """The broker sent this; it is lost if the connection is another by the time it arrives."""
        connection = self.connection

        def arrive() -> None:
            if self.connection == connection != 0:
                self.inbox.append(frames)
                self._read()

        self.network.at(self._arrival("to"), arrive)

    def _arrival(self, direction: str) -> float:
        """When what is sent now arrives: not before what was sent earlier."""
        delay = self.network.random.uniform(0, MOST_DELAY_SECONDS)
        moment = max(self._last_arrival[direction], self.network.now + delay)
        self._last_arrival[direction] = moment
        return moment

    def _read(self) -> None:
        while self.inbox and not self.is_busy and not self.dialogue.is_over:
            self.perform(self.dialogue.receive(self.inbox.pop(0), self.network.now))

    def _end_work(self, job: bytes) -> None:
        network = self.network
        self.is_busy = False
        fate = network.random.random()
        if fate < 0.05:
            self._vanish()
        elif fate < 0.15:
            self.perform(self.dialogue.failed(network.now))
        elif fate < 0.25:
            self.perform([*self.dialogue.leave(network.now), *self.dialogue.finished(result_of(job), network.now)])
            self._vanish_when_over()
        else:
            self.perform(self.dialogue.finished(result_of(job), network.now))
        self._read()

    def _vanish(self) -> None:
        """The process is gone, and another is started in its place."""
        del self.network.workers[self.identity]
        self.connection = 0
        self.dialogue.is_over = True
        self.network.after(1, lambda: self.network.start_worker(self.identity + b"'"))

    def _vanish_when_over(self) -> None:
        if self.dialogue.is_over:
            if self.identity in self.network.workers:
                self._vanish()
        else:
            self.network.after(0.05, self._vanish_when_over)

    def look_after(self) -> None:
        """The worker's own timer."""
        if self.identity not in self.network.workers:
            return
        if not self.is_busy:
            self.perform(self.dialogue.advance(self.network.now))
        self.network.after(0.05, self.look_after)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
@example(5972)  # these have found mistakes
@example(6102)
@example(6834)
@example(21303)
def test_every_client_gets_one_answer_and_no_result_but_its_own(seed: int) -> None:
    network = SimulatedNetwork(seed)
    network.play()
    for number in range(JOBS):
        job = b"job %d" % number
        ((_, *answer),) = network.answers.pop(b"client of " + job)
        if answer[:2] != [b"", b"FAILED"]:
            assert answer == [result_of(job)]
    assert not network.answers
    assert not network.broker.engine.jobs
