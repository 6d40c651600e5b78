"""The table of verbs: one row for each thing that an operator can ask a server for.

The dispatcher of the server (`net.operations`), CONTROL packets, the options of the command line, `docs/verbs.md` and
the checks of the Python library are made from this table, or tested against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from switchgear.partitions import PARTITIONS
from switchgear.states import DONE, FINAL_STATES, PRIORITY_NAMES, CatchUp, EdgePolicy, JobState
from switchgear.verbs import answers, live_answers
from switchgear.verbs.access import Role
from switchgear.verbs.kinds import (
    ArgumentKind,
    Boolean,
    Handle,
    HandleList,
    JsonObject,
    NameList,
    Number,
    PayloadText,
    PlainText,
    StartRate,
    Whole,
    Word,
    WordList,
)

__all__ = [
    "BULK_STATES",
    "EVENT_FUNCTION",
    "MOST_HANDLES",
    "MOST_JOBS",
    "SERIES_METRICS",
    "STATE_NAMES",
    "UNFINISHED_NAMES",
    "UNSUCCESSFUL_NAMES",
    "VERBS",
    "Argument",
    "Keeps",
    "OperatorVerb",
    "Reach",
    "checked",
]

LARGEST_PORT: Final = 65_535
MOST_NAME_BYTES: Final = 512
MOST_STREAM_ROWS: Final = 5_000
MOST_TEXT_BYTES: Final = 1024
SERIES_METRICS: Final = ("submitted", "done", "failed", "ready", "running", "oldest", "workers")
MOST_JOBS: Final = 1000  # in one answer; more would block the server for too long
MOST_CONNECTIONS: Final = 1000
MOST_HANDLES: Final = 10_000
WORKER_ACTIONS: Final = ("ping", "drain", "restart", "resize", "broadcast")
# The function of jobs that stand for what tasks wait for, such as signals; submitters may complete these.
EVENT_FUNCTION: Final = "switchgear.event"
LATEST_SECONDS: Final = 2**43 // 1000 * 1000  # what fits into 63 bits of microseconds
LONGEST_INTERVAL_SECONDS: Final = 100_000 * 366 * 24 * 3600

STATE_NAMES: Final = tuple(state.name.lower() for state in JobState)
UNFINISHED_NAMES: Final = tuple(state.name.lower() for state in JobState if state not in FINAL_STATES)
UNSUCCESSFUL_NAMES: Final = tuple(state.name.lower() for state in JobState if state in FINAL_STATES - {DONE})
# Bulk actions, and the states of jobs that each can change.
BULK_STATES: Final[Mapping[str, tuple[str, ...]]] = {"cancel": UNFINISHED_NAMES, "retry": UNSUCCESSFUL_NAMES}
EDGE_POLICY_NAMES: Final = tuple(policy.name.lower() for policy in EdgePolicy)
CATCH_UP_NAMES: Final = tuple(policy.name.lower() for policy in CatchUp)


class Keeps(Enum):
    """What must be in the store before a verb is answered."""

    NOTHING = "nothing"
    CHANGE = "change"  # what the verb has changed
    EARLIER = "earlier changes"  # what the answer says that others have changed
    NEW_JOB = "new job"  # the job that the answer names; if it cannot be stored, the answer is a refusal


class Reach(Enum):
    """Which servers carry out a verb, if several own functions (`cluster.mode = "owners"`)."""

    HERE = "the node that is asked"
    FUNCTION = "the owner of the function"
    SCHEDULE = "the owner of the function of the schedule"
    JOB = "the owner of the job"
    JOBS = "the owner of the job or function that is named, and otherwise all nodes"
    ALL = "all nodes"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a verb.  An argument whose default is None may also be given as null."""

    name: str
    kind: ArgumentKind
    help: str  # a sentence, which the command line shows too
    unit: str = ""
    default: Any = None
    required: bool = False
    option: str = ""  # its name on the command line, if that differs
    metavar: str = ""

    @property
    def flag(self) -> str:
        """The option of the command line, such as `--key-rate`, or several with spaces between them."""
        return self.option or "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class OperatorVerb:
    """One verb.  `command` and `library` say how the command line and the Python library reach it.

    Where one of them does not, the text is in parentheses and says why.
    """

    name: str
    help: str  # one sentence
    role: Role
    answer: Any  # the type of the answer, of `verbs.answers`; None if only text commands have the verb
    arguments: tuple[Argument, ...] = ()
    keeps: Keeps = Keeps.NOTHING
    is_long: bool = False  # runs in steps, between which the server does other work
    also: frozenset[Role] = frozenset()  # other roles that may use it
    reach: Reach = field(kw_only=True)  # no default: whoever adds a verb decides
    command: str = ""
    library: str = ""
    text_commands: tuple[str, ...] = ()  # commands of the text protocol that do the same, as gearmand formats it

    @property
    def changes(self) -> bool:
        """Whether the verb changes something that must be stored before the answer."""
        return self.keeps in (Keeps.CHANGE, Keeps.NEW_JOB)

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that may use the verb: any of them is enough."""
        return self.also | {self.role}

    @property
    def is_text_only(self) -> bool:
        """Whether only commands of the text protocol have the verb."""
        return self.answer is None

    def argument(self, name: str) -> Argument:
        """An argument by its name; raises KeyError."""
        found = next((argument for argument in self.arguments if argument.name == name), None)
        if found is None:
            raise KeyError(f"{self.name} has no argument {name}")
        return found


def checked(verb: OperatorVerb, given: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a verb: those given, checked, and the defaults of the others.

    Raises ValueError, which names the verb and the argument.
    """
    values: dict[str, Any] = {}
    for argument in verb.arguments:
        value = given.get(argument.name, argument.default)
        if value is None and argument.required:
            raise ValueError(f"{verb.name}: {argument.name} is missing: expected {argument.kind.expected}")
        if argument.name in given and not (value is None and argument.default is None):
            try:
                value = argument.kind.read(value)
            except ValueError as error:
                raise ValueError(f"{verb.name}: {argument.name}: {error}") from None
        values[argument.name] = value
    unknown = [name for name in given if name not in values]
    if unknown:
        known = ", ".join(values) or "none"
        raise ValueError(f"{verb.name}: there is no argument {unknown[0][:100]!r}; there are: {known}")
    return values


# --- arguments that several verbs have ---

FUNCTION_NAME: Final = Argument("function", PlainText(), "The name of a function.", required=True)
ONE_HANDLE: Final = Argument("handle", Handle(), "The handle of a job, or its number.", required=True)
SCHEDULE_NAME: Final = Argument("name", PlainText(MOST_NAME_BYTES), "The name of a schedule.", required=True)

FUNCTION: Final = Argument("function", PlainText(), "Only jobs of this function.", metavar="NAME")
STATES: Final = Argument(
    "states", WordList(STATE_NAMES), "Only jobs in this state; may be given several times.", option="--state"
)
UNIQUE: Final = Argument("unique", PlainText(), "Only jobs with this unique key.", metavar="KEY")
NAME: Final = Argument("name", PlainText(), "Only the job with this name.", metavar="NAME")
DEAD: Final = Argument("dead", Boolean(), "Only jobs that failed because their attempts were spent.", default=False)
ERROR: Final = Argument("error", PlainText(), "Only jobs whose error has this text in it.", metavar="TEXT")
SINCE: Final = Argument(
    "since",
    Number(LATEST_SECONDS),
    "Only jobs submitted since then: 2030-01-31T18:00, or seconds since the epoch.",
    unit="seconds since the epoch",
    default=0,
    metavar="WHEN",
)
UNTIL: Final = Argument(
    "until",
    Number(LATEST_SECONDS),
    "Only jobs submitted before then.",
    unit="seconds since the epoch",
    default=0,
    metavar="WHEN",
)
KEY: Final = Argument("key", PlainText(), "Only jobs with this key, for which limits may hold.", metavar="KEY")
CONTAINS: Final = Argument(
    "contains",
    PlainText(MOST_TEXT_BYTES),
    "Only jobs with this text in payload (of up to 64 KiB), name, unique key or error.",
    metavar="TEXT",
)
BEFORE_ID: Final = Argument(
    "before_id",
    Whole(),
    "Only jobs older than the one with this number.",
    default=0,
    option="--before",
    metavar="ID",
)
LIMIT: Final = Argument(
    "limit", Whole(1, MOST_JOBS, clamped=True), "The maximum number of jobs.", unit="jobs", default=100
)

OWNER: Final = Argument("owner", PlainText(MOST_NAME_BYTES), "The name of the app that declares it.")
BULK_ID: Final = Argument("id", PlainText(MOST_NAME_BYTES), "The id of a bulk action.")
HANDLE_OR_SELECTION: Final = replace(ONE_HANDLE, required=False)

_ONE_JOB: Final = frozenset({Role.SUBMIT})  # a submitter follows its jobs by their handles
_DECLARED: Final = frozenset({Role.WORK})  # a worker declares the limits and schedules of its program

_ROWS: Final = (
    # --- the server ---
    OperatorVerb(
        "server",
        "Show the state of the server, and what it holds in memory.",
        Role.READ,
        answers.ServerAnswer,
        reach=Reach.ALL,
        command="server",
        library="App.server",
        text_commands=("version", "getpid", "verbose"),
    ),
    OperatorVerb(
        "open_dashboard",
        "Say where the dashboard is; the server of an embedded directory opens it first.",
        Role.ADMIN,
        answers.DashboardAnswer,
        (
            Argument(
                "port",
                Whole(0, LARGEST_PORT),
                "The port on 127.0.0.1, if it is not open yet; 0 is 4740, or a free port if another program has that.",
                default=0,
            ),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(dashboard; it uses this verb for embedded directories)",
        library="(App.dashboard; it uses this verb for embedded directories)",
    ),
    OperatorVerb(
        "nodes",
        "List the servers that share the jobs in one PostgreSQL; none if the server is not one of several.",
        Role.READ,
        list[answers.NodeAnswer],
        reach=Reach.HERE,
        command="nodes",
        library="App.nodes",
    ),
    OperatorVerb(
        "overview",
        "Show jobs, rates, workers and alarms of the whole server.",
        Role.READ,
        live_answers.OverviewAnswer,
        is_long=True,
        reach=Reach.ALL,
        command="top",
        library="(App.server has the state of the server)",
    ),
    OperatorVerb(
        "flows",
        "Count jobs by the protocol they came by and the protocol of the workers that ran them.",
        Role.READ,
        live_answers.FlowsAnswer,
        reach=Reach.ALL,
        command="(GET /v1/flows over HTTP)",
        library="(for programs that watch a server; GET /v1/flows over HTTP)",
    ),
    OperatorVerb(
        "series",
        "Show figures of a function, or of all together, over time.",
        Role.READ,
        live_answers.SeriesAnswer,
        (
            Argument("function", PlainText(), "Only this function; `other` for those without series of their own."),
            Argument("metrics", WordList(SERIES_METRICS), "Which figures; default: all."),
            Argument(
                "since",
                Number(LATEST_SECONDS),
                "From this time on; default: an hour before the end.",
                unit="seconds since the epoch",
            ),
            Argument("until", Number(LATEST_SECONDS), "Up to this time; default: now.", unit="seconds since the epoch"),
            Argument("step", Whole(0, 3600), "10, 60, 600 or 3600; 0: what fits the time.", unit="seconds", default=0),
            Argument("names", Boolean(), "Also name the functions that have series of their own.", default=False),
        ),
        is_long=True,
        reach=Reach.ALL,
        command="(GET /v1/series over HTTP)",
        library="(for programs that watch a server; GET /v1/series over HTTP)",
    ),
    OperatorVerb(
        "stream",
        "Show recent attempts with their worker, start and end; recorded while a client requests them.",
        Role.READ,
        live_answers.StreamAnswer,
        (
            Argument(
                "since",
                Number(LATEST_SECONDS),
                "Only attempts that ended since then.",
                unit="seconds since the epoch",
                default=0,
            ),
            Argument("cursor", Whole(), "Only attempts after those of another answer: its `next`."),
            Argument(
                "limit",
                Whole(1, MOST_STREAM_ROWS, clamped=True),
                "The maximum number of attempts; of more, some are left out.",
                default=1000,
            ),
            Argument("seconds", Number(60, 1), "Go on recording for so long; default: 30 seconds.", unit="seconds"),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(GET /v1/stream over HTTP)",
        library="(for programs that watch a server; GET /v1/stream over HTTP)",
    ),
    OperatorVerb(
        "at",
        "Show the state of the server at an earlier time: figures of functions, and running jobs.",
        Role.READ,
        live_answers.PastAnswer,
        (Argument("t", Number(LATEST_SECONDS), "The time.", unit="seconds since the epoch", required=True),),
        is_long=True,
        reach=Reach.ALL,
        command="(GET /v1/at over HTTP)",
        library="(for programs that watch a server; GET /v1/at over HTTP)",
    ),
    OperatorVerb(
        "runs",
        "Show which worker ran which job from when to when in an earlier time, from the job log.",
        Role.READ,
        live_answers.RunsAnswer,
        (
            Argument(
                "since", Number(LATEST_SECONDS), "The begin of the time.", unit="seconds since the epoch", required=True
            ),
            Argument(
                "until", Number(LATEST_SECONDS), "The end of the time.", unit="seconds since the epoch", required=True
            ),
            Argument(
                "limit",
                Whole(1, MOST_STREAM_ROWS, clamped=True),
                "About how many runs; of more, some are left out.",
                unit="runs",
                default=2000,
            ),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(switchgear log, which reads the database)",
        library="(for programs that watch a server; GET /v1/runs over HTTP)",
    ),
    OperatorVerb(
        "storage",
        "Show durations of commits, pending changes, and file sizes of the store.",
        Role.READ,
        live_answers.StorageAnswer,
        is_long=True,
        reach=Reach.ALL,
        command="(GET /v1/storage over HTTP)",
        library="(for programs that watch a server; GET /v1/storage over HTTP)",
    ),
    OperatorVerb(
        "connections",
        "List the connections that use the most memory.",
        Role.READ,
        answers.ConnectionsAnswer,
        (
            Argument(
                "limit",
                Whole(1, MOST_CONNECTIONS, clamped=True),
                "The maximum number of connections.",
                unit="connections",
                default=100,
            ),
        ),
        is_long=True,
        reach=Reach.ALL,
        command="server --connections",
        library="App.connections",
    ),
    OperatorVerb(
        "explain_server",
        "Show why submissions are refused, and which function and connection use the most memory if it is full.",
        Role.READ,
        answers.ServerExplanation,
        is_long=True,
        also=_ONE_JOB,
        reach=Reach.ALL,
        command="explain",
        library="App.explain_server",
    ),
    OperatorVerb(
        "workers",
        "List connected workers.",
        Role.READ,
        list[answers.WorkerAnswer],
        is_long=True,
        reach=Reach.ALL,
        command="workers",
        library="App.workers",
        text_commands=("workers",),
    ),
    OperatorVerb(
        "control_workers",
        "Tell workers to report, to stop, to restart, to have another number of slots, or a text.",
        Role.OPERATE,
        answers.ControlWorkersAnswer,
        (
            Argument("action", Word(WORKER_ACTIONS), "What the workers are to do.", required=True),
            Argument(
                "workers",
                PlainText(256),
                "A name of workers, the first parts of names, a pattern, or an id.",
                default="*",
            ),
            Argument("slots", Whole(1, 10_000), "With resize: the number of slots.", unit="jobs", metavar="N"),
            Argument("text", PlainText(60_000), "With broadcast: the text.", metavar="TEXT"),
        ),
        is_long=True,
        reach=Reach.ALL,
        command="control",
        library="App.control_workers",
    ),
    OperatorVerb(
        "audit",
        "List actions of operators and refusals, newest first.",
        Role.OPERATE,
        answers.AuditPage,
        (
            replace(SINCE, help="Only actions since then: 2030-01-31T18:00, or seconds since the epoch."),
            replace(BEFORE_ID, help="Only entries older than the one with this number."),
            replace(LIMIT, help="The maximum number of entries.", unit="entries"),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(switchgear log --audit, which reads the database)",
        library="(for programs that watch a server; GET /v1/audit over HTTP)",
    ),
    # --- functions ---
    OperatorVerb(
        "functions",
        "List functions with their queues and workers.",
        Role.READ,
        list[answers.FunctionAnswer],
        is_long=True,
        reach=Reach.ALL,
        command="functions",
        library="App.functions",
        text_commands=("status", "prioritystatus"),
    ),
    OperatorVerb(
        "times",
        "Show how long the jobs of a function wait and run.",
        Role.READ,
        live_answers.TimesAnswer,
        (FUNCTION_NAME,),
        reach=Reach.FUNCTION,
        command="(GET /v1/functions/{function}/times over HTTP)",
        library="(for programs that watch a server; over HTTP)",
    ),
    OperatorVerb(
        "keys",
        "List the keys of a function with limits by key, those with most ready jobs first.",
        Role.READ,
        live_answers.KeysAnswer,
        (
            FUNCTION_NAME,
            Argument("limit", Whole(1, MOST_JOBS, clamped=True), "The maximum number of keys.", default=100),
        ),
        is_long=True,
        reach=Reach.FUNCTION,
        command="(GET /v1/functions/{function}/keys over HTTP)",
        library="(for programs that watch a server; over HTTP)",
    ),
    OperatorVerb(
        "pause",
        "Stop starting jobs of a function.",
        Role.OPERATE,
        answers.PauseAnswer,
        (FUNCTION_NAME,),
        Keeps.CHANGE,
        reach=Reach.FUNCTION,
        command="pause",
        library="App.pause",
    ),
    OperatorVerb(
        "resume",
        "Start jobs of a paused function again.",
        Role.OPERATE,
        answers.PauseAnswer,
        (FUNCTION_NAME,),
        Keeps.CHANGE,
        reach=Reach.FUNCTION,
        command="resume",
        library="App.resume",
    ),
    OperatorVerb(
        "limit",
        "Set how many jobs of a function may run, and how often one may start; without limits, show them.",
        Role.OPERATE,
        answers.LimitAnswer,
        (
            FUNCTION_NAME,
            Argument("concurrency", Whole(), "Most jobs that run at once; 0: any number.", unit="jobs", metavar="N"),
            Argument(
                "rate",
                StartRate(),
                "Most starts in a time, such as 10/s or 100/h; none: any.",
                unit="starts, seconds",
                metavar="N/TIME",
            ),
            Argument(
                "key_concurrency", Whole(), "Most jobs of each key that run at once; 0: any.", unit="jobs", metavar="N"
            ),
            Argument(
                "key_rate",
                StartRate(),
                "Most starts of each key in a time.",
                unit="starts, seconds",
                metavar="N/TIME",
            ),
            Argument(
                "fair",
                Boolean(),
                "Serve keys in turn, or jobs in the order of their arrival.",
                option="--fair/--no-fair",
            ),
            OWNER,
        ),
        Keeps.CHANGE,
        also=_DECLARED,
        reach=Reach.FUNCTION,
        command="limit",
        library="App.limit",
    ),
    OperatorVerb(
        "place",
        "Put a function at the server of another one, if several own functions; without options, show where it is.",
        Role.OPERATE,
        answers.PlaceAnswer,
        (
            FUNCTION_NAME,
            Argument(
                "beside",
                PlainText(),
                "In the partition of this function, so that both have the same owner.",
                metavar="FUNCTION",
            ),
            Argument("partition", Whole(0, PARTITIONS - 1), "In the partition with this number.", metavar="N"),
            Argument("by_name", Boolean(), "In the partition that follows from its name, as before it was placed."),
        ),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.FUNCTION,
        command="place",
        library="App.place",
    ),
    OperatorVerb(
        "queue_limits",
        "Set how many jobs of a function may be queued, by priority.",
        Role.OPERATE,
        None,
        keeps=Keeps.CHANGE,
        reach=Reach.FUNCTION,
        command="(gearadmin and other clients of the text protocol)",
        library="(gearadmin and other clients of the text protocol)",
        text_commands=("maxqueue",),
    ),
    OperatorVerb(
        "create_function",
        "Let there be a function without jobs and workers.",
        Role.OPERATE,
        None,
        reach=Reach.FUNCTION,
        command="(a function appears with its first job or worker)",
        library="(a function appears with its first job or worker)",
        text_commands=("create",),
    ),
    OperatorVerb(
        "drop_function",
        "Forget a function that has no jobs and no workers.",
        Role.OPERATE,
        None,
        keeps=Keeps.CHANGE,
        reach=Reach.FUNCTION,
        command="(the server forgets unused functions when it needs room)",
        library="(the server forgets unused functions when it needs room)",
        text_commands=("drop",),
    ),
    # --- jobs ---
    OperatorVerb(
        "jobs",
        "List jobs that match, newest first, finished ones included as long as the server keeps them.",
        Role.READ,
        answers.JobsPage,
        (FUNCTION, STATES, UNIQUE, NAME, DEAD, ERROR, KEY, CONTAINS, SINCE, UNTIL, BEFORE_ID, LIMIT),
        is_long=True,
        reach=Reach.ALL,
        command="jobs",
        library="App.jobs",
        text_commands=("show",),
    ),
    OperatorVerb(
        "job",
        "Show one job: its state, what it was given, what came of it, and its history.",
        Role.READ,
        answers.JobAnswer,
        (
            ONE_HANDLE,
            Argument("contents", Boolean(), "With its payload and its result.", default=True),
            Argument(
                "workers",
                Boolean(),
                "Also look up in the job log which workers made the attempts.",
                default=False,
            ),
        ),
        also=_ONE_JOB,
        is_long=True,
        reach=Reach.JOB,
        command="job",
        library="Job.status",
    ),
    OperatorVerb(
        "errors",
        "Group failed jobs of the history by function and error.",
        Role.READ,
        live_answers.ErrorsAnswer,
        (
            FUNCTION,
            Argument(
                "since",
                Number(LATEST_SECONDS),
                "Only jobs that failed since then.",
                unit="seconds since the epoch",
                default=0,
            ),
            Argument("limit", Whole(1, MOST_JOBS, clamped=True), "The maximum number of groups.", default=100),
        ),
        is_long=True,
        reach=Reach.HERE,
        command="(GET /v1/errors over HTTP; switchgear jobs --state failed lists the jobs)",
        library="(for programs that watch a server; GET /v1/errors over HTTP)",
    ),
    OperatorVerb(
        "graph",
        "Show the unfinished jobs of a graph in groups, where it goes on, and why it is stuck.",
        Role.READ,
        live_answers.GraphAnswer,
        (
            FUNCTION,
            replace(NAME, help="Only jobs whose names begin with this."),
            replace(HANDLE_OR_SELECTION, help="Only jobs that are connected with this one."),
        ),
        is_long=True,
        reach=Reach.JOBS,
        command="(GET /v1/graph over HTTP; switchgear dwork graph draws small graphs)",
        library="(for programs that watch a server; GET /v1/graph over HTTP)",
    ),
    OperatorVerb(
        "states",
        "Tell the states of many jobs.",
        Role.READ,
        answers.StatesAnswer,
        (Argument("handles", HandleList(MOST_HANDLES), "The handles of jobs.", required=True),),
        is_long=True,
        also=_ONE_JOB,
        reach=Reach.ALL,
        command="(for programs that follow many jobs; switchgear job shows one)",
        library="JobGroup.counts",
    ),
    OperatorVerb(
        "explain",
        "Say why a job waits, where it runs, or how it ended.",
        Role.READ,
        answers.JobExplanation,
        (ONE_HANDLE,),
        also=_ONE_JOB,
        is_long=True,
        reach=Reach.JOB,
        command="explain",
        library="Job.explain",
    ),
    OperatorVerb(
        "cancel",
        "Cancel a job, or the unfinished jobs that match.",
        Role.OPERATE,
        answers.CancelAnswer,
        (
            HANDLE_OR_SELECTION,
            Argument("cascade", Boolean(), "Cancel also the jobs that wait for these, and so on.", default=False),
            FUNCTION,
            replace(STATES, kind=WordList(UNFINISHED_NAMES)),
            UNIQUE,
            NAME,
            ERROR,
            KEY,
            SINCE,
            UNTIL,
            BEFORE_ID,
            LIMIT,
        ),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.JOBS,
        command="cancel",
        library="Job.cancel, App.cancel_all",
        text_commands=("cancel",),
    ),
    OperatorVerb(
        "retry",
        "Run a job that ended without success again, or those that match, with all their attempts.",
        Role.OPERATE,
        answers.RetryAnswer,
        (
            HANDLE_OR_SELECTION,
            FUNCTION,
            replace(STATES, kind=WordList(UNSUCCESSFUL_NAMES)),
            UNIQUE,
            NAME,
            replace(DEAD, option="--dead --all-dead"),
            Argument("all_dead", Boolean(), "An older name of dead.", default=False),
            ERROR,
            KEY,
            SINCE,
            UNTIL,
            BEFORE_ID,
            replace(LIMIT, default=MOST_JOBS),
        ),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.JOBS,
        command="retry",
        library="Job.retry, App.retry_all",
    ),
    OperatorVerb(
        "bulk",
        "Cancel or retry all jobs that match, however many; the work goes on by itself after the answer.",
        Role.OPERATE,
        answers.BulkProgress,
        (
            Argument("action", Word(tuple(BULK_STATES)), "What is done to each job.", required=True),
            Argument("handles", HandleList(MOST_HANDLES), "The jobs, in place of a selection."),
            Argument("cascade", Boolean(), "Cancel also the jobs that wait for these, and so on.", default=False),
            FUNCTION,
            replace(STATES, kind=WordList(UNFINISHED_NAMES + UNSUCCESSFUL_NAMES)),
            UNIQUE,
            NAME,
            DEAD,
            ERROR,
            KEY,
            SINCE,
            UNTIL,
            Argument("limit", Whole(1), "At most so many of those that match, the newest.", unit="jobs"),
            Argument("expect", Whole(), "Refuse if another number of jobs matches.", unit="jobs"),
            Argument("dry_run", Boolean(), "Only say which jobs match.", default=False),
        ),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.ALL,
        command="(cancel and retry use it for more than 1,000 jobs)",
        library="App.bulk",
    ),
    OperatorVerb(
        "bulk_actions",
        "Show how far bulk actions are, the oldest first.",
        Role.READ,
        list[answers.BulkProgress],
        (BULK_ID,),
        Keeps.EARLIER,
        reach=Reach.ALL,
        command="(cancel and retry show the progress of theirs)",
        library="BulkOperation.refresh",
    ),
    OperatorVerb(
        "abort_bulk",
        "Abort a bulk action; what it has changed stays changed.",
        Role.OPERATE,
        answers.BulkProgress,
        (replace(BULK_ID, required=True),),
        Keeps.EARLIER,
        reach=Reach.ALL,
        command="(Ctrl-C in cancel and retry aborts theirs)",
        library="BulkOperation.abort",
    ),
    OperatorVerb(
        "change",
        "Change the priority or the run-at time of a job that waits, is scheduled or is ready.",
        Role.OPERATE,
        answers.JobSummary,
        (
            ONE_HANDLE,
            Argument(
                "priority",
                Word(PRIORITY_NAMES),
                "A ready job goes to the end of the queue of its new priority.",
            ),
            Argument(
                "run_at",
                Number(LATEST_SECONDS),
                "Do not start the job earlier; 0: start it as soon as possible.",
                unit="seconds since the epoch",
                option="--at",
                metavar="WHEN",
            ),
        ),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.JOB,
        command="change",
        library="Job.change",
    ),
    OperatorVerb(
        "complete",
        "Complete a job that does not run with a result, without running it.",
        Role.OPERATE,
        answers.JobSummary,
        (ONE_HANDLE, Argument("result", PayloadText(), "The result of the job.", default=b"")),
        Keeps.CHANGE,
        is_long=True,
        also=_ONE_JOB | _DECLARED,  # for events; see `net.operations.verb_access`
        reach=Reach.JOB,
        command="(signal; it completes the job of an event)",
        library="Job.complete",
    ),
    OperatorVerb(
        "wait_for",
        "Let an unfinished job wait for others; a running one is taken from its worker, and runs again after them.",
        Role.WORK,
        answers.WaitForAnswer,
        (
            ONE_HANDLE,
            Argument("after", HandleList(MOST_HANDLES), "The jobs to wait for.", required=True),
            Argument("on_failure", Word(EDGE_POLICY_NAMES), "If one of them does not succeed.", default="run"),
        ),
        Keeps.CHANGE,
        is_long=True,
        also=_ONE_JOB,
        reach=Reach.JOB,
        command="(for running tasks)",
        library="(CurrentJob.wait_for and others in a running task use it)",
    ),
    OperatorVerb(
        "spawn",
        "Let all jobs that wait for an unfinished job wait for others too.",
        Role.WORK,
        answers.SpawnAnswer,
        (ONE_HANDLE, Argument("jobs", HandleList(MOST_HANDLES), "The jobs to wait for.", required=True)),
        Keeps.CHANGE,
        is_long=True,
        also=_ONE_JOB,
        reach=Reach.JOB,
        command="(for running tasks)",
        library="(CurrentJob.spawn in a running task uses it)",
    ),
    # --- schedules ---
    OperatorVerb(
        "schedule",
        "Add a schedule, or change the one of that name.",
        Role.OPERATE,
        answers.ScheduleAnswer,
        (
            SCHEDULE_NAME,
            Argument("function", PlainText(MOST_NAME_BYTES), "The function of its jobs.", required=True),
            Argument("payload", PayloadText(), "What each job carries.", default=b""),
            Argument("cron", PlainText(), "When: a cron expression.", default="", metavar="EXPRESSION"),
            Argument(
                "every_seconds",
                Number(LONGEST_INTERVAL_SECONDS),
                "When: an interval in seconds, counted from the epoch.",
                unit="seconds",
                default=0,
                option="--every",
                metavar="SECONDS",
            ),
            Argument(
                "timezone",
                PlainText(),
                "By which clocks a cron expression goes. Default: UTC.",
                default="",
                metavar="ZONE",
            ),
            Argument(
                "catch_up",
                Word(CATCH_UP_NAMES),
                "Which of the ticks that were missed are made up for; of all, the last 1,000.",
                default="latest",
            ),
            Argument("overlap", Boolean(), "Make a job even while the last one is unfinished.", default=False),
            Argument("options", JsonObject(), "The options of each job, as of a single job."),
            OWNER,
        ),
        Keeps.CHANGE,
        also=_DECLARED,
        is_long=True,
        reach=Reach.SCHEDULE,
        command="schedule add",
        library="App.declare",
    ),
    OperatorVerb(
        "declare",
        "Remove the schedules and limits that an app has declared earlier and declares no more, or only name them.",
        Role.OPERATE,
        answers.DeclareAnswer,
        (
            replace(OWNER, required=True),
            Argument("schedules", NameList(MOST_HANDLES), "The schedules that it declares now.", required=True),
            Argument("functions", NameList(MOST_HANDLES), "The functions that it declares limits of.", required=True),
            Argument("remove", Boolean(), "Remove them, or only name them.", default=True),
        ),
        Keeps.CHANGE,
        is_long=True,
        also=_DECLARED,
        reach=Reach.ALL,
        command="(workers do it when they start)",
        library="App.declare",
    ),
    OperatorVerb(
        "schedules",
        "List the jobs that the server makes by itself.",
        Role.READ,
        list[answers.ScheduleAnswer],
        is_long=True,
        reach=Reach.ALL,
        command="schedules",
        library="AppSchedules.list",
    ),
    OperatorVerb(
        "unschedule",
        "Remove a schedule; the jobs that it has made stay.",
        Role.OPERATE,
        answers.UnscheduleAnswer,
        (SCHEDULE_NAME,),
        Keeps.CHANGE,
        reach=Reach.SCHEDULE,
        command="schedule remove",
        library="AppSchedules.remove",
    ),
    OperatorVerb(
        "pause_schedule",
        "Let the ticks of a schedule pass without a job.",
        Role.OPERATE,
        answers.ScheduleAnswer,
        (SCHEDULE_NAME,),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.SCHEDULE,
        command="schedule pause",
        library="AppSchedules.pause",
    ),
    OperatorVerb(
        "resume_schedule",
        "Go on with the next tick of a paused schedule.",
        Role.OPERATE,
        answers.ScheduleAnswer,
        (SCHEDULE_NAME,),
        Keeps.CHANGE,
        is_long=True,
        reach=Reach.SCHEDULE,
        command="schedule resume",
        library="AppSchedules.resume",
    ),
    OperatorVerb(
        "run_schedule",
        "Make a job of a schedule at once, apart from its ticks.",
        Role.OPERATE,
        answers.RunScheduleAnswer,
        (SCHEDULE_NAME,),
        Keeps.NEW_JOB,
        reach=Reach.SCHEDULE,
        command="schedule run",
        library="AppSchedules.run",
    ),
    # --- stopping ---
    OperatorVerb(
        "shutdown",
        "Stop the server, at once or when the running jobs have ended.",
        Role.ADMIN,
        None,
        reach=Reach.HERE,
        command="(send the process SIGTERM, or use gearadmin --shutdown)",
        library="(a program does not stop the server of others)",
        text_commands=("shutdown",),
    ),
)

VERBS: Final[Mapping[str, OperatorVerb]] = {row.name: row for row in _ROWS}
