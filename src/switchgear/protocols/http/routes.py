"""The route table: every request that the server answers, with its roles, parameters, bodies and answers.

Not compiled, like the types that it names: the OpenAPI document is made from it.
"""

from typing import Any, Final

from switchgear.job_options import JobOption, OptionKind
from switchgear.protocols.http import (
    batch_requests,
    bulk,
    identity,
    live_feed,
    schemas,
    server_requests,
    submitting,
    wait_requests,
    watch_requests,
)
from switchgear.protocols.http import job_requests as jobs
from switchgear.protocols.http import operator_requests as operators
from switchgear.protocols.http import work_requests as work
from switchgear.protocols.http.dashboard_pages import on_get_file, on_get_file_in_folder, on_get_page
from switchgear.protocols.http.job_events import on_get_events
from switchgear.protocols.http.routing import BodyKind, QueryParameter, Route, RouteAnswer
from switchgear.verbs import answers, live_answers
from switchgear.verbs.access import ALL_ROLES, Role
from switchgear.verbs.kinds import ArgumentKind, Boolean, HandleList, Number, PlainText, Whole, WordList
from switchgear.verbs.permitted_values import STATE_NAMES
from switchgear.verbs.table import VERBS

__all__ = ["DASHBOARD_ROUTES", "ROUTES"]

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
    return RouteAnswer(status, help, json=kind, **more)


SUBMITTED: Final = (
    json(201, "The job is stored.", schemas.JobCreated, headers=LOCATION),
    json(202, "With `Prefer: wait`: the job has not ended in time.", schemas.JobCreated, headers=LOCATION),
)

ROUTES: Final[tuple[Route, ...]] = (
    # --- the server ---
    Route(
        "GET",
        "/livez",
        ALL_ROLES,
        "Tell that the server runs.",
        server_requests.on_livez,
        (json(200, "It does.", schemas.LiveAnswer),),
        tag="server",
        is_public=True,
    ),
    Route(
        "GET",
        "/readyz",
        ALL_ROLES,
        "Tell whether the server takes and hands out jobs; it does not while it shuts down or its store fails.",
        server_requests.on_readyz,
        (json(200, "It does.", schemas.ReadyAnswer), json(503, "It does not.", schemas.ReadyAnswer)),
        tag="server",
        is_public=True,
    ),
    Route(
        "GET",
        "/metrics",
        READ,
        "Give the figures of the server to a monitoring system (OpenMetrics, or the text format of Prometheus).",
        server_requests.on_get_metrics,
        (
            RouteAnswer(200, "The figures.", media="text/plain"),
            RouteAnswer(200, "The same, for a client that prefers it.", media="application/openmetrics-text"),
        ),
        tag="server",
    ),
    Route(
        "GET",
        "/openapi.json",
        ALL_ROLES,
        "Describe this interface (OpenAPI 3.1).",
        server_requests.on_get_openapi,
        (json(200, "The description.", dict[str, Any]),),
        tag="server",
        is_public=True,
    ),
    Route(
        "GET",
        "/v1/server",
        verb_roles("server"),
        VERBS["server"].help,
        server_requests.on_get_server,
        (json(200, "The state of the server.", answers.ServerAnswer),),
        tag="server",
        is_scoped=True,
    ),
    Route(
        "GET",
        "/v1/nodes",
        verb_roles("nodes"),
        VERBS["nodes"].help,
        server_requests.on_list_nodes,
        (json(200, "The servers.", list[answers.NodeAnswer]),),
        tag="server",
    ),
    Route(
        "GET",
        "/v1/audit",
        verb_roles("audit"),
        VERBS["audit"].help,
        operators.on_get_audit,
        (json(200, "A page of entries.", schemas.HttpAuditPage),),
        query=(
            verb_parameter("audit", "since"),
            verb_parameter("audit", "limit"),
            QueryParameter("cursor", PlainText(), "The `next` of the page before."),
        ),
        tag="server",
    ),
    Route(
        "GET",
        "/v1/session",
        ALL_ROLES,
        "Return the identity of the caller, with its roles and functions.",
        identity.on_get_session,
        (json(200, "The identity.", schemas.SessionAnswer),),
        tag="server",
        is_public=True,
    ),
    Route(
        "POST",
        "/v1/session",
        ALL_ROLES,
        "Exchange a token or a login code for a cookie, so that a page need not keep the token.",
        identity.on_begin_session,
        (json(200, "The identity; `Set-Cookie` has the cookie.", schemas.SessionBegun),),
        tag="server",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/session/codes",
        ALL_ROLES,
        "Make a login code, which a browser can exchange for a cookie once, within a minute.",
        identity.on_make_login_code,
        (json(201, "The code, to be sent to `POST /v1/session` in place of a token.", schemas.LoginCode),),
        tag="server",
        is_scoped=True,
    ),
    Route(
        "DELETE",
        "/v1/session",
        ALL_ROLES,
        "End the session of a cookie.",
        identity.on_end_session,
        (NO_CONTENT,),
        tag="server",
        is_public=True,
    ),
    Route(
        "GET",
        "/v1/overview",
        verb_roles("overview"),
        VERBS["overview"].help,
        watch_requests.on_get_overview,
        (json(200, "The overview.", live_answers.OverviewAnswer),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/events",
        verb_roles("overview"),
        "Watch the server: snapshots, then what changes, as server-sent events named like their topics.",
        watch_requests.on_watch,
        (RouteAnswer(200, "Server-sent events.", media=EVENTS),),
        query=(
            QueryParameter(
                "topics",
                PlainText(),
                f"What to watch, with commas between: {', '.join(live_feed.TOPICS)}, or job:HANDLE.",
                "overview",
            ),
        ),
        headers={"Last-Event-ID": "The last event id of an earlier connection."},
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/flows",
        verb_roles("flows"),
        VERBS["flows"].help,
        watch_requests.on_get_flows,
        (json(200, "The pairs of protocols.", live_answers.FlowsAnswer),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/series",
        verb_roles("series"),
        VERBS["series"].help,
        watch_requests.on_get_series,
        (json(200, "The points.", live_answers.SeriesAnswer),),
        query=tuple(verb_parameter("series", argument.name) for argument in VERBS["series"].arguments),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/errors",
        verb_roles("errors"),
        VERBS["errors"].help,
        watch_requests.on_get_errors,
        (json(200, "The groups.", live_answers.ErrorsAnswer),),
        query=tuple(verb_parameter("errors", argument.name) for argument in VERBS["errors"].arguments),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/stream",
        verb_roles("stream"),
        VERBS["stream"].help,
        watch_requests.on_get_stream,
        (json(200, "The attempts.", live_answers.StreamAnswer),),
        query=tuple(verb_parameter("stream", name) for name in ("since", "cursor", "limit")),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/at",
        verb_roles("at"),
        VERBS["at"].help,
        watch_requests.on_get_past,
        (json(200, "What is known.", live_answers.PastAnswer),),
        query=(verb_parameter("at", "t"),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/runs",
        verb_roles("runs"),
        VERBS["runs"].help,
        watch_requests.on_get_runs,
        (json(200, "The attempts.", live_answers.RunsAnswer),),
        query=tuple(verb_parameter("runs", argument.name) for argument in VERBS["runs"].arguments),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/storage",
        verb_roles("storage"),
        VERBS["storage"].help,
        watch_requests.on_get_storage,
        (json(200, "The store.", live_answers.StorageAnswer),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/connections",
        verb_roles("connections"),
        VERBS["connections"].help,
        watch_requests.on_list_connections,
        (json(200, "The connections.", answers.ConnectionsAnswer),),
        query=(verb_parameter("connections", "limit"),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/graph",
        verb_roles("graph"),
        VERBS["graph"].help,
        watch_requests.on_get_groups,
        (json(200, "The groups.", live_answers.GraphAnswer),),
        query=tuple(verb_parameter("graph", argument.name) for argument in VERBS["graph"].arguments),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/functions/{function}/times",
        verb_roles("times"),
        VERBS["times"].help,
        watch_requests.on_get_times,
        (json(200, "The durations.", live_answers.TimesAnswer),),
        tag="watch",
    ),
    Route(
        "GET",
        "/v1/functions/{function}/keys",
        verb_roles("keys"),
        VERBS["keys"].help,
        watch_requests.on_list_keys,
        (json(200, "The keys.", live_answers.KeysAnswer),),
        query=(verb_parameter("keys", "limit"),),
        tag="watch",
    ),
    # --- submitting ---
    Route(
        "POST",
        "/v1/jobs",
        SUBMIT,
        "Submit a job.",
        submitting.on_submit_job,
        (
            json(200, "An earlier job was joined; or, with `Prefer: wait`, the job has ended.", dict[str, Any]),
            *SUBMITTED,
        ),
        body=BodyKind(JSON, schemas.JobSubmission),
        headers={**PREFER, **IDEMPOTENCY_KEY, **TRACE},
        tag="submit",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/functions/{function}/jobs",
        SUBMIT,
        "Submit a job whose payload is the body.",
        submitting.on_submit_payload,
        (
            RouteAnswer(
                200,
                "An earlier job was joined (JSON); or, with `Prefer: wait`, the result of the job.",
                media=BYTES,
                headers=JOB_HEADERS,
            ),
            *SUBMITTED,
        ),
        query=OPTIONS,
        body=BodyKind(BYTES, is_required=False),
        headers={**PREFER, **IDEMPOTENCY_KEY, **TRACE},
        tag="submit",
    ),
    Route(
        "POST",
        "/v1/jobs/batch",
        SUBMIT,
        "Submit many jobs, one on each line.",
        batch_requests.on_submit_batch,
        (
            json(200, "For each line, in order, the job or a problem.", schemas.BatchLine, media=NDJSON),
            json(422, "With `atomic`: problems of some lines; nothing was submitted.", schemas.BatchLine, media=NDJSON),
        ),
        query=(
            QueryParameter(
                "atomic",
                Boolean(),
                "Submit all jobs or none, without unique keys; then `after` can name lines, as in `#1`.",
                False,
            ),
            QueryParameter("first", PlainText(), "With `atomic`: the first of the reserved handles that the jobs get."),
        ),
        body=BodyKind(NDJSON, schemas.JobSubmission),
        headers=TRACE,
        tag="submit",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/jobs/handles",
        SUBMIT,
        "Reserve handles for the jobs of an atomic batch.",
        batch_requests.on_reserve_handles,
        (json(201, "The handles are reserved, until they are used or the server restarts.", schemas.ReservedHandles),),
        body=BodyKind(JSON, schemas.HandleReservation),
        tag="submit",
        is_scoped=True,
    ),
    # --- jobs ---
    Route(
        "POST",
        "/v1/jobs/wait",
        verb_roles("job"),
        "Wait until one of some jobs ends or makes progress.",
        wait_requests.on_wait_for_jobs,
        (json(200, "The jobs of which there is something to tell.", schemas.JobsNow),),
        query=(QueryParameter("wait", Whole(0, submitting.MOST_WAIT_SECONDS), "At most so many seconds.", 0),),
        body=BodyKind(JSON, schemas.AwaitedHandles),
        tag="jobs",
        is_scoped=True,
    ),
    Route(
        "GET",
        "/v1/jobs",
        verb_roles("jobs"),
        VERBS["jobs"].help,
        jobs.on_list_jobs,
        (json(200, "A page of jobs.", schemas.HttpJobsPage),),
        query=(
            verb_parameter("jobs", "function"),
            QueryParameter("state", WordList(STATE_NAMES), "Only jobs in one of these states."),
            *(verb_parameter("jobs", name) for name in ("unique", "name", "dead", "error", "key", "since", "until")),
            verb_parameter("jobs", "contains", "q"),
            verb_parameter("jobs", "limit"),
            QueryParameter("cursor", PlainText(), "The `next` of the page before."),
        ),
        tag="jobs",
        is_scoped=True,
    ),
    Route(
        "GET",
        "/v1/jobs/{handle}",
        verb_roles("job"),
        "Show one job.",
        jobs.on_get_job,
        (json(200, "The job.", schemas.JobDetails),),
        query=(WAIT, QueryParameter("contents", Boolean(), "With payload and result.", False)),
        tag="jobs",
    ),
    Route(
        "GET",
        "/v1/jobs/{handle}/payload",
        verb_roles("job"),
        "Get what a job carries, as bytes.",
        jobs.on_get_payload,
        (RouteAnswer(200, "The payload.", media=BYTES, headers=CONTENT_HEADERS),),
        tag="jobs",
    ),
    Route(
        "GET",
        "/v1/jobs/{handle}/result",
        verb_roles("job"),
        "Get the result of a job, as bytes; 409 if it has not ended, or not well.",
        jobs.on_get_result,
        (RouteAnswer(200, "The result.", media=BYTES, headers=CONTENT_HEADERS),),
        query=(WAIT,),
        tag="jobs",
    ),
    Route(
        "GET",
        "/v1/jobs/{handle}/explain",
        verb_roles("explain"),
        VERBS["explain"].help,
        jobs.on_explain_job,
        (json(200, "The reasons.", answers.JobExplanation),),
        tag="jobs",
    ),
    Route(
        "GET",
        "/v1/jobs/{handle}/attempts",
        verb_roles("job"),
        "List the starts of a job, and how each ended.",
        jobs.on_get_attempts,
        (json(200, "The attempts.", schemas.JobAttempts),),
        tag="jobs",
    ),
    Route(
        "GET",
        "/v1/jobs/{handle}/graph",
        verb_roles("job"),
        "Show the jobs that a job waits for, and those that wait for it.",
        jobs.on_get_graph,
        (json(200, f"The neighbourhood, {jobs.MOST_NODES} jobs at most.", schemas.JobGraph),),
        query=(QueryParameter("depth", Whole(1, 10), "Up to so many edges away.", 2),),
        tag="jobs",
    ),
    Route(
        "GET",
        "/v1/jobs/{handle}/events",
        verb_roles("job"),
        "Follow a job until its end: events `state`, `progress`, `data`, `warning` and `end`.",
        on_get_events,
        (RouteAnswer(200, "Server-sent events.", media=EVENTS),),
        tag="jobs",
    ),
    Route(
        "DELETE",
        "/v1/jobs/{handle}",
        verb_roles("cancel"),
        "Cancel a job.",
        jobs.on_cancel_job,
        (json(200, "The jobs that were cancelled.", answers.CancelAnswer),),
        query=(verb_parameter("cancel", "cascade"),),
        tag="jobs",
    ),
    Route(
        "PATCH",
        "/v1/jobs/{handle}",
        verb_roles("change"),
        VERBS["change"].help,
        jobs.on_change_job,
        (json(200, "The job.", answers.JobSummary),),
        body=BodyKind(JSON, schemas.JobChange),
        tag="jobs",
    ),
    Route(
        "POST",
        "/v1/jobs/{handle}/retry",
        verb_roles("retry"),
        "Run a job that ended without success again, with all its attempts.",
        jobs.on_retry_job,
        (json(200, "The job that was retried.", answers.RetryAnswer),),
        tag="jobs",
    ),
    Route(
        "POST",
        "/v1/bulk",
        verb_roles("cancel") & verb_roles("retry"),
        "Cancel or retry all jobs that match a filter, or that are named.",
        bulk.on_start_bulk,
        (
            json(200, "With `dry_run`: what would be done.", schemas.BulkProgress),
            json(202, "The action goes on.", schemas.BulkProgress, headers={"Location": "Where the action is."}),
        ),
        body=BodyKind(JSON, schemas.BulkAction),
        tag="jobs",
    ),
    Route(
        "GET",
        "/v1/bulk",
        verb_roles("jobs"),
        "List bulk actions.",
        bulk.on_list_bulk,
        (json(200, "The actions.", list[schemas.BulkProgress]),),
        tag="jobs",
    ),
    Route(
        "GET",
        "/v1/bulk/{id}",
        verb_roles("jobs"),
        "Show how far a bulk action is.",
        bulk.on_get_bulk,
        (json(200, "The action.", schemas.BulkProgress),),
        tag="jobs",
    ),
    Route(
        "DELETE",
        "/v1/bulk/{id}",
        verb_roles("cancel") & verb_roles("retry"),
        "Abort a bulk action; what it has changed stays changed.",
        bulk.on_abort_bulk,
        (json(200, "The action.", schemas.BulkProgress),),
        tag="jobs",
    ),
    # --- workers ---
    Route(
        "POST",
        "/v1/functions/{function}/take",
        WORK,
        "Take a job: its payload is the body of the answer.",
        work.on_take,
        (
            RouteAnswer(
                200,
                "A job, which the caller has for the time of its lease.",
                media=BYTES,
                headers={
                    "Switchgear-Job": "The handle of the job.",
                    **ATTEMPT,
                    "traceparent": "The trace that the job belongs to, if it was submitted with one.",
                },
            ),
            RouteAnswer(204, "There was no job in time."),
        ),
        query=(TAKE_WAIT, LEASE),
        tag="work",
    ),
    Route(
        "PUT",
        "/v1/jobs/{handle}/result",
        WORK,
        "Report that a job is done: its result is the body.",
        work.on_put_result,
        (NO_CONTENT,),
        body=BodyKind(BYTES, is_required=False),
        headers=ATTEMPT,
        tag="work",
    ),
    Route(
        "POST",
        "/v1/jobs/{handle}/fail",
        WORK,
        "Report that a job failed, for good or to be tried again.",
        work.on_fail_job,
        (NO_CONTENT,),
        body=BodyKind(JSON, schemas.FailReport, is_required=False),
        headers=ATTEMPT,
        tag="work",
    ),
    Route(
        "POST",
        "/v1/jobs/{handle}/progress",
        WORK,
        "Report the progress of a job; this renews the lease, and the answer shows whether the job was cancelled.",
        work.on_report_progress,
        (json(200, "Whether to go on.", schemas.ProgressAnswer),),
        body=BodyKind(JSON, schemas.ProgressReport, is_required=False),
        headers=ATTEMPT,
        tag="work",
    ),
    Route(
        "POST",
        "/v1/jobs/{handle}/release",
        WORK,
        "Give a job back untouched; the attempt does not count.",
        work.on_release_job,
        (NO_CONTENT,),
        headers=ATTEMPT,
        tag="work",
    ),
    Route(
        "POST",
        "/v1/workers",
        WORK,
        "Register a worker that polls for jobs of several functions.",
        work.on_register_worker,
        (json(201, "The worker.", schemas.WorkerCreated, headers={"Location": "Where the worker is."}),),
        body=BodyKind(JSON, schemas.WorkerRegistration),
        tag="work",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/workers/{id}/poll",
        WORK,
        "Take jobs as a registered worker; this renews its lease.",
        work.on_poll,
        (json(200, "The jobs.", schemas.PollAnswer),),
        query=(
            QueryParameter(
                "max", Whole(0, 1000), "At most so many jobs; 0: only tell which of the worker's jobs to stop.", 1
            ),
            TAKE_WAIT,
        ),
        body=BodyKind(JSON, schemas.PollRequest, is_required=False),
        tag="work",
        is_scoped=True,
    ),
    Route(
        "DELETE",
        "/v1/workers/{id}",
        WORK,
        "Deregister a worker; the jobs that it has go to others.",
        work.on_deregister_worker,
        (NO_CONTENT,),
        tag="work",
        is_scoped=True,
    ),
    Route(
        "GET",
        "/v1/workers",
        verb_roles("workers"),
        VERBS["workers"].help,
        operators.on_list_workers,
        (json(200, "The workers of all protocols.", list[answers.WorkerAnswer]),),
        tag="work",
        is_scoped=True,
    ),
    # --- operator verbs ---
    Route(
        "POST",
        "/v1/verbs/{verb}",
        ALL_ROLES,
        "Use an operator verb by its name; the body has its arguments. Each verb needs its own roles.",
        operators.on_use_verb,
        (json(200, "The answer of the verb.", Any),),
        body=BodyKind(JSON, dict[str, Any], is_required=False),
        tag="operate",
        is_scoped=True,
    ),
    # --- functions and schedules ---
    Route(
        "GET",
        "/v1/functions",
        verb_roles("functions"),
        VERBS["functions"].help,
        operators.on_list_functions,
        (json(200, "The functions.", list[answers.FunctionAnswer]),),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/workers/control",
        verb_roles("control_workers"),
        VERBS["control_workers"].help,
        operators.on_control_workers,
        (json(200, "The workers that were told, which answer with their status.", answers.ControlWorkersAnswer),),
        body=BodyKind(JSON, schemas.WorkerControl),
        tag="operate",
    ),
    Route(
        "GET",
        "/v1/functions/{function}",
        verb_roles("functions"),
        "Show one function.",
        operators.on_get_function,
        (json(200, "The function.", answers.FunctionAnswer),),
        tag="operate",
    ),
    Route(
        "PATCH",
        "/v1/functions/{function}",
        verb_roles("pause") & verb_roles("limit"),
        "Pause or resume a function, and set its limits.",
        operators.on_change_function,
        (json(200, "The function.", answers.FunctionAnswer),),
        body=BodyKind(JSON, schemas.FunctionChange),
        tag="operate",
    ),
    Route(
        "GET",
        "/v1/schedules",
        verb_roles("schedules"),
        VERBS["schedules"].help,
        operators.on_list_schedules,
        (json(200, "The schedules.", list[answers.ScheduleAnswer]),),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "GET",
        "/v1/schedules/{name}",
        verb_roles("schedules"),
        "Show one schedule.",
        operators.on_get_schedule,
        (json(200, "The schedule.", answers.ScheduleAnswer),),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "PUT",
        "/v1/schedules/{name}",
        verb_roles("schedule"),
        VERBS["schedule"].help,
        operators.on_put_schedule,
        (json(200, "The schedule.", answers.ScheduleAnswer),),
        body=BodyKind(JSON, schemas.ScheduleDefinition),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "DELETE",
        "/v1/schedules/{name}",
        verb_roles("unschedule"),
        VERBS["unschedule"].help,
        operators.on_delete_schedule,
        (NO_CONTENT,),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/schedules/{name}/run",
        verb_roles("run_schedule"),
        VERBS["run_schedule"].help,
        operators.on_run_schedule,
        (json(201, "The job.", schemas.JobCreated),),
        tag="operate",
        is_scoped=True,
    ),
)

HTML: Final = "text/html"
ASSET: Final = (RouteAnswer(200, "The file."), RouteAnswer(304, "It is the one that the client has."))

# The pages of the dashboard, where a listener has it.  They are no part of the interface that OpenAPI describes.
DASHBOARD_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/",
        ALL_ROLES,
        "Show the dashboard.",
        on_get_page,
        (RouteAnswer(200, "The page.", media=HTML),),
        tag="dashboard",
        is_public=True,
    ),
    Route(
        "GET",
        "/static/{digest}/{file}",
        ALL_ROLES,
        "Get a file of the dashboard.",
        on_get_file,
        ASSET,
        tag="dashboard",
        is_public=True,
    ),
    Route(
        "GET",
        "/static/{digest}/{folder}/{file}",
        ALL_ROLES,
        "Get a file in a folder of the dashboard.",
        on_get_file_in_folder,
        ASSET,
        tag="dashboard",
        is_public=True,
    ),
)
