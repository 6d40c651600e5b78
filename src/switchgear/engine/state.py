"""`EngineState`: the tables, settings and counters that all parts of the engine share."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final, NoReturn

from mypy_extensions import mypyc_attr

from switchgear.engine.function_placement import FunctionPlacement
from switchgear.engine.lifecycle import next_state
from switchgear.engine.protocol_flows import UNKNOWN_SOURCE, Flows
from switchgear.errors import Refused
from switchgear.memory import MemoryAccount
from switchgear.model import SECOND_US, Cause, Function, Job, JobState, JobTable, Peer, Schedule, Worker
from switchgear.model.job import MOVE_BYTES
from switchgear.model.names import NameTable
from switchgear.refusals import REFUSED_CONFLICT, REFUSED_FULL

__all__ = ["EngineSettings", "EngineState", "Observer"]

ALL_IDS: Final = 1 << 60  # above every id

FUNCTION_ORDERS: Final = ("fair", "registration", "round-robin")


@dataclass(slots=True)
class EngineSettings:
    """Settings of the engine that an operator may change; zero means no limit."""

    attempts: int = 3  # how often a job is started before the loss of its worker makes it dead
    wakeups: int = 1  # sleeping workers woken for one job; 0: all
    function_order: str = "fair"
    functions: int = 10_000  # names take memory, so a peer must not create an unlimited number
    schedules: int = 1_000  # each makes jobs forever, and any peer may create one
    jobs: int = 0
    jobs_per_function: int = 0
    memory_bytes: int = 0  # the limit of the memory account; see `MemoryAccount`
    jobs_per_worker: int = 10_000  # so that one worker cannot take a whole queue
    unanswered_wakeup_us: int = SECOND_US  # if a woken worker has not asked by then, others are woken
    warning_bytes: int = 65_536  # how many bytes of a job's warnings are kept
    collected_bytes: int = 64 * 1024 * 1024  # how many bytes of the parts of one result are kept
    retention_us: int = 86_400 * SECOND_US  # how long a finished job is kept; zero: not at all


# Retentions below this are met within about a second; there are at most as many ends of them as it has seconds.
SHORT_RETENTION_US: Final = 600 * SECOND_US


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer:
    """Receives events that an operator may want to know. Its methods do nothing unless overridden."""

    def job_requeued(self, job: Job, cause: Cause) -> None:
        """Called when a running job was requeued."""

    def job_died(self, job: Job) -> None:
        """Called when a job failed because its attempts are used up."""

    def job_expired(self, job: Job) -> None:
        """Called when a job has expired."""

    def worker_expired(self, worker: Worker) -> None:
        """A worker did not renew its lease in time."""

    def wake_policy_failed(self, function: Function, error: Exception) -> None:
        """The operator's wake policy raised an error; the usual choice was made."""

    def function_created(self, function: Function) -> None:
        """A function name was used for the first time."""

    def memory_full(self, reason: str) -> None:
        """Something was refused because the memory account is full."""

    def schedule_fired(self, schedule: Schedule, job: Job) -> None:
        """A job was made at a tick."""

    def schedule_skipped(self, schedule: Schedule) -> None:
        """A tick was skipped because the last job is unfinished."""

    def schedule_missed(self, schedule: Schedule, count: int) -> None:
        """This many ticks were missed, and no jobs are made for them."""

    def schedule_refused(self, schedule: Schedule, reason: str) -> None:
        """The job of a tick was refused; the tick is tried again."""


class EngineState:
    """State that every part of the engine may read, and the few changes that all of them make in the same way."""

    def __init__(self, settings: EngineSettings | None = None, observer: Observer | None = None) -> None:
        self.settings = settings or EngineSettings()
        self.observer = observer or Observer()
        self.reports_changes = False  # changes of unfinished jobs are reported, so that the owner can store them
        self.notes_starts = False  # with `reports_changes`: starts of jobs that are not stored are reported too
        # The owner has a store that survives it, and reports stored batches (`batch_is_stored`).
        self.is_durable = False
        self.speaker: Peer | None = None  # the peer whose command is being carried out; None: time has passed
        self.batch = 1  # the number of the batch of changes that is being collected
        self.stored_batch = 0  # all batches up to this one are stored
        self.now_us = 0
        self.next_job_id = 1
        # Jobs from this id on were submitted in the batch that is being collected, by peers that do not repeat it.
        self.batch_ids = 1
        self.quick_starts = 0  # starts that are likely to be followed by their ends within a millisecond
        self.unused_ids = 0  # reserved for graphs that were not submitted, or not yet
        # No id below it is given out again after a restart.  Whoever is told of another has to wait for a commit.
        self.stored_ids = ALL_IDS
        self.jobs = JobTable()  # unfinished jobs that are objects; `PackedQueues` has the others
        self.names = NameTable[Job]()
        self.reserved_names: list[Container[bytes]] = []  # names of jobs that are about to be submitted, by batch
        self.functions: dict[bytes, Function] = {}
        self.dropped_counts = [0, 0, 0, 0, 0, 0]  # the sums of `Function.counts` of functions that were forgotten
        self.workers: dict[int, Worker] = {}
        # The jobs of workers that are gone, while not all of them were requeued; see `WorkerRegistry.remove`.
        self.departed: dict[Worker, dict[int, Job]] = {}
        self.schedules: dict[bytes, Schedule] = {}
        self.memory = MemoryAccount(self.settings.memory_bytes)  # shared with all that hold bytes for peers
        # Changes since the owner last took them; without `reports_changes` only jobs that finished.
        self.changed: dict[Job, None] = {}
        self.changed_functions: list[Function] = []
        self.changed_schedules: dict[bytes, Schedule] = {}
        # Jobs that are next and whose payloads are not in memory, since the owner last took them.
        self.wanted_payloads: list[Job] = []
        self.refusal: Refused | None = None  # set while no submission is accepted
        self.edge_changes = 0  # how often a job that was there began to wait for others; new jobs do not count
        self.placement: FunctionPlacement | None = None  # other engines have some of the functions
        self.handing_out = True
        self.has_wake_policy = False
        self.hands_out_plainly = True  # and there is no wake policy to be asked
        self.is_meeting_deadlines = False  # several deadlines may be due at once, and not all were handled yet
        self.flows = Flows()
        self.global_subscribers: list[Peer] = []  # told of every job's start and end
        # The seconds in which short retentions of finished jobs end, so that the owner drops the jobs in time.
        self.retention_ends: set[int] = set()

    def set_handing_out(self, handing_out: bool, has_wake_policy: bool) -> None:
        """Hand out jobs or not, and have a wake policy asked or not."""
        self.handing_out = handing_out
        self.has_wake_policy = has_wake_policy
        self.hands_out_plainly = handing_out and not has_wake_policy

    def apply_settings(self, settings: EngineSettings) -> None:
        """Change the settings. A limit that was set for one function stays."""
        usual = [self.settings.jobs_per_function] * 3
        self.settings = settings
        self.memory.limit_bytes = settings.memory_bytes
        for function in self.functions.values():
            if function.limits == usual:
                function.limits = [settings.jobs_per_function] * 3

    def note_retention(self, job: Job) -> None:
        """Note when a finished job is to be dropped, if that is so soon that the owner would be late by itself."""
        if job.retention_us < SHORT_RETENTION_US:
            self.retention_ends.add((job.finished_us + job.retention_us) // SECOND_US + 1)

    # --- changes that the owner has to store ---

    def note(self, job: Job) -> None:
        """Report this job with the next `take_changes`, in its state at the end of the turn."""
        self.changed[job] = None
        self.concern_speaker()

    def note_function(self, function: Function) -> None:
        """Report the settings of this function with the next `take_changes`."""
        if function not in self.changed_functions:
            self.changed_functions.append(function)
        self.concern_speaker()

    def note_schedule(self, schedule: Schedule) -> None:
        """Report this schedule with the next `take_changed_schedules`."""
        self.changed_schedules[schedule.name] = schedule
        self.concern_speaker()

    def concern(self, peer: Peer) -> None:
        """Note that a change of this batch concerns the peer: its output waits until the batch is stored."""
        if self.is_durable:
            peer.event_concerns(self.batch)

    def concern_speaker(self) -> None:
        """Note that a change concerns the peer whose command caused it, or asked for a change that was already made."""
        speaker = self.speaker
        if speaker is not None and self.is_durable:
            speaker.unstored_batch = self.batch

    def promise(self, job: Job) -> None:
        """Note that the speaker has submitted or joined this durable job: its next answer promises the job."""
        speaker = self.speaker
        if speaker is not None and self.is_durable and not job.kept:
            speaker.job_promised(job, self.batch)

    @property
    def ids_end(self) -> int:
        """No job has this id or a higher one."""
        return self.next_job_id if self.placement is None else ALL_IDS

    @property
    def source(self) -> int:
        """The number of the protocol by which the speaker submits jobs."""
        speaker = self.speaker
        return speaker.source if speaker is not None else UNKNOWN_SOURCE

    def take_changes(self) -> tuple[list[Job], list[Function]]:
        """The jobs and functions that changed since the last call."""
        # Not `list(self.changed)`: compiled, that takes three times as long for the one job of a quiet turn.
        changes = [job for job in self.changed], self.changed_functions  # noqa: C416
        self.changed = {}
        self.changed_functions = []
        return changes

    def take_changed_schedules(self) -> list[Schedule]:
        """The schedules that changed since the last call; they must be stored together with the jobs of
        `take_changes`."""
        schedules = list(self.changed_schedules.values())
        self.changed_schedules = {}
        return schedules

    def take_wanted_payloads(self) -> list[Job]:
        """The jobs whose payloads became wanted since the last call."""
        wanted, self.wanted_payloads = self.wanted_payloads, []
        return wanted

    # --- a job's state, names and memory ---

    def move(self, job: Job, cause: Cause) -> JobState:
        """Change a job's state; raises IllegalMove if the lifecycle has no such move."""
        state = next_state(job, cause)
        self.note_move(job, cause)
        job.state = state
        return state

    def note_move(self, job: Job, cause: Cause) -> None:
        """Log a move that is not implied by other fields, and count its memory."""
        before = 0 if job.history is None else len(job.history)
        job.note_move(cause, self.now_us)
        assert job.history is not None
        self.count_more(job, MOVE_BYTES * ((len(job.history) - before) // 2))

    def is_too_late(self, job: Job) -> bool:
        """Whether the job has expired. Asked where several deadlines may be due at once."""
        return 0 < job.expires_us <= self.now_us

    def refuse_foreign(self, name: bytes) -> None:
        """Raise Refused if another engine has the function with this name."""
        if self.placement is not None and not self.placement.is_ours(name):
            shown = name.decode("utf-8", "backslashreplace")
            raise Refused(REFUSED_CONFLICT, f"another node owns the function {shown}: ask that one")

    def is_name_reserved(self, name: bytes) -> bool:
        """Whether a job of this name is about to be submitted."""
        for names in self.reserved_names:  # noqa: SIM110  (a generator would take longer than all the rest)
            if name in names:
                return True
        return False

    def refuse_taken_name(self, name: bytes) -> None:
        """Raise Refused if an unfinished or reserved job has this name."""
        if name in self.names or self.is_name_reserved(name):
            raise Refused(REFUSED_CONFLICT, f"there is an unfinished job named {name!r}")

    def set_error(self, job: Job, error: bytes | None) -> None:
        """Set the error text of a job."""
        self.memory.job_bytes += len(error or b"") - len(job.error or b"")
        job.error = error

    def set_result(self, job: Job, result: bytes) -> None:
        """Set the result of a job that has none."""
        job.result = result
        self.memory.job_bytes += len(result)

    def count_contents(self, job: Job) -> None:
        """Count a job that enters the tables, with its payload, result and texts."""
        if not job.entry_bytes:
            job.entry_bytes = job.measured_entry()
            self.memory.job_bytes += job.entry_bytes + job.content_bytes

    def uncount_contents(self, job: Job) -> None:
        """Stop counting a job and its contents."""
        if job.entry_bytes:
            self.memory.job_bytes -= job.entry_bytes + job.content_bytes
            job.entry_bytes = 0

    def count_more(self, job: Job, more_bytes: int) -> None:
        """Count this many more (or fewer) bytes for the job besides its contents, until it ends."""
        if job.entry_bytes:
            job.entry_bytes += more_bytes
            self.memory.job_bytes += more_bytes

    def drop_contents(self, job: Job) -> None:
        """Free the payload, the result and the texts of a job that has ended.

        Call this when the end is stored or, if it is not to be stored, when the subscribers were told. The job object
        itself may stay for a while, because of a deadline or its unique key.
        """
        self.uncount_contents(job)
        job.drop_contents()

    def refuse_without_memory(self, more_bytes: int) -> None:
        """Raise Refused unless this many more bytes may be held."""
        memory = self.memory
        if not memory.has_room(more_bytes):
            text = f"no memory for {more_bytes} bytes more: {memory.held_bytes} are held"
            self._refuse_for_memory(text)

    def refuse_registration(self, more_bytes: int, quarters: int) -> None:
        """Raise Refused unless functions and workers may take this many more bytes."""
        memory = self.memory
        if not memory.has_registration_room(more_bytes, quarters):
            self._refuse_for_memory(
                f"no memory for more functions and workers: they take {memory.registration_bytes} bytes"
            )

    def _refuse_for_memory(self, text: str) -> NoReturn:
        reason = f"{text}, and limits.memory_bytes is {self.memory.limit_bytes}"
        self.observer.memory_full(reason)
        raise Refused(REFUSED_FULL, reason)
