"""`Drafts` and `ExtraFields`: data of jobs that the engine does not have, in memory and bounded.

A GearMonkey client gets an id, writes the job's hash, and then pushes the id. Until the push there is no job: the
written fields are a draft. Fields that the engine does not use are kept beside the job until it ends.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from switchgear.engine.engine import Engine
from switchgear.errors import PeerError, Refused
from switchgear.model import SECOND_US, Job
from switchgear.protocols.gearmonkey.keys import IDLE, INPUT, STATUS, TRACE
from switchgear.refusals import REFUSED_FULL

__all__ = ["Draft", "Drafts", "ExtraFields"]

# The maximum number of ids that were given out and not pushed yet. A client pushes an id within moments, so the oldest
# of this many has been abandoned.
MOST_DRAFTS = 100_000
MOST_DRAFT_BYTES = 256 * 1024 * 1024

MOST_FIELDS = 1000  # of a draft; beside a job, of those that the engine does not use
MOST_EXTRA_BYTES = 64 * 1024 * 1024
DRAFT_OVERHEAD_BYTES: Final = 1250  # for an id that was given out; as much as for the later job
FEW: Final = 1000
FIELD_OVERHEAD_BYTES: Final = 200  # for a stored field, besides its length

Fields = dict[bytes, bytes]


class Draft:
    """An id that was given out, and the fields written for it so far."""

    __slots__ = ("fields", "function", "size")

    def __init__(self, function: bytes) -> None:
        self.function = function
        self.fields: Fields = {}
        self.size = 0  # bytes of the fields

    @property
    def held_bytes(self) -> int:
        """The memory that it takes."""
        return self.size + len(self.function) + DRAFT_OVERHEAD_BYTES


class Drafts:
    """Jobs that are not pushed yet, the oldest first."""

    def __init__(self, engine: Engine) -> None:
        self.bytes = 0
        self._memory = engine.memory
        self._drafts: OrderedDict[int, Draft] = OrderedDict()

    def __len__(self) -> int:
        return len(self._drafts)

    def begin(self, job_id: int, function: bytes) -> None:
        """Begin a draft for an id that was given out."""
        self._add(job_id, Draft(function))

    def check_room(self, more_bytes: int = DRAFT_OVERHEAD_BYTES) -> None:
        """Check whether there is memory for this many more bytes; raises Refused."""
        if not self._memory.has_room(more_bytes):
            raise Refused(REFUSED_FULL, "there is no memory for more jobs that are not pushed yet")

    def _add(self, job_id: int, draft: Draft) -> None:
        self._drafts[job_id] = draft
        self.bytes += draft.size
        self._memory.draft_bytes += draft.held_bytes
        self._drop_oldest()

    def _uncount(self, draft: Draft) -> None:
        self.bytes -= draft.size
        self._memory.draft_bytes -= draft.held_bytes

    def get(self, job_id: int, function: bytes) -> Draft | None:
        draft = self._drafts.get(job_id)
        return draft if draft is not None and draft.function == function else None

    def write(self, draft: Draft, fields: Fields) -> None:
        """Write fields; raises PeerError or Refused, and writes nothing then."""
        check_number(draft.fields, fields)
        more = growth(draft.fields, fields)
        if draft.fields and draft.size + more > max(draft.size, MOST_DRAFT_BYTES):
            raise Refused(REFUSED_FULL, f"a job that is not pushed yet may have {MOST_DRAFT_BYTES} bytes")
        if more > 0:
            self.check_room(more)
        draft.fields.update(fields)
        draft.size += more
        self.bytes += more
        self._memory.draft_bytes += more
        self._drop_oldest()

    def put_back(self, job: Job, extras: Fields) -> None:
        """Restore the draft of a job whose push was undone; it may be pushed again."""
        draft = Draft(job.function.told_name)
        draft.fields = {STATUS: IDLE, INPUT: job.payload or b"", **extras}
        if job.trace:
            draft.fields[TRACE] = job.trace
        draft.size = growth({}, draft.fields)
        self._add(job.id, draft)

    def remove(self, job_id: int) -> None:
        self._uncount(self._drafts.pop(job_id))

    def _drop_oldest(self) -> None:
        while len(self._drafts) > MOST_DRAFTS or (self.bytes > MOST_DRAFT_BYTES and len(self._drafts) > 1):
            self._uncount(self._drafts.popitem(last=False)[1])


class ExtraFields:
    """Fields of unfinished jobs that only GearMonkey's clients and workers use."""

    def __init__(self, engine: Engine) -> None:
        self.bytes = 0
        self._engine = engine
        self._swept_us = -SECOND_US
        self._fields: dict[int, Fields] = {}

    def of(self, job_id: int) -> Fields:
        return self._fields.get(job_id) or {}

    def check_room(self, job_id: int, fields: Fields) -> None:
        """Check whether this many more bytes can be kept; raises PeerError or Refused."""
        kept = self.of(job_id)
        check_number(kept, fields)
        more = growth(kept, fields)
        if more > 0 and not self._engine.memory.has_room(more):
            raise Refused(REFUSED_FULL, "there is no memory for more fields")
        if self.bytes + more > MOST_EXTRA_BYTES:
            self._forget_finished()
        if self.bytes + more > MOST_EXTRA_BYTES:
            text = f"fields that are not GearMonkey's may have {MOST_EXTRA_BYTES} bytes in all, and have them already"
            raise Refused(REFUSED_FULL, text)

    def write(self, job_id: int, fields: Fields) -> None:
        if not fields:
            return
        kept = self._fields.setdefault(job_id, {})
        self._hold(growth(kept, fields))
        kept.update(fields)

    def forget(self, job_id: int) -> Fields:
        """Remove and return the fields of a job that has ended or was withdrawn."""
        fields = self._fields.pop(job_id, {})
        self._hold(-growth({}, fields))
        return fields

    def _hold(self, more_bytes: int) -> None:
        self.bytes += more_bytes
        self._engine.memory.draft_bytes += more_bytes

    def _forget_finished(self) -> None:
        """Remove the fields of jobs that ended elsewhere. This happens only when room is short, and not twice in a
        row, because all have to be examined."""
        if self._engine.now_us < self._swept_us + SECOND_US and len(self._fields) > FEW:
            return
        self._swept_us = self._engine.now_us
        for job_id in [job_id for job_id in self._fields if not self._engine.has_job(job_id)]:
            self.forget(job_id)


def check_number(kept: Fields, fields: Fields) -> None:
    """Check whether the number of fields is within its limit; raises PeerError."""
    if len(kept) + sum(name not in kept for name in fields) > MOST_FIELDS:
        raise PeerError(f"a hash may have {MOST_FIELDS} fields", code="ERR")


def growth(kept: Fields, fields: Fields) -> int:
    """By how many bytes the fields grow when these are written."""
    more = 0
    for name, value in fields.items():
        before = kept.get(name)
        more += len(value) + (len(name) + FIELD_OVERHEAD_BYTES if before is None else -len(before))
    return more
