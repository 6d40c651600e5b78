"""`resident_bytes` and `resident_bytes_of`: how much memory a process has in RAM."""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["resident_bytes", "resident_bytes_of"]

_STATM: Final = "/proc/self/statm"
_MAXRSS_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


def resident_bytes() -> int:
    """The resident memory of this process; where the system does not tell it (no /proc), the most it has ever been."""
    found = _read(_STATM)
    if found is not None:
        return found
    import resource  # Linux needs it never

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT_BYTES


def resident_bytes_of(pid: int) -> int | None:
    """The resident memory of another process; `None` if the system does not tell it, or if there is no such process."""
    return _read(f"/proc/{pid}/statm")


def _read(statm: str) -> int | None:
    try:
        with open(statm, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
