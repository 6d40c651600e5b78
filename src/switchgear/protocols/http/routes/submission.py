"""Requests that submit jobs."""

from typing import Any, Final

from switchgear.protocols.http import (
    batch_requests,
    schemas,
    submitting,
)
from switchgear.protocols.http.routes.shared_parts import (
    BYTES,
    IDEMPOTENCY_KEY,
    JOB_HEADERS,
    JSON,
    NDJSON,
    OPTIONS,
    PREFER,
    SUBMIT,
    SUBMITTED,
    TRACE,
    json,
)
from switchgear.protocols.http.routing import BodyKind, QueryParameter, Route, RouteAnswer
from switchgear.verbs.kinds import Boolean, PlainText

__all__ = ["SUBMISSION_ROUTES"]

SUBMISSION_ROUTES: Final[tuple[Route, ...]] = (
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
        body=BodyKind(NDJSON, schemas.JobSubmission, most_bytes=batch_requests.MOST_BATCH_BYTES, longer_with="atomic"),
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
)
