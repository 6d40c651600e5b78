"""Types of the answers of statistics verbs: `overview`, `series`, `stream` and others.

See `verbs.answers` about units and about when annotations are evaluated.
"""

from typing import Any, Final, NotRequired, TypedDict

from switchgear.verbs.answers import JobLogFigures, PlainBytes

__all__ = [
    "FUNCTION_COLUMNS",
    "WORKER_COLUMNS",
    "AlarmAnswer",
    "ConnectionCounts",
    "DurationFigures",
    "EndedCounts",
    "ErrorGroupAnswer",
    "ErrorsAnswer",
    "FlowAnswer",
    "FlowsAnswer",
    "GraphAnswer",
    "GraphGroupAnswer",
    "GraphGroupEdge",
    "HeldMemory",
    "JobLogSize",
    "KeyFigures",
    "KeysAnswer",
    "OldestReady",
    "OverviewAnswer",
    "PastAnswer",
    "PastFigures",
    "PastFunction",
    "PastRun",
    "PastTotals",
    "PastWorker",
    "RateFigures",
    "RunsAnswer",
    "SeriesAnswer",
    "StateCounts",
    "StorageAnswer",
    "StoreSummary",
    "StreamAnswer",
    "StreamWorker",
    "StuckJob",
    "TimesAnswer",
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
    node: NotRequired[str]


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
    """Failed jobs of one function with about the same error; `error` has # for numbers and '…' for quoted texts, and
    `trend` counts those of each of 24 equal parts of the time from `trend_from` until now."""

    function: PlainBytes
    error: str
    count: int
    dead: int
    first_at: float
    last_at: float
    trend: list[int]
    examples: list[str]
    example_error: str


class ErrorsAnswer(TypedDict):
    """Groups of failed jobs, that with most jobs first.  If the search is not `complete`, jobs with numbers below
    `searched_to` were not looked at."""

    groups: list[ErrorGroupAnswer]
    groups_count: int
    trend_from: float
    searched: int
    complete: bool
    searched_to: int


# --- the task stream ---


class StreamWorker(TypedDict):
    """A worker by the id that rows have."""

    name: PlainBytes
    protocol: str


class StreamAnswer(TypedDict):
    """Attempts that ended, the oldest first, and what runs now; `columns` say what is in a row.

    A row has the number of its function in `functions`. If `sampled`, so many jobs end that rows are samples. `dropped`
    rows were left out. `next` is the cursor of the next request. `running` has at most 200 of the `running_count`
    attempts that run.
    """

    at: float
    recording_since: float
    sampled: bool
    dropped: int
    next: int
    functions: list[PlainBytes]
    workers: dict[str, StreamWorker]
    columns: list[str]
    rows: list[list[Any]]
    running: list[list[Any]]
    running_count: int
    node: NotRequired[str]  # whose attempts these are, if several servers own functions


# --- the past ---


class PastWorker(TypedDict):
    """A worker as the job log knows it: by its name, its protocol and the address that it came from."""

    name: str
    protocol: str
    address: str


class RunsAnswer(TypedDict):
    """What ran at any moment of a time, in the order of the starts; `columns` say what is in a row.

    A row has the numbers of its worker and its function in `workers` and `functions`. The job log has the end of the
    last attempt of a job only: an earlier one has none, and the outcome `requeued`. If `every` is more than 1, only
    every so manieth run is here. Without a job log nothing is `stored`.
    """

    since: float
    until: float
    stored: bool
    every: int
    functions: list[str]
    workers: list[PastWorker]
    columns: list[str]
    rows: list[list[Any]]


class PastFigures(TypedDict):
    """What a function did in the step before a time, and its state at that time; see `SeriesAnswer`."""

    submitted: float
    done: float
    failed: float
    ready: float
    running: float
    oldest: float
    workers: float


class PastTotals(PastFigures):
    """The figures of all functions together; `at` is the time of the point, at most a `step` before."""

    at: float
    step: int


class PastFunction(PastFigures):
    """The figures of one function."""

    function: PlainBytes


class PastRun(TypedDict):
    """An attempt that had begun and not ended; `worker` is the protocol of its worker."""

    handle: str
    function: str
    started_at: float | None
    ended_at: float | None
    outcome: str
    worker: str


class PastAnswer(TypedDict):
    """What is known of a time: null and empty where nothing is.

    `running_from` is `joblog`, or `none` if there is no job log.
    """

    t: float
    totals: PastTotals | None
    functions: list[PastFunction]
    running: list[PastRun]
    running_complete: bool
    running_from: str


# --- storage ---


class JobLogSize(JobLogFigures):
    """The job log, and the size of its files; null if it has none."""

    file_bytes: int | None


class StorageAnswer(TypedDict):
    """The store: how long commits take, how many changed jobs wait for one, and the size of its files.

    Half of all commits, and 99 of 100, ended within these seconds; see `FlowAnswer` about the ranges.
    """

    url: str
    is_durable: bool
    error: str
    waiting_changes: int
    commits: int
    mean_commit_seconds: float | None
    p50_commit_seconds: float | None
    p99_commit_seconds: float | None
    file_bytes: int | None
    joblog: JobLogSize | None


# --- graphs ---


class GraphGroupAnswer(TypedDict):
    """Jobs of one function with similar names, equally far from those that wait for nothing.

    In `label`, * stands for numbers. A label or a function is empty if the group has several. `is_frontier`: some of
    its jobs are ready or run.
    """

    id: int
    label: PlainBytes
    function: PlainBytes
    layer: int
    states: dict[str, int]
    jobs: int
    examples: list[str]
    is_frontier: bool


class GraphGroupEdge(TypedDict):
    """So many jobs of one group wait for jobs of another."""

    before: int
    after: int
    jobs: int


class StuckJob(TypedDict):
    """A job that could be next, and why it is not running."""

    handle: str
    word: str
    text: str


class GraphAnswer(TypedDict):
    """The unfinished jobs of a graph in at most 300 groups; `complete` if no job and no edge was left out."""

    groups: list[GraphGroupAnswer]
    edges: list[GraphGroupEdge]
    jobs: int
    complete: bool
    stuck: list[StuckJob]


# --- one function ---


class DurationFigures(TypedDict):
    """How many durations were in each range (the last one has no end), and within how many seconds half of them, and 99
    of 100, ended; null if there are none, or beyond the last bound."""

    counts: list[int]
    mean_seconds: float | None
    p50_seconds: float | None
    p99_seconds: float | None


class TimesAnswer(TypedDict):
    """How long jobs of a function were ready before each start, and how long each attempt took, since the start of the
    server; `bounds` are the ends of the ranges in seconds."""

    function: str
    bounds: list[float]
    wait: DurationFigures
    run: DurationFigures


class KeyFigures(TypedDict):
    """The ready and running jobs of one key."""

    key: PlainBytes
    ready: int
    running: int


class KeysAnswer(TypedDict):
    """The keys of a function that distinguishes them, those with most ready jobs first.

    `count` is the number of all keys that the server knows. If not `complete`, not all of them were looked at.
    """

    function: str
    keys: list[KeyFigures]
    count: int
    complete: bool


# --- the rows of live tables ---

FUNCTION_COLUMNS: Final = (
    "name", "total", "ready", "running", "waiting", "scheduled", "workers", "paused", "submitted", "done", "failed",
    "cancelled", "expired", "requeued", "oldest_ready_at", "limited",
)  # fmt: skip
WORKER_COLUMNS: Final = (
    "id", "name", "protocol", "address", "functions", "running", "job", "job_function", "job_started_at", "asleep",
    "connected_at",
)  # fmt: skip
