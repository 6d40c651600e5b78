"""`PostgresLease`: which server owns all jobs in a PostgreSQL database.

The table `sg_lease` has one row, which stands for the owner (`postgres_fence` says how).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from switchgear.errors import StorageError
from switchgear.storage.postgres_connection import PostgresConnection, Step
from switchgear.storage.postgres_fence import LOOKS_PER_LEASE, PostgresFence, signed, update_impatiently
from switchgear.storage.postgres_rows import bigint
from switchgear.storage.postgres_schema import STATEMENTS
from switchgear.storage.process_identity import has_ended, process_identity

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

__all__ = ["LeaseRow", "PostgresLease"]


class LeaseRow(NamedTuple):
    """The lease as it is in the database."""

    holder: int
    epoch: int
    beat: int
    lease_seconds: float
    name: str
    process: str
    address: str


class PostgresLease(PostgresFence):
    """The lease as one server sees it."""

    def __init__(self, connection: PostgresConnection, shown_url: str, lease_seconds: float, address: str = "") -> None:
        super().__init__(connection, shown_url, lease_seconds)
        self.address = address
        self.holder = secrets.randbits(62) + 1
        self.name = f"process {os.getpid()} on {socket.gethostname()}"
        self._process = process_identity()

    def fence(self) -> Step:
        return STATEMENTS["fence"], (bigint(self.holder), bigint(self.epoch))

    def beat_steps(self) -> list[Step]:
        return [(STATEMENTS["beat"], ())]

    async def renew(self) -> None:
        sent_s = time.monotonic()
        # A commit that this server has given up may still wait for the lock, and must not be stored later.
        result = await self._update((STATEMENTS["renew"], (bigint(self.holder),)), "terminate_others")
        if not result.ntuples:
            raise self.fenced()
        self.epoch = signed(result, 0)
        self.beat_succeeded(sent_s)

    async def look(self) -> LeaseRow:
        """Read the current row of the lease."""
        (result,) = await self._connection.run([(STATEMENTS["lease"], ())])
        if not result.ntuples:
            raise StorageError(f"{self._shown_url}: the row of sg_lease is missing")
        holder, epoch, beat, lease_ms = (signed(result, place) for place in range(4))
        name, process, address = ((result.get_value(0, place) or b"").decode() for place in range(4, 7))
        return LeaseRow(holder, epoch, beat, lease_ms / 1000, name, process, address)

    async def take(self, seen: LeaseRow) -> bool:
        """Take the lease, unless it has changed since it was seen; returns whether that succeeded."""
        sent_s = time.monotonic()
        texts = [text.encode() for text in (self.name, self._process, self.address)]
        numbers = (self.holder, seen.epoch, seen.beat, int(self.lease_seconds * 1000))
        # Commits of the last owner that wait for the lock fail afterwards, because the epoch is another one.
        result = await self._update((STATEMENTS["take"], (*map(bigint, numbers), *texts)), "terminate_frozen_holder")
        if not result.ntuples:
            return False
        self.epoch = signed(result, 0)
        self.beat_succeeded(sent_s)
        return True

    async def acquire(self) -> None:
        """Take the lease from a server that released it or is dead; raises StorageError if its owner is alive."""
        last = await self.look()
        begun_s = time.monotonic()
        lease_seconds = max(last.lease_seconds, self.lease_seconds)
        signs_of_life = 0
        while True:
            seen = await self.look()
            if (seen.epoch, seen.beat) != (last.epoch, last.beat) and seen.holder:
                # One may be a commit that a dead server has left behind, and that PostgreSQL has only now stored.
                signs_of_life += 1
                if signs_of_life > 1:
                    raise StorageError(f"{self._shown_url} is in use by another server: {seen.name}")
                last, begun_s = seen, time.monotonic()
            is_free = not seen.holder or has_ended(seen.process)
            is_over = time.monotonic() - begun_s > lease_seconds
            if (is_free or is_over) and await self.take(seen):
                return
            if is_over and not seen.holder:
                raise StorageError(f"{self._shown_url} is in use by nodes that each own a part of the jobs")
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

    async def _update(self, step: Step, terminate_blockers: str) -> PGresult:
        steps: list[Step] = [(STATEMENTS["lock_lease"], ()), step]
        _, result = await update_impatiently(self._connection, steps, STATEMENTS[terminate_blockers])
        return result
