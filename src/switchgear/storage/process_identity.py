"""Process identities: detect whether a process on this machine has ended, from a description that it stored.

A process number alone would not do: numbers are used again, and each container counts its own.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["has_ended", "process_identity"]

START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the name


def process_identity() -> str:
    """This process: the boot of its machine, its process namespace, its number and its start; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        return f"{boot} {namespace} {os.getpid()} {_start_of(os.getpid())}"
    except (OSError, ValueError, IndexError):
        return ""


def has_ended(identity: str) -> bool:
    """Whether that process is known to have ended. False for one that cannot be seen from here."""
    ours = process_identity().split(" ")
    theirs = identity.split(" ")
    if len(ours) != 4 or len(theirs) != 4 or ours[:2] != theirs[:2]:
        return False
    try:
        return _start_of(int(theirs[2])) != theirs[3]
    except FileNotFoundError:
        return True
    except (OSError, ValueError, IndexError):
        return False


def _start_of(process_id: int) -> str:
    stat = Path(f"/proc/{process_id}/stat").read_bytes()
    fields = stat.rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):  # it has ended, and nobody has asked how
        return "ended"
    return fields[START_TIME_FIELD].decode()
