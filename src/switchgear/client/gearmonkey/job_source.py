"""`JobSource`: takes the jobs of a worker from Redis, and registers the worker.

One function: its schedule is asked for a due job, and if there is none its three lists, with the document's one second
of blocking, so that due jobs go before all others and start at most a second late.

Several functions: one blocking command over the lists of all, because a second for each would add up. They take turns:
the function that was served last is asked last, and priority decides within a function only. Every schedule is asked
before the lists; but a function that had a due job gets no second one before the lists of the others were read. So no
function starves, whatever the others have.

The count of workers is a number that every worker increments and decrements, so it is wrong after a crash, or when
Redis has lost it. A worker cannot know the right number, but it is sure that it is not below 1: whenever it finds less,
after a lost connection and once in a while, it counts itself in again. And a worker whose deregistration makes the
count negative was not counted, so it undoes the deregistration.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from switchgear.client.gearmonkey.commands import LOAD_SCRIPT, SCRIPT_SHA1, GearMonkeyFunction, pop
from switchgear.client.gearmonkey.records import integer
from switchgear.client.gearmonkey.retrying_connection import RetryingConnection, WorkerFlow, WorkerTiming
from switchgear.errors import ClientError, ServerRefused

__all__ = ["JobSource", "TakenJob"]

log = logging.getLogger("switchgear")

# Redis has no BRPOP that does not block; 0 would be for ever.
GLANCE_SECONDS: Final = 0.01


class TakenJob(NamedTuple):
    """The id of a job that was taken from its queue."""

    function: GearMonkeyFunction
    job_id: int


class JobSource:
    """The queues of all functions that a worker accepts."""

    def __init__(self, connection: RetryingConnection, timing: WorkerTiming, now: Callable[[], float]) -> None:
        self._connection = connection
        self._timing = timing
        self._now = now
        self._is_script_loaded = False
        self._newcomers: deque[GearMonkeyFunction] = deque()  # accepted and not yet counted
        self._turn: list[GearMonkeyFunction] = []  # the function that was served last is the last
        self._sated: GearMonkeyFunction | None = None  # it was served last, and from its schedule
        self._check_counts_at = 0.0
        self._failures_seen = 0

    @property
    def functions(self) -> list[GearMonkeyFunction]:
        return [*self._turn, *self._newcomers]

    def add(self, function: GearMonkeyFunction) -> None:
        """Take jobs of this function too, from the next look on."""
        self._newcomers.append(function)

    def take(self) -> WorkerFlow[TakenJob | None]:
        """The next job, if one comes within the time of one look; raises ClientError."""
        yield from self._sign_on()
        for function in [*self._turn]:
            if function is self._sated and (taken := (yield from self._glance_at_others(function))):
                return taken
            if taken := (yield from self._take_due(function)):
                return taken
        return (yield from self._take_from_lists(self._turn, self._timing.block_seconds))

    def sign_off(self) -> WorkerFlow[None]:
        """Subtract this worker from `count:FN` of all its functions; never raises."""
        while self._turn:
            function = self._turn.pop()
            try:
                count = integer((yield from self._connection.call_until_success(function.count_out())))
                if count is not None and count < 0:
                    yield from self._connection.call_until_success(function.count_in())
            except ClientError as error:
                log.error("GearMonkey worker: could not deregister from the count of %r: %s", function.name, error)

    # --- taking ---

    def _take_due(self, function: GearMonkeyFunction) -> WorkerFlow[TakenJob | None]:
        command = function.take_due(self._now())
        try:
            item = yield from self._connection.call(command)
        except ServerRefused as error:
            if error.code != "NOSCRIPT":
                raise
            yield from self._load_script()
            item = yield from self._connection.call(command)
        return self._taken(function, item[1], from_schedule=True) if item else None

    def _glance_at_others(self, function: GearMonkeyFunction) -> WorkerFlow[TakenJob | None]:
        return (
            yield from self._take_from_lists([other for other in self._turn if other is not function], GLANCE_SECONDS)
        )

    def _take_from_lists(self, functions: Sequence[GearMonkeyFunction], seconds: float) -> WorkerFlow[TakenJob | None]:
        item = (yield from self._connection.call(pop(functions, seconds))) if functions else None
        if not item:
            return None
        function = next(function for function in functions if item[0] in function.lists)
        return self._taken(function, item[1], from_schedule=False)

    def _taken(self, function: GearMonkeyFunction, member: bytes, *, from_schedule: bool) -> TakenJob | None:
        self._turn.remove(function)
        self._turn.append(function)
        self._sated = function if from_schedule else None
        job_id = integer(member)
        if job_id is None:
            log.warning("GearMonkey worker: %r in a queue of %r is not a job id; skipped", member[:64], function.name)
            return None
        return TakenJob(function, job_id)

    # --- the script and the roll ---

    def _sign_on(self) -> WorkerFlow[None]:
        if not self._is_script_loaded:
            yield from self._load_script()
        if not self._turn:
            self._counts_are_right()
        while self._newcomers:
            yield from self._connection.call(self._newcomers[0].count_in())
            self._turn.append(self._newcomers.popleft())
        if self._failures_seen != self._connection.failures_total or time.monotonic() >= self._check_counts_at:
            yield from self._check_counts()

    def _load_script(self) -> WorkerFlow[None]:
        answer = yield from self._connection.call(LOAD_SCRIPT)
        digest = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
        if digest != SCRIPT_SHA1:
            raise ServerRefused("SCRIPT", f"the script's SHA-1 is {SCRIPT_SHA1}, but Redis answers {digest!r}")
        self._is_script_loaded = True

    def _check_counts(self) -> WorkerFlow[None]:
        self._counts_are_right()  # unless the following fails, which is a failure since then
        for function in self._turn:
            answer = yield from self._connection.call(function.roll_call())
            count = 0 if answer is None else integer(answer)
            if count is None:
                log.warning("GearMonkey worker: the count of %r is not a number: %r", function.name, answer)
            elif count < 1:
                yield from self._connection.call(function.count_in())
                log.warning("GearMonkey worker: Redis had lost the count of %r; registered again", function.name)

    def _counts_are_right(self) -> None:
        self._failures_seen = self._connection.failures_total
        self._check_counts_at = time.monotonic() + self._timing.count_check_seconds
