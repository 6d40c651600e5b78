"""`Commits`: stores changes, one commit at a time, and releases the output that waits for them.

Changes that arrive during a commit wait for the next, so the number of syncs does not grow with the number of clients.
Changes that were not promised to a peer are committed a moment later, or together with the next promise.

When the store fails, submissions that no worker has yet are withdrawn and their answers become refusals; new
submissions are refused; no job is assigned. Other changes stay staged and their answers held, and the commit is tried
again until it succeeds.

A store that several servers share may be owned by another one by now (`Store.must_be_silent`). Then the store counts as
failed, and no peer is told anything, not even what is in memory, until a commit succeeds. If another server does own it
(`Fenced`), no peer is told anything more, and the server ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from switchgear.backoff import ReconnectBackoff, RetryPauses, without_jitter
from switchgear.engine.engine import Engine
from switchgear.errors import Fenced, Refused, StorageError
from switchgear.model import Job
from switchgear.model.duration_histogram import DurationHistogram
from switchgear.net.held_output import HeldOutput
from switchgear.net.payload_reads import Payloads
from switchgear.net.staged_changes import StagedChanges
from switchgear.protocols.output import Output
from switchgear.refusals import REFUSED_DRAINING, REFUSED_STORAGE
from switchgear.storage.base import Store
from switchgear.telemetry import Telemetry

__all__ = ["Commits"]

log = logging.getLogger("switchgear")

LAZY_COMMIT_SECONDS = 0.05
# A new job for which a worker was woken is stored together with its start if that comes soon: one sync less until its
# worker gets it. A new job that was assigned at once and is likely to be quick is stored together with its end.
EXPECTED_SECONDS = 0.001
FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 1.0
# When little fits and much does not, the store works again only to fail again; each time it is given longer.
CALM_SECONDS: Final = 10.0


class Commits:
    """Stores changes, one commit at a time, and holds output until then."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        telemetry: Telemetry,
        payloads: Payloads,
        begin_turn: Callable[[], None],
        close_turn: Callable[[], None],
        on_commit: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.store = store
        self.telemetry = telemetry
        self.changes = StagedChanges(engine, store, telemetry, payloads)
        self.output = HeldOutput(engine)
        self.storage_error: StorageError | None = None
        self.commit_times = DurationHistogram()  # of commits that were successful
        self._begin_turn = begin_turn
        self._close_turn = close_turn
        self._on_commit = on_commit  # called after each successful commit
        self._loop = asyncio.get_running_loop()
        self._lazy: asyncio.TimerHandle | None = None
        self._soon: asyncio.TimerHandle | None = None  # while another change is expected
        self._expected = 0  # how many were expected so far, at the end of the last turn
        self._commit: asyncio.Task[None] | None = None
        self.is_fenced = False  # another server owns the jobs
        self.on_fenced: Callable[[], None] = lambda: None
        self._begun_at = 0.0
        self._failed_at = 0.0
        self._recovered_at = 0.0
        self._retry: asyncio.TimerHandle | None = None
        pauses = ReconnectBackoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, rng=without_jitter)
        self._retry_pauses = RetryPauses(pauses)

    # --- turns ---

    def close_turn(self, outputs: list[Output]) -> None:
        """Stage changes, and send output that waits for no commit."""
        if self.changes.stage():
            self._commit_soon()
        if outputs:
            if self.store.must_be_silent():
                self._be_silent()
            self.output.send(outputs)

    def owners_answered(self) -> None:
        """Send output that waited for other nodes, as far as they have answered."""
        if self.store.must_be_silent():
            self._be_silent()
        self.output.owners_answered()

    def end_turn(self) -> None:
        """Begin a commit if a peer waits for one."""
        if self.output.waiting and self._commit is None and self.storage_error is None:
            if self._expected == self.engine.changes_expected or self._soon is not None:
                self.start()
            else:
                self._soon = self._loop.call_later(EXPECTED_SECONDS, self.start)
                self.store.expect_commit()
        self._expected = self.engine.changes_expected

    def _commit_soon(self) -> None:
        """Commit a moment later: changes are staged that no peer waits for."""
        if self._lazy is None and self._commit is None and self.storage_error is None:
            self._lazy = self._loop.call_later(LAZY_COMMIT_SECONDS, self.start)

    # --- a commit ---

    def start(self) -> None:
        """Commit what is staged, unless a commit is in progress."""
        if self._commit is None:
            self._begun_at = self._loop.time()
            self._commit = self._loop.create_task(self._run())

    @property
    def running_seconds(self) -> float:
        """How long the commit in progress has taken so far; 0 if there is none."""
        return self._loop.time() - self._begun_at if self._commit is not None else 0.0

    async def wait(self) -> None:
        """Wait until the commit in progress has ended."""
        if self._commit is not None:
            await asyncio.wait([self._commit])

    async def flush(self) -> None:
        """Store and send everything that was promised so far, unless the store has failed."""
        if self._soon is not None:
            self.start()
        while self._commit is not None and self.storage_error is None:
            await self.wait()

    async def close(self) -> None:
        """Store the remaining changes, if the store works."""
        await self.wait()
        if self.changes.unkept or self._lazy is not None:
            self.start()
            await self.wait()
        for handle in (self._lazy, self._soon, self._retry):
            if handle is not None:
                handle.cancel()

    def _begin(self) -> None:
        """Begin a commit: determine its changes, and the output that waits for it.

        The store takes the staged changes when its `commit` begins, so this happens in the same step of the event loop.
        A change that was staged in between would be in this commit, and be refused if the next one failed.
        """
        self._close_turn()
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self.changes.commit_begins()
        self.output.commit_begins()

    async def _run(self) -> None:
        self._begin()
        error: StorageError | None = None
        try:
            refused = await self.store.commit()
        except StorageError as reason:
            error = reason
        except Exception as reason:
            # A defect of ours. Nothing was stored, and that must not go unnoticed.
            log.exception("internal error while storing jobs")
            error = StorageError(f"{type(reason).__name__}: {reason}")
        self._close_turn()
        self._commit = None
        if isinstance(error, Fenced):
            self._fence(error)
            return
        if error is not None:
            self._commit_failed(error)
            return
        self.commit_times.note(int((self._loop.time() - self._begun_at) * 1_000_000))
        if refused:
            self.telemetry.emit("storage_refused", jobs=list(refused)[:20])
        if self.store.must_be_silent():  # again, or the answer took long
            self._be_silent()
        elif self.storage_error is not None:
            self._storage_recovered()
        self._commit_is_done()
        if self.output.waiting:
            self.start()
        elif self.changes.is_behind:
            self._commit_soon()

    def _commit_is_done(self) -> None:
        """Release the output that waits for the commit: its changes are stored now."""
        changes = self.changes
        kept, grown, unsent = changes.commit_is_done()
        if unsent:
            self._begin_runs(unsent)
        self.output.commit_is_done()
        if self.output.is_silent and not self.store.must_be_silent():
            self.output.speak()
        changes.drop_ended(kept)
        changes.payloads.resident_bytes -= self.engine.pack(grown)
        self._on_commit()

    def _begin_runs(self, jobs: list[Job]) -> None:
        """Begin the runs of jobs that are sent to their workers now, unless they were started again meanwhile."""
        self._begin_turn()
        unkept = set(self.changes.unkept)
        for job in jobs:
            if job not in unkept:
                self.engine.start_is_kept(job)

    # --- when another server may own the jobs ---

    def _be_silent(self) -> None:
        """Tell no peer anything until a commit succeeds; until then nothing is assigned, and submissions are
        refused."""
        if not self.output.is_silent:
            self.output.be_silent()
            if self._retry is not None:
                self._retry.cancel()
            self._retry = self._loop.call_later(0.0, self._try_again)
        if self.storage_error is None:
            self.read_failed(StorageError("the store has not confirmed for too long that this server owns its jobs"))
        elif self._commit is None:
            self._try_again_later()

    def _fence(self, error: StorageError) -> None:
        """Another server owns the jobs: tell no peer anything more."""
        self.output.end()
        if not self.is_fenced:
            self.is_fenced = True
            self.storage_error = error
            self.engine.refusal = Refused(REFUSED_STORAGE, str(error))
            self.engine.stop_handing_out()
            self.telemetry.emit("server_fenced", error=error)
            self.on_fenced()

    # --- when the store fails ---

    def check_store(self) -> None:
        """Called regularly: would a restart find the stored jobs? A commit checks that itself."""
        if self._commit is None and self.storage_error is None:
            try:
                self.store.check()
            except StorageError as error:
                self.read_failed(error)

    def read_failed(self, error: StorageError) -> None:
        """Handle a failed read: the store has failed until a commit succeeds."""
        if isinstance(error, Fenced):
            self._fence(error)
            return
        self._storage_failed(error)
        self._try_again_later()

    def _storage_failed(self, error: StorageError) -> None:
        """Accept and assign no jobs until a commit succeeds."""
        if self.storage_error is None:
            self.storage_error = error
            self._failed_at = self._loop.time()
            if self._failed_at - self._recovered_at > CALM_SECONDS:
                self._retry_pauses.reset()
            self.telemetry.emit("storage_failed", error=error)
            if self.engine.refusal is None:
                self.engine.refusal = Refused(REFUSED_STORAGE, f"storage failed: {error}")
            self.engine.stop_handing_out()

    def _commit_failed(self, error: StorageError) -> None:
        if self.store.must_be_silent():
            self._be_silent()
        self._storage_failed(error)
        self.changes.commit_failed()
        self.output.commit_failed()
        self._withdraw()
        self._try_again_later()

    def _withdraw(self) -> None:
        """Undo submissions whose answers were not sent, and refuse them."""
        changes = self.changes
        withdrawn = changes.withdraw(self.output.followers())
        refused = self.engine.refusal or Refused(REFUSED_STORAGE, str(self.storage_error))
        self.output.refuse_withdrawn(refused)
        for job in withdrawn:
            self.engine.drop_contents(job)

    def _try_again_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(self._retry_pauses.next_seconds(), self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._commit is None and not self.is_fenced:
            self.changes.stage_new_id()
            self.start()

    def _storage_recovered(self) -> None:
        self.storage_error = None
        self._recovered_at = self._loop.time()
        self.telemetry.emit("storage_recovered", seconds=round(self._loop.time() - self._failed_at, 1))
        if self.engine.refusal is None or self.engine.refusal.reason != REFUSED_DRAINING:
            self.engine.refusal = None
            self._begin_turn()
            self.engine.start_handing_out()
