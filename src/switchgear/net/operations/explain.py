"""The verb `explain`: why a job is in its state."""

from __future__ import annotations

from typing import Any

from switchgear.engine.explain import Reason
from switchgear.json_bytes import plain
from switchgear.model import FINAL_STATES, SECOND_US
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps
from switchgear.verbs.answers import JobExplanation

__all__ = ["ExplainOperations"]


class ExplainOperations:
    """The verb `explain`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine

    def explain(self, handle: str) -> Steps:
        """The reasons, the most important first; a job of the history has one reason, how it ended."""
        job = yield from self._context.named_job(handle)
        if job.state in FINAL_STATES or self._engine.has_job(job.id):
            reasons = self._engine.explain(job, self._context.handle)
        else:  # the store has an earlier state: the end of the job is being stored
            reasons = [Reason("ending", "it has just ended, and its end is being stored")]
        explanation: JobExplanation = {
            "handle": self._context.handle(job.id),
            "function": plain(job.function.name),
            "state": job.state.name.lower(),
            "reasons": [
                {"word": reason.word, "text": reason.text, "data": self._plain(reason.data)} for reason in reasons
            ],
        }
        return explanation

    def _plain(self, data: dict[str, Any]) -> dict[str, Any]:
        """The figures of a reason: times in seconds since the epoch, jobs by their handles."""
        plain_data: dict[str, Any] = {}
        for name, value in data.items():
            if name.endswith("_us"):
                plain_data[name.removesuffix("_us")] = value / SECOND_US
            elif name == "job_id":
                plain_data["handle"] = self._context.handle(value)
            elif name == "predecessors":
                plain_data[name] = [self._context.handle(job_id) for job_id in value]
            else:
                plain_data[name] = plain(value) if isinstance(value, bytes) else value
        return plain_data
