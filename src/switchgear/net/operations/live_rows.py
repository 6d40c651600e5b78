"""`LiveRows`: functions and workers as rows of plain values, for the live feed.

The verbs `functions` and `workers` say more, and take ten times as long for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from switchgear.json_bytes import plain
from switchgear.model import SECOND_US, Function, Worker
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.functions import function_portions, oldest_ready_us
from switchgear.protocols.pending_read import Step

__all__ = ["LiveRows"]

KeyedRow: TypeAlias = tuple[bytes | int, tuple[Any, ...]]
"""What identifies a row, and its values in the order of the columns (`verbs.live_answers`)."""

ROWS_PER_STEP: Final = 100


class LiveRows:
    """Collects the rows of functions and workers for the live feed."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine

    def in_steps(self, topic: str, rows: list[Any]) -> Iterator[Step]:
        """Collect the rows of `functions` or `workers`; at the end the list of them is added to `rows`."""
        collected: list[KeyedRow] = []
        if topic == "functions":
            for portion in function_portions(self._context.functions(), ROWS_PER_STEP):
                collected += [self._function(function) for function in portion]
                yield False
        else:
            workers = self._context.workers()
            for start in range(0, len(workers), ROWS_PER_STEP):
                collected += [self._worker(worker) for worker in workers[start : start + ROWS_PER_STEP]]
                yield False
        rows.append(collected)

    def _function(self, function: Function) -> KeyedRow:
        total, ready, running, waiting = function.total, function.ready, function.running, function.waiting
        created_us = oldest_ready_us(function)
        return function.name, (
            plain(function.name),
            total,
            ready,
            running,
            waiting,
            total - ready - running - waiting,
            self._context.worker_count(function),
            function.paused,
            *function.counts(),
            None if created_us is None else created_us / SECOND_US,
            function.limiter is not None and bool(function.limiter.policy),
        )

    def _worker(self, worker: Worker) -> KeyedRow:
        transport = getattr(worker.peer, "transport", None)
        job = next(iter(worker.running.values()), None)
        return worker.id, (
            worker.id,
            plain(worker.name),
            worker.protocol,
            f"{transport.host}:{transport.port}" if transport is not None and transport.host else "",
            len(worker.timeouts_us),
            len(worker.running),
            None if job is None else self._context.handle(job.id),
            None if job is None else plain(job.function.name),
            None if job is None else job.taken_us / SECOND_US,
            worker.asleep,
            worker.since_us / SECOND_US,
        )
