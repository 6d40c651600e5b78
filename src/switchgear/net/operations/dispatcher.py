"""`Operations`: checks requests of operators against the table of verbs, and runs them.

Answers are plain values, as `verbs.answers` describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from switchgear.errors import Refused, StorageError
from switchgear.net.hub import Hub
from switchgear.net.operations.bulk import BulkOperations
from switchgear.net.operations.connections import ConnectionOperations
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.declarations import DeclarationOperations
from switchgear.net.operations.errors import ErrorOperations
from switchgear.net.operations.explain import ExplainOperations
from switchgear.net.operations.flows import FlowOperations
from switchgear.net.operations.functions import FunctionOperations
from switchgear.net.operations.jobs import JobOperations
from switchgear.net.operations.live_rows import LiveRows
from switchgear.net.operations.overview import OverviewOperations
from switchgear.net.operations.schedules import ScheduleOperations
from switchgear.net.operations.series import SeriesOperations
from switchgear.net.operations.server import ServerOperations
from switchgear.net.series_recorder import SeriesRecorder
from switchgear.protocols.pending_read import PendingRead, Step
from switchgear.refusals import REFUSED_STORAGE
from switchgear.verbs.table import VERBS, checked

__all__ = ["Operations"]


class Operations:
    """The verbs of one server."""

    def __init__(self, hub: Hub, handle_prefix: str) -> None:
        self.context = context = OperationsContext(hub, handle_prefix)
        self.live_rows = LiveRows(context)
        overview = OverviewOperations(context)
        flows = FlowOperations(context)
        self.series_recorder = SeriesRecorder(context, overview, flows)
        jobs = JobOperations(context)
        self.bulk = BulkOperations(context, jobs)
        subjects = (
            ServerOperations(context),
            overview,
            ConnectionOperations(context),
            flows,
            SeriesOperations(context, self.series_recorder),
            FunctionOperations(context),
            jobs,
            self.bulk,
            ErrorOperations(context),
            ExplainOperations(context),
            ScheduleOperations(context),
            DeclarationOperations(context),
        )
        # The method of a verb has its name, and takes its arguments.
        self.handlers: dict[str, Callable[..., Any]] = {
            name: next(getattr(subject, name) for subject in subjects if hasattr(subject, name))
            for name, verb in VERBS.items()
            if not verb.is_text_only
        }

    def __call__(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Run a verb at once, if the store answers at once.

        Raises ValueError for bad arguments, LookupError for an unknown job or schedule, or Refused.
        """
        answers: list[Any] = []
        for step in self.in_steps(verb, arguments, answers):
            if isinstance(step, PendingRead):
                raise RuntimeError(f"{verb}: the store has to be waited for")
        return answers[0]

    def in_steps(self, verb: str, arguments: dict[str, Any], answers: list[Any]) -> Iterator[Step]:
        """Run a verb in steps; at the end the answer is added to the list."""
        handler = self.handlers.get(verb)
        if handler is None:
            raise ValueError(f"unknown verb {verb[:100]!r}; there are {', '.join(self.handlers)}")
        row = VERBS[verb]
        values = checked(row, arguments)
        try:
            answer = handler(**values)
            if row.is_long:
                answer = yield from answer
            answers.append(answer)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{verb}: {error}") from error
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error
