"""`RunsWithoutOwner`: jobs that workers of this node run although the owner of their functions is lost.

A run goes on while its function has no owner, and what its worker reports meanwhile waits. As soon as there is a link
to an owner the run is claimed there, and what has waited is sent when the claim is granted. If the claim is refused,
another worker has the job by now, or it has ended: the worker is told to stop. A run that has sent parts of its result
is not claimed, because they are gone with the last owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchgear.model import RUNNING, Job, Worker
from switchgear.net.owners.messages import (
    NOT_YET,
    REFUSED,
    Assign,
    BegunRun,
    ClaimRuns,
    Done,
    Failed,
    Message,
    Progress,
    RetryWanted,
    RunClaimed,
    options_of,
)
from switchgear.net.owners.relay import PATIENCE_SECONDS, Relay, RelayLink

__all__ = ["Borrowed", "RunsWithoutOwner"]

# A claim that an owner was not ready for is repeated after this time.
CLAIM_AGAIN_SECONDS: Final = 0.2
# So many messages of one run wait for its next owner.
MOST_UNSENT: Final = 1_000


class Borrowed:
    """A job of another node that this one has."""

    __slots__ = (
        "assign",
        "claimed_at",
        "copy",
        "has_sent_data",
        "is_incomplete",
        "kind",
        "link",
        "on_answer",
        "since_s",
        "start",
        "unsent",
        "worker",
    )

    def __init__(self, link: RelayLink | None, copy: Job, assign: Assign, since_s: float) -> None:
        self.link = link  # None: the owner is lost
        self.copy = copy
        self.assign = assign
        self.start = assign.start
        self.kind = assign.kind  # of the worker that the owner has given it to
        self.since_s = since_s
        self.has_sent_data = False
        self.is_incomplete = False  # more was to be sent while it had no owner than is kept
        self.claimed_at: RelayLink | None = None  # where it was claimed, and no answer has come
        self.unsent: list[Message] = []  # while it has no owner
        # For a worker that wants to go on with a job after it had lost its connection.
        self.on_answer: Callable[[bool], object] | None = None
        self.worker: Worker | None = None  # when it is no copy any more, or has lost its owner

    @property
    def can_go_on(self) -> bool:
        """Whether another owner can let the run go on."""
        if self.link is None:
            return True
        return not self.has_sent_data and self.copy.state is RUNNING and self.copy.worker is not None

    def send(self, message: Message) -> None:
        """Send this to the owner, or as soon as there is one."""
        if self.link is not None:
            self.link.send(message)
            return
        if isinstance(message, Progress) and self.unsent and isinstance(self.unsent[-1], Progress):
            self.unsent[-1] = message
        elif len(self.unsent) < MOST_UNSENT or isinstance(message, Done | Failed | RetryWanted):
            self.unsent.append(message)
        else:
            self.is_incomplete = True

    def answer(self, *, goes_on: bool) -> bool:
        """Answer the worker that wants to go on; returns whether it has waited for that."""
        on_answer, self.on_answer = self.on_answer, None
        if on_answer is not None:
            on_answer(goes_on)
        return on_answer is not None

    @property
    def report(self) -> Done | Failed | RetryWanted | None:
        """What the worker has reported at the end, if that has not been sent."""
        last = self.unsent[-1] if self.unsent else None
        return last if isinstance(last, Done | Failed | RetryWanted) else None

    def begun_run(self) -> BegunRun:
        """The run as it is claimed."""
        assign, copy = self.assign, self.copy
        return BegunRun(
            copy.id,
            assign.function,
            assign.kind,
            self.start,
            assign.attempts,
            assign.delivery,
            assign.unique,
            assign.priority,
            assign.created_us,
            options_of(copy, is_lent=True),
        )


class RunsWithoutOwner:
    """Runs of jobs whose owner is lost, until they are claimed at another one."""

    def __init__(self, relay: Relay, drop: Callable[[Borrowed], None]) -> None:
        """`drop` ends a run that another owner has refused to continue."""
        self._relay = relay
        self._drop = drop
        self._runs: dict[int, Borrowed] = {}
        self._claimed_s = 0.0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, borrowed: Borrowed, now_s: float) -> None:
        """The owner of this run is lost."""
        borrowed.worker = borrowed.copy.worker
        borrowed.since_s = now_s
        borrowed.claimed_at = None
        self._runs[borrowed.copy.id] = borrowed

    def forget(self, job_id: int) -> None:
        """The run is over without a report, or is not a borrowed one any more."""
        self._runs.pop(job_id, None)

    def link_lost(self, link: RelayLink) -> None:
        """Claims that were not answered over this link are repeated at the next owner."""
        for borrowed in self._runs.values():
            if borrowed.claimed_at is link:
                borrowed.claimed_at = None

    # --- claiming ---

    def claim(self, now_s: float) -> None:
        """Claim the runs whose functions have an owner again."""
        if not self._runs or now_s < self._claimed_s + CLAIM_AGAIN_SECONDS:
            return
        claims: dict[RelayLink, list[Borrowed]] = {}
        for borrowed in self._runs.values():
            link = self._relay.links.get(self._relay.partition_of(borrowed.assign.function))
            if link is not None and borrowed.claimed_at is None and not borrowed.is_incomplete:
                claims.setdefault(link, []).append(borrowed)
        for link, runs in claims.items():
            self._claimed_s = now_s
            self._send(link, runs, 0)

    def claim_all(self, link: RelayLink, partitions: int, now_s: float) -> None:
        """An owner that has taken over these partitions (a bit for each) wants all claims of them at once."""
        partition_of = self._relay.partition_of
        runs = [
            each
            for each in self._runs.values()
            if partitions >> partition_of(each.assign.function) & 1 and not each.is_incomplete
        ]
        self._send(link, runs, partitions)

    def _send(self, link: RelayLink, runs: list[Borrowed], partitions: int) -> None:
        for borrowed in runs:
            borrowed.claimed_at = link
        link.send(ClaimRuns([borrowed.begun_run() for borrowed in runs], partitions))

    def answered(self, link: RelayLink, answer: RunClaimed) -> None:
        """Handle the answer to a claim."""
        borrowed = self._runs.get(answer.id)
        if borrowed is None or borrowed.claimed_at is not link or borrowed.start != answer.start:
            return
        borrowed.claimed_at = None
        if answer.new_start == NOT_YET:
            return
        del self._runs[answer.id]
        report = borrowed.report
        if answer.new_start == REFUSED:
            if report is None:
                self._drop(borrowed)
            else:
                self._relay.report_refused(borrowed.copy)
            return
        borrowed.link = link
        borrowed.start = answer.new_start
        borrowed.answer(goes_on=True)
        if report is not None:
            report.start = answer.new_start
            self._relay.report_sent(borrowed.copy, answer.new_start, link)
        unsent, borrowed.unsent = borrowed.unsent, []
        for message in unsent:
            link.send(message)

    # --- without an owner ---

    def take_ended(self, is_concerned: Callable[[bytes], bool]) -> list[Borrowed]:
        """Remove and return the runs of functions that this node is going to own itself, whose workers have reported
        the end already."""
        ended = [each for each in self._runs.values() if each.report is not None and is_concerned(each.assign.function)]
        for each in ended:
            del self._runs[each.copy.id]
        return ended

    def is_late(self, now_s: float) -> bool:
        """Whether some runs have been without an owner for too long."""
        oldest = next(iter(self._runs.values()), None)
        return oldest is not None and oldest.since_s < now_s - PATIENCE_SECONDS

    def give_up(self, now_s: float) -> None:
        """End the runs that have been without an owner for too long."""
        for borrowed in [each for each in self._runs.values() if each.since_s < now_s - PATIENCE_SECONDS]:
            del self._runs[borrowed.copy.id]
            if borrowed.report is None:
                self._drop(borrowed)
            else:
                self._relay.report_refused(borrowed.copy)
