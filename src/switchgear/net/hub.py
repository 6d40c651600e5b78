"""The hub owns the engine: it gives it the time, lets sessions speak to it, keeps what changed, and then sends.

A turn.  The first thing that arrives in a turn of the event loop opens it; at the end of the turn, when every
readable connection was read once, what changed is staged and what is to be said is sent, each connection written to
once.  A commit may begin or end in the middle of a turn.  The turn is then closed first, so that what a session has
to say and what is staged always belong together: an answer of the turn that is still open must wait for a commit
that has its changes.

Keeping.  Sessions that promised something (`Session.pledge`) have their output held until the store has committed.
One commit runs at a time; whatever arrives meanwhile waits for the next, so the number of syncs does not grow with
the number of clients. Changes that nobody was promised are committed a moment later, or along with the next
promise.

When the store fails.  Submissions that no worker has yet are withdrawn and their answers become refusals; new ones
are refused; nothing is handed out.  What cannot be withdrawn stays staged, its answers held, and the commit is
tried again until it works.

Ids.  Most foreground jobs are never kept, but their handles must not be given to other jobs after a restart.  So
ids are used only below a bound that the store has; it is moved on in large steps, long before it is reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from switchgear.engine.core import REFUSED_DRAINING, REFUSED_STORAGE
from switchgear.engine.engine import Engine
from switchgear.errors import Refused, StorageError
from switchgear.model import FINAL_STATES, KEPT, QUEUED_STATES, READY, RESIDENT, Function, Job, JobState, Peer
from switchgear.net.clock import SystemClock
from switchgear.net.slices import Slices
from switchgear.protocols.base import Context, Session
from switchgear.storage.base import JobQuery, Snapshot, Store
from switchgear.telemetry import Telemetry

__all__ = ["Hub"]

log = logging.getLogger("switchgear")

LAZY_COMMIT_SECONDS = 0.05
# A job that has just come, and for which somebody was woken, is kept together with its start if that comes soon: one
# sync less until its worker gets it.
WOKEN_SECONDS = 0.001
FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 1.0
# Where little fits and much does not, the store works again only to fail again; each time it is given longer to do so.
CALM_SECONDS: Final = 10.0
# A restart skips at most this many ids; reserving them in blocks saves writing the counter with every job.
RESERVED_IDS = 100_000
# Payloads read ahead from the store in one go, when a queue is longer than memory should hold: at most so many, and
# about so many bytes.  How long they are is only known afterwards, so the number grows from a small one.
READ_AHEAD: Final = 256
READ_AHEAD_BYTES = 8 * 1024 * 1024
FIRST_READ_AHEAD: Final = 4
# So much of foreground jobs that ended may wait for the store; more than that is not kept.
MOST_HISTORY_BYTES = 256 * 1024 * 1024
# Long operations stand still while so many changed jobs wait for the store: a commit must not become longer and longer.
MOST_UNKEPT: Final = 5_000
NOBODY: Final[set[Peer]] = set()
EVERY_JOB: Final = 2**31  # as many as a store has


class Hub(Context):
    """The one owner of an engine and its store."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        clock: SystemClock,
        telemetry: Telemetry,
        payload_memory_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self.engine = engine
        self.store = store
        self.clock = clock
        self.telemetry = telemetry
        self.keeps = store.durable
        self.marked: list[Session] = []
        self.turn_open = False
        store.count_in(engine.memory)
        self.storage_error: StorageError | None = None
        self.payload_memory_bytes = payload_memory_bytes
        self.on_stop_requested: Callable[[bool], None] = lambda graceful: None
        self.on_changes: Callable[[list[Job]], None] | None = None  # hears of every start and end; see report_changes
        self.operator: Callable[[str, dict[str, Any]], Any] = lambda verb, arguments: None
        self.operator_in_steps: Callable[[str, dict[str, Any], list[Any]], Iterator[bool]] = super().operate_in_steps
        engine.keeps = engine.holds_starts = store.durable
        self._loop = asyncio.get_running_loop()
        self.slices = Slices(self.begin_turn, lambda: len(self._unkept) > MOST_UNKEPT)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._lazy: asyncio.TimerHandle | None = None
        self._soon: asyncio.TimerHandle | None = None  # as long as it is awaited that somebody woken takes a job
        self._woken = 0  # how often somebody was woken by the end of the last turn
        self._commit: asyncio.Task[None] | None = None
        self._unkept: list[Job] = []  # staged since the commit under way began
        self._in_commit: list[Job] = []
        self._ends: dict[int, Job] | None = None  # of both by id, those that ended; None: to be looked up again
        self._waiting: list[Session] = []  # promised something that the next commit keeps
        self._held: list[Session] = []  # promised something that the commit under way keeps
        self.ids_at_once = RESERVED_IDS
        self._reserved_ids = 0  # ids below it may be used once the store has it
        self._ids_in_commit = 0
        self._kept_ids = 0  # ids below it may be used
        self._failed_at = 0.0
        self._recovered_at = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._resident_bytes = 0
        self._history_bytes = 0  # contents of foreground jobs that ended, to be kept by the next commit
        self._history_in_commit = 0
        self._read_ahead_jobs = FIRST_READ_AHEAD

    def report_changes(self, on_changes: Callable[[list[Job]], None]) -> None:
        """Let somebody hear of every job that is started or ends, when the turn is over, kept or not."""
        self.on_changes = on_changes
        self.engine.keeps = self.engine.notes_starts = True

    @property
    def must_wait_for_store(self) -> bool:
        """Whether peers that report what has to be kept should wait: the store fails, or cannot follow, and what it has
        not taken yet fills the memory."""
        memory = self.engine.memory
        return self.storage_error is not None or 0 < memory.stored_limit_bytes < memory.job_bytes

    async def load(self) -> None:
        """Take over what the store has kept, and reserve ids for what is to come."""
        settings = self.engine.settings
        memory = self.engine.memory
        functions, settings.functions = settings.functions, 0  # what was taken is kept, whatever the limits are now
        limit_bytes, memory.limit_bytes = memory.limit_bytes, 0
        try:
            self._restore(self.store.load_apart(self.engine.function_named, self.clock.now_us()))
        finally:
            settings.functions = functions
            memory.limit_bytes = limit_bytes
        self._end_turn()
        if self.keeps:
            self._start_commit()
        await self._end_of_commit()

    def _restore(self, snapshot: Snapshot) -> None:
        self.engine.advance(self.clock.now_us())
        self._reserved_ids = self._kept_ids = snapshot.next_job_id
        for job in snapshot.jobs:
            self._spill(job)  # they are not counted yet
        self.engine.restore(
            snapshot.jobs,
            snapshot.unsuccessful,
            snapshot.next_job_id,
            snapshot.schedules,
            snapshot.held,
            snapshot.plain,
        )

    async def settle(self) -> None:
        """Let everything that was promised by now be kept and said, unless the store has failed."""
        self._end_turn()
        if self._soon is not None:
            self._start_commit()
        while self._commit is not None and self.storage_error is None:
            await self._end_of_commit()

    async def close(self) -> None:
        """Keep what is still to be kept, if the store can."""
        self.slices.finish()
        self._end_turn()
        await self._end_of_commit()
        if self._unkept or self._lazy is not None:
            self._start_commit()
            await self._end_of_commit()
        for handle in (self._timer, self._lazy, self._soon, self._retry):
            if handle is not None:
                handle.cancel()
        self.engine.let_go()
        self._unkept = []
        self._in_commit = []
        self._ends = None

    async def _end_of_commit(self) -> None:
        if self._commit is not None:
            await asyncio.wait([self._commit])

    # --- turns ---

    def begin_turn(self) -> None:
        """Something happens: it happens now."""
        if not self.turn_open:
            self.turn_open = True
            self._loop.call_soon(self._end_turn)  # first: should the next line fail, there are other turns to come
            self.engine.advance(self.clock.now_us())

    def _end_turn(self) -> None:
        self._close_turn()
        if self._waiting and self._commit is None and self.storage_error is None:
            if self._woken == self.engine.wakes or self._soon is not None:
                self._start_commit()
            else:
                self._soon = self._loop.call_later(WOKEN_SECONDS, self._start_commit)
        self._woken = self.engine.wakes
        self._arm_timer()

    def _close_turn(self) -> None:
        """Stage what changed, and send what may be said at once."""
        self.turn_open = False
        self._stage_changes()
        if self.marked:
            new_ids_are_kept = self._new_ids_are_kept()
            marked, self.marked = self.marked, []
            for session in marked:
                session.marked = False
                if session.pledges or not new_ids_are_kept:
                    if not session.waiting:
                        session.waiting = True
                        self._waiting.append(session)
                elif session.held is None and not session.waiting:
                    self._send(session)
        self.engine.memory.answer_bytes = 0  # what was written is counted by the connections

    def _new_ids_are_kept(self) -> bool:
        """Whether the ids that were given out so far cannot be given out again after a restart."""
        return self.engine.next_job_id <= self._kept_ids or not self.keeps

    def _send(self, session: Session) -> None:
        """Write what a session has to say, all at once."""
        out = session.out
        if out:
            session.out = []
            try:
                session.wire.write(out)
            except Exception:
                log.exception("defect while sending to %s:%s", session.wire.host, session.wire.port)
                session.closing = True  # and the others get theirs
        goes_on = session.choked or session.has_ended_operation
        if session.put_off or session.operation is not None or (goes_on and not session.closing):
            session.has_ended_operation = False
            session.wire.when_taken(session.go_on)
        elif session.closing:
            session.wire.close()

    def _arm_timer(self) -> None:
        next_us = self.engine.next_deadline_us
        if next_us is None or (self._timer is not None and self._timer_us <= next_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = next_us
        delay_seconds = max(0.0, (next_us - self.clock.now_us()) / 1e6)
        self._timer = self._loop.call_later(delay_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.begin_turn()

    def follow_wall_clock(self) -> None:
        """Called now and then: has somebody set the clock?"""
        delta_us = self.clock.follow_wall_clock()
        if delta_us:
            self.telemetry.emit("clock_stepped", seconds=round(delta_us / 1e6, 3))
            self.engine.clock_moved(delta_us)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self.begin_turn()

    # --- keeping ---

    def _stage_changes(self) -> None:
        if self.keeps and self.engine.next_job_id + self.ids_at_once // 2 > self._reserved_ids:
            self._reserved_ids = self.engine.next_job_id + self.ids_at_once
            self.store.stage((), (), self._reserved_ids)
            self._commit_soon()
        if not (self.engine.changed or self.engine.changed_functions or self.engine.changed_schedules):
            return
        jobs, functions = self.engine.take_changes()
        schedules = self.engine.take_changed_schedules()  # in one commit with the jobs that they made
        if self.on_changes is not None:
            self.on_changes(jobs)
            jobs = [job for job in jobs if job.delivery or self._is_history(job)]
        if self.keeps:
            jobs = [job for job in jobs if job.delivery or self._fits_into_history(job)]
        if not jobs and not functions and not schedules:
            return
        if self.keeps:
            self._unkept.extend(jobs)
            self._ends = None
            for job in jobs:
                if job.kept == RESIDENT and job.finished_us:
                    job.kept = KEPT
                    self._resident_bytes -= len(job.payload or b"")
            self._commit_soon()
        self.store.stage(jobs, functions, 0, schedules)

    def _is_history(self, job: Job) -> bool:
        """Whether a foreground job is stored: when it is over, unless nobody has waited for that."""
        if not job.finished_us:
            return False
        if job.leaves_nothing:
            self.engine.drop_contents(job)
            return False
        return True

    def _fits_into_history(self, job: Job) -> bool:
        """Whether a foreground job that ended is stored: nobody was promised that, and a store that cannot follow must
        not fill the memory with what waits for it."""
        size = job.content_bytes
        if size and self._history_bytes + self._history_in_commit + size > MOST_HISTORY_BYTES:
            self.telemetry.emit("history_skipped", job=job.id)
            self.engine.drop_contents(job)
            return False
        self._history_bytes += size
        return True

    def _commit_soon(self) -> None:
        """Something is staged that nobody waits for."""
        if self._lazy is None and self._commit is None and self.storage_error is None:
            self._lazy = self._loop.call_later(LAZY_COMMIT_SECONDS, self._start_commit)

    def _start_commit(self) -> None:
        if self._commit is None:
            self._commit = self._loop.create_task(self._run_commit())

    def _begin_commit(self) -> None:
        """What the commit keeps that begins now, and who waits for it.

        The store takes what is staged when its `commit` begins, so this happens in the same step of the event loop.
        What was staged in between would be kept with this commit, and be refused if the next one failed.
        """
        if self.turn_open:
            self._close_turn()
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._in_commit, self._unkept = self._unkept, []
        self._history_in_commit, self._history_bytes = self._history_bytes, 0
        self._ids_in_commit = self._reserved_ids
        self._held, self._waiting = self._waiting, []
        for session in self._held:
            session.hold()

    async def _run_commit(self) -> None:
        self._begin_commit()
        error: StorageError | None = None
        try:
            refused = await self.store.commit()
        except StorageError as reason:
            error = reason
        except Exception as reason:
            # A defect of ours.  Nothing was kept, and silence would be the worst way of saying so.
            log.exception("defect while keeping jobs")
            error = StorageError(f"{type(reason).__name__}: {reason}")
        self._close_turn()
        self._commit = None
        if error is not None:
            self._commit_failed(error)
            return
        if refused:
            self.telemetry.emit("storage_refused", jobs=list(refused)[:20])
        if self.storage_error is not None:
            self._storage_recovered()
        self._after_commit()
        if self._waiting:
            self._start_commit()
        elif self._unkept or self._reserved_ids > self._kept_ids:
            self._commit_soon()

    def _after_commit(self) -> None:
        """What was staged is kept now: the answers may go."""
        grown: dict[Function, None] = {}
        kept, self._in_commit = self._in_commit, []
        self._history_in_commit = 0
        unsent: list[Job] = []
        for job in kept:
            if not job.kept:
                job.kept = KEPT
                self._spill(job)
                grown[job.function] = None
            if job.special and job.unsent:
                unsent.append(job)
        if unsent:
            self._begin_runs(unsent)
        self._ends = None
        self._kept_ids = self._ids_in_commit
        held, self._held = self._held, []
        for session in held:
            ready = session.release()
            if session.waiting:
                session.wire.write(ready)
            else:
                session.out = ready + session.out
                self._send(session)
        self._drop_ended(kept)
        self._resident_bytes -= self.engine.put_away(grown)
        self.slices.wake()

    def _spill(self, job: Job) -> None:
        """Keep the payload of a queued job in memory only while there is room for it."""
        payload = job.payload
        if payload is not None and job.state in QUEUED_STATES and not self._has_resident_room(job):
            job.payload = None
            if job.entry_bytes:
                self.engine.memory.job_bytes -= len(payload)

    def _has_resident_room(self, job: Job) -> bool:
        """Whether the payload of a queued job may stay in memory; it counts from now on."""
        size = len(job.payload or b"")
        if self._resident_bytes + size > self.payload_memory_bytes:
            return False
        job.kept = RESIDENT
        self._resident_bytes += size
        return True

    def _begin_runs(self, jobs: list[Job]) -> None:
        """These are sent to their workers now, unless they were started once more since."""
        self.begin_turn()
        unkept = set(self._unkept)
        for job in jobs:
            if job not in unkept:
                self.engine.start_is_kept(job)

    def _drop_ended(self, jobs: list[Job]) -> None:
        """The store has these: let go of the contents of those that ended, whoever still refers to them."""
        unkept: set[Job] | None = None
        for job in jobs:
            if job.finished_us:
                if job.history is not None:  # it may have been retried, and have ended once more
                    if unkept is None:
                        unkept = set(self._unkept)
                    if job in unkept:
                        continue
                self.engine.drop_contents(job)

    def payload(self, job: Job) -> bytes:
        if job.payload is None:
            self._read_ahead(job)
        assert job.payload is not None
        return job.payload

    def _read_ahead(self, job: Job) -> None:
        """Read this job's payload, and those of the jobs that will be wanted next."""
        entries = islice(job.function.next_entries(job.priority), self._read_ahead_jobs)
        wanted = {other.id: other for other in entries if other.payload is None and other.state is READY}
        wanted[job.id] = job
        try:
            payloads = self.store.read_payloads(list(wanted))
        except StorageError as error:
            self._storage_failed(error)
            self._try_again_later()
            raise Refused(REFUSED_STORAGE, str(error)) from error
        if job.id not in payloads:
            raise LookupError(f"the store has lost the payload of job {job.id}")
        read_bytes = 0
        for job_id, payload in payloads.items():
            other = wanted[job_id]
            other.payload = payload
            if other.entry_bytes:
                self.engine.memory.job_bytes += len(payload)
            read_bytes += len(payload)
        if read_bytes > READ_AHEAD_BYTES:
            self._read_ahead_jobs = FIRST_READ_AHEAD
        elif read_bytes * 2 <= READ_AHEAD_BYTES:
            self._read_ahead_jobs = min(self._read_ahead_jobs * 2, READ_AHEAD)

    def find_job(self, job_id: int) -> Job | None:
        job = self.engine.job(job_id)
        if job is not None or not 0 < job_id < self.engine.next_job_id:
            return job
        try:
            job = self.store.get(job_id)
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error
        if job is None:
            # Perhaps it has just ended, and the store will hear of it.
            recent = chain(self.engine.changed, self._unkept, self._in_commit)
            job = next((job for job in recent if job.id == job_id and not (self.keeps and job.delivery)), None)
        return job

    def find_states(self, job_ids: Sequence[int]) -> dict[int, JobState]:
        """The states of those of the jobs that are known, as `find_job` would find them."""
        unfinished = {job_id: state for job_id in job_ids if (state := self.engine.state_of(job_id)) is not None}
        others = [number for number in job_ids if number not in unfinished and 0 < number < self.engine.next_job_id]
        try:
            kept = self.store.states(others) if others else {}
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error
        wanted = set(others) - kept.keys()
        recent = chain(self.engine.changed, self._unkept, self._in_commit) if wanted else ()
        ended = {job.id: job.state for job in recent if job.id in wanted and not (self.keeps and job.delivery)}
        return ended | kept | unfinished

    def find_unkept_end(self, job_id: int) -> Job | None:
        for job in reversed(self.engine.changed):
            if job.id == job_id and job.state in FINAL_STATES:
                return job
        if self._ends is None:  # whoever was cut off asks for thousands of jobs at once
            unkept = chain(self._in_commit, self._unkept)
            self._ends = {job.id: job for job in unkept if job.state in FINAL_STATES}
        ended = self._ends.get(job_id)
        return ended if ended is not None and ended.state in FINAL_STATES else None  # it may have been retried

    def find_named(self, names: frozenset[bytes], since_us: int = 0) -> dict[bytes, Job]:
        # Those that the store has not heard of yet come first, and are newer than what it has of that name.
        recent = chain(self._in_commit, self._unkept, self.engine.changed)
        found = {job.name: job for job in recent if job.name in names and job.created_us >= since_us}
        try:
            for query in self._queries(names, since_us):
                for job in self.store.find(query):
                    if job.name in names:
                        found.setdefault(job.name, job)
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error
        return {name: job for name, job in found.items() if name not in self.engine.names}

    def _queries(self, names: frozenset[bytes], since_us: int) -> list[JobQuery]:
        """What to ask a store about these names: one with an index of them about each, another about all at once."""
        if self.keeps:
            return [JobQuery(name=name, since_us=since_us, limit=1) for name in names]
        return [JobQuery(since_us=since_us, limit=EVERY_JOB)]

    def find_kept(self, before_id: int, limit: int) -> list[Job]:
        try:
            return self.store.find(JobQuery(before_id=before_id, limit=limit))
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error

    # --- when the store fails ---

    def check_store(self) -> None:
        """Called now and then: would a restart find what is kept?  A commit looks for itself."""
        if self._commit is None and self.storage_error is None:
            try:
                self.store.check()
            except StorageError as error:
                self._storage_failed(error)
                self._try_again_later()

    def _storage_failed(self, error: StorageError) -> None:
        """Take and hand out nothing until a commit works."""
        if self.storage_error is None:
            self.storage_error = error
            self._failed_at = self._loop.time()
            if self._failed_at - self._recovered_at > CALM_SECONDS:
                self._retry_seconds = FIRST_RETRY_SECONDS
            self.telemetry.emit("storage_failed", error=error)
            if self.engine.refusal is None:
                self.engine.refusal = Refused(REFUSED_STORAGE, f"storage failed: {error}")
            self.engine.stop_handing_out()

    def _commit_failed(self, error: StorageError) -> None:
        self._storage_failed(error)
        self._unkept = self._in_commit + self._unkept
        self._in_commit = []
        self._history_bytes += self._history_in_commit
        self._history_in_commit = 0
        held, self._held = self._held, []
        self._waiting = held + [session for session in self._waiting if session.held is None]
        for session in held:
            session.unhold()
            session.waiting = True
        self._withdraw()
        self._try_again_later()

    def _withdraw(self) -> None:
        """Undo what nobody has been told of, and tell those who asked for it."""
        told: dict[int, set[Peer]] = {}  # by job, those who watch it only because they were promised it
        for session in self._waiting:
            for _, job in session.pledged_jobs:
                if session.follows_promise(job):
                    told.setdefault(job.id, set()).add(session)
        withdrawn = [job for job in reversed(self._unkept) if self.engine.withdraw(job, told.get(job.id, NOBODY))]
        if withdrawn:
            self.store.unstage(withdrawn)
            self.store.stage((), (), 0, self.engine.take_changed_schedules())  # their ticks have not been met
            self._unkept = [job for job in self._unkept if not job.withdrawn]
        refused = self.engine.refusal or Refused(REFUSED_STORAGE, str(self.storage_error))
        waiting, self._waiting = self._waiting, []
        for session in waiting:
            session.refuse_withdrawn(refused)
            if session.pledges or not self._new_ids_are_kept():
                self._waiting.append(session)
            else:
                session.waiting = False
                self._send(session)
        for job in withdrawn:
            self.engine.drop_contents(job)

    def _try_again_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(self._retry_seconds, self._try_again)
            self._retry_seconds = min(self._retry_seconds * 2, LONGEST_RETRY_SECONDS)

    def _try_again(self) -> None:
        self._retry = None
        if self._commit is None:
            self._reserved_ids += 1  # so that there is something to be kept, and something new
            self.store.stage((), (), self._reserved_ids)
            self._start_commit()

    def _storage_recovered(self) -> None:
        self.storage_error = None
        self._recovered_at = self._loop.time()
        self.telemetry.emit("storage_recovered", seconds=round(self._loop.time() - self._failed_at, 1))
        if self.engine.refusal is None or self.engine.refusal.reason != REFUSED_DRAINING:
            self.engine.refusal = None
            self.begin_turn()
            self.engine.start_handing_out()

    # --- what sessions may ask ---

    def operate(self, verb: str, arguments: dict[str, Any]) -> Any:
        return self.operator(verb, arguments)

    def operate_in_steps(self, verb: str, arguments: dict[str, Any], answer: list[Any]) -> Iterator[bool]:
        return self.operator_in_steps(verb, arguments, answer)

    def work_off(self, operation: Iterator[bool]) -> None:
        self.slices.start(operation)

    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        wire = session.wire
        fields = {"protocol": session.protocol, "host": wire.host, "port": wire.port}
        self.telemetry.emit("bad_input", code=code, text=text, **fields)

    def soon(self, action: Callable[[], object]) -> None:
        self._loop.call_soon(self._act, action)

    def _act(self, action: Callable[[], object]) -> None:
        self.begin_turn()
        action()

    def request_stop(self, *, graceful: bool) -> None:
        self._loop.call_soon(self.on_stop_requested, graceful)
