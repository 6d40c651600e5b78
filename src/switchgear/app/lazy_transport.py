"""`LazyTransport`: the transport of an app, made at its first use, and the worker of an embedded app, started then."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.embedded_worker import EmbeddedWorker
    from switchgear.app.transport import AppTransport

__all__ = ["LazyTransport"]


class LazyTransport:
    """Holds what an app has while it is in use: its transport, and the embedded worker if it has one."""

    def __init__(self, app: App, given: AppTransport | None) -> None:
        """`given` is used instead of a `ThreadTransport`, for tests."""
        self._app = app
        self._given = given
        self._transport: AppTransport | None = None
        self._lock = threading.Lock()
        self._used = False
        self._worker: EmbeddedWorker | None = None

    def get(self) -> AppTransport:
        """The transport of this process to the servers, made if it is not there yet."""
        if self._transport is not None:
            return self._transport
        transport = self._given or self._new_transport()
        with self._lock:
            transport = self._transport = self._transport or transport
            is_first_use, self._used = not self._used, True
        if is_first_use:
            self._on_first_use()
        return transport

    def _new_transport(self) -> AppTransport:
        from switchgear.app.thread_transport import ThreadTransport

        return ThreadTransport(self._app.locations, self._app.connect_seconds, self._before_submission)

    def _before_submission(self, functions: Collection[bytes]) -> None:
        if self._worker is not None:
            self._worker.serve({function.decode(errors="replace") for function in functions})

    def _on_first_use(self) -> None:
        """Called once, before the first request of this process."""
        app = self._app
        is_embedded = any(location.directory is not None for location in app.locations)
        if app.run_here and self._given is None and is_embedded:
            from switchgear.app.embedded_worker import EmbeddedWorker

            self._worker = EmbeddedWorker(app)
            if app.run_here == "all":
                self._worker.serve_all()
            else:
                self._worker.serve({schedule.task_name for schedule in app.declared_schedules()})

    def serve(self, names: Iterable[str]) -> None:
        """Let the embedded worker, if there is one, run jobs of the tasks with these names."""
        if self._worker is not None:
            self._worker.serve(names)

    def task_added(self) -> None:
        """Tell the embedded worker, if there is one, that the app has another task."""
        if self._worker is not None:
            if self._app.run_here == "all":
                self._worker.serve_all()
            else:
                self._worker.refresh()

    def replace(self, transport: AppTransport | None) -> AppTransport | None:
        """Use another transport, for tests; returns the previous one."""
        with self._lock:
            previous, self._transport = self._transport, transport
        return previous

    def close(self) -> None:
        """Stop the embedded worker and close the transport; the next use makes others."""
        with self._lock:
            transport, self._transport, self._used = self._transport, None, False
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
        if transport is not None:
            transport.close()
