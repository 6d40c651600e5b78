"""`AppTracing`: where a tracing system hooks into an app; see `switchgear.contrib.otel`.

An app without one has `App.tracing` None, and pays for one comparison per submission and per attempt.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from switchgear.client.gearman.assigned_job import AssignedJob, Outcome

__all__ = ["AppTracing", "AttemptSpan", "SendSpan"]


class SendSpan:
    """A submission that is traced."""

    trace: str = ""  # the traceparent that travels with the jobs; empty: none

    def accepted(self, handle: str) -> None:
        """The server has taken the job, and this is its handle."""

    def accepted_many(self, count: int) -> None:
        """The servers have taken so many jobs."""


class AttemptSpan:
    """An attempt that is traced."""

    def ended(self, outcome: Outcome) -> None:
        """The attempt has ended so."""


class AppTracing:
    """What a tracing system implements."""

    def sending(self, function: str) -> AbstractContextManager[SendSpan]:
        """Entered before jobs of a function are submitted, and left when the server has them."""
        raise NotImplementedError

    def processing(self, assignment: AssignedJob) -> AbstractContextManager[AttemptSpan]:
        """Entered before a task is called, where it is called: in its thread, coroutine or process."""
        raise NotImplementedError
