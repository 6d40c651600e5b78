"""OpenTelemetry: spans for submissions and for attempts, connected by the `trace` of the job.

    from switchgear.contrib.otel import instrument

    app = switchgear.App("gearman://127.0.0.1:4730")
    instrument(app)

A submission is a PRODUCER span `send FUNCTION`, a child of the current span. Each attempt is a CONSUMER span `process
FUNCTION`, in a trace of its own with a link to the `send` span: a job may run hours later, and several times. With
`parent=True`, attempts are children of the `send` span, in its trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        Tracer,
        TracerProvider,
        get_tracer,
        set_span_in_context,
    )
except ImportError as error:  # pragma: no cover - the development environment has it
    raise ImportError("switchgear.contrib.otel needs OpenTelemetry: pip install 'switchgear[otel]'") from error

from switchgear.app.tracing import AppTracing, AttemptSpan, SendSpan
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Fail, Outcome, RetryLater, Stopped
from switchgear.trace_context import is_traceparent
from switchgear.version import VERSION

if TYPE_CHECKING:
    from switchgear.app.app import App

__all__ = ["instrument"]

SYSTEM: Final = "switchgear"


def instrument(app: App, *, parent: bool = False, tracer_provider: TracerProvider | None = None) -> None:
    """Trace the submissions and the attempts of an app; call it where the app is defined, so that workers do too.

    `parent`: attempts are children of the submitter's span instead of linked to it. `tracer_provider` is
    OpenTelemetry's global one unless given.
    """
    app.tracing = OpenTelemetryTracing(get_tracer("switchgear", VERSION, tracer_provider), parent=parent)


class OpenTelemetryTracing(AppTracing):
    """Makes spans with a tracer of OpenTelemetry."""

    def __init__(self, tracer: Tracer, *, parent: bool) -> None:
        self._tracer = tracer
        self._parent = parent

    @contextmanager
    def sending(self, function: str) -> Iterator[SendSpan]:
        attributes = attributes_of(function, "send")
        with self._tracer.start_as_current_span(
            f"send {function}", kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            yield OtelSendSpan(span)

    @contextmanager
    def processing(self, assignment: AssignedJob) -> Iterator[AttemptSpan]:
        sender = span_context_of(assignment.trace)
        context = Context()  # not what happens to be current where the task is called
        links = []
        if sender is not None and self._parent:
            context = set_span_in_context(NonRecordingSpan(sender), context)
        elif sender is not None:
            links.append(Link(sender))
        attributes: dict[str, Any] = attributes_of(assignment.function, "process")
        attributes["messaging.message.id"] = assignment.handle
        attributes["switchgear.job.attempt"] = assignment.attempt
        with self._tracer.start_as_current_span(
            f"process {assignment.function}", context, SpanKind.CONSUMER, attributes, links
        ) as span:
            yield OtelAttemptSpan(span)


class OtelSendSpan(SendSpan):
    """A PRODUCER span."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.trace = traceparent_of(span.get_span_context())

    def accepted(self, handle: str) -> None:
        self._span.set_attribute("messaging.message.id", handle)

    def accepted_many(self, count: int) -> None:
        self._span.set_attribute("messaging.batch.message_count", count)


class OtelAttemptSpan(AttemptSpan):
    """A CONSUMER span."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, outcome: Outcome) -> None:
        span = self._span
        span.set_attribute("switchgear.job.outcome", OUTCOMES[type(outcome)])
        if isinstance(outcome, RetryLater):
            span.set_attribute("switchgear.job.retry_seconds", outcome.delay_seconds)
        if isinstance(outcome, Complete):
            return
        if isinstance(outcome, Stopped):
            span.set_status(Status(StatusCode.ERROR, outcome.reason))
            return
        summary, _, trace = outcome.error.partition("\n")
        kind, _, message = summary.partition(": ")
        span.set_attribute("error.type", kind)
        span.add_event(
            "exception",
            {"exception.type": kind, "exception.message": message, "exception.stacktrace": trace.strip()},
        )
        span.set_status(Status(StatusCode.ERROR, summary))


OUTCOMES: Final[dict[type[Any], str]] = {Complete: "done", Fail: "failed", RetryLater: "retry", Stopped: "stopped"}


def attributes_of(function: str, operation: str) -> dict[str, Any]:
    """The attributes that OpenTelemetry's conventions for messaging name."""
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": function,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def traceparent_of(context: SpanContext) -> str:
    """The traceparent of a span; empty if nothing traces it."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def span_context_of(trace: str) -> SpanContext | None:
    """The span that a traceparent names; None if there is none, or if it is not valid."""
    if not is_traceparent(trace.encode(errors="replace")):
        return None
    _, trace_id, span_id, flags = trace.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
