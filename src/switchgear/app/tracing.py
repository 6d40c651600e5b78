"""`AppTracing`: the interface of a tracing system for an app; `switchgear.contrib.otel` implements it.

An app without one has `App.tracing` None, and pays for one comparison per submission and per attempt.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from switchgear.client.gearman.assigned_job import AssignedJob, Outcome

__all__ = ["AppTracing", "AttemptSpan", "SendSpan"]


class SendSpan:
    """The span of a submission."""

    trace: str = ""  # the traceparent that travels with the jobs; empty: none

    def accepted(self, handle: str) -> None:
        """Called when the server has accepted the job, with its handle."""

    def accepted_many(self, count: int) -> None:
        """Called when the servers have accepted this number of jobs."""


class AttemptSpan:
    """The span of an attempt."""

    def ended(self, outcome: Outcome) -> None:
        """Called when the attempt has ended, with its outcome."""


class AppTracing:
    """The interface that a tracing system implements."""

    def sending(self, function: str) -> AbstractContextManager[SendSpan]:
        """Entered before jobs of a function are submitted, and left when the server has them."""
        raise NotImplementedError

    def processing(self, assignment: AssignedJob) -> AbstractContextManager[AttemptSpan]:
        """Entered before a task is called, where it is called: in its thread, coroutine or process."""
        raise NotImplementedError
