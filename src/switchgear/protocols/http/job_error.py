"""`told_error`: the error of a job in answers as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchgear.engine.predecessor_error import error_told
from switchgear.model import Job

__all__ = ["MOST_ERROR_BYTES", "told_error"]

# As much as is stored. A worker may report more, which every peer that waits for the job would get a copy of.
MOST_ERROR_BYTES: Final = 64 * 1024


def told_error(job: Job, handle_of: Callable[[int], str]) -> bytes | None:
    """The beginning of the error of a job; `None` if it has none."""
    error = error_told(job, handle_of)
    if error is None or len(error) <= MOST_ERROR_BYTES:
        return error
    end = MOST_ERROR_BYTES
    while end > MOST_ERROR_BYTES - 3 and error[end] & 0xC0 == 0x80:  # in the middle of a character of UTF-8
        end -= 1
    return error[:end]
