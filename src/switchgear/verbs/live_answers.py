"""The answers of the verbs that watch a server: `overview` and others whose figures change all the time.

See `verbs.answers` about units and about when annotations are evaluated.
"""

from typing import Final, TypedDict

from switchgear.verbs.answers import PlainBytes

__all__ = [
    "FUNCTION_COLUMNS",
    "WORKER_COLUMNS",
    "AlarmAnswer",
    "ConnectionCounts",
    "EndedCounts",
    "ErrorGroupAnswer",
    "ErrorsAnswer",
    "FlowAnswer",
    "FlowsAnswer",
    "HeldMemory",
    "OldestReady",
    "OverviewAnswer",
    "RateFigures",
    "SeriesAnswer",
    "StateCounts",
    "StoreSummary",
    "WorkerCounts",
]


# --- overview ---


class StateCounts(TypedDict):
    """Unfinished jobs by state."""

    total: int
    ready: int
    running: int
    waiting: int
    scheduled: int


class EndedCounts(TypedDict):
    """What has happened since the server started; `dead` are jobs whose attempts were spent."""

    submitted: int
    done: int
    failed: int
    cancelled: int
    expired: int
    requeued: int
    dead: int


class RateFigures(TypedDict):
    """How often things happened per second in the last `over_seconds`; null if nothing earlier is known."""

    over_seconds: float
    submitted: float | None
    done: float | None
    failed: float | None
    cancelled: float | None
    expired: float | None
    requeued: float | None


class OldestReady(TypedDict):
    """The ready job that was submitted first: its age, and its function."""

    seconds: float
    function: PlainBytes


class WorkerCounts(TypedDict):
    """Workers: all, those that run a job, and the number of each protocol."""

    total: int
    busy: int
    by_protocol: dict[str, int]


class ConnectionCounts(TypedDict):
    """Connections: all, and the number of each protocol."""

    total: int
    by_protocol: dict[str, int]


class StoreSummary(TypedDict):
    """The store; `error` is empty while it works, and `waiting_changes` is the number of changed jobs that it does not
    have yet."""

    url: str
    is_durable: bool
    error: str
    waiting_changes: int


class HeldMemory(TypedDict):
    """What peers make the server hold, and the limit of it; a limit of 0 means no limit."""

    held: int
    limit: int


class AlarmAnswer(TypedDict):
    """Something that needs a person: a word for programs, whether it is critical, and a text."""

    code: str
    level: str
    text: str
    function: PlainBytes | None
    count: int | None


class OverviewAnswer(TypedDict):
    """The state of a server at a glance.

    `drain_seconds` is how long the ready and running jobs take at the present rate: null if none ends, 0 if there are
    none.
    """

    at: float
    version: str
    uptime_seconds: float
    draining: bool
    jobs: StateCounts
    counts: EndedCounts
    rates: RateFigures
    oldest_ready: OldestReady | None
    drain_seconds: float | None
    functions: int
    paused_functions: int
    workers: WorkerCounts
    connections: ConnectionCounts
    store: StoreSummary
    memory: HeldMemory
    alarms: list[AlarmAnswer]


# --- flows ---


class FlowAnswer(TypedDict):
    """Jobs that came by one protocol and were run by workers of another.

    `rate` is how many ended per second in about the last ten seconds, null if nothing earlier is known. `p99_seconds`
    is the end of a range that is four times as long as it begins, null beyond the last range.
    """

    submitter: str
    worker: str
    done: int
    failed: int
    rate: float | None
    mean_seconds: float | None
    p99_seconds: float | None


class FlowsAnswer(TypedDict):
    """Which protocols jobs came by, and which ran them, since a time; only pairs of which there were jobs."""

    since: float
    submitters: list[str]
    workers: list[str]
    flows: list[FlowAnswer]


# --- series ---


class SeriesAnswer(TypedDict):
    """Figures over time.  Counters are what was counted in the step that ends at a time, the others are values at that
    time; null where nothing was recorded.

    `begins_at` is the time of the first point that is known, null if there is none. `functions` are the names of
    functions with series of their own, if they were asked for.
    """

    function: str | None
    step: int
    since: float
    until: float
    begins_at: float | None
    times: list[float]
    values: dict[str, list[float | None]]
    functions: list[PlainBytes]


# --- errors ---


class ErrorGroupAnswer(TypedDict):
    """Failed jobs of one function with about the same error; `error` has # for numbers and '…' for quoted texts."""

    function: PlainBytes
    error: str
    count: int
    dead: int
    first_at: float
    last_at: float
    examples: list[str]
    example_error: str


class ErrorsAnswer(TypedDict):
    """Groups of failed jobs, that with most jobs first.  If the search is not `complete`, jobs with numbers below
    `searched_to` were not looked at."""

    groups: list[ErrorGroupAnswer]
    groups_count: int
    searched: int
    complete: bool
    searched_to: int


# --- the rows of live tables ---

FUNCTION_COLUMNS: Final = (
    "name", "total", "ready", "running", "waiting", "scheduled", "workers", "paused", "submitted", "done", "failed",
    "cancelled", "expired", "requeued", "oldest_ready_at",
)  # fmt: skip
WORKER_COLUMNS: Final = (
    "id", "name", "protocol", "address", "functions", "running", "job", "job_function", "job_started_at", "asleep",
    "connected_at",
)  # fmt: skip
