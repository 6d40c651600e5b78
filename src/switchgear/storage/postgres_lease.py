"""`PostgresLease`: which server owns the jobs in a PostgreSQL database.

The table `sg_lease` has one row. Each commit of the owner begins with an update of it, which is three things in one: a
sign of life (`beat`), the fence (the update fails if the epoch is no longer the owner's, and with it the commit), and a
lock that makes a takeover wait for a commit in progress.

No clocks are compared. Another server may take over when it has seen the same epoch and beat for a whole lease on its
own clock. The owner counts from the moment when it sent its last successful beat, and regards the lease as lapsed after
three quarters of it: then it tells peers nothing until a beat has succeeded.

Epochs. The epoch is increased by each takeover, and by the owner itself when it connects again: a commit that a lost
connection has left behind may still run in PostgreSQL, and must not be stored after a later one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from switchgear.errors import Fenced, StorageError
from switchgear.storage.postgres_connection import PostgresConnection, PostgresRefusal, Step
from switchgear.storage.postgres_rows import bigint
from switchgear.storage.postgres_schema import STATEMENTS
from switchgear.storage.process_identity import has_ended, process_identity

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

__all__ = ["DEFAULT_LEASE_SECONDS", "LeaseRow", "PostgresLease"]

DEFAULT_LEASE_SECONDS: Final = 3.0

# Which part of the lease the owner relies on, and how often it gives a sign of life when it has nothing to commit.
RELIABLE_PART: Final = 0.75
BEATS_PER_LEASE: Final = 4
# How often another server looks at the lease.
LOOKS_PER_LEASE: Final = 10

LOCK_NOT_AVAILABLE: Final = "55P03"
# Sessions that hold the lease's lock are ended, which takes a moment; then the lock is tried again, this often.
LOCK_ATTEMPTS: Final = 10


class LeaseRow(NamedTuple):
    """The lease as it is in the database."""

    holder: int
    epoch: int
    beat: int
    lease_seconds: float
    name: str
    process: str
    address: str


class PostgresLease:
    """The lease as one server sees it."""

    def __init__(self, connection: PostgresConnection, shown_url: str, lease_seconds: float, address: str = "") -> None:
        self._connection = connection
        self._shown_url = shown_url
        self.lease_seconds = lease_seconds
        self.address = address
        self.holder = secrets.randbits(62) + 1
        self.name = f"process {os.getpid()} on {socket.gethostname()}"
        self._process = process_identity()
        self.epoch = 0  # 0: not held
        self._certain_until_s = 0.0

    @property
    def is_held(self) -> bool:
        """Whether this server took the lease, and has not released it."""
        return self.epoch > 0

    def has_lapsed(self) -> bool:
        """Whether another server may have taken over by now."""
        return self.epoch > 0 and time.monotonic() > self._certain_until_s

    @property
    def beat_seconds(self) -> float:
        """How long an idle owner waits between two signs of life."""
        return self.lease_seconds / BEATS_PER_LEASE

    def fence(self) -> Step:
        """The first step of every transaction after BEGIN. It fails if another server is the owner."""
        return STATEMENTS["fence"], (bigint(self.holder), bigint(self.epoch))

    def beat_succeeded(self, sent_s: float) -> None:
        """Note that a request with the fence, sent at this moment of the monotonic clock, succeeded."""
        self._certain_until_s = max(self._certain_until_s, sent_s + RELIABLE_PART * self.lease_seconds)

    def fenced(self) -> Fenced:
        """The error for a fence that failed."""
        self._certain_until_s = 0.0
        return Fenced(f"another server has taken over the jobs in {self._shown_url}")

    async def beat(self) -> None:
        """Give a sign of life; raises Fenced, or StorageError if that was not possible."""
        sent_s = time.monotonic()
        try:
            await self._connection.run([self.fence()])
        except PostgresRefusal as refusal:
            if refusal.code == "22012":
                raise self.fenced() from refusal
            raise
        self.beat_succeeded(sent_s)

    async def renew(self) -> None:
        """Begin a new epoch after the connection was replaced; raises Fenced if another server is the owner."""
        sent_s = time.monotonic()
        result = await self._update([(STATEMENTS["renew"], (bigint(self.holder),))])
        if not result.ntuples:
            raise self.fenced()
        self.epoch = _number(result, 0)
        self.beat_succeeded(sent_s)

    async def look(self) -> LeaseRow:
        """The lease as it is now."""
        (result,) = await self._connection.run([(STATEMENTS["lease"], ())])
        if not result.ntuples:
            raise StorageError(f"{self._shown_url}: the row of sg_lease is missing")
        holder, epoch, beat, lease_ms = (_number(result, place) for place in range(4))
        name, process, address = ((result.get_value(0, place) or b"").decode() for place in range(4, 7))
        return LeaseRow(holder, epoch, beat, lease_ms / 1000, name, process, address)

    async def take(self, seen: LeaseRow) -> bool:
        """Take the lease, unless it has changed since it was seen; returns whether that succeeded."""
        sent_s = time.monotonic()
        texts = [text.encode() for text in (self.name, self._process, self.address)]
        numbers = (self.holder, seen.epoch, seen.beat, int(self.lease_seconds * 1000))
        result = await self._update([(STATEMENTS["take"], (*map(bigint, numbers), *texts))])
        if not result.ntuples:
            return False
        self.epoch = _number(result, 0)
        self.beat_succeeded(sent_s)
        return True

    async def acquire(self) -> None:
        """Take the lease from a server that released it or is dead; raises StorageError if its owner is alive."""
        first = await self.look()
        begun_s = time.monotonic()
        lease_seconds = max(first.lease_seconds, self.lease_seconds)
        while True:
            seen = await self.look()
            if (seen.epoch, seen.beat) != (first.epoch, first.beat) and seen.holder:
                raise StorageError(f"{self._shown_url} is in use by another server: {seen.name}")
            is_free = not seen.holder or has_ended(seen.process)
            if (is_free or time.monotonic() - begun_s > lease_seconds) and await self.take(seen):
                return
            await asyncio.sleep(lease_seconds / LOOKS_PER_LEASE)

    async def wait_until_taken(self, on_look: Callable[[LeaseRow], Awaitable[None]]) -> None:
        """Take the lease as soon as its owner has released it, is known to be dead, or was silent for a whole lease.

        `on_look` is called with the lease each time it was read. While PostgreSQL cannot be reached, nobody can give a
        sign of life, so the count begins anew.
        """
        seen: LeaseRow | None = None
        seen_s = 0.0
        while True:
            lease_seconds = self.lease_seconds
            try:
                row = await self.look()
                if seen is None or (row.epoch, row.beat) != (seen.epoch, seen.beat):
                    seen, seen_s = row, time.monotonic()
                await on_look(row)
                lease_seconds = max(row.lease_seconds, self.lease_seconds)
                is_free = not row.holder or has_ended(row.process)
                if (is_free or time.monotonic() - seen_s > lease_seconds) and await self.take(row):
                    return
            except StorageError:
                seen = None
            await asyncio.sleep(lease_seconds / LOOKS_PER_LEASE)

    async def release(self) -> None:
        """Let another server take over at once."""
        if self.epoch:
            self.epoch = 0
            await self._connection.run([(STATEMENTS["release"], (bigint(self.holder),))])

    async def _update(self, steps: list[Step]) -> PGresult:
        """The result of the last of these steps, in a transaction that does not wait for a frozen one."""
        first: list[Step] = [(STATEMENTS["begin"], ()), (STATEMENTS["impatient"], ())]
        last: list[Step] = [(STATEMENTS["commit"], ())]
        for attempt in range(LOCK_ATTEMPTS):
            try:
                return (await self._connection.run([*first, *steps, *last]))[-2]
            except PostgresRefusal as refusal:
                await self._connection.run([(STATEMENTS["rollback"], ())])
                if refusal.code != LOCK_NOT_AVAILABLE or attempt + 1 == LOCK_ATTEMPTS:
                    raise
                await self._connection.run([(STATEMENTS["terminate_others"], ())])
        raise AssertionError("the last attempt raises")


def _number(result: PGresult, place: int) -> int:
    return int.from_bytes(result.get_value(0, place) or b"", "big", signed=True)
