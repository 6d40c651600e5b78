"""`InMemoryContext`: the context of sessions without an event loop, sockets or files.

It does the work of the hub, with the hub's own `HeldOutput`: at the end of a turn changes are staged, and the output of
sessions is written to their transports or waits for a commit. With `is_durable` the store counts as one that survives
the server; a commit then ends with every turn or, without `commits_at_once`, when `keep` or `fail_to_keep` is called.
Time passes only when a test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from switchgear.engine.engine import Engine, EngineSettings
from switchgear.errors import Refused, StorageError
from switchgear.model import FINAL_STATES, SECOND_US, Job, JobState
from switchgear.model.job import lost_payload_text
from switchgear.net.held_output import HeldOutput
from switchgear.net.history import History
from switchgear.net.operations.dispatcher import Operations
from switchgear.net.store_reads import ImmediateReads
from switchgear.protocols.context import Context
from switchgear.protocols.output import Output
from switchgear.protocols.pending_read import PendingRead, Reading, Step
from switchgear.protocols.session import Session
from switchgear.storage.base import JobQuery, Store
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry
from switchgear.testing.clock import FakeClock

__all__ = ["InMemoryContext", "at_once"]

Result = TypeVar("Result")

_MOST_TURNS: Final = 10_000  # after which a server must have come to rest


def at_once(reading: Reading[Result]) -> Result:
    """The result of a read whose store answers at once."""
    try:
        while True:
            assert not isinstance(next(reading), PendingRead), "the store has to be waited for"
    except StopIteration as stop:
        result: Result = stop.value
        return result


class InMemoryContext(Context):
    """A `Context` without sockets and store, for sessions under test."""

    def __init__(
        self,
        clock: FakeClock | None = None,
        *,
        is_durable: bool = False,
        commits_at_once: bool = True,
        settings: EngineSettings | None = None,
    ) -> None:
        self.clock = clock = clock or FakeClock()
        self.telemetry = Telemetry(lambda: clock.now_us() / SECOND_US)
        self.engine = Engine(settings, self.telemetry)
        self.is_durable = is_durable
        self.engine.reports_changes = self.engine.is_durable = is_durable
        self.commits_at_once = commits_at_once
        self.engine.advance(clock.now_us())
        self.store: Store = MemoryStore()
        self.storage_error: StorageError | None = None  # as shown to operators
        self.marked: list[Output] = []
        self.output = HeldOutput(self.engine)
        self.uncommitted: list[Job] = []
        self.stops: list[bool] = []  # requests to stop the server; True if it is to stop gracefully
        self.read_error: Refused | None = None  # raised by every read
        self.operator: Operations | None = None
        self._soon: list[Callable[[], object]] = []

    # --- turns ---

    def turn(self, action: Callable[[], object] = lambda: None) -> None:
        """Run something in a turn, with everything that follows from it."""
        self.engine.advance(self.clock.now_us())
        action()
        self.end_turn()

    def end_turn(self) -> None:
        """End a turn, and run the turns that follow from it."""
        for _ in range(_MOST_TURNS):
            self.load_wanted_payloads()
            self._stage()
            marked, self.marked = self.marked, []
            self.output.send(marked)
            if self.commits_at_once and (self.output.waiting or self.uncommitted):
                self._commit()
            actions, self._soon = self._soon, []
            for each in actions:
                each()
            if not (self.marked or self._soon or self.engine.changed):
                return
        raise RuntimeError("the server does not come to rest")

    def _stage(self) -> None:
        jobs, functions = self.engine.take_changes()
        self.store.stage(jobs, functions, 0, self.engine.take_changed_schedules())
        if self.is_durable:
            self.uncommitted += [job for job in jobs if job.delivery]

    @property
    def next_deadline_us(self) -> int | None:
        """When the engine next has something to do."""
        return self.engine.next_deadline_us

    # --- commits ---

    def _commit(self) -> None:
        self.output.commit_begins()
        kept, self.uncommitted = self.uncommitted, []
        for job in kept:
            job.kept = job.kept or 1
            if job.has_details and job.unsent:
                self.engine.start_is_kept(job)
        self.output.commit_is_done()

    def keep(self) -> None:
        """Complete a commit of everything so far."""
        self._commit()
        self.turn()

    def fail_to_keep(self, refused: Refused) -> None:
        """Fail a commit of everything so far."""
        self.output.commit_begins()
        self.output.commit_failed()
        followers = self.output.followers()
        withdrawn = [
            job for job in reversed(self.uncommitted) if self.engine.withdraw(job, followers.get(job.id, set()))
        ]
        self.store.unstage(withdrawn)
        self.uncommitted = [job for job in self.uncommitted if not job.withdrawn]
        self.output.refuse_withdrawn(refused)
        self.turn()

    # --- the context of sessions ---

    def load_wanted_payloads(self) -> None:
        """Read the payloads that the engine wants; see `Payloads`. While reads fail they do not end."""
        arrivals = self.engine.payload_arrivals
        for job in self.engine.take_wanted_payloads():
            if self.read_error is not None:
                continue
            payload = at_once(self.read_payloads([job.id])).get(job.id)
            if payload is None:
                arrivals.lost(job, lost_payload_text(job.id).encode())
            else:
                arrivals.arrived(job, payload)
            arrivals.offer(job.function, 1)

    @property
    def history(self) -> History:
        """Reads of finished jobs, which a store in memory answers at once."""
        if self.read_error is not None:
            raise self.read_error
        return History(self.engine, self.store, ImmediateReads(self.store), tuple)

    def read_payloads(self, job_ids: Sequence[int]) -> Reading[dict[int, bytes]]:
        return self.history.read_payloads(job_ids)

    def find_jobs(self, job_ids: Sequence[int]) -> Reading[dict[int, Job]]:
        return self.history.find_jobs(job_ids)

    def find_states(self, job_ids: Sequence[int]) -> Reading[dict[int, JobState]]:
        """The states of these jobs, as far as they are known."""
        return self.history.find_states(job_ids)

    def find_unkept_end(self, job_id: int) -> Job | None:
        recent = [*self.uncommitted, *self.engine.changed]
        return next((job for job in reversed(recent) if job.id == job_id and job.state in FINAL_STATES), None)

    def find_named(self, names: frozenset[bytes], since_us: int = 0) -> Reading[dict[bytes, Job]]:
        return self.history.find_named(names, since_us)

    def find_kept(self, before_id: int, limit: int) -> Reading[list[Job]]:
        return self.history.search(JobQuery(before_id=before_id, limit=limit))

    def search(self, query: JobQuery) -> Reading[list[Job]]:
        """Jobs of the history that match."""
        return self.history.search(query)

    def search_bound(self, before_id: int, count: int, states: frozenset[JobState]) -> Reading[int]:
        """See `Store.search_bound`."""
        return self.history.search_bound(before_id, count, states)

    def operate_in_steps(self, verb: str, arguments: dict[str, Any], answer: list[Any]) -> Iterator[Step]:
        assert self.operator is not None, "operator verbs are not available here"
        return self.operator.in_steps(verb, arguments, answer)

    def watch_in_steps(self, topic: str, rows: list[Any]) -> Iterator[Step]:
        assert self.operator is not None, "live tables are not available here"
        return self.operator.live_rows.in_steps(topic, rows)

    def count_bad_input(self, session: Session, code: str, text: str) -> None:
        transport = session.transport
        fields = {"protocol": session.protocol, "host": transport.host, "port": transport.port}
        self.telemetry.emit("bad_input", code=code, text=text, **fields)

    def soon(self, action: Callable[[], object]) -> None:
        self._soon.append(action)

    def request_stop(self, *, graceful: bool) -> None:
        self.stops.append(graceful)
