"""`GearMonkeyJob`: the hash of a job, converted to Python types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["BUSY", "ERROR", "FINISHED", "IDLE", "SUCCESS", "GearMonkeyJob", "integer"]

IDLE: Final = "idle"
BUSY: Final = "busy"
SUCCESS: Final = "success"
ERROR: Final = "error"
FINISHED: Final = frozenset({SUCCESS, ERROR})

_INTEGER: Final = re.compile(rb"-?[0-9]{1,19}")


def integer(data: object) -> int | None:
    """A number as Redis gives it; None for what is none."""
    if isinstance(data, int):
        return data
    return int(data) if isinstance(data, bytes) and _INTEGER.fullmatch(data) else None


@dataclass(frozen=True, slots=True)
class GearMonkeyJob:
    """The state of a job at the moment when it was asked for."""

    function: str
    job_id: int
    status: str  # one of the four words, unless a foreign worker has others
    input: bytes
    output: bytes | None  # None: not finished
    dividend: int | None  # how much of ...
    divisor: int | None  # ... how much is done; None: not reported
    raw: Mapping[bytes, bytes]  # the whole hash

    @classmethod
    def of(cls, function: str, job_id: int, raw: Mapping[bytes, bytes]) -> GearMonkeyJob:
        return cls(
            function,
            job_id,
            raw.get(b"status", b"").decode(errors="replace"),
            raw.get(b"input", b""),
            raw.get(b"output"),
            integer(raw.get(b"status:dividend")),
            integer(raw.get(b"status:divisor")),
            raw,
        )

    @property
    def is_finished(self) -> bool:
        """Whether a worker has ended it, well or not."""
        return self.status in FINISHED
