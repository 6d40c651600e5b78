"""Why a job is where it is, as an operator is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from switchgear.engine.explain import Reason
from switchgear.model import FINAL_STATES, SECOND_US, Job
from switchgear.net.hub import Hub
from switchgear.net.values import plain

__all__ = ["ExplainOperations"]


class Office(Protocol):
    """What is needed of the other operations."""

    hub: Hub

    def handle(self, job_id: int) -> str:
        """How a job is called outside."""

    def find(self, job_id: int) -> Job:
        """A job by its number; raises LookupError."""


class ExplainOperations:
    """The verb `explain`."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._engine = office.hub.engine

    def verbs(self) -> dict[str, Callable[..., Any]]:
        """The verbs by name."""
        return {"explain": self.explain}

    def explain(self, job_id: int) -> dict[str, Any]:
        """The reasons, the most important first; a job of the history has one, how it ended."""
        job = self._office.find(job_id)
        if job.state in FINAL_STATES or self._engine.has_job(job.id):
            reasons = self._engine.explain(job, self._office.handle)
        else:  # the store has an earlier state of it, and hears of its end in a moment
            reasons = [Reason("ending", "it has just ended, and that is being kept")]
        return {
            "handle": self._office.handle(job.id),
            "function": plain(job.function.name),
            "state": job.state.name.lower(),
            "reasons": [
                {"word": reason.word, "text": reason.text, "data": self._plain(reason.data)} for reason in reasons
            ],
        }

    def _plain(self, data: dict[str, Any]) -> dict[str, Any]:
        """The figures of a reason: times in seconds since the epoch, jobs by their handles."""
        plain_data: dict[str, Any] = {}
        for name, value in data.items():
            if name.endswith("_us"):
                plain_data[name.removesuffix("_us")] = value / SECOND_US
            elif name == "job_id":
                plain_data["handle"] = self._office.handle(value)
            elif name == "predecessors":
                plain_data[name] = [self._office.handle(job_id) for job_id in value]
            else:
                plain_data[name] = plain(value) if isinstance(value, bytes) else value
        return plain_data
