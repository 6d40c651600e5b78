"""GearMonkey's keys, fields, job states, and its script.

uid:{FN}          the last id that was given out        count:{FN}      workers that have registered
job:{FN}:{ID}     a hash: the job                       queue:{FN}:{PRIO}   ids that wait, by priority
lock:{FN}:{ID}    a list that has something in it when the job has ended
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha1
from typing import Final, NamedTuple

from switchgear.errors import PeerError
from switchgear.model import HIGH, LOW, NORMAL, SECOND_US, URGENT
from switchgear.protocols.handles import number_in_handle
from switchgear.text import harmless

__all__ = [
    "BUSY",
    "CHANNEL",
    "ERROR",
    "IDLE",
    "INPUT",
    "JOB_SECONDS",
    "KEEP_US",
    "LOCK_SECONDS",
    "PRIORITY_WORDS",
    "SCRIPT",
    "SCRIPT_SHA",
    "STATUS",
    "SUCCESS",
    "TRACE",
    "FunctionKeys",
    "Key",
    "KeyKind",
    "parse_key",
    "queue_key",
    "wrong_type",
]

# Fields of a job's hash, and its states.
STATUS: Final = b"status"
INPUT: Final = b"input"
TRACE: Final = b"traceparent"  # an extension: the trace context of the submitter
IDLE: Final = b"idle"
BUSY: Final = b"busy"
SUCCESS: Final = b"success"
ERROR: Final = b"error"

CHANNEL: Final = b"channel:"

JOB_SECONDS: Final = 90_000  # a finished job is kept for 25 hours
KEEP_US: Final = JOB_SECONDS * SECOND_US
LOCK_SECONDS: Final = 10  # how long the token of a finished job waits for its client

# By the number of a priority.
PRIORITY_WORDS: Final = {HIGH: b"high", NORMAL: b"normal", LOW: b"low", URGENT: b"scheduled"}
_PRIORITIES: Final = {word: priority for priority, word in PRIORITY_WORDS.items()}

# The script that a worker loads to take the next due scheduled job. It is never run here: it is recognised by its
# SHA-1, which every worker knows, so not a byte of it may change.
SCRIPT: Final = (
    b"local item = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 1); "
    b"if (#item > 0) then redis.call('ZREM', KEYS[1], item[1]); return { KEYS[1],  item[1] }; end"
)
SCRIPT_SHA: Final = sha1(SCRIPT).hexdigest().encode()


class KeyKind(Enum):
    """The kind of a key, by its prefix."""

    UID = b"uid"
    COUNT = b"count"
    JOB = b"job"
    QUEUE = b"queue"
    LOCK = b"lock"


_KINDS: Final = {kind.value: kind for kind in KeyKind}


class Key(NamedTuple):
    """A parsed GearMonkey key."""

    kind: KeyKind
    function: bytes
    number: int = 0  # the job's id, or the queue's priority


def parse_key(text: bytes, name_bytes: int) -> Key:
    """Parse a key; raises PeerError."""
    word, _, rest = text.partition(b":")
    kind = _KINDS.get(word)
    number = 0
    function = rest
    if kind is None:
        raise PeerError(f"key {_shown(text)} is none of GearMonkey's: uid:, count:, job:, queue:, lock:", code="ERR")
    if kind is KeyKind.QUEUE:
        function, _, last = rest.rpartition(b":")
        priority = _PRIORITIES.get(last)
        if priority is None:
            raise PeerError(f"key {_shown(text)} does not end with high, normal, low or scheduled", code="ERR")
        number = priority
    elif kind is KeyKind.JOB or kind is KeyKind.LOCK:
        function, _, last = rest.rpartition(b":")
        number = number_in_handle(last, b"")
        if not number:
            raise PeerError(f"key {_shown(text)} does not end with a job's id", code="ERR")
    if not function:
        raise PeerError(f"key {_shown(text)} names no function", code="ERR")
    if len(function) > name_bytes:
        raise PeerError(f"function name over {name_bytes} bytes", code="ERR")
    return Key(kind, function, number)


def queue_key(function: bytes, priority: int) -> bytes:
    return b"queue:%b:%b" % (function, PRIORITY_WORDS[priority])


class FunctionKeys:
    """The keys of one function, for code that keeps its jobs in a Redis."""

    def __init__(self, function: bytes) -> None:
        self.function = function
        self.uid = b"uid:%b" % function
        self.count = b"count:%b" % function
        self.channel = b"channel:%b" % function
        self.queues = {priority: queue_key(function, priority) for priority in PRIORITY_WORDS}

    def job(self, job_id: bytes) -> bytes:
        return b"job:%b:%b" % (self.function, job_id)

    def lock(self, job_id: bytes) -> bytes:
        return b"lock:%b:%b" % (self.function, job_id)


def wrong_type() -> PeerError:
    """The error for a command that is for keys of another kind."""
    return PeerError("Operation against a key holding the wrong kind of value", code="WRONGTYPE")


def _shown(text: bytes) -> str:
    return "'" + harmless(text[:100].decode("utf-8", "replace")) + "'"
