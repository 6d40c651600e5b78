"""The shim between a server and its disk and clock (shim.c): built, set up, and told what to do."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
BUILT = Path(__file__).parent.parent / "build" / "torture"
OPEN, WRITE, SYNC, TRUNCATE = 1, 2, 3, 4
ERRORS = (errno.EIO, errno.ENOSPC)
_CONTROL = struct.Struct("=7q")
_OFFSET, _FAILED = 0, 5 * 8  # of fields that are read or written alone


def build() -> Path:
    """The library, compiled anew if its source has changed; raises FileNotFoundError without a C compiler."""
    BUILT.mkdir(parents=True, exist_ok=True)
    library = BUILT / "shim.so"
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
            with tempfile.NamedTemporaryFile(dir=BUILT, suffix=".so", delete=False) as new:
                command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", new.name, str(SOURCE), "-ldl", "-lpthread"]
            subprocess.run(command, check=True)
            os.rename(new.name, library)
    return library


class Shim:
    """What stands between one store's servers and their machine."""

    def __init__(self, directory: Path, store_directory: Path) -> None:
        self._library = build()
        self._store_directory = store_directory
        control = directory / "control"
        control.write_bytes(bytes(_CONTROL.size))
        self._control_path = control
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _CONTROL.size)

    def environment(self, journal: Path | None = None) -> dict[str, str]:
        """For a server that is to be started behind it."""
        variables = {
            "LD_PRELOAD": str(self._library),
            "TORTURE_DIRECTORY": str(self._store_directory),
            "TORTURE_CONTROL": str(self._control_path),
        }
        return variables if journal is None else {**variables, "TORTURE_JOURNAL": str(journal)}

    def set_clock(self, offset_seconds: float) -> None:
        """From now on the server's wall clock is that far ahead of ours."""
        struct.pack_into("=q", self._control, _OFFSET, int(offset_seconds * 1e9))

    def fail(self, calls: int, error: int, calls_before: int, failures: int, *, is_short: bool = False) -> None:
        """After so many calls of one kind let so many fail with this error."""
        bits = 1 << calls
        struct.pack_into("=q", self._control, 8, 0)
        struct.pack_into("=3q", self._control, 16, error, calls_before, failures)
        struct.pack_into("=q", self._control, 48, is_short)
        struct.pack_into("=q", self._control, 8, bits)

    def heal(self) -> None:
        """From now on nothing fails."""
        struct.pack_into("=q", self._control, 8, 0)

    @property
    def failed(self) -> int:
        """How many calls have failed so far."""
        count: int = struct.unpack_from("=q", self._control, _FAILED)[0]
        return count

    def close(self) -> None:
        self._control.close()
