"""Checks the log of every job and every promise throughout a simulation."""

from __future__ import annotations

from collections.abc import Iterable

from switchgear.engine.dependencies import policy_of
from switchgear.engine.engine import Engine
from switchgear.engine.lifecycle import NEXT_STATE
from switchgear.model import DONE, FINAL_STATES, READY, SCHEDULED, WAITING, Cause, EdgePolicy, Job, JobState
from switchgear.model.job_details import NO_DETAILS
from switchgear.testing.invariants import broken
from switchgear.testing.simulation.store import Row, SimulatedStore

__all__ = ["HistoryChecker"]

BORN_FIELDS = ("id", "unique", "delivery", "created_us")
FIRST_STATES = {Cause.SUBMITTED_EARLY: SCHEDULED, Cause.SUBMITTED_WAITING: WAITING}


class FollowedJob:
    """A job, and how much of its log was checked."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.read = 0
        self.state: JobState = READY
        moves = job.moves
        if moves is not None and moves[0] in FIRST_STATES:
            self.read = 2
            self.state = FIRST_STATES[Cause(moves[0])]

    def read_until(self, end: int) -> list[tuple[Cause, int]]:
        """Check the new moves against the lifecycle table, and return them."""
        job = self.job
        moves = job.moves or []
        news = []
        for place in range(self.read, end, 2):
            cause = Cause(moves[place])
            state = NEXT_STATE[cause][self.state]
            if state is None:
                broken(f"{job} was {self.state.name}, and then came {cause.name}")
            self.state = state
            news.append((cause, moves[place + 1]))
        self.read = max(self.read, end)
        return news

    def read_all(self) -> list[tuple[Cause, int]]:
        news = self.read_until(len(self.job.moves or ()))
        if self.job.state is not self.state:
            broken(f"{self.job} should be {self.state.name} by its log")
        return news


def is_plain(job: Job) -> bool:
    """Whether this job may have been packed."""
    return job.details is NO_DETAILS and job.state is READY and job.moves is None and job.subscribers is None


def is_same(one: Job, other: Job) -> bool:
    """Whether both are the same job; the second may have changed since."""
    return all(getattr(one, field) == getattr(other, field) for field in BORN_FIELDS) and one.function is other.function


class HistoryChecker:
    """Everything that was observed and promised so far."""

    def __init__(self) -> None:
        self.followed: dict[int, FollowedJob] = {}  # unfinished jobs since the last start of the server
        self.done: set[int] = set()  # as the server knows it: a crash may undo what was not stored
        self.over: set[int] = set()  # jobs that have ended at least once
        self.ended: dict[int, JobState] = {}  # final states that are stored
        self.promised: set[int] = set()  # jobs whose submitters were told that they are stored
        self.forgotten: set[int] = set()  # jobs that were deleted
        self.starts = 0
        self.resumed: set[int] = set()  # jobs whose workers, which had lost them, have just got them back

    # --- step by step ---

    def observe(self, engine: Engine, store: SimulatedStore) -> list[tuple[Job, Cause]]:
        """Check the new moves of every log; returns them."""
        moves: list[tuple[Job, Cause]] = []
        for job in engine.jobs.values():
            job_id = job.id
            known = self.followed.get(job_id)
            if known is None or known.job is not job:
                self._follow(job, known, engine)
        for job in (*store.recent_jobs(), *engine.changed):
            known = self.followed.get(job.id)
            if known is not None and is_plain(known.job) and not engine.has_job(job.id) and not known.job.withdrawn:
                self._follow(job, known, engine)  # a packed job has ended
        newly_done = {job_id for job_id, followed in self.followed.items() if followed.job.state is DONE}
        self.done |= newly_done  # first, since successors may have started at once
        self.over.update(job_id for job_id, known in self.followed.items() if known.job.state in FINAL_STATES)
        for job_id, followed in list(self.followed.items()):
            job = followed.job
            for cause, at_us in followed.read_all():
                if at_us != engine.now_us:
                    broken(f"{job} has {cause.name} at {at_us} in its log, and it is {engine.now_us}")
                self._check_move(job, cause, engine)
                moves.append((job, cause))
            if job.state in FINAL_STATES or job.withdrawn:
                self._take_leave(job)
            elif engine.jobs.get(job_id) is not job and not (is_plain(job) and engine.has_job(job_id)):
                broken(f"{job} has vanished")
        return moves

    def _follow(self, job: Job, known: FollowedJob | None, engine: Engine) -> None:
        if known is not None:
            if not is_plain(known.job) or not is_same(known.job, job):
                broken(f"{known.job} was replaced by {job}")
            known.job = job  # it was packed, and is unpacked
            return
        followed = self.followed[job.id] = FollowedJob(job)
        causes = (job.moves or [])[::2]
        retries = [place for place, cause in enumerate(causes) if cause in (Cause.RETRIED, Cause.RETRIED_WAITING)]
        if retries:
            followed.read_until(2 * retries[-1])  # its moves before the last retry
        elif job.created_us != engine.now_us:
            broken(f"{job} appeared with {job.log}")

    def _take_leave(self, job: Job) -> None:
        del self.followed[job.id]
        if job.withdrawn:
            self.forgotten.add(job.id)

    def _check_move(self, job: Job, cause: Cause, engine: Engine) -> None:
        if cause is Cause.TAKEN:
            self._check_start(job, engine)
        elif cause in (Cause.RETRIED, Cause.RETRIED_WAITING):
            self.ended.pop(job.id, None)
        elif cause in (Cause.DUE, Cause.RELEASED) and job.run_at_us > engine.now_us:
            broken(f"{job} was made ready by {cause.name} before its time")

    def _check_start(self, job: Job, engine: Engine) -> None:
        self.starts += 1
        for predecessor in job.predecessors:
            runs_anyway = policy_of(job, predecessor) in (EdgePolicy.RUN, EdgePolicy.ERROR)
            ended = self.over if runs_anyway else self.done
            if predecessor not in ended and predecessor not in self.forgotten:
                broken(f"{job} was started, and job {predecessor} that it waits for is not done")
        if (job.id in self.done and job.state is not DONE) or job.id in self.ended:
            broken(f"{job} was started again, and its end was kept")
        is_resumed = job.id in self.resumed
        self.resumed.discard(job.id)
        if not engine.handing_out or (job.function.paused and not is_resumed):
            broken(f"{job} was started, and nothing should be")
        if 0 < job.expires_us <= engine.now_us and job.created_us < job.expires_us:
            broken(f"{job} was started {engine.now_us - job.expires_us} µs after its expiry")

    # --- commits and crashes ---

    def kept(self, rows: Iterable[Row]) -> None:
        """Note that a commit stored these, and that the waiting peers were told."""
        for row in rows:
            if row.state not in FINAL_STATES:
                self.ended.pop(row.id, None)
            elif row.id not in self.followed:  # it was not retried since
                self.ended[row.id] = row.state

    def forget(self, job_ids: Iterable[int]) -> None:
        for job_id in job_ids:
            self.forgotten.add(job_id)
            self.promised.discard(job_id)
            self.ended.pop(job_id, None)

    def crashed(self, store: SimulatedStore) -> None:
        """Reset everything to what the store has."""
        committed = store.committed
        lost = sorted(self.promised - committed.keys())
        if lost:
            broken(f"jobs {lost} were promised, and lost in a crash")
        for job_id, state in self.ended.items():
            if committed[job_id].state is not state:
                broken(f"job {job_id} ended {state.name}, and that was lost in a crash")
        self.over.update(row.id for row in committed.values() if row.state in FINAL_STATES)
        for row in committed.values():
            missing = set(row.fields["predecessors"]) - committed.keys() - self.forgotten
            if row.state not in FINAL_STATES and missing:
                broken(f"job {row.id} was kept, and jobs {missing} that it waits for were not")
        self.forgotten.update(self.followed.keys() - committed.keys(), self.done - committed.keys())
        self.done = {row.id for row in committed.values() if row.state is DONE}
        self.followed.clear()
        self.kept(committed.values())

    def restored(self, lengths: dict[int, int], jobs: Iterable[Job]) -> None:
        """Note the restored jobs and the lengths of their logs; what the new server added is still to be checked."""
        for job in jobs:
            followed = self.followed[job.id] = FollowedJob(job)
            followed.read_until(lengths[job.id])

    def still_known(self, store: SimulatedStore, engine: Engine) -> None:
        """Every promised job is unfinished, or its end is stored."""
        for job_id in self.promised:
            if not engine.has_job(job_id) and store.get(job_id, engine) is None:
                broken(f"job {job_id} was promised, and nobody knows it")
