"""What the routes of several resources have in common: parameters, headers, media types, answers."""

from typing import Any, Final

from switchgear.job_options import JobOption, OptionKind
from switchgear.protocols.http import (
    schemas,
    submitting,
)
from switchgear.protocols.http import work_requests as work
from switchgear.protocols.http.routing import QueryParameter, RouteAnswer
from switchgear.verbs.access import Role
from switchgear.verbs.kinds import ArgumentKind, Boolean, HandleList, Number, PlainText, Whole
from switchgear.verbs.table import VERBS

READ: Final = frozenset({Role.READ})
SUBMIT: Final = frozenset({Role.SUBMIT})
WORK: Final = frozenset({Role.WORK})

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"

WAIT: Final = QueryParameter(
    "wait", Whole(0, submitting.MOST_WAIT_SECONDS), "Wait for the end of the job, at most so many seconds.", 0
)
TAKE_WAIT: Final = QueryParameter(
    "wait", Whole(0, submitting.MOST_WAIT_SECONDS), "Wait for a job, at most so many seconds.", 0
)
LEASE: Final = QueryParameter(
    "lease",
    Number(work.MOST_LEASE_SECONDS, 0.1),
    "The server assigns the job to another worker after this many seconds without a report.",
    60.0,
)
PREFER: Final = {"Prefer": "`wait=30`: wait for the end of the job, at most so many seconds."}
IDEMPOTENCY_KEY: Final = {
    "Idempotency-Key": "The same request with the same key within a day is answered with the same job."
}
TRACE: Final = {"traceparent": "The trace that the job belongs to (W3C Trace Context); an invalid one is ignored."}
ATTEMPT: Final = {"Switchgear-Attempt": "The attempt that came with the job."}
JOB_HEADERS: Final = {"Switchgear-Job": "The handle of the job.", "Switchgear-State": "Its state."}
CONTENT_HEADERS: Final = {**JOB_HEADERS, "Switchgear-Redacted": "`yes` if values of fields are hidden (`http.redact`)."}
LOCATION: Final = {"Location": "Where the job is."}
NO_CONTENT: Final = RouteAnswer(204, "Done.")


def verb_roles(name: str) -> frozenset[Role]:
    """The roles of a request that stands for a verb: those of the verb."""
    return VERBS[name].roles


def verb_parameter(verb: str, name: str, called: str = "") -> QueryParameter:
    """An argument of a verb as a parameter."""
    argument = VERBS[verb].argument(name)
    return QueryParameter(called or name, argument.kind, argument.help, argument.default)


def option_kind(option: JobOption) -> ArgumentKind:
    """What a job option takes in a query."""
    if option.kind is OptionKind.FLAG:
        return Boolean()
    if option.kind is OptionKind.COUNT:
        return Whole(0, option.most)
    if option.kind in (OptionKind.SPAN, OptionKind.MOMENT):
        return Number(1e15)
    if option.kind is OptionKind.HANDLES:
        return HandleList(option.most)
    return PlainText()


OPTIONS: Final = (
    QueryParameter("unique", PlainText(), "The unique key: a job that has it is joined."),
    *(QueryParameter(option.name, option_kind(option), option.help) for option in schemas.SUBMISSION_OPTIONS),
)


def json(status: int, help: str, kind: Any, **more: Any) -> RouteAnswer:
    """An answer in JSON."""
    return RouteAnswer(status, help, json=kind, **more)


SUBMITTED: Final = (
    json(201, "The job is stored.", schemas.JobCreated, headers=LOCATION),
    json(202, "With `Prefer: wait`: the job has not ended in time.", schemas.JobCreated, headers=LOCATION),
)
