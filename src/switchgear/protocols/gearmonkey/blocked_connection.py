"""`QueueWait` and `LockWait`: a blocked connection that waits for a job, or for the end of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from switchgear.errors import PeerError
from switchgear.model import HIGH, LOW, NORMAL, URGENT, Function, Job, Timer, Worker
from switchgear.protocols.gearmonkey.keys import Key, KeyKind, wrong_type
from switchgear.protocols.gearmonkey.resp import array, bulk
from switchgear.protocols.handles import MOST_FUNCTIONS

if TYPE_CHECKING:
    from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["LockWait", "PopPlan", "QueueWait"]

ALL_QUEUES: Final = frozenset({HIGH, NORMAL, LOW})

MOST_QUEUE_KEYS: Final = 3 * MOST_FUNCTIONS  # in one pop: the three queues of each function


class PopPlan:
    """How to pop from a list of queues."""

    def __init__(
        self,
        keys: Sequence[bytes],
        worker: Worker,
        wanted: list[tuple[Function, int]],
        priorities: dict[Function, tuple[int, ...]],
    ) -> None:
        self.keys = keys
        self.worker = worker
        self.wanted = wanted  # in this order; empty: the engine chooses
        self.priorities = priorities  # by function; empty: all

    @classmethod
    def make(cls, session: GearMonkeySession, keys: Sequence[bytes]) -> PopPlan:
        """Make the plan: a connection that pops from all queues of its functions is an ordinary worker of the
        engine."""
        if len(keys) > MOST_QUEUE_KEYS:
            raise PeerError(f"more than {MOST_QUEUE_KEYS} keys at once", code="ERR")
        wanted: list[tuple[Function, int]] = []
        priorities: dict[Function, set[int]] = {}
        for text in keys:
            kind, name, priority = session.key(text)
            if kind is not KeyKind.QUEUE or priority == URGENT:
                raise wrong_type()
            function = session.engine.function_named(name)
            wanted.append((function, priority))
            priorities.setdefault(function, set()).add(priority)
        worker = session.worker_for(frozenset(priorities))
        some = {function: () if found == ALL_QUEUES else tuple(sorted(found)) for function, found in priorities.items()}
        return cls(keys, worker, wanted if any(some.values()) else [], some)

    def take(self, session: GearMonkeySession) -> Job | None:
        """Take a job, if there is one now."""
        engine = session.engine
        worker = self.worker
        if not self.wanted:
            return engine.take(worker)
        for function, priority in self.wanted:
            job = engine.take_of(worker, function, priority)
            if job is not None:
                return job
        return None

    def register(self, session: GearMonkeySession) -> None:
        """Register the worker for exactly the named queues."""
        worker = self.worker
        if self.wanted or worker.priorities is not None:
            for function, priorities in self.priorities.items():
                session.engine.can_do(worker, function, 0, priorities)

    def check_room(self, session: GearMonkeySession) -> None:
        """Check whether the worker may have one more job; raises PeerError."""
        limit = session.engine.settings.jobs_per_worker
        if limit and len(self.worker.running) >= limit:
            raise PeerError(f"this connection has {limit} jobs that it has not reported on", code="ERR")


class QueueWait:
    """A connection waits for a job."""

    def __init__(self, plan: PopPlan, until_us: int) -> None:
        self.plan = plan
        self.until_us = until_us  # 0: no limit

    def begin(self, session: GearMonkeySession) -> None:
        engine = session.engine
        self.plan.register(session)
        if self.until_us:
            engine.grant_until(self.plan.worker, self.until_us)
        else:
            engine.grant(self.plan.worker, 1)

    def end(self, session: GearMonkeySession) -> None:
        session.engine.withdraw_credit(self.plan.worker)


class LockWait:
    """A connection waits for the end of one of these jobs."""

    WORD: Final = b"OK"  # the content of a lock list

    def __init__(self, texts: dict[Key, bytes], until_us: int) -> None:
        self.texts = texts  # the keys as the client wrote them
        self.until_us = until_us  # 0: no limit
        self.timer: Timer | None = None

    def begin(self, session: GearMonkeySession) -> None:
        if self.until_us:
            self.timer = session.engine.set_timer(session, self.until_us)
        for key in self.texts:
            session.setup.locks.wait(session, key.number)
            job = session.job_to_await(key.number)
            if job is not None:
                self.watch(session, job)

    def watch(self, session: GearMonkeySession, job: Job) -> None:
        """Subscribe to a job that exists now."""
        if self.key_of(job) in self.texts and job.id not in session.subscriptions:
            session.engine.subscribe(job, session)

    @staticmethod
    def key_of(job: Job) -> Key:
        return Key(KeyKind.LOCK, job.function.told_name, job.id)

    def job_finished(self, session: GearMonkeySession, job: Job) -> None:
        """Handle the end of one of the jobs. The first waiting client gets the token of its lock list."""
        text = self.texts.get(self.key_of(job))
        ended = session.setup.locks.job_ended(job.id, job.function.told_name, job.finished_us)
        if text is None or ended.is_taken:
            return
        ended.is_taken = True
        self.end(session)
        session.unblock()
        self.answer(session, text)

    @classmethod
    def answer(cls, session: GearMonkeySession, text: bytes) -> None:
        session.send(array((bulk(text), bulk(cls.WORD))))

    def end(self, session: GearMonkeySession) -> None:
        """End the wait. The engine may be calling; only the timer is cancelled."""
        for key in self.texts:
            session.setup.locks.stop_waiting(session, key.number)
        if self.timer is not None:
            session.engine.cancel_timer(self.timer)
