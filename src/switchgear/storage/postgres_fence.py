"""`PostgresFence`: how long a server may rely on what it owns in PostgreSQL, and the first step of its transactions.

A row of the database stands for the server: its lease on all jobs (`postgres_lease`), or its own row among several
nodes (`postgres_partitions`). Each commit begins with a lock of the row, which is the fence (the statement fails if
the epoch is no longer the server's, and with it the commit), and makes a takeover wait for a commit in progress. A few
commits per lease are signs of life as well (`beat`), and an idle server gives some of their own.

No clocks are compared. Another server may take over when it has seen the same epoch and beat for a whole lease on its
own clock. The owner counts from the moment when it sent its last successful beat, and regards the lease as lapsed after
three quarters of it: then it tells peers nothing until a beat has succeeded.

Epochs. The epoch is raised by each takeover, and by the owner itself when it connects again: a commit that a lost
connection has left behind may still run in PostgreSQL, and must not be stored after a later one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from switchgear.errors import Fenced
from switchgear.storage.postgres_connection import (
    NOT_AS_EXPECTED,
    PostgresConnection,
    PostgresRefusal,
    Statement,
    Step,
)
from switchgear.storage.postgres_schema import STATEMENTS

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

__all__ = ["DEFAULT_LEASE_SECONDS", "LOOKS_PER_LEASE", "PostgresFence", "signed", "update_impatiently"]

DEFAULT_LEASE_SECONDS: Final = 3.0

# Which part of the lease the owner relies on, and how often it gives a sign of life when it has nothing to commit.
RELIABLE_PART: Final = 0.75
BEATS_PER_LEASE: Final = 4
# How often another server looks at the row.
LOOKS_PER_LEASE: Final = 10

LOCK_NOT_AVAILABLE: Final = "55P03"
# Sessions that hold the lock are ended, which takes a moment; then the lock is tried again, this often.
LOCK_ATTEMPTS: Final = 10


class PostgresFence(ABC):
    """The row that stands for this server."""

    def __init__(self, connection: PostgresConnection, shown_url: str, lease_seconds: float) -> None:
        self._connection = connection
        self._shown_url = shown_url
        self.lease_seconds = lease_seconds
        self.epoch = 0  # 0: not held
        self._certain_until_s = 0.0
        self._beaten_s = 0.0  # when the last sign of life that succeeded was sent

    @property
    def is_held(self) -> bool:
        """Whether this server owns something, or did when it last knew."""
        return self.epoch > 0

    def has_lapsed(self) -> bool:
        """Whether another server may have taken over by now."""
        return self.epoch > 0 and time.monotonic() > self._certain_until_s

    @property
    def beat_seconds(self) -> float:
        """How long an idle owner waits between two signs of life."""
        return self.lease_seconds / BEATS_PER_LEASE

    @abstractmethod
    def fence(self) -> Step:
        """The first step of every transaction after BEGIN. It fails if another server has taken over."""

    def beat_steps(self) -> list[Step]:
        """The steps that make a transaction a sign of life; none if every transaction with the fence is one."""
        return []

    def due_beat_steps(self, now_s: float) -> list[Step] | None:
        """The steps that make a commit a sign of life; None if there was a sign of life a moment ago."""
        steps = self.beat_steps()
        return None if steps and now_s - self._beaten_s < self.beat_seconds / 2 else steps

    @abstractmethod
    async def renew(self) -> None:
        """Begin a new epoch after the connection was replaced; raises Fenced if another server has taken over."""

    def beat_succeeded(self, sent_s: float) -> None:
        """Note that a sign of life, sent at this moment of the monotonic clock, succeeded."""
        self._beaten_s = max(self._beaten_s, sent_s)
        self._certain_until_s = max(self._certain_until_s, sent_s + RELIABLE_PART * self.lease_seconds)

    def fenced(self) -> Fenced:
        """The error for a fence that failed."""
        self._certain_until_s = 0.0
        return Fenced(f"another server has taken over the jobs in {self._shown_url}")

    async def beat(self) -> None:
        """Give a sign of life; raises Fenced, or StorageError if that was not possible."""
        sent_s = time.monotonic()
        try:
            await self._connection.run([self.fence(), *self.beat_steps()])
        except PostgresRefusal as refusal:
            if refusal.code == NOT_AS_EXPECTED:
                raise self.fenced() from refusal
            raise
        self.beat_succeeded(sent_s)


async def update_impatiently(
    connection: PostgresConnection, steps: list[Step], terminate_blockers: Statement
) -> list[PGresult]:
    """The results of these steps, in a transaction that does not wait for a frozen one."""
    first: list[Step] = [(STATEMENTS["begin"], ()), (STATEMENTS["impatient"], ())]
    last: list[Step] = [(STATEMENTS["commit"], ())]
    for attempt in range(LOCK_ATTEMPTS):
        try:
            return (await connection.run([*first, *steps, *last]))[2:-1]
        except PostgresRefusal as refusal:
            await connection.run([(STATEMENTS["rollback"], ())])
            if refusal.code != LOCK_NOT_AVAILABLE or attempt + 1 == LOCK_ATTEMPTS:
                raise
            await connection.run([(terminate_blockers, ())])
    raise AssertionError("the last attempt raises")


def signed(result: PGresult, place: int, row: int = 0) -> int:
    """The number in a column, of any size."""
    return int.from_bytes(result.get_value(row, place) or b"", "big", signed=True)
