"""`Extra`: the rarer fields of a job, packed into one column of its row.

This is a separate module that is not compiled: msgspec reads the types of the fields, and compiled code has none.
"""

from __future__ import annotations

import msgspec

__all__ = ["Extra"]


class Extra(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The rarer fields of a job. New fields are added at the end, with a default, so that older rows stay readable."""

    origin: str = ""
    attempts_limit: int = -1
    timeout_us: int = 0
    expires_us: int = 0
    reducer: bytes = b""
    numerator: int = 0
    denominator: int = 0
    time_left_s: int = -1
    progress_text: bytes = b""
    warnings: bytes = b""
    predecessors: tuple[int, ...] = ()
    rank: int = 0
    key: bytes = b""
    losses: int = 0
    crash_limit: int = -1
    edges: bytes = b""
    unique_scope: int = 0
    retention_us: int = -1
    schedule: bytes = b""
    message: bytes = b""
    requires: bytes = b""
    label: bytes = b""
    trace: bytes = b""
