"""Messages of a link between two nodes: msgpack arrays, each after its length, in records (`link_handshake`).

The node that has opened the link passes submissions on, and borrows jobs for its workers; the other one owns them. Each
side trusts the other, which knows the cluster's secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct as BinaryStruct
from typing import Any, Final

import msgspec

from switchgear.engine.submit_options import SubmitOptions
from switchgear.model import Job

__all__ = [
    "NOT_YET",
    "OPTIONS",
    "REFUSED",
    "AboutAwaited",
    "AboutRuns",
    "Accepted",
    "Ask",
    "Assign",
    "Await",
    "AwaitNoMore",
    "Awaited",
    "AwaitedEnded",
    "AwaitedRetried",
    "BegunRun",
    "ChannelMessage",
    "ClaimRuns",
    "ClaimsWanted",
    "Data",
    "Done",
    "End",
    "Failed",
    "Give",
    "Listen",
    "LookSoon",
    "Lost",
    "Moved",
    "Offered",
    "Progress",
    "Reported",
    "RetryWanted",
    "Revoke",
    "Room",
    "RunClaimed",
    "RunMoves",
    "Serves",
    "SubmissionRefused",
    "Submit",
    "Unwatch",
    "VerbAnswer",
    "Warn",
    "Watch",
    "decode_from_owner",
    "decode_to_owner",
    "encoded",
    "from_option_values",
    "messages_in",
    "option_values",
    "options_of",
]


class Message(msgspec.Struct, array_like=True):
    """A message of a link."""


# --- from the node that has opened the link ---


class Submit(Message, tag=2):
    """A submission, under an id of the node's own. It may come twice, and is accepted once."""

    id: int
    function: bytes
    unique: bytes
    payload: bytes
    priority: int
    delivery: int
    protocol: str
    options: list[Any] | None
    is_repeated: bool


class Watch(Message, tag=3):
    """Tell this node what becomes of a job, under another id if it had joined this one."""

    id: int
    job_id: int


class Unwatch(Message, tag=4):
    """Nobody waits for this job any more."""

    id: int


class Offered(msgspec.Struct, array_like=True):
    """What workers of a kind have. `elsewhere` is what jobs of others use of the resources."""

    workers: int
    tags: list[bytes]
    resources: list[tuple[bytes, int]]
    elsewhere: list[tuple[bytes, int]]
    priorities: list[int]  # that they take; empty: all


class Room(Message, tag=5):
    """How many further jobs of the function the workers of a kind can run. The node had received `seen` jobs for them
    when it sent this."""

    function: bytes
    room: int  # negative: there are no such workers any more
    seen: int
    kind: bytes = b""
    offered: Offered | None = None  # None: they have nothing, and are one worker to the owner


class Done(Message, tag=6):
    """A borrowed job is done."""

    id: int
    start: int
    result: bytes


class Failed(Message, tag=7):
    """A borrowed job has failed."""

    id: int
    start: int
    code: int
    error: bytes | None
    result: bytes


class Lost(Message, tag=8):
    """A borrowed job was lost with its worker."""

    id: int
    start: int


class Give(Message, tag=9):
    """A borrowed job goes back; the attempt does not count."""

    id: int
    start: int


class RetryWanted(Message, tag=10):
    """The worker of a borrowed job asks for another attempt."""

    id: int
    start: int
    delay_us: int
    error: bytes | None
    attempts_limit: int


class Progress(Message, tag=11):
    """Progress of a job: of a borrowed one, or of one that is watched."""

    id: int
    numerator: int
    denominator: int
    time_left_s: int
    text: bytes
    message: bytes


class Data(Message, tag=12):
    """A part of the result of a job."""

    id: int
    data: bytes


class Warn(Message, tag=13):
    """A warning of a job's worker."""

    id: int
    data: bytes


class Ask(Message, tag=14):
    """A verb of an operator."""

    number: int
    verb: str
    arguments: bytes  # JSON


class Listen(Message, tag=15):
    """Peers of this node are subscribed to these channels, and no longer to those; `all`: it needs every message."""

    added: list[bytes]
    removed: list[bytes]
    all: bool


class Await(Message, tag=16):
    """Jobs of this node wait for these jobs: tell it when they have ended, and when they run again."""

    ids: list[int]


class AwaitNoMore(Message, tag=17):
    """No jobs of this node wait for these jobs any more."""

    ids: list[int]


class LookSoon(Message, tag=18):
    """The database has changed: jobs were stored for the other node, or partitions were given up or claimed."""


class BegunRun(msgspec.Struct, array_like=True):
    """A run that was begun under an owner that is gone, or that the node has lost the link to."""

    id: int
    function: bytes
    kind: bytes  # of the worker
    start: int
    attempt: int
    delivery: int
    unique: bytes
    priority: int
    created_us: int
    details: list[Any]


class ClaimRuns(Message, tag=19):
    """Workers of this node still run these jobs. Of the partitions (a bit for each) it has no others."""

    runs: list[BegunRun]
    partitions: int


# --- from the owner ---


class Accepted(Message, tag=21):
    """A submission is stored, or has joined another job."""

    id: int
    job_id: int


class SubmissionRefused(Message, tag=22):
    """A submission was refused."""

    id: int
    reason: str
    text: str


class Moved(Message, tag=23):
    """This node does not own the function of the submission, or not yet."""

    id: int


class End(Message, tag=24):
    """The end of a job that is watched."""

    id: int
    state: int
    code: int
    error: bytes | None
    result: bytes
    warnings: bytes
    cause: int = 0


class Assign(Message, tag=25):
    """A job to be run by a worker of the node."""

    id: int
    start: int
    function: bytes
    unique: bytes
    payload: bytes
    priority: int
    created_us: int
    timeout_us: int
    attempts: int
    details: list[Any]
    kind: bytes = b""  # of the worker that the owner has given it to
    delivery: int = 1


class Revoke(Message, tag=26):
    """The result of a borrowed job is not wanted any more."""

    id: int


class VerbAnswer(Message, tag=27):
    """The answer to a verb: a JSON value, or an error with the word for its kind."""

    number: int
    kind: str
    value: bytes
    ready: int = 0  # a bit for each partition that the node had


class Reported(Message, tag=35):
    """The end that the node has reported of a borrowed job is stored, or was not taken: it had lost that start."""

    id: int
    start: int
    is_taken: bool


class ChannelMessage(Message, tag=28):
    """A message of a channel to which the node listens."""

    name: bytes
    message: bytes


class Awaited(Message, tag=29):
    """The answer to `Await`: this node will tell of the jobs `found`, and does not have those in `missing`. Of others
    it cannot say that yet."""

    found: list[int]
    missing: list[int]
    ready: int  # a bit for each partition that the node has


class AwaitedEnded(Message, tag=30):
    """A job that is awaited has ended; the database says how."""

    id: int


class AwaitedRetried(Message, tag=31):
    """A job that is awaited, and was unsuccessful, runs again."""

    id: int


class Serves(Message, tag=32):
    """The listeners of this node that only the owner of a function can serve: function, host and port."""

    listeners: list[tuple[bytes, str, int]]


class ClaimsWanted(Message, tag=36):
    """This node has taken over these partitions (a bit for each): which of their jobs do workers of the node run?"""

    partitions: int


class RunClaimed(Message, tag=37):
    """The answer to a claim of a run by its `start`: the run goes on, and has the number `new_start`."""

    id: int
    start: int
    new_start: int  # REFUSED, or NOT_YET: to be asked again


class RunMoves(Message, tag=38):
    """The job has another owner from now on, and its run may go on there."""

    id: int


REFUSED: Final = 0
NOT_YET: Final = -1

Report = Done | Failed | Lost | Give | RetryWanted | Progress | Data | Warn
ToOwner = Submit | Watch | Unwatch | Room | Report | Ask | Listen | Await | AwaitNoMore | LookSoon | ClaimRuns
OwnersAnswer = Serves | Accepted | SubmissionRefused | Moved | VerbAnswer | ChannelMessage | Reported
AboutAwaited = Awaited | AwaitedEnded | AwaitedRetried
AboutRuns = Assign | Revoke | ClaimsWanted | RunClaimed | RunMoves
FromOwner = OwnersAnswer | Progress | Data | Warn | End | AboutRuns | AboutAwaited

LENGTH: Final = BinaryStruct(">I")

_encode = msgspec.msgpack.Encoder().encode


def encoded(message: Message) -> bytes:
    """The message with its length before it."""
    body = _encode(message)
    return LENGTH.pack(len(body)) + body


def messages_in(record: bytes, decode: Callable[[Any], Any]) -> Iterator[Any]:
    """The messages of which a record consists; raises ValueError for bytes that are none."""
    view = memoryview(record)
    at = 0
    while at < len(record):
        if len(record) - at < LENGTH.size:
            raise ValueError("a record with a part of a message")
        (length,) = LENGTH.unpack_from(record, at)
        start, at = at + LENGTH.size, at + LENGTH.size + length
        if at > len(record):
            raise ValueError("a record with a part of a message")
        try:
            message = decode(view[start:at])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(str(error)) from error
        yield message


decode_to_owner: Final = msgspec.msgpack.Decoder(ToOwner).decode
decode_from_owner: Final = msgspec.msgpack.Decoder(FromOwner).decode


# The options of a submission that a link carries, in this order.
OPTIONS: Final = (
    "run_at_us",
    "expires_us",
    "timeout_us",
    "attempts_limit",
    "reducer",
    "origin",
    "key",
    "crash_limit",
    "unique_scope",
    "unique_policy",
    "unique_for_us",
    "retention_us",
    "requires",
    "label",
    "trace",
    "schedule",
    "name",
    "predecessors",
    "edges",
)
# Those that do not matter to the node that runs a job.
NOT_LENT: Final = frozenset(("name", "predecessors", "edges"))
NO_OPTIONS: Final = SubmitOptions()
SHARED: Final = ("timeout_us", "attempts_limit", "crash_limit", "retention_us", "requires")


def option_values(options: SubmitOptions | None) -> list[Any] | None:
    """The options as a message has them."""
    if options is None:
        return None
    values = {name: getattr(options, name) for name in OPTIONS}
    if options.details is not None:
        values |= {name: getattr(options.details, name) for name in SHARED}
    return list(values.values())


def options_of(job: Job, *, is_lent: bool = False) -> list[Any]:
    """The options with which a job was submitted, as a message has them; for a worker of another node only some."""
    names = [name for name in OPTIONS if name not in NOT_LENT] if is_lent else OPTIONS
    return [getattr(job, name, getattr(NO_OPTIONS, name)) for name in names]


def from_option_values(values: list[Any] | None, job_id: int) -> SubmitOptions:
    """The options of a message, for a job of this id."""
    options = SubmitOptions(job_id=job_id)
    for name, value in zip(OPTIONS, values or (), strict=False):
        # Compiled classes accept no list here, and msgpack has no tuples.
        setattr(options, name, tuple(value) if name == "predecessors" else value)
    return options
