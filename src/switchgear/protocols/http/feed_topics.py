"""Topics of `GET /v1/events`: each collects its state, and encodes snapshots and changes.

A topic is collected once for all viewers, in steps (`Context.work_off`), and encoded once: a snapshot for those who are
new, and a delta for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from mypy_extensions import mypyc_attr

from switchgear.engine.predecessor_error import error_told
from switchgear.errors import Refused
from switchgear.json_bytes import plain
from switchgear.model import FINAL_STATES, SECOND_US, Job
from switchgear.protocols.pending_read import Reading

if TYPE_CHECKING:
    from switchgear.protocols.context import Context

__all__ = ["FeedTopic", "JobTopic", "OverviewTopic", "RowsTopic", "StreamTopic"]

TICK_US: Final = 500_000
STREAM_TICK_US: Final = 200_000
STREAM_ROWS: Final = 1_000  # in one tick; of more, some are left out
STREAM_SECONDS: Final = 5  # so long after the last tick the recording ends
# Comparing a row takes a tenth of a microsecond, encoding one some microseconds.
COMPARED_PER_STEP: Final = 1_000
ENCODED_PER_STEP: Final = 200
ROW_BYTES: Final = 500  # the approximate memory of a row
# Members that change all the time, and of which a viewer is told with the others.
RESTLESS: Final = ("at", "uptime_seconds")


def event(name: str, kind: str, at_us: int, data: bytes) -> bytes:
    """One event: its name, whether it is a snapshot or a delta, the time, and the data in JSON."""
    head = b'event: %b\ndata: {"kind":"%b","at":%.6f,"data":' % (name.encode(), kind.encode(), at_us / SECOND_US)
    return head + data + b"}\n\n"


@mypyc_attr(allow_interpreted_subclasses=True)
class FeedTopic:
    """A topic of the live feed: collects its state and encodes changes."""

    interval_us: int = TICK_US

    def __init__(self, name: str) -> None:
        self.name = name
        self.viewers = 0
        self.due_us = 0  # when it is collected next
        self.left_us = 0  # when the last viewer left
        self.begun_tick = 0  # the tick with which the present state began; 0: there is none
        self.collected_us = 0
        self.snapshot: bytes | None = None  # encoded, while nothing has changed since

    @property
    def held_bytes(self) -> int:
        """The approximate memory of its state."""
        return 1_000 + len(self.snapshot or b"")

    def collect(self, context: Context) -> Reading[bytes]:
        """Collect the present state; returns the event with what has changed, or nothing."""
        raise NotImplementedError

    def encode(self) -> Reading[bytes]:
        """The event with a snapshot of the topic."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop the state, because no client watches the topic."""
        self.begun_tick = 0
        self.snapshot = None


class OverviewTopic(FeedTopic):
    """The answer of the verb `overview`; a delta has its members that changed."""

    def __init__(self) -> None:
        super().__init__("overview")
        self.state: dict[str, Any] = {}

    def collect(self, context: Context) -> Reading[bytes]:
        answers: list[Any] = []
        yield from context.operate_in_steps("overview", {}, answers)
        before, self.state = self.state, answers[0]
        self.collected_us = context.engine.now_us
        changed = {
            name: value for name, value in self.state.items() if name not in RESTLESS and before.get(name) != value
        }
        if not changed:
            return b""
        self.snapshot = None
        return event(self.name, "delta", self.collected_us, msgspec.json.encode(changed))

    def encode(self) -> Reading[bytes]:
        yield False
        return event(self.name, "snapshot", self.collected_us, msgspec.json.encode(self.state))

    def forget(self) -> None:
        super().forget()
        self.state = {}


class RowsTopic(FeedTopic):
    """A table: a snapshot has all rows, a delta those that are new or changed, and the keys of those that are gone."""

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        super().__init__(name)
        self.columns = columns
        self.state: dict[Any, tuple[Any, ...]] = {}

    @property
    def held_bytes(self) -> int:
        return 1_000 + len(self.snapshot or b"") + ROW_BYTES * len(self.state)

    def collect(self, context: Context) -> Reading[bytes]:
        answers: list[Any] = []
        yield from context.watch_in_steps(self.name, answers)
        rows: list[tuple[Any, tuple[Any, ...]]] = answers[0]
        state = self.state
        changed: list[tuple[Any, ...]] = []
        for start in range(0, len(rows), COMPARED_PER_STEP):
            if start:
                yield False
            for key, row in rows[start : start + COMPARED_PER_STEP]:
                if state.get(key) != row:
                    changed.append(row)
        present = dict(rows)
        gone = [row[0] for key, row in state.items() if key not in present]
        self.state = present
        self.collected_us = context.engine.now_us
        if not changed and not gone:
            return b""
        self.snapshot = None
        encoded = yield from encoded_rows(changed)
        data = b'{"rows":%b,"gone":%b}' % (encoded, msgspec.json.encode(gone))
        return event(self.name, "delta", self.collected_us, data)

    def encode(self) -> Reading[bytes]:
        at_us = self.collected_us
        encoded = yield from encoded_rows(list(self.state.values()))
        data = b'{"columns":%b,"rows":%b}' % (msgspec.json.encode(self.columns), encoded)
        return event(self.name, "snapshot", at_us, data)

    def forget(self) -> None:
        super().forget()
        self.state = {}


def encoded_rows(rows: Sequence[tuple[Any, ...]]) -> Reading[bytes]:
    """A JSON array of rows, encoded in steps."""
    pieces: list[bytes] = []
    for start in range(0, len(rows), ENCODED_PER_STEP):
        if start:
            yield False
        pieces.append(msgspec.json.encode(rows[start : start + ENCODED_PER_STEP])[1:-1])
    return b"[" + b",".join(pieces) + b"]"


class StreamTopic(FeedTopic):
    """The task stream: a snapshot has what runs now, a delta the attempts that have ended since."""

    interval_us: int = STREAM_TICK_US

    def __init__(self) -> None:
        super().__init__("stream")
        self._cursor: int | None = None
        self._running: Any = None
        self._answer: dict[str, Any] = {}  # without rows

    def collect(self, context: Context) -> Reading[bytes]:
        arguments = {"cursor": self._cursor, "limit": STREAM_ROWS, "seconds": STREAM_SECONDS}
        answers: list[Any] = []
        try:
            yield from context.operate_in_steps("stream", arguments, answers)
        except Refused:
            return b""  # there is no memory for it now
        answer = answers[0]
        self.collected_us = context.engine.now_us
        self._cursor = answer["next"]
        if not answer["rows"] and answer["running"] == self._running:
            return b""
        self._running = answer["running"]
        self.snapshot = None
        data = msgspec.json.encode(answer)
        answer["rows"] = []
        self._answer = answer
        return event(self.name, "delta", self.collected_us, data)

    def encode(self) -> Reading[bytes]:
        yield False
        return event(self.name, "snapshot", self.collected_us, msgspec.json.encode(self._answer))

    def forget(self) -> None:
        super().forget()
        self._cursor = None
        self._running = None
        self._answer = {}


class JobTopic(FeedTopic):
    """One job: its state and its progress.  A finished job is read from the store."""

    def __init__(self, job_id: int, prefix: bytes) -> None:
        super().__init__(f"job:{job_id}")
        self.job_id = job_id
        self.prefix = prefix.decode(errors="replace")
        self.state: dict[str, Any] = {}
        self._is_reading = False
        self._found: Job | None = None

    def collect(self, context: Context) -> Reading[bytes]:
        yield False
        job = context.engine.look_at(self.job_id)
        if job is None:
            job = self._take_found()
            if job is None and not self._is_reading and not self.state.get("finished_at"):
                self._is_reading = True
                context.work_off(self._read(context))  # not waited for: other topics go on if the store is slow
                job = self._take_found()
        self.collected_us = context.engine.now_us
        shown = self.state if job is None else self._shown(job)
        if not shown:
            shown = {"handle": self._handle_of(self.job_id), "state": "unknown"}
        if shown == self.state:
            return b""
        self.state = shown
        self.snapshot = None
        return event("job", "delta", self.collected_us, msgspec.json.encode(shown))

    def _take_found(self) -> Job | None:
        """The job that was read, once.

        A method of its own: in `collect`, mypy takes what was set to `None` for `None` even after `_read` has set it.
        """
        found = self._found
        self._found = None
        return found

    def _read(self, context: Context) -> Reading[None]:
        try:
            self._found = yield from context.find_job(self.job_id)
        except Refused:
            pass  # the store fails; it is asked again with the next tick
        finally:
            self._is_reading = False

    def _shown(self, job: Job) -> dict[str, Any]:
        error = error_told(job, self._handle_of)
        return {
            "handle": self._handle_of(job.id),
            "state": job.state.name.lower(),
            "attempts": job.attempts,
            "numerator": job.numerator,
            "denominator": job.denominator,
            "message": plain(job.message),
            "error": None if error is None else plain(error),
            "finished_at": job.finished_us / SECOND_US if job.state in FINAL_STATES else None,
        }

    def _handle_of(self, job_id: int) -> str:
        return f"{self.prefix}{job_id}"

    def encode(self) -> Reading[bytes]:
        yield False
        return event("job", "snapshot", self.collected_us, msgspec.json.encode(self.state))

    def forget(self) -> None:
        super().forget()
        self.state = {}
