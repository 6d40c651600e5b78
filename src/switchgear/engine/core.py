"""What all parts of the engine share: its tables, its settings, and the one way a job changes state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from mypy_extensions import mypyc_attr

from switchgear.engine.backlog import Backlog
from switchgear.engine.deadlines import Deadlines
from switchgear.engine.lifecycle import next_state
from switchgear.errors import Refused
from switchgear.memory import FOR_FUNCTIONS, MemoryAccount
from switchgear.model import SECOND_US, Cause, Function, Job, JobState, JobTable, Peer, Schedule, Worker
from switchgear.model.job import MOVE_BYTES
from switchgear.model.names import NameTable

__all__ = ["Core", "EngineSettings", "Observer"]

# Why a command was refused; protocols map these to their own words.
REFUSED_FULL: Final = "full"
REFUSED_DRAINING: Final = "draining"
REFUSED_STORAGE: Final = "storage"
REFUSED_LIMIT: Final = "limit"
REFUSED_CONFLICT: Final = "conflict"
REFUSED_UNIQUE: Final = "unique"  # another job has the unique key

# What a function takes in memory beside its name, about.
FUNCTION_BYTES: Final = 4_500

FUNCTION_ORDERS: Final = ("fair", "registration", "round-robin")


@dataclass(slots=True)
class EngineSettings:
    """What an operator may choose; zero means no limit."""

    attempts: int = 3  # how often a job is started before a loss makes it dead
    wakeups: int = 1  # sleeping workers woken for one job; 0: all
    function_order: str = "fair"
    functions: int = 10_000  # names cost memory, so strangers cannot make up any number of them
    schedules: int = 1_000  # each makes jobs for ever, and strangers may make them up
    jobs: int = 0
    jobs_per_function: int = 0
    memory_bytes: int = 0  # what peers may make the server hold, all together; see `MemoryAccount`
    jobs_per_worker: int = 10_000  # one worker that takes and takes cannot hold up the whole queue
    neglect_us: int = SECOND_US  # a woken worker that has not come by then gets company
    warning_bytes: int = 65_536  # kept of what a job says on the way
    collected_bytes: int = 64 * 1024 * 1024  # kept of the parts of one result
    retention_us: int = 86_400 * SECOND_US  # how long a finished job is remembered; zero: not at all


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer:
    """Hears of what an operator may want to know.  Does nothing unless overridden."""

    def job_requeued(self, job: Job, cause: Cause) -> None:
        """A running job went back to its queue."""

    def job_died(self, job: Job) -> None:
        """A job failed because its attempts are spent."""

    def job_expired(self, job: Job) -> None:
        """A job was not started in time."""

    def worker_expired(self, worker: Worker) -> None:
        """A worker gave no sign of life within its lease."""

    def wake_policy_failed(self, function: Function, error: Exception) -> None:
        """The operator's own choice of whom to wake raised an error; the usual choice was made."""

    def function_created(self, function: Function) -> None:
        """A name was used for the first time."""

    def memory_full(self, reason: str) -> None:
        """Something was refused because the server holds as much as it may."""

    def schedule_fired(self, schedule: Schedule, job: Job) -> None:
        """A tick has come, and a job was made."""

    def schedule_skipped(self, schedule: Schedule) -> None:
        """A tick has come, and no job was made because the last one is unfinished."""

    def schedule_missed(self, schedule: Schedule, count: int) -> None:
        """So many ticks were over before they could be met, and are not made up for."""

    def schedule_refused(self, schedule: Schedule, reason: str) -> None:
        """A tick has come, and its job cannot be taken now; it is tried again."""


class Core:
    """The tables of the engine."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        self.settings = settings or EngineSettings()
        self.observer = observer or Observer()
        self.keeps = False  # whether changes of unfinished jobs are to be reported for keeping
        self.notes_starts = False  # with `keeps`: whether starts of jobs that are not kept are to be reported too
        self.now_us = 0
        self.next_job_id = 1
        self.jobs = JobTable()  # unfinished ones only
        self.names = NameTable[Job]()
        self.functions: dict[bytes, Function] = {}
        self.workers: dict[int, Worker] = {}
        self.memory = MemoryAccount(self.settings.memory_bytes)  # shared with all that hold bytes for peers
        self.deadlines = Deadlines(self.memory)
        self.backlog = Backlog()
        self.changed: dict[Job, None] = {}  # since the owner last took them; without `keeps` only those that finished
        self.changed_functions: list[Function] = []
        self.schedules: dict[bytes, Schedule] = {}
        self.changed_schedules: dict[bytes, Schedule] = {}
        self.refusal: Refused | None = None  # set while no submission can be taken
        self.handing_out = True
        self.audience: list[Peer] = []  # hear of every job's start and end, as if they watched it

    def use_settings(self, settings: EngineSettings) -> None:
        """Go on with other settings.  A limit that a function was given for itself stays."""
        usual = [self.settings.jobs_per_function] * 3
        self.settings = settings
        self.memory.limit_bytes = settings.memory_bytes
        for function in self.functions.values():
            if function.limits == usual:
                function.limits = [settings.jobs_per_function] * 3

    def function_named(self, name: bytes) -> Function:
        """The function of that name, made if it is new."""
        function = self.functions.get(name)
        if function is None:
            limit = self.settings.functions
            if limit and len(self.functions) >= limit and not self._forget_unused_function():
                raise Refused(REFUSED_LIMIT, f"there are {limit} functions already")
            while not self.memory.has_registration_room(FUNCTION_BYTES + len(name)):
                if not self._forget_unused_function():
                    self._refuse_registration(FUNCTION_BYTES + len(name), FOR_FUNCTIONS)
            self.memory.registration_bytes += FUNCTION_BYTES + len(name)
            function = self.functions[name] = Function(name)
            if self.settings.jobs_per_function:
                function.limits = [self.settings.jobs_per_function] * 3
            self.observer.function_created(function)
        function.named_us = self.now_us
        return function

    def _forget_unused_function(self) -> bool:
        """Make room for another function, if there is one that nobody uses."""
        return False

    def drop_contents(self, job: Job) -> None:
        """Let go of the payload, the result and the texts of a job that has ended.

        To be called when its end is stored, or told if it is not stored: from then on a store has them, or nobody.
        The job itself may stay for a while, in a queue that it left, for a deadline or for its unique key.
        """
        self._uncount(job)
        job.drop_contents()

    def _uncount(self, job: Job) -> None:
        """The job is not the engine's to count any more."""
        if job.entry_bytes:
            self.memory.job_bytes -= job.entry_bytes + job.content_bytes
            job.entry_bytes = 0

    def hold_for(self, job: Job, more_bytes: int) -> None:
        """So much more is held for the job beside its contents, or less, until it ends."""
        if job.entry_bytes:
            job.entry_bytes += more_bytes
            self.memory.job_bytes += more_bytes

    def _refuse_without_memory(self, more_bytes: int) -> None:
        """Raise Refused unless so much more may be held."""
        memory = self.memory
        if not memory.has_room(more_bytes):
            text = f"no memory for {more_bytes} bytes more: {memory.held_bytes} are held"
            self._refuse_for_memory(text)

    def _refuse_registration(self, more_bytes: int, quarters: int) -> None:
        """Raise Refused unless functions and workers may take so much more."""
        memory = self.memory
        if not memory.has_registration_room(more_bytes, quarters):
            self._refuse_for_memory(
                f"no memory for more functions and workers: they take {memory.registration_bytes} bytes"
            )

    def _refuse_for_memory(self, text: str) -> NoReturn:
        reason = f"{text}, and limits.memory_bytes is {self.memory.limit_bytes}"
        self.observer.memory_full(reason)
        raise Refused(REFUSED_FULL, reason)

    def _count_contents(self, job: Job) -> None:
        """The job comes into the tables with what it has."""
        if not job.entry_bytes:
            job.entry_bytes = job.measured_entry()
            self.memory.job_bytes += job.entry_bytes + job.content_bytes

    def take_changes(self) -> tuple[list[Job], list[Function]]:
        """What changed since the last call and has to be kept."""
        changes = list(self.changed), self.changed_functions
        self.changed = {}
        self.changed_functions = []
        return changes

    def take_changed_schedules(self) -> list[Schedule]:
        """Those that changed since the last call, to be kept together with the jobs of `take_changes`."""
        schedules = list(self.changed_schedules.values())
        self.changed_schedules = {}
        return schedules

    def _move(self, job: Job, cause: Cause) -> JobState:
        """Change a job's state, for a cause that its life knows."""
        state = next_state(job, cause)
        self._note_move(job, cause)
        job.state = state
        return state

    def _note_move(self, job: Job, cause: Cause) -> None:
        """Write down a move of a job that is not implied, and count what that takes."""
        before = 0 if job.history is None else len(job.history)
        job.note_move(cause, self.now_us)
        assert job.history is not None
        self.hold_for(job, MOVE_BYTES * ((len(job.history) - before) // 2))

    def _note(self, job: Job) -> None:
        """This job must be kept as it will be at the end of the turn."""
        self.changed[job] = None

    def _note_function(self, function: Function) -> None:
        if function not in self.changed_functions:
            self.changed_functions.append(function)

    def _note_schedule(self, schedule: Schedule) -> None:
        self.changed_schedules[schedule.name] = schedule
