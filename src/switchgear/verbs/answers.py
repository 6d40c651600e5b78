"""Types of the answers of operator verbs.

Times are seconds since the epoch, durations are seconds, sizes are bytes, jobs are named by their handles.  Bytes of
peers (`PlainBytes`) are text where they are UTF-8, and otherwise an object with the one key `base64`.

This module does not postpone the evaluation of annotations: of a postponed `NotRequired`, Python cannot tell at run
time that the field may be missing, and the types are read at run time.
"""

from typing import Any, NotRequired, TypeAlias, TypedDict

__all__ = [
    "AuditAnswer",
    "AuditPage",
    "BulkProgress",
    "CancelAnswer",
    "ConnectionAnswer",
    "ConnectionsAnswer",
    "ControlWorkersAnswer",
    "ControlledWorker",
    "DashboardAnswer",
    "DeclareAnswer",
    "FunctionAnswer",
    "HeldConnection",
    "Incomplete",
    "JobAnswer",
    "JobExplanation",
    "JobLogFigures",
    "JobSummary",
    "JobsPage",
    "LimitAnswer",
    "ListenerFigures",
    "MemoryFigures",
    "NodeAnswer",
    "PauseAnswer",
    "PlainBytes",
    "PolicyAnswer",
    "ReasonAnswer",
    "RetryAnswer",
    "RunScheduleAnswer",
    "ScheduleAnswer",
    "ServerAnswer",
    "ServerExplanation",
    "StateChange",
    "StatesAnswer",
    "UnscheduleAnswer",
    "WorkerAnswer",
]

PlainBytes: TypeAlias = str | dict[str, str]


class Incomplete(TypedDict):
    """What an answer of several servers lacks: the names of those that did not answer, and the number of partitions of
    functions that no server owns at this moment."""

    unreachable: list[str]
    partitions_without_owner: int


# --- the server ---


class MemoryFigures(TypedDict):
    """The memory that peers make the server use, in bytes; a limit of 0 means no limit."""

    limit: int
    held: int
    jobs: int
    held_keys: int
    limiters: int
    history: int
    failures: int
    drafts: int
    subscriptions: int
    schedules: int
    series: int
    registrations: int
    input: int
    output: int


class DashboardAnswer(TypedDict):
    """Where the dashboard of the server is."""

    url: str


class NodeAnswer(TypedDict):
    """A server of a cluster."""

    name: str
    address: str
    role: str  # owner, standby, leaving or gone
    version: str
    silent_seconds: float
    partitions: int  # how many of the 64 partitions of functions it owns; an owner of all jobs owns all
    placed: list[PlainBytes]  # functions that an operator has placed in these, at most a hundred


class HeldConnection(TypedDict):
    """What the server holds for one connection: unfinished input and unread output."""

    address: str
    input: int
    output: int


class ListenerFigures(TypedDict):
    """The connections of one listener, and the one that holds most.  A `node` is one of several servers that own
    functions: whose listener it is."""

    url: str
    connections: int
    input: int
    output: int
    largest: HeldConnection | None
    node: NotRequired[str]


class JobLogFigures(TypedDict):
    """The job log: rows written, waiting to be written, and dropped because too many waited."""

    url: str
    written: int
    waiting: int
    dropped: int


class ServerAnswer(TypedDict):
    """The state of a server; `handle_prefix` has its colon, `events` are counts by name.

    If several servers own functions, jobs, functions, workers, connections, memory and events are the sums of these
    `nodes`, and the rest is that of the one that was asked.
    """

    version: str
    pid: int
    uptime_seconds: float
    handle_prefix: str
    store: str
    storage_error: str
    jobs: int
    functions: int
    workers: int
    connections: int
    draining: bool
    memory: MemoryFigures
    listeners: list[ListenerFigures]
    joblog: JobLogFigures | None
    events: dict[str, int]
    nodes: NotRequired[list[str]]


class ConnectionAnswer(HeldConnection):
    """One connection; `held` is all that is counted for it, `received` the number of bytes that it has sent."""

    protocol: str
    client_id: PlainBytes
    received: int
    waits_for: int
    waits_for_bytes: int
    running: int
    subscriptions: int
    held: int
    node: NotRequired[str]  # to which it leads, if several servers own functions


class ConnectionsAnswer(TypedDict):
    """The connections that hold most, the largest first, and the number of all."""

    connections: list[ConnectionAnswer]
    count: int


class AuditAnswer(TypedDict):
    """What somebody has done, or was refused (`outcome`), and from where."""

    id: int
    at: float
    identity: str
    protocol: str
    address: str
    verb: str
    target: str
    outcome: str
    host: str


class AuditPage(TypedDict):
    """Entries, newest first; `next_before_id` is `before_id` of the next page, or null if there is none.

    Not `stored`: the server writes no job log, and so no audit log; its own log tells of actions.
    """

    entries: list[AuditAnswer]
    next_before_id: int | None
    stored: bool


class ReasonAnswer(TypedDict):
    """One reason: a word for programs, a text for people, and figures."""

    word: str
    text: str
    data: dict[str, Any]


class ServerExplanation(TypedDict):
    """Why submissions are refused, or that they are accepted."""

    reasons: list[ReasonAnswer]
    memory: MemoryFigures


class WorkerAnswer(TypedDict):
    """One worker; `functions` and `running` have the first 100."""

    id: int
    name: PlainBytes
    protocol: str
    address: str
    functions: list[PlainBytes]
    functions_count: int
    tags: list[str]
    resources: dict[str, float]  # how much it has of what
    resources_free: dict[str, float]  # and how much of that its jobs leave; below 0 if it says that it has less
    running: list[str]
    running_count: int
    asleep: bool
    connected_at: float
    status: dict[str, Any] | None  # what it says of itself; None if it cannot be controlled
    answered_control: int  # the number of the request that the status answers; 0: none
    node: NotRequired[str]  # to which it is connected, if several servers own functions


class ControlledWorker(TypedDict):
    """A worker that a request concerns."""

    id: int
    name: PlainBytes
    node: NotRequired[str]


class ControlWorkersAnswer(TypedDict):
    """The workers that were told, which answer with their status; `workers` shows it with the number."""

    number: int
    told: list[ControlledWorker]
    not_controllable: list[ControlledWorker]


# --- functions ---


class PolicyAnswer(TypedDict):
    """The limits of a function; a rate is a count and a number of seconds."""

    concurrency: int
    rate: list[float] | None
    key_concurrency: int
    key_rate: list[float] | None
    fair: bool
    owner: NotRequired[str]  # the app that has declared them


class FunctionAnswer(TypedDict):
    """One function; counts of ended jobs are since the server started; `dead` ones are also `failed`, and
    `ready_by_priority` are those of high, normal and low priority."""

    name: PlainBytes
    total: int
    ready: int
    ready_by_priority: list[int]
    running: int
    waiting_or_scheduled: int
    workers: int
    paused: bool
    limits: list[int]
    policy: PolicyAnswer | None
    keys_waiting: int | None
    submitted: int
    done: int
    failed: int
    cancelled: int
    expired: int
    requeued: int
    dead: int
    oldest_ready_seconds: float | None
    node: NotRequired[str]  # the owner, if several servers own functions
    partition: NotRequired[int]  # of these functions
    placed: NotRequired[bool]  # by an operator
    shard_of: NotRequired[PlainBytes]  # the divided function, if this is a shard of one


class PlaceAnswer(TypedDict):
    """Where a function is, if several servers own functions."""

    function: str
    partition: int | None
    node: str | None  # the owner of the partition; none at this moment, or this is the only server
    placed: bool  # by an operator; otherwise the partition follows from the name
    shards: NotRequired[list[PlainBytes]]  # the functions that it is divided into


class PauseAnswer(TypedDict):
    """Whether a function is paused now."""

    function: str
    paused: bool


class LimitAnswer(TypedDict):
    """The limits of a function now."""

    function: str
    policy: PolicyAnswer


# --- jobs ---


class JobSummary(TypedDict):
    """A job as lists show it."""

    handle: str
    id: int
    function: PlainBytes
    state: str
    dead: bool
    priority: str
    delivery: str
    unique: PlainBytes
    name: PlainBytes
    attempts: int
    attempts_limit: int
    created_at: float
    run_at: float | None
    expires_at: float | None
    finished_at: float | None
    timeout: float | None
    numerator: int
    denominator: int
    time_left: int | None
    result_code: int
    error: PlainBytes | None
    predecessors: list[str]  # at most 1,000 of them, and 100 in a list of jobs
    predecessor_count: int
    on_failure: list[str]  # for each of those named
    origin: str
    key: PlainBytes
    label: PlainBytes
    requires: list[str]  # tags and amounts that a worker needs to be given the job
    trace: str  # its traceparent, or nothing
    losses: int
    crash_limit: int | None
    unique_scope: str
    unique_until: float | None
    retention: float | None
    message: PlainBytes
    schedule: PlainBytes


class StateChange(TypedDict):
    """One change of a job's state: its cause and its time."""

    cause: str
    at: float


class AttemptAnswer(TypedDict):
    """One start of a job: when, until when, the cause of its end, and its worker, if the job log knows it."""

    attempt: int
    started_at: float
    ended_at: float | None
    outcome: str
    worker: str | None
    worker_host: str | None
    protocol: str | None


class JobAnswer(JobSummary):
    """A job in all detail.  Without contents, `payload_bytes` is null if only the store has the payload."""

    payload: NotRequired[PlainBytes]
    payload_bytes: int | None
    result: NotRequired[PlainBytes]
    redacted: NotRequired[bool]  # over HTTP, if the setting http.redact hides something of them
    warnings: PlainBytes
    log: list[StateChange]
    attempt_history: list[AttemptAnswer]


class JobsPage(TypedDict):
    """Jobs that match, newest first; `next_before_id` is `before_id` of the next page, or null if there is none."""

    jobs: list[JobSummary]
    next_before_id: int | None


class StatesAnswer(TypedDict):
    """The state of each handle in order, `unknown` if there is no such job, and the number of jobs in each state."""

    states: list[str]
    counts: dict[str, int]


class CancelAnswer(TypedDict):
    """The handles of cancelled jobs, 50,000 at most; for a selection also their number, and whether there may be more.
    For a single job, their number is there if not all handles are."""

    cancelled: list[str]
    count: NotRequired[int]
    more: NotRequired[bool]


class WaitForAnswer(TypedDict):
    """Whether the job waits now; it does not if all the others have ended as it needs them to."""

    waits: bool


class SpawnAnswer(TypedDict):
    """How many jobs wait for the others too."""

    successors: int


class RetryAnswer(TypedDict):
    """The handles of retried jobs; for a selection also their number, and `before_id` to go on with."""

    retried: list[str]
    count: NotRequired[int]
    next_before_id: NotRequired[int | None]


class BulkProgress(TypedDict):
    """How far a bulk action is.  Its jobs were fixed when it was made; `changed` also counts jobs that were cancelled
    with them (`cascade`)."""

    id: str
    action: str
    dry_run: bool
    state: str
    matched: int
    handled: int
    changed: int
    examples: list[str]
    created_at: float
    node: NotRequired[str]  # in lists, if several servers own functions: each has a part of an action


class JobExplanation(TypedDict):
    """Why a job is in its state, the most important reason first."""

    handle: str
    function: PlainBytes
    state: str
    reasons: list[ReasonAnswer]
    node: NotRequired[str]  # the owner of the function, if several servers own functions
    partition: NotRequired[int]
    placed: NotRequired[bool]  # by an operator
    shard_of: NotRequired[PlainBytes]  # the divided function, if this is a job of a shard of one


# --- schedules ---


class DeclareAnswer(TypedDict):
    """What an app has declared earlier and declares no more: names of schedules, and of functions with limits."""

    owner: str
    schedules: list[PlainBytes]
    functions: list[PlainBytes]
    removed: bool


class ScheduleAnswer(TypedDict):
    """A schedule, its next and last times, and how many of its ticks were met, skipped, missed and refused."""

    name: PlainBytes
    function: PlainBytes
    spec: str
    timezone: str
    catch_up: str
    overlap: bool
    owner: NotRequired[PlainBytes]  # the app that has declared it
    paused: bool
    next_at: float | None
    last_at: float | None
    last_job: str | None
    last_state: str | None
    held_up: str
    fired: int
    skipped: int
    missed: int
    refused: int
    payload: PlainBytes
    redacted: NotRequired[bool]  # over HTTP, if the setting http.redact hides something of the payload
    options: dict[str, Any]
    node: NotRequired[str]  # that makes its jobs, if several servers own functions


class UnscheduleAnswer(TypedDict):
    """The name of a schedule that was removed."""

    name: PlainBytes
    removed: bool


class RunScheduleAnswer(TypedDict):
    """The handle of the job that a schedule has made at once."""

    name: str
    handle: str
