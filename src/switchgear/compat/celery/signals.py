"""Signals around tasks and workers, to which functions can be connected."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "CelerySignal",
    "after_task_publish",
    "before_task_publish",
    "task_failure",
    "task_postrun",
    "task_prerun",
    "task_retry",
    "task_success",
    "worker_process_init",
    "worker_process_shutdown",
    "worker_ready",
    "worker_shutdown",
]

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("switchgear.compat.celery")


class CelerySignal:
    """Calls the functions that are connected to it: `@task_failure.connect`, or `connect(sender=task)`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._receivers: list[tuple[Callable[..., Any], Any]] = []

    def connect(self, *functions: Any, sender: Any = None, weak: bool = True, dispatch_uid: Any = None) -> Any:
        """Connect a function, or return a decorator that does."""

        def add(function: F) -> F:
            self._receivers.append((function, sender))
            return function

        return add(functions[0]) if functions else add

    def disconnect(self, function: Any = None, sender: Any = None, **others: Any) -> bool:
        """Disconnect a function; returns whether it was connected."""
        kept = [(known, of) for known, of in self._receivers if known is not function]
        was_connected = len(kept) < len(self._receivers)
        self._receivers = kept
        return was_connected

    def send(self, sender: Any, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        """Call all functions; what they raise is logged."""
        answers: list[tuple[Callable[..., Any], Any]] = []
        for function, wanted in list(self._receivers):
            if wanted is not None and wanted is not sender and wanted != getattr(sender, "name", sender):
                continue
            try:
                answers.append((function, function(signal=self, sender=sender, **named)))
            except Exception as error:
                log.exception("%s: %r has failed", self.name, function)
                answers.append((function, error))
        return answers


before_task_publish = CelerySignal("before_task_publish")
after_task_publish = CelerySignal("after_task_publish")
task_prerun = CelerySignal("task_prerun")
task_postrun = CelerySignal("task_postrun")
task_success = CelerySignal("task_success")
task_failure = CelerySignal("task_failure")
task_retry = CelerySignal("task_retry")
worker_ready = CelerySignal("worker_ready")
worker_shutdown = CelerySignal("worker_shutdown")
worker_process_init = CelerySignal("worker_process_init")
worker_process_shutdown = CelerySignal("worker_process_shutdown")
