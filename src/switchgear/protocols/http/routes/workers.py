"""Requests of workers: take jobs, report about them, register."""

from typing import Final

from switchgear.protocols.http import operator_requests as operators
from switchgear.protocols.http import (
    schemas,
)
from switchgear.protocols.http import work_requests as work
from switchgear.protocols.http.routes.shared_parts import (
    ATTEMPT,
    BYTES,
    JSON,
    LEASE,
    NO_CONTENT,
    TAKE_WAIT,
    WORK,
    json,
    verb_roles,
)
from switchgear.protocols.http.routing import BodyKind, QueryParameter, Route, RouteAnswer
from switchgear.verbs import answers
from switchgear.verbs.kinds import Whole
from switchgear.verbs.table import VERBS

__all__ = ["WORKER_ROUTES"]

WORKER_ROUTES: Final[tuple[Route, ...]] = (
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
)
