"""Messages and their bytes, held against the protobuf library."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from switchgear.errors import PeerError
from switchgear.protocols.dwork.codec import TransferWriter, decode_reply, decode_request, encode
from switchgear.protocols.dwork.messages import LogEntry, LogState, Query, QueryType, Task
from tests.protocols.dwork.oracle import QueryMsg, understood, written

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.one_of(st.binary(max_size=6), st.integers(120, 140).map(lambda size: b"n" * size), st.just(b"n" * 20_000))
NAME_LISTS = st.lists(NAMES, max_size=3)


@st.composite
def tasks(draw: st.DrawFn, own_fields: bool = True) -> Task:
    task = Task(draw(NAMES), draw(NAMES), draw(NAME_LISTS), draw(NAME_LISTS))
    task.log = draw(st.lists(st.builds(LogEntry, INT32, INT64), max_size=2))
    task.error = draw(st.none() | NAMES)
    task.trace = draw(NAMES)
    if own_fields:
        task.id = draw(st.none() | INT64)
        task.state = draw(st.none() | INT32)
        task.after = draw(st.lists(INT64, max_size=3))
    return task


@st.composite
def queries(draw: st.DrawFn, own_fields: bool = True) -> Query:
    return Query(
        draw(st.integers(0, 200)),
        draw(st.lists(tasks(own_fields), max_size=3)),
        name=draw(st.none() | NAMES),
        n=draw(st.none() | INT32),
        location=draw(st.none() | NAMES),
        reason=draw(st.none() | NAMES),
        wait_ms=draw(st.none() | INT32),
        lease_ms=draw(st.none() | INT32),
        retry_us=draw(st.none() | INT64),
        cursor=draw(st.none() | INT64),
        tags=draw(st.none() | NAMES),
        resources=draw(st.none() | NAMES),
    )


def names_of(kind: type[Query] | type[Task]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def plain(query: Query) -> tuple[Any, ...]:
    """Whether a list that is empty is one or a tuple is nothing to us."""
    lists = ("predecessors", "successors", "log", "after")
    parts = [
        [tuple(value) if field in lists else value for field in names_of(Task) if (value := getattr(task, field)) or 1]
        for task in query.tasks
    ]
    return (parts, *(getattr(query, field) for field in names_of(Query) if field != "tasks"))


@given(queries())
def test_messages_are_written_as_the_library_writes_them(query: Query) -> None:
    assert encode(query) == written(query)


@given(queries())
def test_what_was_written_is_read_again(query: Query) -> None:
    assert plain(decode_reply(encode(query))) == plain(query)


@given(queries(own_fields=False))
def test_so_it_is_from_a_request(query: Query) -> None:
    assert plain(decode_request(encode(query))) == plain(query)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Something that was a message."""
    data = bytearray(written(draw(queries())))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                del data[place:]
            case 1:
                data[place:place] = draw(st.binary(min_size=1, max_size=4))
            case 2:
                data[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case _:
                data += written(draw(queries()))
    return bytes(data)


# What the library takes and we do not: groups, which went out of use before dwork was written, and numbers that nobody
# writes so.
STRICTER = ("wire type 3", "wire type 4", "more than 64 bits", "longer than it need be")


@given(st.binary(max_size=60) | damaged())
@example(b"\x08\x00" + b"\x80" * 20)
@example(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")  # more than 64 bits
@example(b"\x88\x00\x06\x92\x00\x06\x0a\x01a\x12\x01b")
@example(b"\x08\x06\xf8\xff\xff\xff\x0f\x00")  # the largest number a field may have
@example(b"\x08\x06\x00\x00")  # a field of number 0
@example(b"\x08\x06\x0b\x0c")  # a group
@example(b"\x08\x06\x9a\x0c\x03ab")  # a field that is not all there
@example(b"\x08\x06\x12\x08\x0a\x01a\x12\x01b\xa8\x06\x20\x05")  # a task that ends before its last number
@example(b"\x08\x06\x12\x04\x0a\x01a\x12\x00")  # a task that ends in its last field
def test_any_bytes_mean_what_the_library_takes_them_for_or_are_refused(data: bytes) -> None:
    expected = understood(data)
    answer, complaint = attempt(decode_reply, data)
    if answer is None:
        assert expected is None or expected.type == -1 or any(words in complaint for words in STRICTER)
    else:
        assert expected is not None
        assert plain(answer) == plain(expected)
    request, _ = attempt(decode_request, data)
    if request is not None:
        assert answer is not None
        assert plain(request) == plain(answer)


def attempt(decode: Callable[[bytes], Query], data: bytes) -> tuple[Query | None, str]:
    """What is read, or why it is not."""
    try:
        return decode(data), ""
    except PeerError as error:
        return None, str(error)


TASK = b"\x12\x06\x0a\x01a\x12\x01b"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no type"),
        (TASK, "no type"),
        (b"\x08", "in the middle of a field"),
        (b"\x08\x00\x12", "in the middle of a field"),
        (b"\x08\x00\x12\x02\x0a", "in the middle of a field"),
        (b"\x08\x00\x12\x01\x0a\x00", "in the middle of a field"),
        (b"\x08\x00\x12\x03\x0a\x01a", "no origin"),
        (b"\x08\x00\x12\x03\x12\x01a", "no name"),
        (b"\x08\x00\x12\x08\x0a\x01a\x12\x01b\x22\x00", "a dependency has no name"),
        (b"\x08\x00\x12\x0b\x0a\x01a\x12\x01b\x22\x03\x12\x01c", "a dependency has no name"),
        (b"\x08\x00\x12\x0a\x0a\x01a\x12\x01b\x32\x02\x08\x01", "a log entry has no time"),
        (b"\x08\x00\x12\x0a\x0a\x01a\x12\x01b\x32\x02\x10\x01", "a log entry has no state"),
        (b"\x08\x00\x78\x01", "field 15"),
        (b"\x08\x00\x28\x01", "field 5"),  # the number that the original left out
        (b"\x08\x00\x79" + bytes(8), "field 15"),
        (b"\x08\x00\x0d" + bytes(4), "field 1 of wire type 5"),
        (b"\x08\x00\x12\x09\x0a\x01a\x12\x01b\x1a\x01c", "a task has a field 3"),
        (b"\x08\x00\x12\x09\x0a\x01a\x12\x01b\xa8\x06\x01", "a task has a field 101"),  # the id, from a client
        (b"\x08\x00\x12\x0a\x0a\x01a\x12\x01b\xba\x06\x01\x01", "a task has a field 103"),
        (b"\x08\x00\x12\x0d\x0a\x01a\x12\x01b\x22\x05\x0a\x01c\x18\x01", "a dependency has a field 3"),
    ],
)
def test_a_malformed_request_is_refused_with_words(data: bytes, words: str) -> None:
    with pytest.raises(PeerError, match=words) as caught:
        decode_request(data)
    assert caught.value.code == "MALFORMED"


def test_an_answer_may_have_fields_that_are_not_known() -> None:
    data = b"\x08\x05\x78\x01\x79" + bytes(8) + b"\x7a\x02hi\x7d" + bytes(4) + b"\x12\x09\x0a\x01a\x12\x01b\x1a\x01c"
    assert plain(decode_reply(data)) == plain(Query(QueryType.NOT_FOUND, [Task(b"a", b"b")]))


def test_ids_of_predecessors_may_be_packed() -> None:
    data = b"\x08\x06\x12\x0e\x0a\x01a\x12\x01b\xba\x06\x02\x05\x06\xb8\x06\x07"
    assert decode_reply(data).tasks[0].after == [5, 6, 7]


def test_where_a_dependency_is_does_not_matter() -> None:
    data = b"\x08\x00\x12\x0e\x0a\x01a\x12\x01b\x22\x06\x12\x01x\x0a\x01c"
    assert decode_request(data).tasks == [Task(b"a", b"b", [b"c"])]


@given(NAMES, st.lists(NAMES, min_size=1, max_size=4), st.lists(st.integers(0, 2**62), min_size=1, max_size=3))
def test_the_answers_to_steal_are_messages_like_others(host: bytes, names: list[bytes], times_us: list[int]) -> None:
    writer = TransferWriter(host)
    for time_us in times_us:
        log = [LogEntry(LogState.STOLEN, time_us)]
        expected = Query(QueryType.TRANSFER, [Task(name, host, log=log) for name in names])
        assert writer.write(names, time_us) == encode(expected)


@given(NAMES, st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4))
def test_so_are_those_with_traces(host: bytes, tasks: list[tuple[bytes, bytes]]) -> None:
    log = [LogEntry(LogState.STOLEN, 5)]
    expected = Query(QueryType.TRANSFER, [Task(name, host, log=log, trace=trace) for name, trace in tasks])
    names, traces = [name for name, _ in tasks], [trace for _, trace in tasks]
    assert TransferWriter(host).write(names, 5, traces) == encode(expected)


def test_a_message_of_many_small_parts_is_read_in_one_go() -> None:
    """Not in a time that grows with the square of their number."""
    parts = 200_000
    body = b"\x0a\x01a\x12\x01b" + b"\x32\x04\x08\x01\x10\x02" * parts + b"\x2a\x03\x0a\x01c" * parts
    message = QueryMsg.FromString(b"\x08\x02\x32\x01w")
    message.task.add().ParseFromString(body)
    [task] = decode_request(message.SerializeToString()).tasks
    assert len(task.log) == len(task.successors) == parts
