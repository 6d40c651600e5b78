"""What is written of jobs beside what the engine knows, all of it in memory and bounded.

A GearMonkey client gets an id, writes the job's hash, and then pushes the id.  Until the push there is no job: what was
written is a draft.  Fields that the engine has no use for are kept beside the job until it ends.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from switchgear.engine.engine import Engine
from switchgear.errors import PeerError

__all__ = ["Draft", "Drafts", "ExtraFields"]

# Ids that were given out and not pushed yet, and what is written for them.  A client pushes an id within moments, so
# the oldest of so many has been given up.
MOST_DRAFTS: Final = 100_000
MOST_DRAFT_BYTES: Final = 256 * 1024 * 1024

MOST_EXTRA_BYTES: Final = 64 * 1024 * 1024
FIELD_OVERHEAD_BYTES: Final = 200  # of a field that is kept, whatever its length

Fields = dict[bytes, bytes]


class Draft:
    """An id that was given out, and the fields written for it so far."""

    __slots__ = ("fields", "function", "size")

    def __init__(self, function: bytes) -> None:
        self.function = function
        self.fields: Fields = {}
        self.size = 0


class Drafts:
    """Jobs that are not pushed yet, the oldest first."""

    def __init__(self) -> None:
        self.bytes = 0
        self._drafts: OrderedDict[int, Draft] = OrderedDict()

    def __len__(self) -> int:
        return len(self._drafts)

    def begin(self, job_id: int, function: bytes) -> None:
        """This id was given out for a job of this function."""
        self._drafts[job_id] = Draft(function)
        self._drop_oldest()

    def get(self, job_id: int, function: bytes) -> Draft | None:
        draft = self._drafts.get(job_id)
        return draft if draft is not None and draft.function == function else None

    def write(self, draft: Draft, fields: Fields) -> None:
        draft.fields.update(fields)
        size = size_of(draft.fields)
        self.bytes += size - draft.size
        draft.size = size
        self._drop_oldest()

    def remove(self, job_id: int) -> None:
        self.bytes -= self._drafts.pop(job_id).size

    def _drop_oldest(self) -> None:
        while len(self._drafts) > MOST_DRAFTS or (self.bytes > MOST_DRAFT_BYTES and len(self._drafts) > 1):
            self.bytes -= self._drafts.popitem(last=False)[1].size


class ExtraFields:
    """Fields of unfinished jobs that only GearMonkey's clients and workers know the meaning of."""

    def __init__(self, engine: Engine) -> None:
        self.bytes = 0
        self._engine = engine
        self._fields: dict[int, Fields] = {}

    def of(self, job_id: int) -> Fields:
        return self._fields.get(job_id) or {}

    def check_room(self, fields: Fields) -> None:
        """Whether so much more can be kept; raises PeerError."""
        more = size_of(fields)
        if self.bytes + more > MOST_EXTRA_BYTES:
            self._forget_finished()
        if self.bytes + more > MOST_EXTRA_BYTES:
            text = f"fields that are not GearMonkey's may have {MOST_EXTRA_BYTES} bytes in all, and have them already"
            raise PeerError(text, code="OOM")

    def write(self, job_id: int, fields: Fields) -> None:
        if not fields:
            return
        kept = self._fields.setdefault(job_id, {})
        self.bytes -= size_of(kept)
        kept.update(fields)
        self.bytes += size_of(kept)

    def forget(self, job_id: int) -> None:
        """The job has ended."""
        fields = self._fields.pop(job_id, None)
        if fields:
            self.bytes -= size_of(fields)

    def _forget_finished(self) -> None:
        """Jobs that ended elsewhere are noticed when room is short."""
        for job_id in [job_id for job_id in self._fields if job_id not in self._engine.jobs]:
            self.forget(job_id)


def size_of(fields: Fields) -> int:
    return sum(len(name) + len(value) + FIELD_OVERHEAD_BYTES for name, value in fields.items())
