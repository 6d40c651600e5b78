"""`DisconnectedAttempts`: attempts that go on although their connection was lost.

The server has returned their jobs to their queues.  When it can be reached again, it is asked for them before it may
send others: it gives a job back unless another worker has begun it.  An attempt that has ended by then waits here with
its outcome, which is reported if the job is given back, and dropped if not.

The pools of a worker share this.  While the server has not been asked for all of them, none of the pools takes jobs
from it: an idle pool that is connected first would be sent a job that another pool of the same worker still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from switchgear.app.worker.executor import Attempt
from switchgear.client.gearman.assigned_job import Outcome
from switchgear.client.gearman.worker_connection import WorkerConnection

__all__ = ["PATIENCE_SECONDS", "DisconnectedAttempt", "DisconnectedAttempts"]

# For so long after it is connected, a pool leaves jobs to pools that are still to ask for theirs.
PATIENCE_SECONDS: Final = 5.0


class DisconnectedAttempt:
    """An attempt without a connection."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.outcome: Outcome | None = None  # None: it still runs


class DisconnectedAttempts:
    """Keeps them, by the connection that they came over and their handles."""

    def __init__(self) -> None:
        self._kept: dict[WorkerConnection[Attempt], dict[str, DisconnectedAttempt]] = {}
        self._listeners: list[Callable[[], None]] = []

    def when_asked(self, listener: Callable[[], None]) -> None:
        """Call this whenever a server may send jobs again."""
        self._listeners.append(listener)

    def keep(self, connection: WorkerConnection[Attempt], attempts: Iterable[Attempt]) -> int:
        """Keep these attempts; returns how many there are."""
        kept = {attempt.handle: DisconnectedAttempt(attempt) for attempt in attempts}
        if kept:
            self._kept.setdefault(connection, {}).update(kept)
            connection.is_urgent = True
        return len(kept)

    def of(self, connection: WorkerConnection[Attempt]) -> list[DisconnectedAttempt]:
        """The interrupted attempts of jobs that came over this connection."""
        return list(self._kept.get(connection, {}).values())

    def has_any_of(self, server_name: str) -> bool:
        """Whether this server is still to be asked for some."""
        return any(connection.server_name == server_name for connection in self._kept)

    def ended(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Keep the outcome of an attempt; False if it is none of these."""
        for kept in self._kept.values():
            found = kept.get(attempt.handle)
            if found is not None and found.attempt is attempt:
                found.outcome = outcome
                return True
        return False

    def forget(self, attempt: Attempt) -> None:
        """An attempt has ended, and its server need not be asked."""
        for connection, kept in list(self._kept.items()):
            found = kept.get(attempt.handle)
            if found is not None and found.attempt is attempt:
                self.take(connection, attempt.handle)

    def take(self, connection: WorkerConnection[Attempt], handle: str) -> DisconnectedAttempt | None:
        """Remove the attempt of this handle: the server has answered."""
        kept = self._kept.get(connection)
        found = kept.pop(handle, None) if kept is not None else None
        if kept is not None and not kept:
            del self._kept[connection]
            connection.is_urgent = False
            if not self.has_any_of(connection.server_name):
                for listener in self._listeners:
                    listener()
        return found
