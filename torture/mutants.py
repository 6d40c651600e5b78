"""Servers that are broken on purpose, to see that it is found: `python -m torture.mutants NAME serve …`.

Each takes back one promise of the store, from outside; the rest is the product.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from switchgear.cli.main import main as switchgear_main
from switchgear.model import RUNNING, Job
from switchgear.storage.postgres_connection import Statement, Step
from switchgear.storage.postgres_lease import PostgresLease
from switchgear.storage.sqlite import SqliteStore

LATE_SECONDS = 0.2


def acknowledges_early() -> None:
    """A commit is said to be done at once, and is made a moment later."""
    commit = SqliteStore.commit
    late: set[asyncio.Task[Sequence[int]]] = set()

    async def commit_later(store: SqliteStore) -> Sequence[int]:
        await asyncio.sleep(LATE_SECONDS)
        return await commit(store)

    async def said_to_be_done(store: SqliteStore) -> Sequence[int]:
        if not late:
            task = asyncio.create_task(commit_later(store))
            late.add(task)
            task.add_done_callback(late.discard)
        return ()

    SqliteStore.commit = said_to_be_done  # type: ignore[method-assign, assignment]


def forgets(is_forgotten: Callable[[Job], bool]) -> None:
    """Changes of some jobs are not kept."""
    stage = SqliteStore.stage

    def stage_others(store: SqliteStore, jobs: Iterable[Job], *others: Any) -> None:
        stage(store, [job for job in jobs if not is_forgotten(job)], *others)

    SqliteStore.stage = stage_others  # type: ignore[method-assign, assignment]


def forgets_fence() -> None:
    """A commit in PostgreSQL does not ask whether another node has taken over."""

    def no_fence(_: PostgresLease) -> Step:
        return Statement(b"sg_no_fence", b"SELECT 1"), ()

    PostgresLease.fence = no_fence  # type: ignore[method-assign, assignment]


MUTANTS: dict[str, Callable[[], None]] = {
    "acknowledges-early": acknowledges_early,
    "forgets-ends": lambda: forgets(lambda job: bool(job.finished_us)),
    "forgets-fence": forgets_fence,
    "forgets-starts": lambda: forgets(lambda job: job.state is RUNNING),
}


if __name__ == "__main__":
    MUTANTS[sys.argv[1]]()
    switchgear_main(sys.argv[2:], prog_name="switchgear")
