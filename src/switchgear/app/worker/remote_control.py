"""`RemoteControl`: what operators may do to a running worker through the server (`switchgear control`)."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from switchgear.client.gearman.worker_events import ControlRequested
from switchgear.version import VERSION

if TYPE_CHECKING:
    from switchgear.app.worker.executor import Executor
    from switchgear.app.worker.observer import AppWorkerObserver
    from switchgear.app.worker.slot_pool import SlotPool
    from switchgear.app.worker.worker import AppWorker

__all__ = ["RemoteControl"]


class RemoteControl:
    """Carries out the requests of operators, in the I/O thread.

    Each pool of a worker is told by itself.  `drain` and `restart` concern the whole process, whichever of its pools
    are named; `resize` concerns the pool.
    """

    def __init__(self, worker: AppWorker, broadcast: Callable[[str], None], observer: AppWorkerObserver) -> None:
        self._worker = worker
        self._broadcast = broadcast
        self._observer = observer

    def status(self, label: str, executor: Executor) -> dict[str, Any]:
        """What operators see of a pool."""
        worker = self._worker
        return {
            "pool": label,
            "slots": executor.slots,
            "pid": os.getpid(),
            "python": platform.python_version(),
            "version": VERSION,
            "stopping": worker.is_stopping,
            "finished_jobs": worker.finished_jobs,
        }

    def carry_out(self, pool: SlotPool, request: ControlRequested) -> dict[str, Any]:
        """Do what an operator wants; returns what is to be added to the status."""
        worker = self._worker
        if request.action == "ping":
            return {}
        if request.action in ("drain", "restart"):
            if not worker.is_stopping:
                self._observer.note(f"an operator wants this worker to {request.action}")
            worker.stop(worker.settings.drain_seconds, "restart" if request.action == "restart" else "stop")
            return {"stopping": True}
        if request.action == "resize":
            problem = worker.resize(pool, request.slots)
            if problem:
                return {"error": problem}
            self._observer.note(f"an operator has set the slots of {pool.label} to {request.slots}")
            return {}
        if request.action == "broadcast":
            # A thread of its own, because a hook may wait, and the connections must not.
            threading.Thread(
                target=self._broadcast, args=(request.text,), name="switchgear-broadcast", daemon=True
            ).start()
            return {}
        return {"error": f"this worker ({VERSION}) does not know the action {request.action!r}"}
