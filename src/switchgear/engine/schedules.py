"""`ScheduleRunner`: makes the jobs of schedules, at the ticks of their timetables.

A schedule stores the time up to which its ticks have been met (`reached_us`); the next tick is the first of its
timetable after that. This time and the job that was made are in one commit. So, whenever the server dies, a tick has
either been met, and its job exists, or it is still due.

A tick that is met within `ON_TIME_US` is on time. A tick that is met later (the server was down, or the clock was set
forward) was missed, and the schedule's `CatchUp` decides what happens. A tick whose job would have expired meanwhile is
never made up for. Ticks of a paused schedule do not count as missed.

If a job is refused because a queue is full, the server is draining or its store has failed, its tick stays due. It is
tried again a moment later; if other ticks come meanwhile, all of them are treated as if the server had been down.

A clock that is set back a little does not repeat ticks that have been met. If it is set back by more than
`MOST_SET_BACK_US`, it is assumed to have been wrong before, and ticks are counted from now on; otherwise a clock that
was once a year ahead would stop the schedule for a year.

Unless the jobs of a schedule may overlap, a tick is skipped if the last job is unfinished. If all missed ticks are made
up for, many jobs are made at once; each of these waits for the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.state import EngineState
from switchgear.engine.submissions import Submissions
from switchgear.engine.submit_options import SubmitOptions
from switchgear.errors import Refused
from switchgear.job_options import SCHEDULE_OPTIONS
from switchgear.model import SECOND_US, CatchUp, Delivery, EdgePolicy, Job, Schedule
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_LIMIT

__all__ = ["MOST_MADE_UP_FOR", "ScheduleRunner", "held_bytes"]

# A timer of a busy server fires milliseconds late, and a queue may be full for a moment.
ON_TIME_US: Final = 10 * SECOND_US
# A server that was down for a year must not flood its workers with a job for each minute of it.
MOST_MADE_UP_FOR: Final = 1_000
RETRY_US: Final = SECOND_US
# As in Debian's cron: a smaller change is daylight saving or a correction, a larger one a different time.
MOST_SET_BACK_US: Final = 3 * 3600 * SECOND_US
# Ticks of many schedules may be due at the same time. This many are met in one turn, and the others in the next turns.
TICKS_AT_ONCE: Final = 100

# The approximate memory of a schedule besides its texts and its payload.
SCHEDULE_BYTES: Final = 2_000

ORIGIN: Final = "schedule"

# The options of each job, and the fields of a schedule that its owner sets, apart from its timetable.
OPTION_FIELDS: Final = tuple(dict.fromkeys(option.schedule_field for option in SCHEDULE_OPTIONS.values()))
DEFINED: Final = ("function_name", "payload", "catch_up", "overlap", "owner", *OPTION_FIELDS)


class ScheduleRunner:
    """Makes the jobs of all schedules."""

    def __init__(
        self, state: EngineState, deadlines: Deadlines, packed: PackedQueues, submissions: Submissions
    ) -> None:
        self._state = state
        self._deadlines = deadlines
        self._packed = packed
        self._submissions = submissions
        self._ticks_met = 0  # by all schedules in this turn
        self._ticks_met_us = 0

    # --- commands ---

    def set(self, wanted: Schedule) -> Schedule:
        """Create or change a schedule, and return it; raises ValueError or Refused.

        An existing schedule of that name takes over the given fields; only a different timetable moves its next tick.
        It stays paused if it is, because an operator has paused it.
        """
        self._state.refuse_foreign(wanted.function_name)
        known = self._state.schedules.get(wanted.name)
        is_other = known is None or _times(known) != _times(wanted)
        if is_other and wanted.timetable.next_after_us(self._state.now_us) is None:
            raise ValueError(f"{wanted.timetable.spec!r} never comes, at least not within 50 years")
        if known is None:
            limit = self._state.settings.schedules
            if limit and len(self._state.schedules) >= limit:
                raise Refused(REFUSED_LIMIT, f"there are {limit} schedules already; limits.schedules says how many")
            self._state.refuse_without_memory(held_bytes(wanted))
            schedule = self._state.schedules[wanted.name] = wanted
            self._state.memory.schedule_bytes += held_bytes(schedule)
            self._count_ticks_from_now(schedule)
            return schedule
        more_bytes = held_bytes(wanted) - held_bytes(known)
        if more_bytes > 0:
            self._state.refuse_without_memory(more_bytes)
        self._state.memory.schedule_bytes += more_bytes
        changed = [field for field in DEFINED if getattr(known, field) != getattr(wanted, field)]
        for field in changed:
            setattr(known, field, getattr(wanted, field))
        if is_other:
            known.timetable = wanted.timetable
            self._count_ticks_from_now(known)
        elif changed:
            self._state.note_schedule(known)
        else:
            self._state.concern_speaker()  # the schedule may not be stored yet
        return known

    def remove(self, schedule: Schedule) -> None:
        """Delete a schedule; jobs that it has made stay."""
        del self._state.schedules[schedule.name]
        self._state.memory.schedule_bytes -= held_bytes(schedule)
        schedule.removed = True
        self._look_at(schedule, 0)
        self._state.note_schedule(schedule)

    def forget(self, schedule: Schedule) -> None:
        """Forget a schedule that another engine is going to have; it stays in the store."""
        del self._state.schedules[schedule.name]
        self._state.memory.schedule_bytes -= held_bytes(schedule)
        self._look_at(schedule, 0)

    def give(self, known: Schedule, wanted: Schedule) -> None:
        """Change a schedule and forget it: its new function is another engine's, which finds it in the store.

        Raises ValueError, and changes nothing then.
        """
        is_other = _times(known) != _times(wanted)
        if is_other and wanted.timetable.next_after_us(self._state.now_us) is None:
            raise ValueError(f"{wanted.timetable.spec!r} never comes, at least not within 50 years")
        self.forget(known)
        for field in DEFINED:
            setattr(known, field, getattr(wanted, field))
        if is_other:
            known.timetable = wanted.timetable
            known.reached_us = self._state.now_us
        self._state.note_schedule(known)

    def pause(self, schedule: Schedule) -> None:
        """Make no jobs at ticks until the schedule is resumed."""
        if schedule.paused:
            self._state.concern_speaker()  # the pause may not be stored yet
            return
        schedule.paused = True
        schedule.refusal = ""
        self._look_at(schedule, 0)
        self._state.note_schedule(schedule)

    def resume(self, schedule: Schedule) -> None:
        """Resume a schedule with its next tick."""
        if schedule.paused:
            schedule.paused = False
            self._count_ticks_from_now(schedule)
        else:
            self._state.concern_speaker()  # the change may not be stored yet

    def run_now(self, schedule: Schedule) -> Job:
        """Make a job at once, paused or not; its ticks do not change. Raises Refused."""
        last = self._unfinished(schedule)
        if last is not None and not schedule.overlap:
            raise Refused(REFUSED_CONFLICT, f"its last job is {last.state.name.lower()}, and its jobs do not overlap")
        job = self._make_job(schedule, 0, ())
        self._state.changed_schedules[schedule.name] = schedule  # the answer promises the job
        return job

    # --- ticks ---

    def meet_tick(self, schedule: Schedule) -> None:
        """Handle the deadline of a schedule."""
        schedule.wake_us = 0  # this entry of the index is used up, not stale
        if self._state.refusal is not None:  # so that thousands of schedules cost little while the store fails
            self._hold_up(schedule, self._state.refusal)
            self._look_at(schedule, self._state.now_us + RETRY_US)
            return
        if not self._may_meet_tick():
            self._look_at(schedule, self._state.now_us + 1)
            return
        due = schedule.timetable.last_between_us(schedule.reached_us, self._state.now_us, MOST_MADE_UP_FOR)
        if due:
            self._ticks_met += len(due) if schedule.catch_up == CatchUp.ALL else 1
            self._meet_ticks(schedule, due)
        self._await_tick(schedule)

    def _may_meet_tick(self) -> bool:
        """Whether another tick may be met in this turn."""
        if self._ticks_met_us != self._state.now_us:
            self._ticks_met_us = self._state.now_us
            self._ticks_met = 0
        return self._ticks_met < TICKS_AT_ONCE

    def _meet_ticks(self, schedule: Schedule, due: list[int]) -> None:
        """Make the jobs for these ticks."""
        is_on_time = self._state.now_us - due[-1] <= ON_TIME_US
        if schedule.catch_up == CatchUp.ALL:
            wanted = due
        elif schedule.catch_up == CatchUp.LATEST or is_on_time:
            wanted = due[-1:]
        else:
            wanted = []
        if schedule.expires_after_us:
            wanted = [tick_us for tick_us in wanted if tick_us + schedule.expires_after_us > self._state.now_us]
        missed = len(due) - len(wanted)
        in_turn = schedule.catch_up == CatchUp.ALL and self._state.now_us - due[0] > ON_TIME_US
        for tick_us in wanted:
            try:
                self._fire(schedule, tick_us, in_turn)
            except Refused as refused:
                self._hold_up(schedule, refused)
                return  # all ticks that are not met are examined again
            schedule.reached_us = tick_us
            self._state.note_schedule(schedule)
        schedule.refusal = ""
        schedule.reached_us = due[-1]
        if missed:
            schedule.missed += missed
            self._state.observer.schedule_missed(schedule, missed)
        self._state.note_schedule(schedule)

    def _fire(self, schedule: Schedule, tick_us: int, in_turn: bool) -> None:
        last = None if schedule.overlap else self._unfinished(schedule)
        if last is not None and not in_turn:
            schedule.skipped += 1
            self._state.observer.schedule_skipped(schedule)
            return
        job = self._make_job(schedule, tick_us, () if last is None else (last.id,))
        self._state.observer.schedule_fired(schedule, job)

    def _make_job(self, schedule: Schedule, tick_us: int, predecessors: tuple[int, ...]) -> Job:
        """Submit a job of this schedule. Its run-at time is that of the tick."""
        expires_after_us = schedule.expires_after_us
        options = SubmitOptions(
            run_at_us=tick_us,
            expires_us=(tick_us or self._state.now_us) + expires_after_us if expires_after_us else 0,
            timeout_us=schedule.timeout_us,
            attempts_limit=schedule.attempts_limit,
            predecessors=predecessors,
            origin=ORIGIN,
            key=schedule.key,
            crash_limit=schedule.crash_limit,
            edges=bytes([EdgePolicy.RUN] * len(predecessors)),
            retention_us=schedule.retention_us,
            requires=schedule.requires,
            schedule=schedule.name,
        )
        job = self._submissions.submit(
            schedule.function_name, b"", schedule.payload, schedule.priority, Delivery.HANDLE, None, options
        )
        schedule.last_us = self._state.now_us
        schedule.last_job_id = job.id
        schedule.fired += 1
        return job

    def _hold_up(self, schedule: Schedule, refused: Refused) -> None:
        """Leave the tick due, and try it again later."""
        if not schedule.refusal:
            schedule.refused += 1
            self._state.observer.schedule_refused(schedule, str(refused))
            self._state.note_schedule(schedule)
        schedule.refusal = str(refused) or refused.reason

    def take_back_tick(self, job: Job) -> None:
        """Make the tick of a withdrawn job due again: the job could not be stored."""
        schedule = self._state.schedules.get(job.schedule)
        if schedule is None:
            return
        schedule.fired = max(0, schedule.fired - 1)
        if schedule.last_job_id == job.id:
            schedule.last_job_id = job.predecessors[0] if job.predecessors else 0
            schedule.last_us = schedule.last_us if schedule.last_job_id else 0
        if job.run_at_us and not schedule.paused:  # not a job of `run_now`
            schedule.reached_us = min(schedule.reached_us, job.run_at_us - 1)
            self._await_tick(schedule)
        self._state.note_schedule(schedule)

    def _unfinished(self, schedule: Schedule) -> Job | None:
        """The last job of this schedule, if it is unfinished."""
        return self._packed.job(schedule.last_job_id)

    # --- time ---

    def _count_ticks_from_now(self, schedule: Schedule) -> None:
        schedule.reached_us = self._state.now_us
        schedule.refusal = ""
        self._await_tick(schedule)
        self._state.note_schedule(schedule)

    def _await_tick(self, schedule: Schedule) -> None:
        """Set the deadline of the next tick, or of the next try if a tick is held up."""
        schedule.next_us = schedule.timetable.next_after_us(schedule.reached_us) or 0
        wake_us = schedule.next_us
        if wake_us and schedule.refusal:
            wake_us = max(wake_us, self._state.now_us + RETRY_US)
        self._look_at(schedule, 0 if schedule.paused else wake_us)

    def _look_at(self, schedule: Schedule, wake_us: int) -> None:
        if schedule.wake_us == wake_us:
            return
        if schedule.wake_us:
            self._deadlines.note_stale()
        schedule.wake_us = wake_us
        if wake_us:
            self._deadlines.add(wake_us, DeadlineKind.TICK, schedule)

    def clock_moved(self) -> None:
        """Adapt to a wall clock that was set."""
        for schedule in self._state.schedules.values():
            if not schedule.paused:
                self._set_right(schedule)
                self._await_tick(schedule)

    def restore(self, schedules: Sequence[Schedule]) -> None:
        """Restore schedules of a store; due ticks are met with the next `advance`."""
        for schedule in schedules:
            self._state.schedules[schedule.name] = schedule
            self._state.memory.schedule_bytes += held_bytes(schedule)
            self._set_right(schedule)
            self._await_tick(schedule)

    def _set_right(self, schedule: Schedule) -> None:
        if schedule.reached_us - MOST_SET_BACK_US > self._state.now_us:
            schedule.reached_us = self._state.now_us
            self._state.note_schedule(schedule)


def held_bytes(schedule: Schedule) -> int:
    """The approximate memory of a schedule."""
    texts = len(schedule.name) + len(schedule.function_name) + len(schedule.key) + len(schedule.timetable.spec)
    texts += len(schedule.requires) + len(schedule.owner)
    return SCHEDULE_BYTES + texts + len(schedule.payload)


def _times(schedule: Schedule) -> tuple[str, str]:
    return schedule.timetable.spec, schedule.timetable.timezone
