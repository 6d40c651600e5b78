"""The codec of dwork's QueryMsg: protocol buffers without the protobuf library.

This is at least as fast as the protobuf library for the server's few message types, the rules for malformed messages
are our own, and the module can be compiled with the rest (docs/decisions/006).

Reading a request is strict: every field must be one that requests have, and complete. Reading an answer skips unknown
fields, so that a client understands a later server. Otherwise the rules are those of protocol buffers: fields in any
order, the last value of a repeated singular field counts, and numbers are truncated to the width of their field.
"""

from __future__ import annotations

from typing import Final

from switchgear.protocols.dwork.messages import LogEntry, Query, Task
from switchgear.protocols.dwork.protobuf import (
    LENGTH,
    VARINT,
    cut_short,
    int32,
    int64,
    malformed,
    read_tag,
    read_varint,
    refuse_unknown,
    skip,
    varint,
)

__all__ = [
    "RequestReader",
    "TransferWriter",
    "decode_reply",
    "decode_request",
    "decode_with_fields",
    "encode",
    "encode_task",
]

# Field number and wire type as one number, as encoded.
TYPE: Final = 1 << 3 | VARINT
TASK: Final = 2 << 3 | LENGTH
NAME: Final = 3 << 3 | LENGTH
N: Final = 4 << 3 | VARINT
LOCATION: Final = 6 << 3 | LENGTH
REASON: Final = 100 << 3 | LENGTH
WAIT_MS: Final = 101 << 3 | VARINT
LEASE_MS: Final = 102 << 3 | VARINT
RETRY_US: Final = 103 << 3 | VARINT
CURSOR: Final = 104 << 3 | VARINT
TAGS: Final = 105 << 3 | LENGTH
RESOURCES: Final = 106 << 3 | LENGTH
LARGEST_KNOWN: Final = RESOURCES
TASK_BIT: Final = 1 << 2
LOCATION_BIT: Final = 1 << 6

TASK_NAME: Final = 1 << 3 | LENGTH
TASK_ORIGIN: Final = 2 << 3 | LENGTH
TASK_PRED: Final = 4 << 3 | LENGTH
TASK_SUCC: Final = 5 << 3 | LENGTH
TASK_LOG: Final = 6 << 3 | LENGTH
TASK_ERROR: Final = 100 << 3 | LENGTH
TASK_ID: Final = 101 << 3 | VARINT
TASK_STATE: Final = 102 << 3 | VARINT
TASK_AFTER: Final = 103 << 3 | VARINT
TASK_AFTER_PACKED: Final = 103 << 3 | LENGTH
TASK_TRACE: Final = 104 << 3 | LENGTH

DEP_NAME: Final = 1 << 3 | LENGTH
DEP_LOCATION: Final = 2 << 3 | LENGTH
LOG_STATE: Final = 1 << 3 | VARINT
LOG_TIME: Final = 2 << 3 | VARINT

# A task with all its dependencies is created in one step, in which no other peer is served.
MOST_PREDECESSORS = 100_000


# --- reading ---


def decode_request(data: bytes) -> Query:
    """Decode a request; raises PeerError. Whether it has the fields of its type is checked separately
    (`request_rules`)."""
    return _decode(data, True)[0]


def decode_with_fields(data: bytes) -> tuple[Query, int]:
    """Decode a request; returns it and a bit set of its field numbers."""
    return _decode(data, True)


def decode_reply(data: bytes) -> Query:
    """Decode an answer; raises PeerError."""
    return _decode(data, False)[0]


def _decode(data: bytes, strict: bool) -> tuple[Query, int]:
    query = Query(-1)
    tasks: list[Task] = []
    fields = 0
    at = 0
    end = len(data)
    try:
        while at < end:
            tag = data[at]
            size = data[at + 1]  # or the number itself; the usual fields are short enough for one byte
            if tag == TASK:
                at += 2
                if size > 127:
                    size, at = read_varint(data, at - 1)
                stop = at + size
                if stop > end:
                    raise cut_short()
                tasks.append(_decode_task(data, at, stop, strict))
                at = stop
            elif tag == TYPE and size < 128:
                query.type = size
                at += 2
            elif tag == LOCATION and size < 128 and at + 2 + size <= end:
                fields |= LOCATION_BIT
                query.location = data[at + 2 : at + 2 + size]
                at += 2 + size
            else:
                tag, at = read_tag(data, at)
                at = _decode_field(query, tag, data, at, end, strict)
                if tag <= LARGEST_KNOWN:  # numbers of a peer must not make a set of unbounded size
                    fields |= 1 << (tag >> 3)
    except IndexError:
        raise cut_short() from None
    if query.type == -1:
        raise malformed("the message has no type")
    if tasks:
        query.tasks = tasks
        fields |= TASK_BIT
    return query, fields


class RequestReader:
    """Reads a long request in parts: first everything except its tasks, and then the tasks, as often as needed."""

    def __init__(self, data: bytes) -> None:
        self.query = Query(-1)  # without tasks
        self.fields = 0  # as in `decode_with_fields`
        self._data = data
        self._at = 0

    def scan(self, most_fields: int) -> bool:
        """Skip the tasks and read the other fields; returns whether there are more than this many tasks."""
        data = self._data
        at = self._at
        end = len(data)
        try:
            for _ in range(most_fields):
                if at >= end:
                    break
                if data[at] == TASK:
                    size, at = read_varint(data, at + 1)
                    at += size
                    if at > end:
                        raise cut_short()
                    self.fields |= TASK_BIT
                    continue
                tag, at = read_tag(data, at)
                at = _decode_field(self.query, tag, data, at, end, True)
                if tag <= LARGEST_KNOWN:
                    self.fields |= 1 << (tag >> 3)
        except IndexError:
            raise cut_short() from None
        self._at = at
        if at < end:
            return True
        if self.query.type == -1:
            raise malformed("the message has no type")
        return False

    def rewind(self) -> None:
        """Go back to the first task."""
        self._at = 0

    def tasks(self, most: int, most_bytes: int) -> list[Task]:
        """The next tasks, about this many at most; empty after the last. The message must have been scanned."""
        data = self._data
        at = self._at
        end = len(data)
        enough = min(end, at + most_bytes)
        found: list[Task] = []
        try:
            while at < end and len(found) < most and (at < enough or not found):
                if data[at] == TASK:
                    size, at = read_varint(data, at + 1)
                    found.append(_decode_task(data, at, at + size, True))
                    at += size
                else:
                    tag, at = read_tag(data, at)
                    at = skip(data, at, tag, False, "the message")
        except IndexError:
            raise cut_short() from None
        self._at = at
        return found


def _decode_field(query: Query, tag: int, data: bytes, at: int, end: int, strict: bool) -> int:
    """Read a field that is not a task, after its tag; returns the position of the next one."""
    if tag & 7 == LENGTH:
        size, at = read_varint(data, at)
        stop = at + size
        if stop > end:
            raise cut_short()
        if tag == LOCATION:
            query.location = data[at:stop]
        elif tag == NAME:
            query.name = data[at:stop]
        elif tag == REASON:
            query.reason = data[at:stop]
        elif tag == TAGS:
            query.tags = data[at:stop]
        elif tag == RESOURCES:
            query.resources = data[at:stop]
        else:
            refuse_unknown(tag, strict, "the message")
        return stop
    if tag & 7 != VARINT:
        return skip(data, at, tag, strict, "the message")
    number, at = read_varint(data, at)
    if tag == TYPE:
        query.type = int32(number)
    elif tag == N:
        query.n = int32(number)
    elif tag == WAIT_MS:
        query.wait_ms = int32(number)
    elif tag == LEASE_MS:
        query.lease_ms = int32(number)
    elif tag == RETRY_US:
        query.retry_us = int64(number)
    elif tag == CURSOR:
        query.cursor = int64(number)
    else:
        refuse_unknown(tag, strict, "the message")
    return at


class RarerFields:
    """Fields that few tasks have, while a task is being read."""

    def __init__(self) -> None:
        self.successors: list[bytes] = []
        self.log: list[LogEntry] = []
        self.error: bytes | None = None
        self.id: int | None = None
        self.state: int | None = None
        self.after: list[int] = []
        self.trace = b""


def _decode_task(data: bytes, at: int, stop: int, strict: bool) -> Task:
    name: bytes | None = None
    origin: bytes | None = None
    predecessors: list[bytes] | None = None
    rarer: RarerFields | None = None
    while at < stop:
        tag = data[at]
        if tag != TASK_NAME and tag != TASK_ORIGIN and tag != TASK_PRED:
            if rarer is None:
                rarer = RarerFields()
            at = _decode_rarer_field(rarer, data, at, stop, strict)
            continue
        size = data[at + 1]
        at += 2
        if size > 127:
            size, at = read_varint(data, at - 1)
        after = at + size
        if after > stop:
            raise cut_short()
        if tag == TASK_NAME:
            name = data[at:after]
        elif tag == TASK_ORIGIN:
            origin = data[at:after]
        else:
            if 2 <= size < 130 and data[at] == DEP_NAME and data[at + 1] == size - 2:  # only a short name
                dependency = data[at + 2 : after]
            else:
                dependency = _decode_dependency(data, at, after, strict)
            if predecessors is None:
                predecessors = [dependency]
            else:
                predecessors.append(dependency)
                if strict and len(predecessors) > MOST_PREDECESSORS:
                    raise malformed(f"a task that waits for more than {MOST_PREDECESSORS} others")
        at = after
    if at != stop:
        raise cut_short()
    if name is None or origin is None:
        raise malformed(f"a task has no {'name' if name is None else 'origin'}")
    task = Task(name, origin)
    if predecessors is not None:
        task.predecessors = predecessors
    if rarer is not None:
        _add_rarer_fields(task, rarer)
    return task


def _add_rarer_fields(task: Task, rarer: RarerFields) -> None:
    task.successors = rarer.successors
    task.log = rarer.log
    task.error = rarer.error
    task.id = rarer.id
    task.state = rarer.state
    task.after = rarer.after
    task.trace = rarer.trace


def _decode_rarer_field(task: RarerFields, data: bytes, at: int, stop: int, strict: bool) -> int:
    """Read a field that few tasks have; returns the position of the next one."""
    tag, at = read_tag(data, at)
    if tag & 7 == LENGTH:
        size, at = read_varint(data, at)
        after = at + size
        if after > stop:
            raise cut_short()
        if tag == TASK_LOG:
            task.log.append(_decode_log_entry(data, at, after, strict))
        elif tag == TASK_SUCC:
            task.successors.append(_decode_dependency(data, at, after, strict))
        elif tag == TASK_ERROR:
            task.error = data[at:after]
        elif tag == TASK_TRACE:
            task.trace = data[at:after]
        elif tag == TASK_AFTER_PACKED and not strict:
            while at < after:
                number, at = read_varint(data, at)
                task.after.append(int64(number))
            if at != after:
                raise cut_short()
        else:
            refuse_unknown(tag, strict, "a task")
        return after
    if tag & 7 != VARINT:
        return skip(data, at, tag, strict, "a task")
    number, at = read_varint(data, at)
    if strict:
        refuse_unknown(tag, strict, "a task")  # or a field that only a server writes
    elif tag == TASK_ID:
        task.id = int64(number)
    elif tag == TASK_STATE:
        task.state = int32(number)
    elif tag == TASK_AFTER:
        task.after.append(int64(number))
    else:
        refuse_unknown(tag, strict, "a task")
    return at


def _decode_dependency(data: bytes, at: int, stop: int, strict: bool) -> bytes:
    """The name of a dependency; its location is ignored."""
    name: bytes | None = None
    while at < stop:
        tag, at = read_tag(data, at)
        if tag & 7 == LENGTH:
            size, at = read_varint(data, at)
            after = at + size
            if after > stop:
                raise cut_short()
            if tag == DEP_NAME:
                name = data[at:after]
            elif tag != DEP_LOCATION:
                refuse_unknown(tag, strict, "a dependency")
            at = after
        else:
            at = skip(data, at, tag, strict, "a dependency")
    if at != stop:
        raise cut_short()
    if name is None:
        raise malformed("a dependency has no name")
    return name


def _decode_log_entry(data: bytes, at: int, stop: int, strict: bool) -> LogEntry:
    state: int | None = None
    time_us: int | None = None
    while at < stop:
        tag, at = read_tag(data, at)
        if tag == LOG_STATE:
            number, at = read_varint(data, at)
            state = int32(number)
        elif tag == LOG_TIME:
            number, at = read_varint(data, at)
            time_us = int64(number)
        else:
            at = skip(data, at, tag, strict, "a log entry")
    if at != stop:
        raise cut_short()
    if state is None or time_us is None:
        raise malformed(f"a log entry has no {'state' if state is None else 'time'}")
    return LogEntry(state, time_us)


# --- writing ---


def encode(query: Query) -> bytes:
    """Encode a message, with fields in the order of their numbers."""
    parts = [b"\x08", varint(query.type)]
    for task in query.tasks:
        body = encode_task(task)
        parts += (b"\x12", varint(len(body)), body)
    if query.name is not None:
        parts += (b"\x1a", varint(len(query.name)), query.name)
    if query.n is not None:
        parts += (b"\x20", varint(query.n))
    if query.location is not None:
        parts += (b"\x32", varint(len(query.location)), query.location)
    if query.reason is not None:
        parts += (varint(REASON), varint(len(query.reason)), query.reason)
    for tag, number in (
        (WAIT_MS, query.wait_ms),
        (LEASE_MS, query.lease_ms),
        (RETRY_US, query.retry_us),
        (CURSOR, query.cursor),
    ):
        if number is not None:
            parts += (varint(tag), varint(number))
    for tag, text in ((TAGS, query.tags), (RESOURCES, query.resources)):
        if text is not None:
            parts += (varint(tag), varint(len(text)), text)
    return b"".join(parts)


def encode_task(task: Task) -> bytes:
    parts = [b"\n", varint(len(task.name)), task.name, b"\x12", varint(len(task.origin)), task.origin]
    for name in task.predecessors:
        size = varint(len(name))
        parts += (b"\x22", varint(len(name) + len(size) + 1), b"\n", size, name)
    for name in task.successors:
        size = varint(len(name))
        parts += (b"\x2a", varint(len(name) + len(size) + 1), b"\n", size, name)
    for state, time_us in task.log:
        entry = b"\x08%b\x10%b" % (varint(state), varint(time_us))
        parts += (b"2", varint(len(entry)), entry)
    if task.error is not None:
        parts += (varint(TASK_ERROR), varint(len(task.error)), task.error)
    if task.id is not None:
        parts += (varint(TASK_ID), varint(task.id))
    if task.state is not None:
        parts += (varint(TASK_STATE), varint(task.state))
    for job_id in task.after:
        parts += (varint(TASK_AFTER), varint(job_id))
    if task.trace:
        parts += (varint(TASK_TRACE), varint(len(task.trace)), task.trace)
    return b"".join(parts)


class TransferWriter:
    """Encodes the answers to Steal, in which all fields except the names are equal for all tasks of one moment."""

    def __init__(self, origin: bytes) -> None:
        self._origin = b"\x12%b%b" % (varint(len(origin)), origin)
        self._time_us = -1
        self._rest = b""

    def write(self, names: list[bytes], time_us: int, traces: list[bytes] | None = None) -> bytes:
        """Encode the answer for tasks of these names that were stolen now; `traces` has one for each, some empty."""
        if time_us != self._time_us:
            entry = b"\x08\x01\x10%b" % varint(time_us)
            self._rest = b"%b2%c%b" % (self._origin, len(entry), entry)
            self._time_us = time_us
        if traces is not None:
            return self._with_traces(names, traces)
        rest = self._rest
        most = 125 - len(rest)  # with a longer name one of the lengths takes more than a byte
        parts = [b"\x08\x03"]
        for name in names:
            size = len(name)
            if size <= most:
                parts.append(b"\x12%c\n%c%b%b" % (size + len(rest) + 2, size, name, rest))
            else:
                head = varint(size)
                parts.append(b"\x12%b\n%b%b%b" % (varint(size + len(head) + len(rest) + 1), head, name, rest))
        return b"".join(parts)

    def _with_traces(self, names: list[bytes], traces: list[bytes]) -> bytes:
        parts = [b"\x08\x03"]
        for name, trace in zip(names, traces, strict=True):
            body = b"\n%b%b%b" % (varint(len(name)), name, self._rest)
            if trace:
                body += b"%b%b%b" % (varint(TASK_TRACE), varint(len(trace)), trace)
            parts.append(b"\x12%b%b" % (varint(len(body)), body))
        return b"".join(parts)
