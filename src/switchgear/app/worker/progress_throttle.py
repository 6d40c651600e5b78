"""`ProgressThrottle`: limits how often a child process sends the progress of its job to the worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from switchgear.app.worker.child_messages import ChildProgress
from switchgear.app.worker.executor import PROGRESS_PAUSE_SECONDS

__all__ = ["ProgressThrottle"]


class ProgressThrottle:
    """Sends the latest progress, with a pause between two reports.  For any thread; needs no event loop.

    Most jobs tell nothing, or little: the thread that sends what had to wait is only started when something has to.
    """

    def __init__(self, send: Callable[[ChildProgress], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._latest: ChildProgress | None = None  # what has to wait
        self._next_at = 0.0
        self._has_latest = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, figures: ChildProgress) -> None:
        """Send this now, or after the pause unless a later report replaces it."""
        with self._lock:
            if self._latest is None and time.monotonic() >= self._next_at:
                self._send_now(figures)
                return
            self._latest = figures
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_in_time, name="switchgear-progress", daemon=True)
                self._thread.start()
            self._has_latest.set()

    def flush(self) -> None:
        """Send the progress report that was deferred, if there is one."""
        with self._lock:
            latest, self._latest = self._latest, None
            if latest is not None:
                self._send_now(latest)

    def _send_now(self, figures: ChildProgress) -> None:
        self._next_at = time.monotonic() + PROGRESS_PAUSE_SECONDS
        self._send(figures)

    def _send_in_time(self) -> None:
        while self._has_latest.wait():
            self._has_latest.clear()
            time.sleep(max(0.0, self._next_at - time.monotonic()))
            self.flush()
