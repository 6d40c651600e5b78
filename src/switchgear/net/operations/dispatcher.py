"""`Operations`: checks requests of operators against the table of verbs, and runs them.

Answers are plain values, as `verbs.answers` describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from switchgear.errors import Refused, StorageError
from switchgear.net.hub import Hub
from switchgear.net.monitoring.series_recorder import SeriesRecorder
from switchgear.net.operations.audit import AuditOperations
from switchgear.net.operations.bulk import BulkOperations
from switchgear.net.operations.connections import ConnectionOperations
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.declarations import DeclarationOperations
from switchgear.net.operations.errors import ErrorOperations
from switchgear.net.operations.explain import ExplainOperations
from switchgear.net.operations.flows import FlowOperations
from switchgear.net.operations.function_details import FunctionDetailOperations
from switchgear.net.operations.functions import FunctionOperations
from switchgear.net.operations.graph import GraphOperations
from switchgear.net.operations.jobs import JobOperations
from switchgear.net.operations.live_rows import LiveRows
from switchgear.net.operations.overview import OverviewOperations
from switchgear.net.operations.past import PastOperations
from switchgear.net.operations.schedules import ScheduleOperations
from switchgear.net.operations.series import SeriesOperations
from switchgear.net.operations.server import ServerOperations
from switchgear.net.operations.storage import StorageOperations
from switchgear.net.operations.stream import StreamOperations
from switchgear.net.operations.verb_access import check_arguments, shown_arguments, visible_answer
from switchgear.net.operations.verb_slots import VerbSlots
from switchgear.net.operations.verb_steps import Steps
from switchgear.net.operations.worker_control import WorkerControlOperations
from switchgear.protocols.pending_read import PendingRead, Step
from switchgear.protocols.session import Session
from switchgear.refusals import REFUSED_STORAGE
from switchgear.verbs.answers import Incomplete
from switchgear.verbs.operator_verb import OperatorVerb, checked
from switchgear.verbs.table import VERBS

__all__ = ["COLLECTING", "Operations"]


class Operations:
    """The verbs of one server."""

    def __init__(self, hub: Hub, handle_prefix: str, context: OperationsContext | None = None) -> None:
        self.context = context = context or OperationsContext(hub, handle_prefix)
        self.live_rows = LiveRows(context)
        overview = OverviewOperations(context)
        flows = FlowOperations(context)
        self.series_recorder = SeriesRecorder(context, overview, flows)
        jobs = JobOperations(context)
        self.bulk = BulkOperations(context, jobs)
        self.schedules = ScheduleOperations(context)
        self.worker_control = WorkerControlOperations(context)
        subjects = (
            ServerOperations(context),
            overview,
            ConnectionOperations(context),
            flows,
            SeriesOperations(context, self.series_recorder),
            StreamOperations(context),
            PastOperations(context, self.series_recorder),
            StorageOperations(context),
            FunctionOperations(context),
            jobs,
            self.bulk,
            FunctionDetailOperations(context),
            ErrorOperations(context),
            GraphOperations(context),
            ExplainOperations(context),
            self.schedules,
            AuditOperations(context),
            DeclarationOperations(context),
            self.worker_control,
        )
        self._slots = VerbSlots(COLLECTING)
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
        """Run a verb in steps; at the end the answer is added to the list.

        If servers that have a part of the answer did not give it, a note about that (`verbs.answers.Incomplete`) is the
        second in the list.  The engine's speaker is the peer that asks, whose permissions decide.  Raises Refused.
        """
        if verb not in self.handlers:
            raise ValueError(f"unknown verb {verb[:100]!r}; there are {', '.join(self.handlers)}")
        row = VERBS[verb]
        speaker = self.context.engine.speaker  # None: a part of the server asks, and no peer
        asker = speaker if isinstance(speaker, Session) else None
        session = asker if asker is not None and asker.is_guarded else None
        if session is not None:
            session.require(verb, row.roles)
        values = checked(row, arguments)
        try:
            if session is not None:
                yield from check_arguments(self.context, session, row, values)
            missing: list[Incomplete] = []
            answer = yield from self._slots.holding(verb, self.answered(row, arguments, values, missing))
            shown = answer
            if session is not None:
                shown = yield from visible_answer(self.context, session, verb, answer)
            answers.append(shown)
            answers += missing
            if (row.changes or verb in CHANGES_NO_JOB) and asker is not None and has_changed(verb, arguments, answer):
                self.context.hub.audit(asker, verb, shown_arguments(arguments))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{verb}: {error}") from error
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error

    def watch_in_steps(self, topic: str, rows: list[Any]) -> Iterator[Step]:
        """Collect the rows of a live table, and add them to the list."""
        return self.live_rows.in_steps(topic, rows)

    def answered(
        self, row: OperatorVerb, given: dict[str, Any], values: dict[str, Any], missing: list[Incomplete]
    ) -> Steps:
        """The answer to a verb.  `given` are the arguments as the peer gave them, `values` are all, checked."""
        return (yield from self.answered_here(row, values))

    def answered_here(self, row: OperatorVerb, values: dict[str, Any]) -> Steps:
        """The answer of this server alone."""
        answer = self.handlers[row.name](**values)
        if row.is_long:
            answer = yield from answer
        return answer


def has_changed(verb: str, arguments: dict[str, Any], answer: Any) -> bool:
    """Whether a verb that can change something has done so; otherwise it is no event of the audit."""
    if verb == "limit":
        return len(arguments) > 1  # without limits, it shows those that there are
    if verb == "control_workers":
        return bool(arguments["action"] != "ping")
    if verb == "declare":  # every worker sends it when it connects
        return bool(answer["removed"] and (answer["schedules"] or answer["functions"]))
    return verb not in BY_TASKS


# These look at all jobs, functions or workers, and hold what they have found until they answer.
COLLECTING: Final = frozenset(
    {"bulk", "errors", "functions", "graph", "jobs", "runs", "schedules", "states", "workers"}
)
# What they change is not in the store, but an action of an operator.
CHANGES_NO_JOB: Final = frozenset({"abort_bulk", "control_workers"})
# Running tasks use them for their own jobs, as often as they report progress.
BY_TASKS: Final = frozenset({"wait_for", "spawn"})
