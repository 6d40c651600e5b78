"""The audit log: actions of operators and refusals, with identity, verb, target, address and protocol.

It is a table of the job log's database. Submissions and reports of workers are not in it: the runs tell of those.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from switchgear.joblog.runs import LONGEST_NAME, SECOND_US, readable

if TYPE_CHECKING:
    from switchgear.joblog.job_log import JobLog

__all__ = ["AuditEntry", "AuditQuery", "AuditWriter", "LoggedAudit"]

# Entries that wait for the database; beyond that, new ones are dropped and counted.
MOST_WAITING: Final = 10_000
# A peer that is refused again and again must not fill the log. The server's log and counters have the rest.
REFUSALS_PER_SECOND: Final = 5
LATEST_ID: Final = 2**62
LATEST_US: Final = 2**62


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action, as the server notes it."""

    at_us: int
    identity: str
    protocol: str
    address: str
    verb: str
    target: str
    outcome: str  # "done" or "refused"


@dataclass(frozen=True, slots=True)
class LoggedAudit:
    """One row of the audit log; `at` is in seconds since the epoch."""

    id: int
    at: float
    identity: str
    protocol: str
    address: str
    verb: str
    target: str
    outcome: str
    host: str

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> LoggedAudit:
        """An entry from the columns of `find_audit`."""
        number, at_us, *texts = row
        return cls(int(number), at_us / SECOND_US, *texts)


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which entries, newest first; times are seconds since the epoch."""

    since: float | None = None
    until: float | None = None
    before_id: int = 0  # 0: from the newest on
    limit: int = 100

    def values(self) -> dict[str, int]:
        """The parameters of the statement `find_audit`."""
        return {
            "since_us": int((self.since or 0.0) * SECOND_US),
            "until_us": LATEST_US if self.until is None else int(self.until * SECOND_US),
            "before_id": self.before_id or LATEST_ID,
            "limit": self.limit,
        }


class AuditWriter:
    """Collects entries in the event loop's thread, and writes them in others."""

    def __init__(self, host: str, on_noted: Callable[[], None]) -> None:
        self.dropped = 0
        self._host = host
        self._on_noted = on_noted
        self._lock = threading.Lock()  # for `_waiting`
        self._writing = threading.Lock()  # so that entries are written in their order
        self._waiting: list[AuditEntry] = []
        self._second = 0
        self._refusals = 0

    @property
    def waiting(self) -> int:
        """How many entries are not written yet."""
        return len(self._waiting)

    def note(self, entry: AuditEntry) -> None:
        """Queue an entry for the writer; refusals beyond the rate limit are dropped."""
        if entry.outcome == "refused" and self._is_one_too_many(entry.at_us // SECOND_US):
            return
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                self.dropped += 1
                return
            self._waiting.append(entry)
        self._on_noted()

    def _is_one_too_many(self, second: int) -> bool:
        if second != self._second:
            self._second, self._refusals = second, 0
        self._refusals += 1
        return self._refusals > REFUSALS_PER_SECOND

    def write(self, job_log: JobLog) -> None:
        """Write what was noted; raises StorageError, and then it is still to be written."""
        with self._writing:
            with self._lock:
                entries = self._waiting[:]
            if entries:
                job_log.put_audit(self._host, entries)
                with self._lock:
                    del self._waiting[: len(entries)]


def audit_values(host: str, entry: AuditEntry) -> dict[str, Any]:
    """The parameters of the statement `put_audit` for an entry."""
    values = asdict(entry)
    for name in ("identity", "protocol", "address", "verb", "target"):
        values[name] = readable(values[name], LONGEST_NAME)
    return {**values, "host": host}


def put_all(
    ask: Callable[[str, dict[str, Any]], object], statement: str, host: str, entries: Sequence[AuditEntry]
) -> None:
    """Insert entries, in one transaction of the caller's."""
    for entry in entries:
        ask(statement, audit_values(host, entry))
