"""The ledger: a file of everything that peers sent and were told, one event a line, synced to disk as it is written."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

# The time (monotonic, in nanoseconds), the kind, and values that JSON can hold.
Event: TypeAlias = tuple[Any, ...]


class Ledger:
    """Written by one thread, and synced by another, all that has come in meanwhile at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._unwritten: list[Event] = []
        self._wake = threading.Condition()
        self._closing = False
        self._is_writing = False
        self._thread = threading.Thread(target=self._sync, name="ledger", daemon=True)
        self._thread.start()

    def write(self, event: Event) -> None:
        with self._wake:
            self._unwritten.append(event)
            self._wake.notify_all()

    def flush(self) -> None:
        """Wait until all of it is on disk."""
        with self._wake:
            self._wake.wait_for(lambda: not self._unwritten and not self._is_writing)

    def close(self) -> None:
        """Write what is left."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()
        os.close(self._file)

    def _sync(self) -> None:
        while True:
            with self._wake:
                while not self._unwritten and not self._closing:
                    self._wake.wait()
                events, self._unwritten = self._unwritten, []
                self._is_writing = True
            if not events:
                return
            os.write(self._file, b"".join(json.dumps(event).encode() + b"\n" for event in events))
            os.fdatasync(self._file)
            with self._wake:
                self._is_writing = False
                self._wake.notify_all()


def read_ledger(path: Path) -> Iterator[Event]:
    """The events of a ledger; an unfinished last line is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield tuple(json.loads(line))
