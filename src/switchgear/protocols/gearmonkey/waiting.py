"""What a connection waits for: a job, or the end of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from switchgear.errors import PeerError
from switchgear.model import HIGH, LOW, NORMAL, URGENT, Function, Job, Worker
from switchgear.protocols.base import MOST_FUNCTIONS
from switchgear.protocols.gearmonkey.keys import Key, Kind, wrong_type
from switchgear.protocols.gearmonkey.resp import array, bulk

if TYPE_CHECKING:
    from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["LockWait", "PopPlan", "QueueWait"]

ALL_QUEUES: Final = frozenset({HIGH, NORMAL, LOW})

MOST_QUEUE_KEYS: Final = 3 * MOST_FUNCTIONS  # that one pop may name: the three queues of each function

# Jobs may arrive in a queue while somebody waits at only some of the queues of a function.  The engine knows of no such
# worker, so it is looked after every so often.
POLL_US: Final = 200_000


class PopPlan:
    """How to pop from a list of queues."""

    def __init__(self, keys: Sequence[bytes], worker: Worker, wanted: list[tuple[Function, int]]) -> None:
        self.keys = keys
        self.worker = worker
        self.wanted = wanted  # in this order; empty: whatever the engine finds best for this worker

    @classmethod
    def make(cls, session: GearMonkeySession, keys: Sequence[bytes]) -> PopPlan:
        """Whoever pops from all queues of its functions is a worker as the engine knows them."""
        if len(keys) > MOST_QUEUE_KEYS:
            raise PeerError(f"more than {MOST_QUEUE_KEYS} keys at once", code="ERR")
        wanted: list[tuple[Function, int]] = []
        priorities: dict[Function, set[int]] = {}
        for text in keys:
            kind, name, priority = session.key(text)
            if kind is not Kind.QUEUE or priority == URGENT:
                raise wrong_type()
            function = session.engine.function_named(name)
            wanted.append((function, priority))
            priorities.setdefault(function, set()).add(priority)
        worker = session.worker_for(frozenset(priorities))
        is_complete = all(found == ALL_QUEUES for found in priorities.values())
        return cls(keys, worker, [] if is_complete else wanted)

    def take(self, session: GearMonkeySession) -> Job | None:
        """A job that can be had now."""
        engine = session.engine
        worker = self.worker
        if not self.wanted:
            return engine.take(worker)
        for function, priority in self.wanted:
            job = engine.take_of(worker, function, priority)
            if job is not None:
                return job
        return None

    def check_room(self, session: GearMonkeySession) -> None:
        """Whether the worker may have one more; raises PeerError."""
        limit = session.engine.settings.jobs_per_worker
        if limit and len(self.worker.running) >= limit:
            raise PeerError(f"this connection has {limit} jobs that it has not reported on", code="ERR")


class QueueWait:
    """A connection waits for a job."""

    def __init__(self, plan: PopPlan, until_us: int) -> None:
        self.plan = plan
        self.until_us = until_us  # 0: for ever
        self.is_polling = bool(plan.wanted)
        self.is_over = False  # its time, if it is polling
        self.end_ticket = 0  # of the alarms of one that is polling: the clock may be set, and they move along
        self._poll_ticket = 0

    def begin(self, session: GearMonkeySession) -> None:
        engine = session.engine
        if self.is_polling:
            self._poll_later(session)
            if self.until_us:
                self.end_ticket = engine.alarm(self.plan.worker, self.until_us)
        elif self.until_us:
            engine.grant_until(self.plan.worker, self.until_us)
        else:
            engine.grant(self.plan.worker, 1)

    def _poll_later(self, session: GearMonkeySession) -> None:
        engine = session.engine
        self._poll_ticket = engine.alarm(self.plan.worker, engine.now_us + POLL_US)

    def poll(self, session: GearMonkeySession) -> None:
        """Look again, in a turn of its own."""
        if session.blocked is not self:
            return
        job = self.plan.take(session)
        if job is None and not self.is_over:
            self._poll_later(session)
            return
        self.end(session)
        if job is not None:
            session.assign(self.plan.worker, job)
        else:
            session.give_up()

    def end(self, session: GearMonkeySession) -> None:
        engine = session.engine
        engine.withdraw_credit(self.plan.worker)
        for ticket in (self._poll_ticket, self.end_ticket):
            engine.cancel_alarm(self.plan.worker, ticket)


class LockWait:
    """A connection waits for the end of one of these jobs."""

    WORD: Final = b"OK"  # what is in a lock list

    def __init__(self, texts: dict[Key, bytes], until_us: int) -> None:
        self.texts = texts  # of the keys, as they were written
        self.until_us = until_us  # 0: for ever
        self.ticket = 0

    def begin(self, session: GearMonkeySession) -> None:
        for key in self.texts:
            session.setup.locks.wait(session, key.number)
            job = session.engine.job(key.number)
            if job is not None:
                self.watch(session, job)
        if self.until_us:
            self.ticket = session.setup.timer.start(session, self.until_us)

    def watch(self, session: GearMonkeySession, job: Job) -> None:
        """The job is there, and its end will be heard of."""
        if self.key_of(job) in self.texts and job.id not in session.watching:
            session.engine.watch(job, session)

    @staticmethod
    def key_of(job: Job) -> Key:
        return Key(Kind.LOCK, job.function.name, job.id)

    def job_finished(self, session: GearMonkeySession, job: Job) -> None:
        """One of the jobs has ended.  The first who waits for it gets what is in its list."""
        text = self.texts.get(self.key_of(job))
        ended = session.setup.locks.job_ended(job.id, job.function.name, job.finished_us)
        if text is None or ended.is_taken:
            return
        ended.is_taken = True
        self.end(session)
        session.unblock()
        self.answer(session, text)
        if job.delivery:
            session.pledge()

    @classmethod
    def answer(cls, session: GearMonkeySession, text: bytes) -> None:
        session.send(array((bulk(text), bulk(cls.WORD))))

    def end(self, session: GearMonkeySession) -> None:
        """Wait no more.  The engine may be at work when this is called; it is only told to forget the time."""
        for key in self.texts:
            session.setup.locks.stop_waiting(session, key.number)
        session.setup.timer.stop(self.ticket)
