"""The table of job options, with types, units, defaults and ranges.

Everything that knows job options is made from `JOB_OPTIONS` or checked against it: the JSON options of
SUBMIT_JOB_OPTIONS, the options of schedules, the command line, the Python library, the engine's `SubmitOptions`, the
job itself, the rows of the store, and the table in docs/job-options.md.  docs/howto/add-a-job-option.md says how to
add one.

An option has one name.  In the engine and in the store a time has its unit in its name too: `timeout` is `timeout_us`.
Where an interface has a different form of an option, such as a time from now on instead of a moment, the row says so.

Values are checked here and nowhere else; `JobOption.read` raises `OptionError`, whose text begins with the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import ceil
from typing import Any, Final

import msgspec

from switchgear.errors import OptionError
from switchgear.resources import canonical_requirements, shown_requirements
from switchgear.states import PRIORITY_NAMES, EdgePolicy, UniquePolicy, UniqueScope
from switchgear.trace_context import TRACEPARENT_BYTES, is_traceparent

__all__ = [
    "JOB_OPTIONS",
    "JOB_OPTION_NAMED",
    "SCHEDULE_OPTIONS",
    "SERVERS_SETTING",
    "JobOption",
    "Kept",
    "OptionKind",
    "canonical_names",
    "json_struct",
]

SECOND_US: Final = 1_000_000
DAY_SECONDS: Final = 24 * 3600
YEAR_SECONDS: Final = 366 * DAY_SECONDS
MOST_SECONDS: Final = 100_000 * YEAR_SECONDS
MOST_COUNT: Final = 1_000_000
# As many as in dwork. The handles are read in one turn, some ten milliseconds of it; the rest is done in slices.
MOST_PREDECESSORS: Final = 100_000
MOST_LABEL_BYTES: Final = 256

SERVERS_SETTING: Final = -1  # for counts and the retention: not given, so the server's setting applies


class OptionKind(Enum):
    """The type of a value: how it is written, and its form in the engine."""

    FLAG = auto()
    COUNT = auto()  # a whole number; -1: not given
    SPAN = auto()  # seconds; whole microseconds in the engine
    MOMENT = auto()  # seconds since the epoch; whole microseconds in the engine
    TEXT = auto()  # bytes in the engine
    CHOICE = auto()  # one of some words; their index in the engine
    CHOICES = auto()  # one of some words for all predecessors, or one for each
    HANDLES = auto()  # handles of jobs; their ids in the engine
    TRACE = auto()  # a traceparent of W3C Trace Context; bytes in the engine
    REQUIREMENTS = auto()  # tags and amounts with commas, or a list of them; bytes with commas in the engine


class Kept(Enum):
    """Where the store saves the value of an option."""

    COLUMN = "a column"
    PACKED = "packed"  # with the other rare fields of a job, in one column
    NOT = "not stored"  # only used at the submission


@dataclass(frozen=True, slots=True, eq=False)
class JobOption:
    """One job option: its name, type, default, range and help text."""

    name: str
    kind: OptionKind
    help: str  # for the command line: the effect, from the submitter's point of view
    default: Any  # in the engine
    kept: Kept
    example: Any  # a value as JSON, other than the default
    field: str = ""  # the field of `SubmitOptions` and `Job`; by default the name, with the unit of a time
    most: int = 0  # the maximum of counts, seconds, bytes or handles; 0: the setting `limits.name_bytes`
    words: tuple[str, ...] = ()
    old_names: tuple[str, ...] = ()  # accepted as well
    is_shared: bool = False  # equal for many jobs, so that they can share a `Details` object
    said_by: str = "Gearman, HTTP"  # the protocols in which a submitter can set it
    schedule: str = ""  # its name in a schedule, if jobs of schedules can have it
    python: tuple[str, ...] = ()  # its names in the Python library
    python_remark: str = ""  # differences there
    command_line: str = ""  # `--name` of `switchgear submit`
    metavar: str = ""

    def __post_init__(self) -> None:
        if not self.field:
            has_unit = self.kind in (OptionKind.SPAN, OptionKind.MOMENT)
            object.__setattr__(self, "field", f"{self.name}_us" if has_unit else self.name)

    @property
    def schedule_field(self) -> str:
        """The field of `Schedule`, in which a time is counted from the tick."""
        return f"{self.schedule}_after_us" if self.kind is OptionKind.MOMENT else self.field

    @property
    def json_type(self) -> Any:
        """The type of the value in JSON."""
        if self.kind is OptionKind.SPAN and self.default == SERVERS_SETTING:
            return float | None
        return JSON_TYPES[self.kind]

    @property
    def json_default(self) -> Any:
        """The JSON value that means "not given"."""
        if self.kind in (OptionKind.SPAN, OptionKind.MOMENT):
            return None if self.default == SERVERS_SETTING else 0.0
        if self.kind in (OptionKind.CHOICE, OptionKind.CHOICES):
            return self.words[self.default]
        if self.kind in (OptionKind.HANDLES, OptionKind.REQUIREMENTS):
            return []
        return "" if self.kind in (OptionKind.TEXT, OptionKind.TRACE) else self.default

    def read(self, value: Any, *, name_bytes: int = 0, called: str = "") -> Any:
        """Convert a JSON value of the right type to the engine's value; raises OptionError.

        `name_bytes` is the maximum length of a text unless the row has one. `called` is the name that the peer used.
        """
        name = called or self.name
        if self.kind in (OptionKind.SPAN, OptionKind.MOMENT):
            return self._microseconds(value, name)
        if self.kind is OptionKind.COUNT:
            return max(SERVERS_SETTING, min(value, self.most))  # a million and ten million make no difference
        if self.kind is OptionKind.TEXT:
            return self._encoded(value, self.most or name_bytes, name)
        if self.kind is OptionKind.TRACE:
            return self._traceparent(value, name)
        if self.kind is OptionKind.CHOICE:
            return self.index_of(value, name)
        if self.kind is OptionKind.REQUIREMENTS:
            try:
                return canonical_requirements(value)
            except ValueError as error:
                raise OptionError(name, f"is a list of tags and amounts: {error}") from None
        return value

    def show(self, value: Any) -> Any:
        """Convert a value of the engine to JSON; the opposite of `read`. Texts are left to the caller."""
        if self.kind in (OptionKind.SPAN, OptionKind.MOMENT):
            return None if value < 0 else value / SECOND_US
        if self.kind is OptionKind.REQUIREMENTS:
            return shown_requirements(value)
        return self.words[value] if self.kind is OptionKind.CHOICE else value

    def index_of(self, word: str, name: str = "") -> int:
        """The index of one of the words; raises OptionError."""
        if word not in self.words:
            raise OptionError(name or self.name, f"is one of {', '.join(self.words)}, not {word!r}")
        return self.words.index(word)

    def _microseconds(self, seconds: float | None, name: str) -> int:
        if seconds is None:
            return SERVERS_SETTING
        if not 0 <= seconds < MOST_SECONDS:
            raise OptionError(name, "is out of range: it is a number of seconds from 0 up")
        if self.most and seconds > self.most:
            raise OptionError(name, f"is at most {self.most}, which is {self.most // DAY_SECONDS} days")
        return ceil(seconds * SECOND_US)

    def _traceparent(self, text: str, name: str) -> bytes:
        data = text.encode()
        if data and not is_traceparent(data):
            raise OptionError(name, "is a traceparent, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        return data

    def _encoded(self, text: str, most_bytes: int, name: str) -> bytes:
        data = text.encode()
        if len(data) > most_bytes:
            raise OptionError(name, f"has at most {most_bytes} bytes", is_too_large=True)
        if b"\0" in data:
            raise OptionError(name, "has a NUL")
        return data


JSON_TYPES: Final[Mapping[OptionKind, Any]] = {
    OptionKind.FLAG: bool,
    OptionKind.COUNT: int,
    OptionKind.SPAN: float,
    OptionKind.MOMENT: float,
    OptionKind.TEXT: str,
    OptionKind.TRACE: str,
    OptionKind.CHOICE: str,
    OptionKind.CHOICES: str | list[str],
    OptionKind.HANDLES: list[str],
    OptionKind.REQUIREMENTS: str | list[str],
}


def _words(policies: type[EdgePolicy | UniquePolicy | UniqueScope]) -> tuple[str, ...]:
    return tuple(policy.name.lower() for policy in policies)


JOB_OPTIONS: Final[Sequence[JobOption]] = (
    JobOption(
        "wait",
        OptionKind.FLAG,
        "Send the results to the submitter; drop the job if the submitter disconnects before it runs.",
        default=False,
        kept=Kept.COLUMN,
        field="delivery",
        example=True,
        said_by="every protocol, by its kinds of submissions",
        python=("durable",),
        python_remark="the opposite",
    ),
    JobOption(
        "watch",
        OptionKind.FLAG,
        "Send the results of a background job to the submitter.",
        default=False,
        kept=Kept.NOT,
        example=True,
        said_by="Gearman",
    ),
    JobOption(
        "priority",
        OptionKind.CHOICE,
        "The priority of the job among the jobs of its function.",
        default=PRIORITY_NAMES.index("normal"),
        kept=Kept.COLUMN,
        words=PRIORITY_NAMES,
        example="high",
        said_by="Gearman, HTTP, GearMonkey, bridge",
        schedule="priority",
        python=("priority",),
        command_line="--priority",
    ),
    JobOption(
        "run_at",
        OptionKind.MOMENT,
        "Do not start the job before this time.",
        default=0,
        kept=Kept.COLUMN,
        example=4_000_000_000.5,
        said_by="Gearman, HTTP, GearMonkey",
        python=("at", "delay"),
        python_remark="`delay` counts from the submission",
        command_line="--at",
    ),
    JobOption(
        "expires_at",
        OptionKind.MOMENT,
        "The job expires if it has not started by this time.",
        default=0,
        kept=Kept.PACKED,
        field="expires_us",
        example=4_000_000_001.5,
        schedule="expires",  # counted from the tick
        python=("expires",),
        python_remark="counts from the submission",
        command_line="--expires",
    ),
    JobOption(
        "timeout",
        OptionKind.SPAN,
        "The longest run of one attempt; after that the server takes the job from its worker.",
        default=0,
        kept=Kept.PACKED,
        example=1.5,
        is_shared=True,
        schedule="timeout",
        python=("timeout",),
        command_line="--run-timeout",  # --timeout is how long `submit` waits
    ),
    JobOption(
        "attempts_limit",
        OptionKind.COUNT,
        "The maximum number of starts if workers are lost or time out; 0 for no limit.",
        default=SERVERS_SETTING,
        kept=Kept.PACKED,
        most=MOST_COUNT,
        example=7,
        old_names=("attempts",),
        is_shared=True,
        schedule="attempts_limit",
        python=("retries",),
        python_remark="one less: the first attempt is no retry",
        command_line="--attempts-limit",
        metavar="N",
    ),
    JobOption(
        "crash_limit",
        OptionKind.COUNT,
        "The job is dead after this many lost workers; 0 for no limit. Lost workers then do not count as attempts.",
        default=SERVERS_SETTING,
        kept=Kept.PACKED,
        most=MOST_COUNT,
        example=2,
        old_names=("crashes",),
        is_shared=True,
        schedule="crash_limit",
        python=("crash_limit",),
        command_line="--crash-limit",
        metavar="N",
    ),
    JobOption(
        "after",
        OptionKind.HANDLES,
        "Do not start the job before this one is done; may be given several times.",
        default=(),
        kept=Kept.PACKED,
        field="predecessors",
        most=MOST_PREDECESSORS,
        example=["H:host:1"],
        said_by="Gearman, HTTP, dwork (by name)",
        python=("after",),
        command_line="--after",
        metavar="HANDLE",
    ),
    JobOption(
        "on_failure",
        OptionKind.CHOICES,
        "What happens to the job if one of those does not succeed.",
        default=0,
        kept=Kept.PACKED,
        field="edges",
        words=_words(EdgePolicy),
        example="run",
        python=("on_failure",),
        command_line="--on-failure",
    ),
    JobOption(
        "name",
        OptionKind.TEXT,
        "A name that no other unfinished job has.",
        default=b"",
        kept=Kept.COLUMN,
        example="nightly",
        said_by="Gearman, HTTP, dwork, bridge",
    ),
    JobOption(
        "reducer",
        OptionKind.TEXT,
        "The function to which a worker sends the parts of the result.",
        default=b"",
        kept=Kept.PACKED,
        most=64,
        example="sum",
    ),
    JobOption(
        "key",
        OptionKind.TEXT,
        "The key of the job, for limits per key and fair sharing.",
        default=b"",
        kept=Kept.PACKED,
        example="tenant-1",
        schedule="key",
        python=("key",),
        command_line="--key",
        metavar="KEY",
    ),
    JobOption(
        "label",
        OptionKind.TEXT,
        "A text that lists and the log show next to the function.",
        default=b"",
        kept=Kept.PACKED,
        most=MOST_LABEL_BYTES,
        example="order-17",
        python=("label",),
        command_line="--label",
        metavar="TEXT",
    ),
    JobOption(
        "unique_scope",
        OptionKind.CHOICE,
        "How long the job holds its unique key: until it ends, or until it starts.",
        default=0,
        kept=Kept.PACKED,
        words=_words(UniqueScope),
        example="queued",
        python=("unique_scope",),
        command_line="--unique-scope",
    ),
    JobOption(
        "unique_policy",
        OptionKind.CHOICE,
        "What happens if another job holds the unique key.",
        default=0,
        kept=Kept.NOT,
        words=_words(UniquePolicy),
        example="reject",
        python=("unique_policy",),
        command_line="--unique-policy",
    ),
    JobOption(
        "unique_for",
        OptionKind.SPAN,
        "The job holds its unique key for at least this long, even if it ends earlier.",
        default=0,
        kept=Kept.COLUMN,  # as a time, `unique_until_us`
        most=30 * DAY_SECONDS,  # the job is kept in memory for as long
        example=60.0,
        old_names=("unique_seconds",),
        python=("unique_for",),
        command_line="--unique-for",
    ),
    JobOption(
        "retention",
        OptionKind.SPAN,
        "How long the server keeps the job after its end. Default: the server's setting.",
        default=SERVERS_SETTING,
        kept=Kept.PACKED,
        example=9.5,
        is_shared=True,
        schedule="retention",
        python=("retention",),
        command_line="--retention",
    ),
    JobOption(
        "requires",
        OptionKind.REQUIREMENTS,
        "The tags and amounts of resources that a worker needs to run the job, such as gpu,memory=64G.",
        default=b"",
        kept=Kept.PACKED,
        example=["gpu", "memory=64G"],
        is_shared=True,
        schedule="requires",
        python=("requires",),
        command_line="--requires",
        metavar="NEEDS",
    ),
    JobOption(
        "trace",
        OptionKind.TRACE,
        "The trace context of the submitter (W3C traceparent), which workers continue.",
        default=b"",
        kept=Kept.PACKED,
        most=TRACEPARENT_BYTES,
        example="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        said_by="Gearman, HTTP (also by the header `traceparent`), dwork",
        python=("trace",),
        command_line="--trace",
        metavar="TRACEPARENT",
    ),
)

JOB_OPTION_NAMED: Final[Mapping[str, JobOption]] = {option.name: option for option in JOB_OPTIONS}
# The options for the jobs of a schedule, by their names there, including old names.
SCHEDULE_OPTIONS: Final[Mapping[str, JobOption]] = {
    name: option for option in JOB_OPTIONS if option.schedule for name in (option.schedule, *option.old_names)
}

_NEW_NAMES: Final = {old: option.name for option in JOB_OPTIONS for old in option.old_names}


def canonical_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with old names replaced by present ones; raises OptionError if both are given."""
    renamed: dict[str, Any] = {}
    for name, value in given.items():
        new_name = _NEW_NAMES.get(name, name)
        if new_name in renamed:
            raise OptionError(new_name, f"is given twice, once under its old name {name}")
        renamed[new_name] = value
    return renamed


def json_struct(name: str, options: Mapping[str, JobOption]) -> type[msgspec.Struct]:
    """A class for JSON objects with these options, by their names there; times are in seconds.

    Options that have their defaults are left out by `msgspec.to_builtins`.
    """
    fields: list[tuple[str, Any, Any]] = []
    for field, option in options.items():
        default = option.json_default
        if field in option.old_names:
            fields.append((field, option.json_type | msgspec.UnsetType, msgspec.UNSET))
        else:
            fields.append((field, option.json_type, msgspec.field(default_factory=list) if default == [] else default))
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, omit_defaults=True)
