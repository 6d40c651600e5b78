"""The checker: what was said between a server and its peers, and whether it can all be true.

Every event is one call of `record`; it is written to the ledger and then taken into account, so that the same history
can be read again from the ledger, whole or up to a moment (`replayed`).

A job is known by the token that its submitter put into the payload, and by its number once somebody was told it.
Three sets of jobs follow from the events:

- owed: the server acknowledged the job and nobody has done anything that may have ended it.  It must be there.
- ended: its end was acknowledged.  It must never be handed out or listed again.
- in doubt, which is the rest: something that may have ended it was sent, and no answer came.

Whether two things that different connections saw happened in the order in which we read them is not certain.  So a
hand-out is only held against the server if the worker asked for it after the end of the job was acknowledged.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from torture.ledger import Event, Ledger

EVENTS_TOLD = 30  # the last so many of a job are shown when something is wrong with it


class Listed(NamedTuple):
    """One unfinished job as the server lists it."""

    number: int
    function: str
    unique: str
    name: str


class Violation(NamedTuple):
    """Something that must not be."""

    kind: str  # lost, run again, doubled, attempts, early, held, refused, reused
    text: str


@dataclass(slots=True)
class Submission:
    """What a submitter was about to ask for."""

    at: int
    function: str
    unique: str
    attempts: int  # the limit; 0: none
    run_at: float  # by the clock of the server; 0: at once


@dataclass(slots=True, eq=False)
class KnownJob:
    """What is known of one job."""

    tokens: list[str]
    number: int = 0
    kept_at: int = 0  # when a durable submission of it was acknowledged
    end_told: bool = False  # a waiting client was told the end
    ends_sent: int = 0  # reports, cancels and the like that may have ended it
    ended_at: int = 0  # when its end was acknowledged
    ended_at_ns: int = 0
    is_cancel_sent: bool = False
    starts: int = 0  # how often a worker was given it
    free_starts: int = 0  # how many of these cost no attempt
    holder: str = ""  # the connection that has it now
    held_until_ns: int = 0
    events: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"job {self.number or '?'} ({', '.join(self.tokens[:3])})"


@dataclass(slots=True)
class Question:
    """Something that the server answers; the answer acknowledges the reports that were sent before it."""

    asked_at: int
    by: str
    reported: list[KnownJob]


class History:
    """All jobs of all lives of one store."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._alarm: Callable[[], None] | None = None
        self._alarm_answers = 0
        self.now = 0  # counts events
        self.now_ns = 0
        self.life = 1  # of the server
        self.counts: Counter[str] = Counter()
        self.violations: list[Violation] = []
        self.owed: dict[KnownJob, None] = {}
        self.refusals_allowed = False
        self.is_stopping = False
        self.default_attempts = 0
        self.wall_minus_monotonic = 0.0
        self.cancel_seconds = 0.0  # for so long a job that is cancelled may still be given to a worker of another node
        self.wall_ahead = 0.0  # the most by which the server's clock was ahead of ours
        # By function: when the latest submission that was acknowledged was sent.
        self.accepted_since: dict[str, int] = {}
        self._by_token: dict[str, KnownJob] = {}
        self._by_number: dict[int, KnownJob] = {}
        self._by_key: dict[tuple[str, str], KnownJob] = {}  # the last one acknowledged
        self._submissions: dict[str, Submission] = {}
        self._questions: dict[int, Question] = {}
        self._next_question = 0
        self._reported: dict[str, list[KnownJob]] = defaultdict(list)  # by connection: what no question covers yet
        self._held: dict[str, dict[KnownJob, None]] = defaultdict(dict)  # by connection

    def record(self, kind: str, *values: Any) -> Any:
        """Something happened."""
        event: Event = (time.monotonic_ns(), kind, *values)
        if self._ledger is not None:
            self._ledger.write(event)
        result = self.apply(event)
        if self._alarm is not None and self.answers >= self._alarm_answers:
            alarm, self._alarm = self._alarm, None
            alarm()
        return result

    def alarm_after(self, answers: int, alarm: Callable[[], None] | None) -> None:
        """Call this the moment after so many more answers."""
        self._alarm = alarm
        self._alarm_answers = self.answers + answers

    def apply(self, event: Event) -> Any:
        """Take an event into account."""
        self.now_ns, kind, *values = event
        self.now += 1
        self.counts[kind] += 1
        return getattr(self, "on_" + kind)(*values)

    @property
    def answers(self) -> int:
        """How often the server has said something that counts."""
        counts = self.counts
        return counts["acknowledged"] + counts["answered"] + counts["told_end"] + counts["cancelled"]

    def submitted_as(self, token: str) -> tuple[str, str]:
        """The function and the unique key that a submitter asked for."""
        asked = self._submissions[token]
        return asked.function, asked.unique

    # --- how this run is set ---

    def on_settings(self, default_attempts: int, wall_minus_monotonic: float) -> None:
        """The server's own limit of attempts, and how our clocks differ."""
        self.default_attempts = default_attempts
        self.wall_minus_monotonic = wall_minus_monotonic

    def on_faults(self, active: bool) -> None:
        """From now on the server may refuse submissions and reports, or may not any more."""
        self.refusals_allowed = active

    def on_cancels_take(self, seconds: float) -> None:
        """The server is several nodes, of which one may have lent a job to another one when it is cancelled."""
        self.cancel_seconds = seconds

    def on_clock(self, offset_seconds: float) -> None:
        """The server's clock was set."""
        self.wall_ahead = max(self.wall_ahead, offset_seconds)

    # --- submitters ---

    def on_submitting(self, token: str, function: str, unique: str, attempts: int, run_at: float) -> None:
        """Before a submission is sent; `attempts` of -1 is the server's setting."""
        limit = self.default_attempts if attempts < 0 else attempts
        self._submissions[token] = Submission(self.now, function, unique, limit, run_at)

    def on_acknowledged(self, token: str, number: int, by: str) -> None:
        """The server says that it keeps the job."""
        job = self._job(token, number, f"acknowledged to {by}")
        self._check_unique(job, token)
        asked = self._submissions.get(token)
        if asked is not None:
            self.accepted_since[asked.function] = max(asked.at, self.accepted_since.get(asked.function, 0))
        if not job.kept_at:
            job.kept_at = self.now
            if job.end_told:
                self._end(job)
            elif not job.ends_sent:
                self.owed[job] = None

    def on_created(self, token: str, number: int, by: str) -> None:
        """The server has the job, and does not promise to keep it."""
        self._job(token, number, f"created for {by}, not durable")

    def on_refused(self, token: str, words: str, by: str) -> None:
        if not self.refusals_allowed:
            self._violate("refused", f"{by}: submission {token} was refused: {words}")

    def on_told_end(self, token: str, number: int, by: str) -> None:
        """A client that waits for the job was told how it ended."""
        job = self._job(token, number, f"{by} was told its end")
        job.end_told = True
        self._may_end(job)
        if job.kept_at:
            self._end(job)

    def on_cancelling(self, number: int, by: str) -> None:
        job = self._by_number[number]
        job.is_cancel_sent = True
        self._note(job, f"{by} sends a cancel")
        self._may_end(job)

    def on_cancelled(self, number: int, by: str) -> None:
        job = self._by_number[number]
        self._note(job, f"the cancel of {by} is acknowledged")
        self._end(job)

    def on_not_cancelled(self, number: int, by: str) -> None:
        """The server says that there is nothing to cancel, so the job must have ended before."""
        job = self._by_number[number]
        self._note(job, f"the cancel of {by} is answered: unknown job")
        limited = any(self._limit(token) for token in job.tokens)
        if job.kept_at and job.ends_sent == 1 and not limited:
            self._blame("lost", job, "was acknowledged, nobody else ended it, and the server does not know it")

    def on_surprised(self, words: str) -> None:
        """A peer was told something that it did not expect."""
        if not self.refusals_allowed:
            self._violate("surprise", words)

    # --- workers ---

    def on_asks(self, by: str) -> int:
        """Something was sent that will be answered; returns the number of the question."""
        self._next_question += 1
        self._questions[self._next_question] = Question(self.now, by, self._reported.pop(by, []))
        return self._next_question

    def on_answered(self, question: int) -> None:
        """So what was reported before the question is kept."""
        asked = self._questions.pop(question)
        for job in asked.reported:
            self._note(job, f"the report of {asked.by} is acknowledged")
            self._end(job)

    def on_denied(self, question: int, words: str) -> None:
        """Something that was reported before the question was not taken; which of it is not said."""
        asked = self._questions[question]
        for job in asked.reported:
            self._let_go(job, f"a report of {asked.by} is refused")
        asked.reported.clear()
        if not self.refusals_allowed:
            self._violate("refused", f"{asked.by}: a report on a job that it held was refused: {words}")

    def on_unanswered(self, question: int) -> None:
        """The answer to a question says nothing of what was reported before it, which stays in doubt."""
        asked = self._questions.pop(question)
        for job in asked.reported:
            self._let_go(job, f"the report of {asked.by} is not acknowledged")

    def on_assigned(self, token: str, number: int, question: int, by: str, asked_at: int, held_seconds: float) -> None:
        """A worker was given a job, by the answer to a question or, if that is 0, after it said at `asked_at` that it
        wanted one.  For `held_seconds` nobody else may have it, unless the connection is closed."""
        asked = self._questions.get(question)
        if asked is not None:
            asked_at = asked.asked_at
        job = self._job(token, number, f"handed to {by}")
        job.starts += 1
        if self.is_stopping and job.holder not in ("", by):
            job.free_starts += 1  # the server has taken it from a worker that has not hung up yet, or has vanished
        if job.ended_at and asked_at > job.ended_at and not self._is_cancel_on_its_way(job):
            self._blame("run again", job, "was handed out after its end had been acknowledged")
        if job.holder and job.holder != by and self.now_ns < job.held_until_ns:
            self._blame("held", job, f"was given to {by} while {job.holder} had it")
        self._check_start(job, token)
        job.holder = by
        job.held_until_ns = self.now_ns + int(held_seconds * 1e9)
        self._held[by][job] = None

    @property
    def may_take_back(self) -> bool:
        """Whether a server may take back jobs that workers have, without a word."""
        return self.is_stopping or self.cancel_seconds > 0

    def _is_cancel_on_its_way(self, job: KnownJob) -> bool:
        return job.is_cancel_sent and self.now_ns - job.ended_at_ns < self.cancel_seconds * 1e9

    def on_reporting(self, token: str, how: str, by: str) -> None:
        """A worker is about to say how its job ended."""
        job = self._by_token[token]
        self._note(job, f"{by} sends {how}")
        self._reported[by].append(job)
        self._held[by].pop(job, None)
        self._may_end(job)

    def on_releasing(self, token: str, by: str) -> None:
        """A worker gives a job back, which costs no attempt."""
        job = self._by_token[token]
        job.free_starts += 1
        job.held_until_ns = 0
        self._held[by].pop(job, None)
        self._let_go(job, f"{by} gives it back")

    def on_closed(self, by: str) -> None:
        """A connection is closed: what it held goes back."""
        for job in self._held.pop(by, ()):
            self._let_go(job, f"{by} hangs up")
        unanswered = [number for number, question in self._questions.items() if question.by == by]
        in_doubt = [self._reported.pop(by, []), *(self._questions.pop(number).reported for number in unanswered)]
        for job in chain.from_iterable(in_doubt):
            self._let_go(job, f"{by} hangs up before its report was acknowledged")

    # --- the server ---

    def on_stopping(self) -> None:
        """The server is told to stop in order: it refuses what it will not do, and gives back what runs."""
        self.refusals_allowed = self.is_stopping = True

    def on_gone(self) -> None:
        """The server is gone.  Nobody holds anything now, and unanswered questions stay unanswered."""
        for by in {*self._held, *self._reported, *(question.by for question in self._questions.values())}:
            self.on_closed(by)
        self.life += 1
        self.refusals_allowed = self.is_stopping = False

    def on_listed(self, rows: Iterable[Iterable[Any]]) -> list[KnownJob]:
        """What a server has just listed that nobody has spoken to yet; returns the owed jobs that are not there."""
        found, missing = self._compare(Listed(*row) for row in rows)
        for job in found:
            if job.ends_sent and not job.ended_at:
                self._note(job, "is still there")
                job.ends_sent = 0
                if job.kept_at:
                    self.owed[job] = None
        return missing

    def on_dead(self, token: str) -> None:
        """The server says that the job has failed because its attempts are spent."""
        job = self._by_token[token]
        self._note(job, "is dead")
        if not any(self._limit(token) for token in job.tokens):
            self._blame("lost", job, "has failed for its attempts, of which there is no limit")
        self._end(job)

    def on_missing(self, token: str, words: str) -> None:
        """The server was asked for an owed job that it does not list, and this is what it said."""
        job = self._by_token[token]
        self._blame("lost", job, f"was acknowledged, nobody ended it, and it is gone: {words}")
        self.owed.pop(job)

    def _compare(self, rows: Iterable[Listed]) -> tuple[list[KnownJob], list[KnownJob]]:
        """The known jobs among the rows, and the owed ones that are not among them."""
        found: dict[KnownJob, None] = {}
        keys: set[tuple[str, str]] = set()
        for row in rows:
            if row.unique:
                if (row.function, row.unique) in keys:
                    self._violate("doubled", f"two jobs of {row.function} have the key {row.unique}; one is {row}")
                keys.add((row.function, row.unique))
            job = self._job_of(row)
            if job is not None:
                found[job] = None
                if job.ended_at:
                    self._blame("run again", job, "is listed as unfinished after its end had been acknowledged")
        return list(found), [job for job in self.owed if job not in found]

    def _job_of(self, row: Listed) -> KnownJob | None:
        """The job that is listed; None for one that was never acknowledged, which may be there or not."""
        job = self._by_number.get(row.number)
        if job is None:
            job = self._by_token.get(row.name) or self._by_token.get(row.unique)
            if job is None or job.number:  # another one that had the same key
                return None
            job.number = row.number
            self._by_number[row.number] = job
        return job

    # --- inside ---

    def _job(self, token: str, number: int, event: str) -> KnownJob:
        """The job of this token and number; two that turn out to be one are put together."""
        job = self._by_token.get(token)
        numbered = self._by_number.get(number) if number else None
        if job is None:
            job = numbered or KnownJob([])
            job.tokens.append(token)
            self._by_token[token] = job
        elif numbered is not None and numbered is not job:
            job = self._put_together(job, numbered)
        self._note(job, event)
        if number:
            if job.number and job.number != number:
                self._blame("reused", job, f"has another number too: {number}")
            job.number = number
            self._by_number[number] = job
        return job

    def _put_together(self, one: KnownJob, other: KnownJob) -> KnownJob:
        """Two submissions with one key became one job."""
        other.tokens += one.tokens
        for token in one.tokens:
            self._by_token[token] = other
        other.kept_at = other.kept_at or one.kept_at
        other.end_told |= one.end_told
        other.ends_sent += one.ends_sent
        if not other.ended_at:
            other.ended_at, other.ended_at_ns = one.ended_at, one.ended_at_ns
        other.is_cancel_sent |= one.is_cancel_sent
        other.starts += one.starts
        other.free_starts += one.free_starts
        other.holder = other.holder or one.holder
        other.held_until_ns = max(other.held_until_ns, one.held_until_ns)
        other.events = sorted(other.events + one.events)
        owed = one in self.owed or other in self.owed
        self.owed.pop(one, None)
        self.owed.pop(other, None)
        if owed and not other.ends_sent and not other.ended_at:
            self.owed[other] = None
        for jobs in self._held.values():
            if one in jobs:
                del jobs[one]
                jobs[other] = None
        for reported in (*self._reported.values(), *(question.reported for question in self._questions.values())):
            reported[:] = [other if job is one else job for job in reported]
        return other

    def _check_unique(self, job: KnownJob, token: str) -> None:
        """A key that an owed job had before this was asked for leads to that job."""
        asked = self._submissions.get(token)
        if asked is None or not asked.unique:
            return
        key = (asked.function, asked.unique)
        other = self._by_key.get(key)
        if other is not None and other is not job and other in self.owed and other.kept_at < asked.at:
            self._blame("doubled", job, f"has the key {asked.unique}, and so has {other}, which is unfinished")
        self._by_key[key] = job

    def _check_start(self, job: KnownJob, token: str) -> None:
        limit = self._limit(token)
        counted = job.starts - job.free_starts
        if limit and counted > limit:
            self._blame("attempts", job, f"was started {counted} times, {limit} are allowed")
        asked = self._submissions.get(token)
        latest = self.now_ns / 1e9 + self.wall_minus_monotonic + self.wall_ahead
        if asked is not None and asked.run_at > latest + 1:
            self._blame("early", job, f"was handed out before its time, {asked.run_at}")

    def _limit(self, token: str) -> int:
        asked = self._submissions.get(token)
        return 0 if asked is None else asked.attempts

    def _may_end(self, job: KnownJob) -> None:
        job.ends_sent += 1
        self.owed.pop(job, None)

    def _end(self, job: KnownJob) -> None:
        self.owed.pop(job, None)
        job.holder = ""
        if not job.ended_at:
            job.ended_at = self.now
            job.ended_at_ns = self.now_ns
            self.counts["ended"] += 1

    def _let_go(self, job: KnownJob, event: str) -> None:
        self._note(job, event)
        job.holder = ""
        if self.is_stopping:
            job.free_starts += 1  # a server that stops in order takes back what runs, and counts no attempt

    def _note(self, job: KnownJob, event: str) -> None:
        job.events.append(f"{self.now:8d}  life {self.life}  {event}")
        if len(job.events) > 2 * EVENTS_TOLD:
            del job.events[1:EVENTS_TOLD]

    def _blame(self, kind: str, job: KnownJob, what: str) -> None:
        self._violate(kind, f"{job} {what}:\n" + "\n".join(job.events[-EVENTS_TOLD:]))

    def _violate(self, kind: str, text: str) -> None:
        self.violations.append(Violation(kind, text))


def replayed(events: Iterable[Event], until_ns: int) -> History:
    """The history as it was at a moment."""
    history = History()
    for event in events:
        if event[0] > until_ns:
            break
        history.apply(event)
    return history
