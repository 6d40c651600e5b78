"""Handlers of the commands of monitoring tools: keys and their contents, connections, commands.

They change nothing. Listed are the keys of queues, worker counters and unfinished jobs. The hash of a finished job,
which only the store has, can be read by its key but is not listed.
"""

from __future__ import annotations

from itertools import islice
from typing import Final
from zlib import crc32

from switchgear import numbers
from switchgear.errors import PeerError
from switchgear.model import SECOND_US, URGENT, Function
from switchgear.protocols.gearmonkey.blocked_connection import LockWait, QueueWait
from switchgear.protocols.gearmonkey.key_commands import MISSING, must_read, seconds_left
from switchgear.protocols.gearmonkey.keys import PRIORITY_WORDS, FunctionKeys, Key, KeyKind, wrong_type
from switchgear.protocols.gearmonkey.patterns import Pattern
from switchgear.protocols.gearmonkey.queues import whole_number
from switchgear.protocols.gearmonkey.resp import (
    Command,
    array,
    bulk,
    integer,
    null,
    set_of,
    simple,
    verbatim,
)
from switchgear.protocols.gearmonkey.session import GearMonkeySession

# LRANGE reads at most this many of the jobs that are popped next.
MOST_IN_RANGE = 10_000

# One SCAN reads at most this many jobs, whatever COUNT is. Functions are read in parts by the hash of their names, so
# that a scan finds every function that exists all the time, however many others come and go.
MOST_SCANNED = 1_000
USUAL_SCANNED: Final = 10
PARTS: Final = 16
MOST_PATTERN_BYTES: Final = 1_024
MOST_MATCH_STEPS: Final = 1_000_000  # of comparing all these keys with a pattern, see `Pattern.steps`; some 30 ms

LIST: Final = b"list"
SORTED_SET: Final = b"zset"
TYPES: Final = {KeyKind.UID: b"string", KeyKind.COUNT: b"string", KeyKind.JOB: b"hash", KeyKind.LOCK: LIST}

# Commands with keys, for COMMAND INFO. Other commands have none, or at positions that depend on the arguments.
READS: Final = frozenset(
    (b"EXISTS", b"GET", b"HGET", b"HGETALL", b"HMGET", b"LLEN", b"LRANGE", b"TTL", b"TYPE", b"ZCARD")
)
WRITES: Final = frozenset(
    (
        b"BRPOP", b"DECR", b"DECRBY", b"DEL", b"EXPIRE", b"HMSET", b"HSET", b"INCR", b"INCRBY", b"LPUSH", b"RPOP",
        b"ZADD",
    )
)  # fmt: skip
LAST_KEYS: Final = {b"BRPOP": -2, b"DEL": -1, b"EXISTS": -1}
NOT_COMMANDS: Final = frozenset((b"HOST:", b"POST"))  # recognised only to end the connection


# --- keys ---


def on_type(session: GearMonkeySession, command: Command) -> None:
    key = session.key(command[1])
    if not must_read(session, command, [key]):
        session.send(simple(type_of(key) if seconds_left(session, key) != MISSING else b"none"))


def type_of(key: Key) -> bytes:
    if key.kind is KeyKind.QUEUE:
        return SORTED_SET if key.number == URGENT else LIST
    return TYPES[key.kind]


def on_llen(session: GearMonkeySession, command: Command) -> None:
    key = session.key(command[1])
    if not must_read(session, command, [key]):
        session.send(integer(length_of(session, key, LIST)))


def on_zcard(session: GearMonkeySession, command: Command) -> None:
    key = session.key(command[1])
    if not must_read(session, command, [key]):
        session.send(integer(length_of(session, key, SORTED_SET)))


def length_of(session: GearMonkeySession, key: Key, wanted_type: bytes) -> int:
    """The length of a list or a sorted set; raises PeerError if the key has another type."""
    if seconds_left(session, key) == MISSING:
        return 0
    if type_of(key) != wanted_type:
        raise wrong_type()
    if key.kind is KeyKind.LOCK:
        return 1
    function = session.engine.functions.get(key.function)
    if function is None:
        return 0
    ready = function.ready_of(key.number)
    if key.number != URGENT:
        return ready
    return ready + function.total - function.ready - function.running - function.waiting


def on_lrange(session: GearMonkeySession, command: Command) -> None:
    """LRANGE key first last: the ids in a queue, the last pushed first and the next to be popped last."""
    first, last = whole_number(command[2]), whole_number(command[3])
    key = session.key(command[1])
    if must_read(session, command, [key]):
        return
    length = length_of(session, key, LIST)
    if first < 0:
        first += length
    if last < 0:
        last += length
    first, last = max(0, first), min(last, length - 1)
    if first > last:
        session.send(array(()))
    elif key.kind is KeyKind.LOCK:
        session.send(array((bulk(LockWait.WORD),)))
    else:
        session.send_long(array([bulk(b"%d" % job_id) for job_id in ids_between(session, key, length, first, last)]))


def ids_between(session: GearMonkeySession, key: Key, length: int, first: int, last: int) -> list[int]:
    """The ids at these places of a queue; raises PeerError."""
    needed = length - first
    if needed > MOST_IN_RANGE:
        raise PeerError(f"only the {MOST_IN_RANGE} ids that are popped next can be listed", code="ERR")
    function = session.engine.functions[key.function]
    next_first = session.engine.next_ready_ids(function, key.number, needed)
    return next_first[length - 1 - last :][::-1]


# --- all keys ---


def on_scan(session: GearMonkeySession, command: Command) -> None:
    """SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]"""
    cursor = numbers.whole_number(command[1])
    if cursor is None:
        raise PeerError("invalid cursor", code="ERR")
    pattern, count, wanted_type = read_scan(command[2:])
    keys: list[tuple[bytes, bytes]] = []
    if cursor < PARTS:
        cursor = scan_functions(session, cursor, count, keys)
    if cursor >= PARTS and len(keys) < count:
        cursor = scan_jobs(session, cursor, count - len(keys), keys)
    if pattern is not None and keys:
        steps = pattern.steps(max([len(key) for key, _ in keys])) * len(keys)
        if steps > MOST_MATCH_STEPS:
            raise PeerError("comparing keys with this pattern takes too long; try a smaller COUNT", code="ERR")
    found = [
        bulk(key)
        for key, key_type in keys
        if (pattern is None or pattern.matches(key)) and (wanted_type is None or wanted_type == key_type)
    ]
    session.send_long(array((bulk(b"%d" % cursor), array(found))))


def read_scan(options: Command) -> tuple[Pattern | None, int, bytes | None]:
    pattern: Pattern | None = None
    count = USUAL_SCANNED
    wanted_type: bytes | None = None
    if len(options) % 2:
        raise PeerError("syntax error", code="ERR")
    for word, value in zip(options[::2], options[1::2], strict=True):
        name = word.upper()
        if name == b"MATCH":
            if len(value) > MOST_PATTERN_BYTES:
                raise PeerError(f"a pattern of more than {MOST_PATTERN_BYTES} bytes", code="ERR")
            pattern = Pattern(value)
        elif name == b"COUNT":
            count = whole_number(value)
            if count < 1:
                raise PeerError("syntax error", code="ERR")
        elif name == b"TYPE":
            wanted_type = value.lower()
        else:
            raise PeerError("syntax error", code="ERR")
    return pattern, min(count, MOST_SCANNED), wanted_type


def scan_functions(session: GearMonkeySession, cursor: int, count: int, keys: list[tuple[bytes, bytes]]) -> int:
    """Add the keys of functions, part by part; returns where to go on."""
    parts: list[list[Function]] = [[] for _ in range(PARTS)]
    for function in session.engine.functions.values():
        parts[crc32(function.name) % PARTS].append(function)
    while cursor < PARTS and len(keys) < count:
        for function in parts[cursor]:
            keys += keys_of(session, function)
        cursor += 1
    return cursor


def keys_of(session: GearMonkeySession, function: Function) -> list[tuple[bytes, bytes]]:
    """The existing keys of a function, without those of its jobs, and their types."""
    names = FunctionKeys(function.name)
    keys: list[tuple[bytes, bytes]] = []
    if session.setup.counts.value(function.name) is not None:
        keys.append((names.count, TYPES[KeyKind.COUNT]))
    for priority in PRIORITY_WORDS:
        key = Key(KeyKind.QUEUE, function.name, priority)
        if seconds_left(session, key) != MISSING:
            keys.append((names.queues[priority], type_of(key)))
    return keys


def scan_jobs(session: GearMonkeySession, cursor: int, count: int, keys: list[tuple[bytes, bytes]]) -> int:
    """Add the keys of unfinished jobs, by id; returns where to go on, 0 at the end."""
    jobs = list(islice(session.engine.unfinished_jobs(cursor - PARTS), count))
    for job in jobs:
        keys.append((b"job:%b:%d" % (job.function.told_name, job.id), TYPES[KeyKind.JOB]))
    return PARTS + jobs[-1].id + 1 if len(jobs) == count else 0


def on_dbsize(session: GearMonkeySession, command: Command) -> None:
    session.send(integer(count_keys(session)))


def count_keys(session: GearMonkeySession) -> int:
    """How many keys a whole SCAN would find."""
    engine = session.engine
    return engine.job_count() + sum([len(keys_of(session, function)) for function in engine.functions.values()])


def on_time(session: GearMonkeySession, command: Command) -> None:
    seconds, microseconds = divmod(session.engine.now_us, SECOND_US)
    session.send(array((bulk(b"%d" % seconds), bulk(b"%d" % microseconds))))


# --- connections ---


def on_client_info(session: GearMonkeySession, command: Command) -> None:
    session.send(verbatim(session.version, client_line(session, b"client|info")))


def on_client_list(session: GearMonkeySession, command: Command) -> None:
    if len(command) > 2:
        raise PeerError("syntax error", code="ERR")
    lines = []
    for other in session.setup.sessions:
        last_command = b"client|list" if other is session else b"brpop" if other.blocked is not None else b"NULL"
        lines.append(client_line(other, last_command))
    session.send_long(verbatim(session.version, b"".join(lines)))


def client_line(session: GearMonkeySession, last_command: bytes) -> bytes:
    """A connection as CLIENT INFO shows it, with those fields of Redis that mean something here."""
    host = session.transport.host
    address = f"[{host}]:{session.transport.port}" if ":" in host else f"{host}:{session.transport.port}"
    flags = "P" if session.channels or session.patterns else ""
    flags += "b" if isinstance(session.blocked, QueueWait | LockWait) else ""
    flags += "x" if session.queued is not None else ""
    line = (
        f"id={session.number} addr={address} name={session.client_id.decode('ascii', 'replace')}"
        f" age={(session.engine.now_us - session.since_us) // SECOND_US} flags={flags or 'N'} db=0"
        f" sub={len(session.channels)} psub={len(session.patterns)}"
        f" multi={-1 if session.queued is None else len(session.queued)} qbuf={session.buffered_bytes}"
    )
    return b"%b cmd=%b user=default resp=%d\n" % (line.encode(), last_command, session.version)


# --- commands ---


def on_command(session: GearMonkeySession, command: Command) -> None:
    session.send_long(array([described_command(session, name) for name in command_names(session)]))


def on_command_info(session: GearMonkeySession, command: Command) -> None:
    """COMMAND INFO [name ...]; all of them without any"""
    wanted = [word.upper() for word in command[2:]] or command_names(session)
    known = set(command_names(session))
    absent = null(session.version)
    session.send_long(array([described_command(session, name) if name in known else absent for name in wanted]))


def on_command_list(session: GearMonkeySession, command: Command) -> None:
    if len(command) > 2:
        raise PeerError("syntax error", code="ERR")
    session.send(array([bulk(name.lower()) for name in command_names(session)]))


def on_command_count(session: GearMonkeySession, command: Command) -> None:
    session.send(integer(len(command_names(session))))


def command_names(session: GearMonkeySession) -> list[bytes]:
    return [name for name in session.setup.verbs if name not in NOT_COMMANDS]


def described_command(session: GearMonkeySession, name: bytes) -> bytes:
    """A command as COMMAND INFO shows it: name, arity, flags and positions of keys; the other fields are empty."""
    flags: list[bytes] = []
    first, last, step = 0, 0, 0
    if name in READS or name in WRITES:
        flags.append(simple(b"readonly" if name in READS else b"write"))
        first, last, step = 1, LAST_KEYS.get(name, 1), 1
    elif name in (b"EVAL", b"EVALSHA"):
        flags.append(simple(b"movablekeys"))
    none = set_of(session.version, ())
    return array(
        (
            bulk(name.lower()),
            integer(session.setup.verbs[name].words),
            set_of(session.version, flags),
            integer(first),
            integer(last),
            integer(step),
            none,
            array(()),
            array(()),
            array(()),
        )
    )
