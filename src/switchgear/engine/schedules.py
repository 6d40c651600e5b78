"""Jobs that are made again and again, at the ticks of a timetable.

A schedule remembers the moment up to which its ticks have been met (`reached_us`), and the next tick is the first of
its timetable after that.  The moment is kept together with the job that it made, in one commit; so whenever the server
dies, a tick has either happened, and its job is there, or has not, and is due.

A tick that is met within `ON_TIME_US` is on time.  One that is met later (the server was down, or the clock was set
forward) was missed, and what then happens is the schedule's own choice: see `CatchUp`.  One whose job would have
expired meanwhile is not made up for in any case.  Ticks that a paused schedule lets pass are not missed but meant.

A job that is refused because a queue is full, the server is draining or its store has failed leaves its tick where it
is.  It is tried again a moment later; should other ticks come meanwhile, they and it are treated as if the server had
been down.

A clock that is set back a little does not bring back ticks that have been met.  If it is set back by more than
`MOST_SET_BACK_US`, it is taken to have been wrong before, and ticks are counted from now on; or a clock that once was a
year ahead would silence the schedule for a year.

Unless a schedule lets its jobs overlap, a tick that finds the last job unfinished is skipped.  Ticks that are all made
up for are many at once by nature; there each job waits for the one before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from switchgear.engine.core import REFUSED_CONFLICT, REFUSED_LIMIT
from switchgear.engine.deadlines import Kind
from switchgear.engine.options import SubmitOptions
from switchgear.engine.reports import Reports
from switchgear.errors import Refused
from switchgear.model import SECOND_US, CatchUp, Delivery, EdgePolicy, Job, Peer, Schedule

__all__ = ["MOST_MADE_UP_FOR", "Schedules", "held_bytes"]

# A timer of a busy server is late by milliseconds, and a queue may be full for a moment.
ON_TIME_US: Final = 10 * SECOND_US
# A server that was down for a year must not bury its workers under a job for each minute of it.
MOST_MADE_UP_FOR: Final = 1_000
RETRY_US: Final = SECOND_US
# As for Debian's cron: less is daylight saving or a correction, more is another time.
MOST_SET_BACK_US: Final = 3 * 3600 * SECOND_US
# Ticks of many schedules may come at the same moment.  So many are met in one turn, and the others in the next ones.
TICKS_AT_ONCE: Final = 100

# What a schedule takes in memory beside its texts and its payload, about.
SCHEDULE_BYTES: Final = 2_000

ORIGIN: Final = "schedule"

# What its owner says of a schedule, apart from its timetable.
DEFINED: Final = (
    "function_name",
    "payload",
    "priority",
    "catch_up",
    "overlap",
    "expires_after_us",
    "timeout_us",
    "attempts_limit",
    "losses_limit",
    "retention_us",
    "key",
)


class Schedules(Reports):
    """The part of the engine that makes jobs by itself."""

    @abstractmethod
    def submit(
        self,
        function_name: bytes,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        watcher: Peer | None = None,
        options: SubmitOptions | None = None,
    ) -> Job:
        """Take a job; see Engine."""

    # --- what owners and operators ask for ---

    def set_schedule(self, wanted: Schedule) -> Schedule:
        """Let there be this schedule, and return it as it is now; raises ValueError or Refused.

        If there is one of that name it becomes like the one wanted, and only another timetable moves its next tick.
        That it is paused is an operator's choice, and stays.
        """
        known = self.schedules.get(wanted.name)
        is_other = known is None or _times(known) != _times(wanted)
        if is_other and wanted.timetable.next_after_us(self.now_us) is None:
            raise ValueError(f"{wanted.timetable.spec!r} never comes, at least not within 50 years")
        if known is None:
            limit = self.settings.schedules
            if limit and len(self.schedules) >= limit:
                raise Refused(REFUSED_LIMIT, f"there are {limit} schedules already; limits.schedules says how many")
            self._refuse_without_memory(held_bytes(wanted))
            schedule = self.schedules[wanted.name] = wanted
            self.memory.schedule_bytes += held_bytes(schedule)
            self._count_ticks_from_now(schedule)
            return schedule
        more_bytes = held_bytes(wanted) - held_bytes(known)
        if more_bytes > 0:
            self._refuse_without_memory(more_bytes)
        self.memory.schedule_bytes += more_bytes
        changed = [field for field in DEFINED if getattr(known, field) != getattr(wanted, field)]
        for field in changed:
            setattr(known, field, getattr(wanted, field))
        if is_other:
            known.timetable = wanted.timetable
            self._count_ticks_from_now(known)
        elif changed:
            self._note_schedule(known)
        return known

    def remove_schedule(self, schedule: Schedule) -> None:
        """There is no such schedule any more; the jobs that it has made stay."""
        del self.schedules[schedule.name]
        self.memory.schedule_bytes -= held_bytes(schedule)
        schedule.removed = True
        self._look_at(schedule, 0)
        self._note_schedule(schedule)

    def pause_schedule(self, schedule: Schedule) -> None:
        """Let ticks pass without a job until it is resumed."""
        if not schedule.paused:
            schedule.paused = True
            schedule.refusal = ""
            self._look_at(schedule, 0)
            self._note_schedule(schedule)

    def resume_schedule(self, schedule: Schedule) -> None:
        """Go on with the next tick."""
        if schedule.paused:
            schedule.paused = False
            self._count_ticks_from_now(schedule)

    def run_schedule_now(self, schedule: Schedule) -> Job:
        """Make a job at once, paused or not; its ticks come as they would.  Raises Refused."""
        last = self._unfinished(schedule)
        if last is not None and not schedule.overlap:
            raise Refused(REFUSED_CONFLICT, f"its last job is {last.state.name.lower()}, and its jobs do not overlap")
        job = self._make_job(schedule, 0, ())
        self._note_schedule(schedule)
        return job

    # --- ticks ---

    def _meet_tick(self, schedule: Schedule) -> None:
        """The time of a schedule has come."""
        schedule.wake_us = 0  # this entry is used up, not stale
        if self.refusal is not None:  # so that thousands of them cost little while a store does not work
            self._hold_up(schedule, self.refusal)
            self._look_at(schedule, self.now_us + RETRY_US)
            return
        if not self._may_meet_tick():
            self._look_at(schedule, self.now_us + 1)
            return
        due = schedule.timetable.last_between_us(schedule.reached_us, self.now_us, MOST_MADE_UP_FOR)
        if due:
            self._last.tick += len(due) if schedule.catch_up == CatchUp.ALL else 1
            self._meet_ticks(schedule, due)
        self._await_tick(schedule)

    def _may_meet_tick(self) -> bool:
        """Whether so few ticks were met in this turn that there may be more."""
        last = self._last
        if last.tick_us != self.now_us:
            last.tick_us = self.now_us
            last.tick = 0
        return last.tick < TICKS_AT_ONCE

    def _meet_ticks(self, schedule: Schedule, due: list[int]) -> None:
        """Make the jobs that these ticks are worth."""
        is_on_time = self.now_us - due[-1] <= ON_TIME_US
        if schedule.catch_up == CatchUp.ALL:
            wanted = due
        elif schedule.catch_up == CatchUp.LATEST or is_on_time:
            wanted = due[-1:]
        else:
            wanted = []
        if schedule.expires_after_us:
            wanted = [tick_us for tick_us in wanted if tick_us + schedule.expires_after_us > self.now_us]
        missed = len(due) - len(wanted)
        in_turn = schedule.catch_up == CatchUp.ALL and self.now_us - due[0] > ON_TIME_US
        for tick_us in wanted:
            try:
                self._fire(schedule, tick_us, in_turn)
            except Refused as refused:
                self._hold_up(schedule, refused)
                return  # with what was missed before it: all that is not met is looked at again
            schedule.reached_us = tick_us
            self._note_schedule(schedule)
        schedule.refusal = ""
        schedule.reached_us = due[-1]
        if missed:
            schedule.missed += missed
            self.observer.schedule_missed(schedule, missed)
        self._note_schedule(schedule)

    def _fire(self, schedule: Schedule, tick_us: int, in_turn: bool) -> None:
        last = None if schedule.overlap else self._unfinished(schedule)
        if last is not None and not in_turn:
            schedule.skipped += 1
            self.observer.schedule_skipped(schedule)
            return
        job = self._make_job(schedule, tick_us, () if last is None else (last.id,))
        self.observer.schedule_fired(schedule, job)

    def _make_job(self, schedule: Schedule, tick_us: int, predecessors: tuple[int, ...]) -> Job:
        """Submit a job of this schedule.  Its run-at time tells for which tick it is."""
        expires_after_us = schedule.expires_after_us
        options = SubmitOptions(
            run_at_us=tick_us,
            expires_us=(tick_us or self.now_us) + expires_after_us if expires_after_us else 0,
            timeout_us=schedule.timeout_us,
            attempts_limit=schedule.attempts_limit,
            predecessors=predecessors,
            origin=ORIGIN,
            key=schedule.key,
            losses_limit=schedule.losses_limit,
            edges=bytes([EdgePolicy.RUN] * len(predecessors)),
            retention_us=schedule.retention_us,
            schedule=schedule.name,
        )
        job = self.submit(
            schedule.function_name, b"", schedule.payload, schedule.priority, Delivery.HANDLE, None, options
        )
        schedule.last_us = self.now_us
        schedule.last_job_id = job.id
        schedule.fired += 1
        return job

    def _hold_up(self, schedule: Schedule, refused: Refused) -> None:
        """The tick stays due."""
        if not schedule.refusal:
            schedule.refused += 1
            self.observer.schedule_refused(schedule, str(refused))
            self._note_schedule(schedule)
        schedule.refusal = str(refused) or refused.reason

    def _take_back_tick(self, job: Job) -> None:
        """A job of a schedule was withdrawn, since the store could not keep it: its tick has not been met."""
        schedule = self.schedules.get(job.schedule)
        if schedule is None:
            return
        schedule.fired = max(0, schedule.fired - 1)
        if schedule.last_job_id == job.id:
            schedule.last_job_id = job.predecessors[0] if job.predecessors else 0
            schedule.last_us = schedule.last_us if schedule.last_job_id else 0
        if job.run_at_us and not schedule.paused:  # not one that somebody has asked for
            schedule.reached_us = min(schedule.reached_us, job.run_at_us - 1)
            self._await_tick(schedule)
        self._note_schedule(schedule)

    def _unfinished(self, schedule: Schedule) -> Job | None:
        """The last job of this schedule, if it has not ended."""
        return self.job(schedule.last_job_id)

    # --- time ---

    def _count_ticks_from_now(self, schedule: Schedule) -> None:
        schedule.reached_us = self.now_us
        schedule.refusal = ""
        self._await_tick(schedule)
        self._note_schedule(schedule)

    def _await_tick(self, schedule: Schedule) -> None:
        """Look at the schedule when its next tick has come, or soon if one is held up."""
        schedule.next_us = schedule.timetable.next_after_us(schedule.reached_us) or 0
        wake_us = schedule.next_us
        if wake_us and schedule.refusal:
            wake_us = max(wake_us, self.now_us + RETRY_US)
        self._look_at(schedule, 0 if schedule.paused else wake_us)

    def _look_at(self, schedule: Schedule, wake_us: int) -> None:
        if schedule.wake_us == wake_us:
            return
        if schedule.wake_us:
            self.deadlines.stale += 1
        schedule.wake_us = wake_us
        if wake_us:
            self.deadlines.add(wake_us, Kind.TICK, schedule)

    def _reset_schedules(self) -> None:
        """The clock was set."""
        for schedule in self.schedules.values():
            if not schedule.paused:
                self._set_right(schedule)
                self._await_tick(schedule)

    def _restore_schedules(self, schedules: Sequence[Schedule]) -> None:
        """Go on with these where a store has kept them; what is due happens with the next `advance`."""
        for schedule in schedules:
            self.schedules[schedule.name] = schedule
            self.memory.schedule_bytes += held_bytes(schedule)
            self._set_right(schedule)
            self._await_tick(schedule)

    def _set_right(self, schedule: Schedule) -> None:
        if schedule.reached_us - MOST_SET_BACK_US > self.now_us:
            schedule.reached_us = self.now_us
            self._note_schedule(schedule)


def held_bytes(schedule: Schedule) -> int:
    """What it takes in memory, about."""
    texts = len(schedule.name) + len(schedule.function_name) + len(schedule.key) + len(schedule.timetable.spec)
    return SCHEDULE_BYTES + texts + len(schedule.payload)


def _times(schedule: Schedule) -> tuple[str, str]:
    return schedule.timetable.spec, schedule.timetable.timezone
