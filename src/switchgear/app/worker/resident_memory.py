"""`resident_bytes`: how much memory this process has in RAM."""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

__all__ = ["resident_bytes"]

_STATM: Final = "/proc/self/statm"
_MAXRSS_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


def resident_bytes() -> int:
    """The resident memory of this process; where the system does not tell it (no /proc), the most it has ever been."""
    try:
        with open(_STATM, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT_BYTES
