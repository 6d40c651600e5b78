"""`Hub`: owns the engine and the store; opens and closes turns, and is the context that sessions see.

A turn. The first input of an iteration of the event loop opens a turn. At the end of the turn, when every readable
connection was read once, changes are staged and output is sent, with one write for each connection. A commit
(`net.commits`) may begin or end in the middle of a turn. The turn is then closed first, so that the output of a session
and the staged changes always belong together: an answer of the turn that is still open must wait for a commit that has
its changes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from switchgear.engine.deadlines import NEVER_US
from switchgear.engine.engine import Engine
from switchgear.errors import StorageError
from switchgear.joblog.audit import AuditEntry
from switchgear.model import Job, JobState, PlainJob, Worker
from switchgear.net.clock import SystemClock
from switchgear.net.commits import Commits
from switchgear.net.connections.fair_queue import FairQueue
from switchgear.net.history import History
from switchgear.net.long_operations import LongOperations
from switchgear.net.payload_reads import Payloads
from switchgear.net.process.gc_tuning import collector_off
from switchgear.net.store_reads import StoreReads
from switchgear.protocols.broadcast import Broadcast
from switchgear.protocols.context import Context, KeyHolder
from switchgear.protocols.output import Output
from switchgear.protocols.pending_read import PendingRead, Reading, Step
from switchgear.protocols.session import Session
from switchgear.storage.base import JobQuery, Snapshot, Store
from switchgear.telemetry import Telemetry, repeatable

__all__ = ["STANDSTILL_SECONDS", "Hub"]

log = logging.getLogger("switchgear")

# Long operations pause while this many changed jobs wait for the store: commits must not become longer and longer.
MOST_UNKEPT: Final = 5_000

# If a turn begins later than this after a deadline, the process has stood still (it was stopped, or another thread held
# the interpreter), and the silence of peers in the meantime means nothing.
STANDSTILL_SECONDS: Final = 0.2


class Hub(Context):
    """The owner of an engine and its store."""

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
        self.is_durable = store.durable
        self.marked: list[Output] = []
        self.turn_open = False
        self.is_restoring = False
        self.handled_bytes = 0  # of long reads in this turn
        self.lost_connections = 0  # in this turn
        store.count_in(engine.memory)
        self.on_stop_requested: Callable[[bool], None] = lambda graceful: None
        self.on_audit: Callable[[AuditEntry], None] | None = None
        # Runs the verbs of operators; at the end the answer is added to the list.
        self.operator: Callable[[str, dict[str, Any], list[Any]], Iterator[Step]] = _no_operator
        # Collects the rows of a live table, and adds them to the list.
        self.watcher: Callable[[str, list[Any]], Iterator[Step]] = _no_watcher
        self.own_name = ""  # among nodes that own functions together
        self.broadcast: Broadcast | None = None  # to those nodes
        self.live_job: Callable[[Job], Reading[Job]] = _as_stored  # the service sets it
        self.key_finder: Callable[[bytes], Reading[list[KeyHolder]]] = _nothing_elsewhere  # the service sets it
        self.read_loop_lag: Callable[[], float] = float  # the service sets it, and the next one
        self.write_metrics: Callable[[bool, Mapping[str, Mapping[int, int]]], Iterator[bytes]] = _no_metrics
        engine.reports_changes = engine.is_durable = store.durable
        self._loop = asyncio.get_running_loop()
        self.fair_queue = FairQueue()
        self.long_operations = LongOperations(self.begin_turn, lambda: len(self.changes.unkept) > MOST_UNKEPT)
        self.reads = StoreReads(store)
        self.payloads = Payloads(engine, store, self.reads, payload_memory_bytes, self.begin_turn, self._read_failed)
        self.commits = Commits(
            engine, store, telemetry, self.payloads, self.begin_turn, self._close_turn, self.long_operations.wake
        )
        self.changes = self.commits.changes
        self.history = History(engine, store, self.reads, self.changes.uncommitted)
        self.changes.on_uncommitted = self.history.uncommitted_changed
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = NEVER_US  # when it rings
        self._late_seconds = math.inf  # by the monotonic clock: if no turn has begun by then, the process stood still

    def report_changes(self, on_changes: Callable[[list[Job]], None]) -> None:
        """Call this at the end of every turn with the jobs that were started or ended, stored or not."""
        self.changes.on_changes = on_changes
        self.engine.reports_changes = self.engine.notes_starts = True

    @property
    def storage_error(self) -> StorageError | None:
        """Why the store has failed; `None` while it works."""
        return self.commits.storage_error

    @property
    def must_wait_for_store(self) -> bool:
        """Whether peers whose reports must be stored should wait: the store fails or is too slow, and the changes
        that it has not taken yet fill the memory."""
        memory = self.engine.memory
        return self.commits.storage_error is not None or 0 < memory.stored_limit_bytes < memory.job_bytes

    async def load(self) -> None:
        """Restore the jobs of the store, and reserve ids for new ones.

        This is done in steps. Nothing else may be asked of the hub meanwhile. While it `is_restoring` it can be
        cancelled, if the hub is not used afterwards; nothing is stored then.
        """
        settings = self.engine.settings
        memory = self.engine.memory
        functions, settings.functions = settings.functions, 0  # restored functions stay, whatever the limit is now
        limit_bytes, memory.limit_bytes = memory.limit_bytes, 0
        self.is_restoring = True
        try:
            with collector_off():
                snapshot = await self.store.load_apart(self.engine.function_named, self.clock.now_us())
                await self._restore(snapshot)
        finally:
            self.is_restoring = False
            settings.functions = functions
            memory.limit_bytes = limit_bytes
        self._end_turn()
        if self.is_durable:
            self.commits.start()
        await self.commits.wait()

    async def _restore(self, snapshot: Snapshot) -> None:
        self.engine.advance(self.clock.now_us())
        self.changes.restored(snapshot.next_job_id, snapshot.jobs)
        await self._feed(snapshot)

    async def adopt(self, snapshot: Snapshot, claimable_us: int = 0) -> None:
        """Restore jobs of other functions beside those that the engine has, in turns of their own.

        Running ones may be claimed for so long by the workers that have them; see `Engine.restore_in_portions`.
        """
        for job in snapshot.jobs:
            self.payloads.spill(job)
        await self._feed(snapshot, in_turns=True, claimable_us=claimable_us)

    async def _feed(self, snapshot: Snapshot, *, in_turns: bool = False, claimable_us: int = 0) -> None:
        restoring = self.engine.restore_in_portions(
            snapshot.jobs,
            snapshot.unsuccessful,
            snapshot.next_job_id,
            snapshot.schedules,
            snapshot.held,
            snapshot.unsuccessful_names,
            has_all_unsuccessful=snapshot.has_all_unsuccessful,
            claimable_us=claimable_us,
        )
        plain = snapshot.plain
        try:
            portion: Sequence[PlainJob] | None = None
            while True:
                if in_turns:
                    self.begin_turn()
                try:
                    wants_portion = restoring.send(portion)
                except StopIteration:
                    break
                portion = None
                if not wants_portion:
                    await asyncio.sleep(0)
                elif plain is not None:
                    portion = await anext(plain, None)
        finally:
            if plain is not None:
                await plain.aclose()

    async def flush(self) -> None:
        """Store and send everything that was promised so far, unless the store has failed."""
        self._end_turn()
        await self.commits.flush()

    async def close(self) -> None:
        """Store the remaining changes, if the store works."""
        await self.reads.close()
        self.long_operations.finish()
        self._end_turn()
        await self.commits.close()
        self._forget_timer()
        self.engine.shutdown()
        self.changes.clear()

    # --- turns ---

    def forget_output(self, output: Output) -> None:
        """The peer of this session has left: keep nothing for it."""
        self.commits.output.forget(output)

    def begin_turn(self) -> None:
        """Open a turn, unless one is open: tell the engine the time."""
        if not self.turn_open:
            self.turn_open = True
            self.handled_bytes = 0
            self.lost_connections = 0
            self._loop.call_soon(self._end_turn)  # first: if the next lines fail, the turn still ends
            now_us = self.clock.now_us()
            if time.monotonic() > self._late_seconds:
                self.engine.time_stood_still(now_us)
            self.engine.advance(now_us)

    def _end_turn(self) -> None:
        self._close_turn()
        self.commits.end_turn()
        self._arm_timer()

    def _close_turn(self) -> None:
        """Stage changes, and send output that waits for no commit."""
        self.turn_open = False
        if self.engine.wanted_payloads or self.payloads.read_ahead:
            self.payloads.read_wanted()
        if self.payloads.waits:
            self.payloads.end_waits_for_others()
        marked = self.marked
        if marked:
            self.marked = []
        self.commits.close_turn(marked)
        self.engine.memory.answer_bytes = 0  # connections count written output themselves

    def _arm_timer(self) -> None:
        next_us = self.engine.earliest_deadline_us
        if next_us >= self._timer_us:  # there is a timer for that, or nothing to come
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = next_us
        now_us = self.clock.now_us()
        delay_seconds = max(0.0, (next_us - now_us) / 1e6)
        self._timer = self._loop.call_later(delay_seconds, self._on_timer)
        # Deadlines that were due before the last turn are a backlog; deadlines that came during it may be late.
        due_seconds = (max(next_us, self.engine.now_us) - now_us) / 1e6
        self._late_seconds = time.monotonic() + due_seconds + STANDSTILL_SECONDS

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_us = NEVER_US
        self.begin_turn()
        self._late_seconds = math.inf

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_us = NEVER_US
        self._late_seconds = math.inf

    def follow_wall_clock(self) -> None:
        """Called regularly: adopt the wall clock's time if the clock was set."""
        delta_us = self.clock.follow_wall_clock()
        if delta_us:
            self.telemetry.emit("clock_stepped", seconds=round(delta_us / 1e6, 3))
            self.engine.clock_moved(delta_us)
            self._forget_timer()
            self.begin_turn()

    # --- reading the store ---

    def awaited_payload(self, worker: Worker) -> PendingRead | None:
        return self.payloads.awaited_by(worker)

    def read_payloads(self, job_ids: Sequence[int]) -> Reading[dict[int, bytes]]:
        return self.history.read_payloads(job_ids)

    def find_jobs(self, job_ids: Sequence[int]) -> Reading[dict[int, Job]]:
        return self.history.find_jobs(job_ids)

    def find_states(self, job_ids: Sequence[int]) -> Reading[dict[int, JobState]]:
        """The states of the jobs that `find_jobs` would find."""
        return self.history.find_states(job_ids)

    def find_live(self, job: Job) -> Reading[Job]:
        return self.live_job(job)

    def find_key_elsewhere(self, unique: bytes) -> Reading[list[KeyHolder]]:
        return self.key_finder(unique)

    def find_unkept_end(self, job_id: int) -> Job | None:
        return self.history.find_unkept_end(job_id)

    def find_named(self, names: frozenset[bytes], since_us: int = 0) -> Reading[dict[bytes, Job]]:
        return self.history.find_named(names, since_us)

    def search(self, query: JobQuery) -> Reading[list[Job]]:
        """Jobs of the store that match."""
        return self.history.search(query)

    def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> Reading[int]:
        """See `Store.search_bound`."""
        return self.history.search_bound(before_id, count, states)

    def find_kept(self, before_id: int, limit: int) -> Reading[list[Job]]:
        return self.history.search(JobQuery(before_id=before_id, limit=limit))

    def _read_failed(self, error: StorageError) -> None:
        """Handle the failed read of a wanted payload: assign no jobs until a commit succeeds."""
        self.commits.read_failed(error)

    def check_store(self) -> None:
        """Called regularly: would a restart find the stored jobs?"""
        self.commits.check_store()

    # --- the context of sessions ---

    def operate_in_steps(self, verb: str, arguments: dict[str, Any], answer: list[Any]) -> Iterator[Step]:
        return self.operator(verb, arguments, answer)

    @property
    def node_name(self) -> str:
        return self.own_name

    def watch_in_steps(self, topic: str, rows: list[Any]) -> Iterator[Step]:
        return self.watcher(topic, rows)

    def loop_lag_seconds(self) -> float:
        return self.read_loop_lag()

    def metrics(self, is_open: bool, http_requests: Mapping[str, Mapping[int, int]]) -> Iterator[bytes]:
        return self.write_metrics(is_open, http_requests)

    def work_off(self, operation: Iterator[Step]) -> None:
        self.long_operations.start(operation)

    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        transport = session.transport
        fields = {"protocol": session.protocol, "host": transport.host, "port": transport.port}
        self.telemetry.emit("bad_input", code=code, text=text, **fields)

    def audit(self, session: Session, verb: str, target: str, outcome: str = "done") -> None:
        transport = session.transport
        address = f"{transport.host}:{transport.port}"
        identity = session.permissions.name
        target = repeatable(target)
        if outcome == "done":  # a refusal has an event of its own
            fields = {"identity": identity, "protocol": session.protocol, "address": address}
            self.telemetry.emit("operator_action", verb=verb, target=target, **fields)
        if self.on_audit is not None:
            now_us = self.clock.now_us()
            self.on_audit(AuditEntry(now_us, identity, session.protocol, address, verb, target, outcome))

    def count_authentication_failed(self, session: Session) -> None:
        transport = session.transport
        fields = {"protocol": session.protocol, "host": transport.host, "port": transport.port}
        self.telemetry.emit("authentication_failed", **fields)

    def count_access_refused(self, session: Session, text: str) -> None:
        transport = session.transport
        fields = {"protocol": session.protocol, "host": transport.host, "port": transport.port}
        self.telemetry.emit("access_refused", identity=session.permissions.name, text=text, **fields)
        self.audit(session, "access", text, "refused")

    def soon(self, action: Callable[[], object]) -> None:
        self._loop.call_soon(self._act, action)

    def _act(self, action: Callable[[], object]) -> None:
        self.begin_turn()
        action()

    def request_stop(self, *, graceful: bool) -> None:
        self._loop.call_soon(self.on_stop_requested, graceful)


def _as_stored(job: Job) -> Reading[Job]:
    yield from ()
    return job


def _nothing_elsewhere(unique: bytes) -> Reading[list[KeyHolder]]:
    yield from ()
    return []


def _no_metrics(is_open: bool, http_requests: Mapping[str, Mapping[int, int]]) -> Iterator[bytes]:
    return iter(())


def _no_operator(verb: str, arguments: dict[str, Any], answers: list[Any]) -> Iterator[Step]:
    raise LookupError(f"this server has no verb {verb}")


def _no_watcher(topic: str, rows: list[Any]) -> Iterator[Step]:
    raise LookupError(f"this server has no topic {topic}")
