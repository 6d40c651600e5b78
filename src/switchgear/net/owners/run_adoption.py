"""`RunAdoption`: the runs of functions that this node has taken over, while their workers are connected to live nodes.

The jobs that were running stay so until `CLAIMABLE_US` after the restore (`switchgear.engine.adopted_runs`). Workers of
this node that had such a job as a copy have it as the job itself from then on. The other nodes are asked what their
workers run, and until all have answered no job of the functions is started: so a concurrency limit counts every run
that goes on, even those of foreground jobs, which are in no store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

from switchgear.model import CANCELLED, SECOND_US, Cause, Delivery, Worker
from switchgear.net.hub import Hub
from switchgear.net.owners.messages import Data, Done, Failed, Progress, RetryWanted, Warn
from switchgear.net.owners.node_claims import NodeClaims, job_of_run
from switchgear.net.owners.relay import Relay
from switchgear.net.owners.runs_without_owner import Borrowed
from switchgear.storage.base import Store

__all__ = ["CLAIMABLE_US", "RunAdoption"]

CLAIMABLE_US: Final = SECOND_US
# So long other nodes have to say what they run. They answer at once; one that does not is suspended, or cut off.
ANSWER_SECONDS: Final = 1.0


class RunAdoption:
    """Lets runs go on under this node."""

    def __init__(self, hub: Hub, relay: Relay, store: Store) -> None:
        self._hub = hub
        self._relay = relay
        self._store = store

    async def own_runs(self, runs: list[Borrowed]) -> None:
        """Workers of this node have these runs; raises StorageError."""
        engine = self._hub.engine
        self._hub.begin_turn()
        foreground: list[Borrowed] = []
        for run in runs:
            if run.assign.delivery == Delivery.WAIT and not engine.has_job(run.copy.id):
                foreground.append(run)
            else:
                self._resume(run)
        if not foreground:
            return
        states = await self._store.read_states([run.copy.id for run in foreground])
        self._hub.begin_turn()
        for run in foreground:
            worker = run.worker
            if (
                run.copy.id in states
                or engine.has_job(run.copy.id)
                or worker is None
                or not worker.alive
                or run.copy.state is CANCELLED
                or run.is_incomplete
            ):
                self._resume(run)
                continue
            job = job_of_run(run.begun_run(), engine.function_named(run.assign.function))
            engine.adopted_runs.enter(job, worker)
            self._relay.borrowing.taken(run)
            run.answer(goes_on=True)
            self._catch_up(run, worker)

    def _resume(self, run: Borrowed) -> None:
        worker = run.worker
        if worker is None or run.copy.state is CANCELLED:  # the worker has given it back meanwhile
            self._relay.borrowing.taken(run)
            return
        job = None
        if not run.is_incomplete:
            job = self._hub.engine.resume_attempt(worker, run.copy.id, run.assign.attempts, run.start)
        self._relay.borrowing.taken(run)
        if job is not None:
            run.answer(goes_on=True)
            self._catch_up(run, worker)
        elif run.answer(goes_on=False):
            pass
        elif run.report is None:
            worker.peer.revoke(worker, run.copy, Cause.TIMED_OUT)
        else:
            self._relay.report_refused(run.copy)

    def _catch_up(self, run: Borrowed, worker: Worker) -> None:
        """Make up for what came while the job had no owner. If that is the report at the end, the worker was not
        answered yet, and its connection is closed: its next answer could not wait for the right commit."""
        job_id, engine = run.copy.id, self._hub.engine
        unsent, run.unsent = run.unsent, []
        for message in unsent:
            if isinstance(message, Progress):
                figures = (message.numerator, message.denominator, message.time_left_s, message.text, message.message)
                engine.progress(worker, job_id, *figures)
            elif isinstance(message, Data):
                engine.data(worker, job_id, message.data)
            elif isinstance(message, Warn):
                engine.warning(worker, job_id, message.data)
            elif isinstance(message, Done):
                engine.complete(worker, job_id, message.result)
            elif isinstance(message, Failed):
                engine.fail(worker, job_id, message.code, message.error, message.result)
            elif isinstance(message, RetryWanted):
                engine.retry_later(worker, job_id, message.delay_us, message.error, message.attempts_limit)
            if isinstance(message, Done | Failed | RetryWanted):
                self._relay.report_refused(run.copy)

    async def collect_claims(
        self, nodes: Iterable[NodeClaims], partitions: Collection[int], is_adopted: Callable[[bytes], bool]
    ) -> None:
        """Let other nodes claim what their workers run of these functions."""
        relay = self._relay
        asked = list(nodes)
        answered = asyncio.Event()

        def look() -> None:
            if not any(node.missing for node in asked):
                answered.set()

        relay.is_adopting = is_adopted
        mask = sum(1 << partition for partition in partitions)
        self._hub.begin_turn()
        for node in asked:
            node.on_change = look
            node.ask(mask)
        look()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await answered.wait()
        finally:
            relay.is_adopting = None
            for node in asked:
                node.missing = 0
                node.on_change = lambda: None
