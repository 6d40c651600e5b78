"""What was said between a server and its peers, and whether it can all be true.

A job is known by its handle.  Of each one the history knows what it was promised, who was given it, and how it may have
ended.  Three sets follow from that and are kept up to date with every word:

- owed: the server acknowledged the job and nobody has done anything that may have ended it.  It must be there.
- settled: its end was acknowledged.  It must never be handed out or listed again.
- in doubt, which is the rest: something that may have ended it was sent, and a crash came before the answer.

Whether two things that different connections saw happened in the order in which we read them is not certain, so a
job is only blamed on the server if the worker asked for one after the job's end was acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Life:
    """What is known of one job."""

    handle: bytes
    token: bytes  # what its submitter put into the payload; another one under the same handle is another job
    kept: bool = False  # a background submission was acknowledged
    end_seen_by_client: bool = False  # a waiting client was told the end
    ends_sent: int = 0  # reports, cancels and the like that may have ended it
    settled_at: int = 0  # when its end was acknowledged
    holder: str = ""  # the connection that has it now
    events: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Question:
    """Something sent that the server answers; the answer acknowledges the reports sent before it."""

    asked_at: int
    reported: list[bytes]


class History:
    """All jobs of all lives of a server."""

    def __init__(self) -> None:
        self.now = 0  # counts what happened
        self.life = 1  # of the server
        self.answers = 0
        self.is_stopping = False  # in order: it refuses what it will not do any more, and gives back what runs
        self.lives: dict[bytes, Life] = {}
        self.owed: dict[bytes, None] = {}
        self.violations: list[str] = []
        self._reported: dict[str, list[bytes]] = {}  # by connection: what no question covers yet
        self._held: dict[str, set[bytes]] = {}  # by connection

    # --- clients ---

    def created(self, token: bytes, handle: bytes, *, background: bool, by: str) -> None:
        """A submission was acknowledged."""
        job = self._job(handle, token, f"acknowledged to {by} ({'background' if background else 'foreground'})")
        if background and not job.kept:
            job.kept = True
            if job.end_seen_by_client:
                self._settle(job)
            elif not job.ends_sent:
                self.owed[handle] = None

    def refused(self, token: bytes, words: bytes, by: str) -> None:
        """A submission was not taken, for which there is no reason but that the server stops."""
        self._event()
        if self.is_stopping and b"shutting down" in words:
            return
        self.violations.append(f"{by}: submission {token!r} was refused: {words!r}")

    def told_end(self, handle: bytes, token: bytes, by: str) -> None:
        """A waiting client was told that its job ended."""
        job = self._job(handle, token, f"{by} was told its end")
        job.end_seen_by_client = True
        self._may_end(job)
        if job.kept:
            self._settle(job)

    def cancelling(self, handle: bytes, by: str) -> None:
        job = self.lives[handle]
        self._note(job, f"{by} sends a cancel")
        self._may_end(job)

    def cancelled(self, handle: bytes, by: str) -> None:
        job = self.lives[handle]
        self.answers += 1
        self._note(job, f"the cancel of {by} is acknowledged")
        self._settle(job)

    def not_cancelled(self, handle: bytes, by: str) -> None:
        """The server does not know the job, so it must have ended before."""
        job = self.lives[handle]
        self.answers += 1
        self._note(job, f"the cancel of {by} is answered: unknown job")
        if job.kept and job.ends_sent == 1:
            self._blame(job, "was acknowledged, nobody else ended it, and the server does not know it")

    # --- workers ---

    def asks(self, by: str) -> Question:
        """Something was sent that will be answered."""
        self.now += 1
        return Question(self.now, self._reported.pop(by, []))

    def answered(self, question: Question, by: str) -> None:
        """So what was reported before the question is kept."""
        self._event()
        for handle in question.reported:
            job = self.lives[handle]
            self._note(job, f"the report of {by} is acknowledged")
            self._settle(job)

    def assigned(self, handle: bytes, token: bytes, question: Question, by: str) -> None:
        """A worker was given a job."""
        job = self._job(handle, token, f"handed to {by}")
        if job.settled_at and question.asked_at > job.settled_at:
            self._blame(job, "was run again after its end had been acknowledged")
        if job.holder:
            self._blame(job, f"was given to {by} while {job.holder} had it")
        job.holder = by
        self._held.setdefault(by, set()).add(handle)

    def reporting(self, handle: bytes, how: str, by: str) -> None:
        """A worker says how its job ended."""
        job = self.lives[handle]
        self._note(job, f"{by} sends {how}")
        self._reported.setdefault(by, []).append(handle)
        self._held[by].discard(handle)
        self._may_end(job)

    def report_denied(self, question: Question, words: bytes, by: str) -> None:
        """A worker does not have its job any more, which only happens when the server stops."""
        self._event()
        if self.is_stopping:
            question.reported.clear()  # which of them it was is not said
            return
        self.violations.append(f"{by}: a report on a job that it held was refused: {words!r}")

    def closed(self, by: str) -> None:
        """A connection is closed by us: what it held goes back."""
        for handle in self._held.pop(by, ()):
            self._let_go(self.lives[handle], f"{by} hangs up")
        for handle in self._reported.pop(by, ()):
            self._let_go(self.lives[handle], f"{by} hangs up before its report was acknowledged")

    # --- the server ---

    def crashed(self) -> None:
        """Nobody holds anything now, and unanswered questions stay unanswered."""
        for by in {*self._held, *self._reported}:
            self.closed(by)
        for job in self.lives.values():
            job.holder = ""
        self.life += 1
        self.is_stopping = False

    def listed(self, handles: Iterable[bytes]) -> None:
        """These are the unfinished jobs of a server that was just started, and nobody has spoken to it yet."""
        self.now += 1
        found = set(handles)
        for handle in found:
            job = self.lives.get(handle)
            if job is None:
                continue  # it was never acknowledged, so it may be there or not
            if job.settled_at:
                self._blame(job, "is queued again after its end had been acknowledged")
            elif job.ends_sent:
                self._note(job, "is still there after the crash")
                job.ends_sent = 0
                if job.kept:
                    self.owed[handle] = None
        for handle in self.owed.keys() - found:
            self._blame(self.lives[handle], "was acknowledged, nobody ended it, and it is gone")

    # --- inside ---

    def _job(self, handle: bytes, token: bytes, event: str) -> Life:
        self.answers += 1
        job = self.lives.get(handle)
        if job is None:
            job = self.lives[handle] = Life(handle, token)
        self._note(job, event)
        if job.token != token:
            self._blame(job, f"is the handle of another job too: {token!r}")
        return job

    def _event(self) -> None:
        self.now += 1
        self.answers += 1

    def _note(self, job: Life, event: str) -> None:
        self.now += 1
        job.events.append(f"{self.now:7d} life {self.life}: {event}")

    def _may_end(self, job: Life) -> None:
        job.ends_sent += 1
        self.owed.pop(job.handle, None)

    def _settle(self, job: Life) -> None:
        self.owed.pop(job.handle, None)
        job.holder = ""
        if not job.settled_at:
            job.settled_at = self.now

    def _let_go(self, job: Life, event: str) -> None:
        self._note(job, event)
        job.holder = ""

    def _blame(self, job: Life, what: str) -> None:
        story = "\n".join(job.events[-30:])
        self.violations.append(f"{job.handle.decode()} ({job.token[:40].decode()}) {what}:\n{story}")
