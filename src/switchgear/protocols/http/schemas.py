"""The JSON of requests and answers, as types: the OpenAPI document describes them, and msgspec reads and checks them.

A module of its own, which is not compiled: msgspec reads the types of the fields, and compiled classes have none.  The
options of a submission come from the table of job options; answers of operator verbs are in `switchgear.verbs.answers`.
"""

from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import msgspec
from msgspec import UNSET, Meta, UnsetType

from switchgear.job_options import JOB_OPTIONS, JSON_TYPES, OptionKind
from switchgear.verbs.answers import (
    AttemptAnswer,
    AuditAnswer,
    BulkProgress,
    JobSummary,
    PlainBytes,
    StateChange,
)
from switchgear.verbs.permitted_values import LATEST_SECONDS, MOST_HANDLES

__all__ = [
    "SUBMISSION_OPTIONS",
    "BatchLine",
    "BulkAction",
    "BulkProgress",
    "EncodedBytes",
    "FailReport",
    "FunctionChange",
    "GraphNode",
    "HandleReservation",
    "HttpJobsPage",
    "JobAttempts",
    "JobChange",
    "JobCreated",
    "JobDetails",
    "JobFilter",
    "JobGraph",
    "JobSubmission",
    "LiveAnswer",
    "PlainSubmission",
    "PollAnswer",
    "PolledJob",
    "ProgressAnswer",
    "ProgressReport",
    "ReadyAnswer",
    "ReservedHandles",
    "ScheduleDefinition",
    "WorkerCreated",
    "WorkerRegistration",
    "bulk_decoder",
    "change_decoder",
    "control_decoder",
    "decode_plain_submission",
    "fail_decoder",
    "function_decoder",
    "given_fields",
    "given_options",
    "job_submission_decoder",
    "long_submission_decoder",
    "longest_list",
    "progress_decoder",
    "registration_decoder",
    "reservation_decoder",
    "schedule_decoder",
]

# `wait` and `watch` are said otherwise in HTTP: by the header Prefer.
SUBMISSION_OPTIONS: Final = tuple(option for option in JOB_OPTIONS if option.name not in ("wait", "watch"))


class EncodedBytes(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes that are not UTF-8."""

    base64: str


def _described(kind: Any, text: str) -> Any:
    return Annotated[kind, Meta(description=text)] | UnsetType


def _option_type(option: Any) -> Any:
    """The type of an option; the words of a choice are checked by the table, which has better errors."""
    kind = JSON_TYPES[option.kind]
    text = option.help
    if option.kind in (OptionKind.SPAN, OptionKind.MOMENT):
        text += " Seconds since the epoch." if option.kind is OptionKind.MOMENT else " Seconds."
    if option.words:
        text += f" One of {', '.join(option.words)}."
    if option.name == "retention":
        kind = float
    return _described(kind, text)


JobSubmission: Final = msgspec.defstruct(
    "JobSubmission",
    [
        ("function", Annotated[str, Meta(min_length=1, description="The function that runs the job.")]),
        (
            "payload",
            _described(str | EncodedBytes, "What the job carries: a text, or an object with the one key base64."),
            UNSET,
        ),
        (
            "args",
            _described(msgspec.Raw, "In place of a payload, the arguments of a Python task: an object or an array."),
            UNSET,
        ),
        ("unique", _described(str, "The unique key: a job that has it is joined."), UNSET),
        *((option.name, _option_type(option), UNSET) for option in SUBMISSION_OPTIONS),
    ],
    forbid_unknown_fields=True,
    kw_only=True,
)

job_submission_decoder: Final = msgspec.json.Decoder(JobSubmission)

# The same with the fields that may be long lists not taken apart; for a text that is long enough to have very many.
_LISTS: Final = ("after", "on_failure", "requires")
LongSubmission: Final = msgspec.defstruct(
    "LongSubmission", [(name, msgspec.Raw | UnsetType, UNSET) for name in _LISTS], kw_only=True
)
long_submission_decoder: Final = msgspec.json.Decoder(LongSubmission)


# Most submissions have none of the options. A struct of few fields is read and looked through in a fifth of the time.
PlainSubmission: Final = msgspec.defstruct(
    "PlainSubmission",
    [
        ("function", Annotated[str, Meta(min_length=1)]),
        ("payload", str | EncodedBytes | UnsetType, UNSET),
        ("args", msgspec.Raw | UnsetType, UNSET),
        ("unique", str | UnsetType, UNSET),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
    gc=False,
)
decode_plain_submission: Final = msgspec.json.Decoder(PlainSubmission).decode


def given_fields(struct: Any) -> dict[str, Any]:
    """The fields of a struct that were given."""
    return {name: value for name in struct.__struct_fields__ if (value := getattr(struct, name)) is not UNSET}


def given_options(submission: Any) -> dict[str, Any]:
    """The job options of a submission that were given."""
    if type(submission) is PlainSubmission:
        return {}
    given = given_fields(submission)
    for name in PlainSubmission.__struct_fields__:
        given.pop(name, None)
    return given


def longest_list(text: bytes) -> int:
    """About how many values the longest of the lists of a submission has."""
    struct = long_submission_decoder.decode(text)
    return max((bytes(raw).count(b",") for raw in given_fields(struct).values()), default=0)


# --- jobs ---


class JobCreated(TypedDict):
    """A job that was submitted; `joined` if it is an earlier one with the same unique key or Idempotency-Key."""

    handle: str
    id: int
    joined: bool


class BatchLine(TypedDict):
    """What became of one line of a batch: the job, or a problem."""

    line: int
    handle: NotRequired[str]
    id: NotRequired[int]
    joined: NotRequired[bool]
    problem: NotRequired[dict[str, Any]]


class HandleReservation(msgspec.Struct, forbid_unknown_fields=True):
    """How many handles are wanted, for the jobs of an atomic batch."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)]


class ReservedHandles(TypedDict):
    """The first of some consecutive handles, and their number."""

    first: str
    count: int


class HttpJobsPage(TypedDict):
    """Jobs that match, newest first.  If not `complete`, `next` is the cursor of the next page, and all jobs with
    greater numbers than `searched_to` were looked at."""

    jobs: list[JobSummary]
    next: str | None
    complete: bool
    searched_to: int


class JobAttempts(TypedDict):
    """The starts of a job, the first one first; of very many, those in the middle may be missing."""

    handle: str
    state: str
    attempts: list[AttemptAnswer]


class GraphNode(TypedDict):
    """A job near another one."""

    handle: str
    function: PlainBytes
    name: PlainBytes
    state: str
    distance: int


class JobGraph(TypedDict):
    """The jobs that a job waits for, directly or not, and those that wait for it; edges go from what is done first."""

    nodes: list[GraphNode]
    edges: list[tuple[str, str]]
    complete: bool


# --- workers ---


class FailReport(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Why a job failed, and whether it is to be tried again."""

    error: str | EncodedBytes = ""
    retry_in: Annotated[float, Meta(ge=0, le=LATEST_SECONDS)] | None = None
    attempts_limit: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET


class ProgressReport(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How far a job is.  What is not given stays as it was; without anything, only the lease is renewed."""

    numerator: Annotated[int, Meta(ge=0, le=10**18)] | UnsetType = UNSET
    denominator: Annotated[int, Meta(ge=0, le=10**18)] | UnsetType = UNSET
    message: str | UnsetType = UNSET


class ProgressAnswer(TypedDict):
    """Whether nobody wants the result any more, and for how many seconds the worker has the job from now on."""

    cancelled: bool
    lease: float


class WorkerRegistration(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A worker for some functions, which asks for jobs by its id."""

    functions: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    name: Annotated[str, Meta(max_length=512)] = ""
    tags: list[str] = []
    resources: dict[str, float] = {}
    timeouts: dict[str, Annotated[float, Meta(ge=0, le=LATEST_SECONDS)]] = {}  # by function, for jobs that have none
    lease: Annotated[float, Meta(ge=0.1, le=604_800)] = 60.0


class WorkerCreated(TypedDict):
    """A registered worker.  It is deregistered if nothing is heard of it for so many seconds."""

    id: str
    lease: float


class PolledJob(TypedDict):
    """A job for a worker; its reports name the attempt."""

    handle: str
    function: PlainBytes
    attempt: int
    payload: PlainBytes
    trace: str  # the traceparent of its submitter's span, or nothing
    unique: PlainBytes
    attempts: int  # how often it was started, this attempt included and those left out that do not count
    losses: int  # how many of these were lost with their workers
    attempts_limit: int  # of the job itself; 0: the worker decides
    timeout: float  # how many seconds the attempt may take; 0: any number


class HeldAttempt(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A job that a worker has, and the attempt that came with it."""

    handle: str
    attempt: int


class PollRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """All jobs that a worker has.  Others that it was given did not reach it, and go back to their queues."""

    held: Annotated[list[HeldAttempt], Meta(max_length=100_000)] | UnsetType = UNSET


class RevokedJob(TypedDict):
    """A job that a worker has and that is to be stopped; `reason` is one word, such as cancelled or timed_out."""

    handle: str
    attempt: int
    reason: str


class PollAnswer(TypedDict):
    """Jobs for a worker, none if there were none in time; and those of its jobs that it need not go on with."""

    jobs: list[PolledJob]
    revoked: list[RevokedJob]


# --- waiting for many jobs ---

MOST_AWAITED: Final = 1_000


class AwaitedHandle(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A job, and what its client has seen of it: numerator, denominator and message of its progress."""

    handle: str
    seen: tuple[int, int, str] | UnsetType = UNSET


class AwaitedHandles(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Jobs whose end or progress is waited for.  Of one without `seen`, the state is told at once."""

    jobs: Annotated[list[AwaitedHandle], Meta(min_length=1, max_length=MOST_AWAITED)]


class JobNow(TypedDict):
    """A job that has ended, or whose progress is not what its client has seen; `unknown` is a state too."""

    handle: str
    state: str
    cause: str  # why it is in its final state; otherwise empty
    error: PlainBytes | None
    result: PlainBytes | None  # of a job that is done
    numerator: int
    denominator: int
    message: PlainBytes


class JobsNow(TypedDict):
    """Those of the awaited jobs of which there is something to tell; none if there was nothing in time."""

    jobs: list[JobNow]


# --- operators ---


class JobChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is to be different about a job. A `run_at` of 0 or null lets it start as soon as possible."""

    priority: Literal["high", "normal", "low"] | UnsetType = UNSET
    run_at: Annotated[float, Meta(ge=0, le=LATEST_SECONDS)] | UnsetType | None = UNSET


class FunctionChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is to be different about a function: whether it is paused, and its limits; a rate is [count, seconds]."""

    paused: bool | UnsetType = UNSET
    concurrency: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    rate: tuple[int, float] | UnsetType | None = UNSET
    key_concurrency: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    key_rate: tuple[int, float] | UnsetType | None = UNSET
    fair: bool | UnsetType = UNSET


class WorkerControl(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What workers are to do, and which of them: a name, the first parts of names, a pattern, or an id."""

    action: Literal["ping", "drain", "restart", "resize", "broadcast"]
    workers: Annotated[str, Meta(min_length=1, max_length=256)] = "*"
    slots: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET
    text: Annotated[str, Meta(min_length=1, max_length=60_000)] | UnsetType = UNSET


class ScheduleDefinition(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A schedule: the jobs that it makes, and when."""

    function: Annotated[str, Meta(min_length=1, max_length=512)]
    payload: str | EncodedBytes = ""
    cron: str = ""
    every_seconds: Annotated[float, Meta(ge=0)] = 0.0
    timezone: str = ""
    catch_up: str = "latest"
    overlap: bool = False
    paused: bool | UnsetType = UNSET
    options: dict[str, Any] = {}


class JobFilter(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which jobs: all that are given must fit."""

    function: str | UnsetType = UNSET
    states: Annotated[list[str], Meta(max_length=10)] | UnsetType = UNSET
    state: Annotated[list[str], Meta(max_length=10)] | str | UnsetType = UNSET  # another name, as in `GET /v1/jobs`
    unique: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    dead: bool | UnsetType = UNSET
    error: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    since: Annotated[float, Meta(ge=0, le=LATEST_SECONDS)] | UnsetType = UNSET
    until: Annotated[float, Meta(ge=0, le=LATEST_SECONDS)] | UnsetType = UNSET


class BulkAction(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An action on all jobs that match a filter, or on those that are named.  `expect` is how many there should be."""

    action: str
    filter: JobFilter | UnsetType = UNSET
    handles: Annotated[list[str], Meta(max_length=MOST_HANDLES)] | UnsetType = UNSET
    cascade: bool = False
    dry_run: bool = False
    expect: Annotated[int, Meta(ge=0)] | UnsetType = UNSET


# --- decoders ---

fail_decoder: Final = msgspec.json.Decoder(FailReport)
progress_decoder: Final = msgspec.json.Decoder(ProgressReport)
reservation_decoder: Final = msgspec.json.Decoder(HandleReservation)
poll_decoder: Final = msgspec.json.Decoder(PollRequest)
awaited_decoder: Final = msgspec.json.Decoder(AwaitedHandles)
arguments_decoder: Final = msgspec.json.Decoder(dict[str, Any])
registration_decoder: Final = msgspec.json.Decoder(WorkerRegistration)
function_decoder: Final = msgspec.json.Decoder(FunctionChange)
control_decoder: Final = msgspec.json.Decoder(WorkerControl)
change_decoder: Final = msgspec.json.Decoder(JobChange)
bulk_decoder: Final = msgspec.json.Decoder(BulkAction)
schedule_decoder: Final = msgspec.json.Decoder(ScheduleDefinition)


# --- the server ---


class ReadyAnswer(TypedDict):
    """Whether the server takes and hands out jobs; and the longest delay of its event loop within the last half
    minute."""

    ready: bool
    reason: str
    loop_lag_seconds: float


class HttpAuditPage(TypedDict):
    """What operators have done; `next` is the cursor of the next page, or null if there is none.

    Not `stored`: the server writes no job log, and so no audit log.
    """

    entries: list[AuditAnswer]
    next: str | None
    stored: bool


class SessionAnswer(TypedDict):
    """Who makes a request; `functions` are patterns, and none means every function."""

    identity: str
    roles: list[str]
    functions: list[str]


class SessionBegun(SessionAnswer):
    """The same, and when the cookie ends; null if there is none, because no identity is needed here."""

    expires_at: float | None


class LoginCode(TypedDict):
    """A login code, and when it ends; null if there is none, because no identity is needed here."""

    identity: str
    code: str | None
    expires_at: float | None


class LiveAnswer(TypedDict):
    """The answer of `/livez`."""

    live: bool


class JobDetails(JobSummary):
    """A job in all detail; payload and result are only there if they are asked for."""

    payload: NotRequired[PlainBytes]
    payload_bytes: int | None  # null if only the store has the payload, and it is not asked for
    result: NotRequired[PlainBytes]
    redacted: NotRequired[bool]  # the setting http.redact hides something of them
    warnings: PlainBytes
    log: list[StateChange]
    attempt_history: list[AttemptAnswer]
