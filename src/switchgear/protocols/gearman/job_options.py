"""The options of one extension packet.

A module of its own, which is not compiled: msgspec reads the types of the fields, and compiled code has none.
"""

from __future__ import annotations

import msgspec

__all__ = ["JobOptions"]


class JobOptions(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The options of SUBMIT_JOB_OPTIONS; times in seconds."""

    wait: bool = False
    priority: str = "normal"
    run_at: float = 0.0  # seconds since the epoch
    expires_at: float = 0.0  # seconds since the epoch
    timeout: float = 0.0  # longest run of one attempt
    attempts: int = -1  # 0: no limit; -1: the server's setting
    after: list[str] = []  # handles of predecessors
    name: str = ""
    reducer: str = ""
    watch: bool = False  # a background job whose news are sent all the same
    crashes: int = -1  # how often its worker may be lost; 0: no limit; -1: a loss is an attempt like any other
    key: str = ""  # whose it is, for limits and fair hand-out
    on_failure: str | list[str] = "wait"  # if a predecessor does not succeed: one word for all, or one for each
    unique_scope: str = "unfinished"
    unique_policy: str = "join"
    unique_seconds: float = 0.0  # the unique key is taken for so long, even if the job ends before
    retention: float | None = None  # how long it is remembered after its end; None: the server's setting
