"""Which fields a request may have.  Whatever is wrong with one, nothing changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.request_rules import FIELDS, REQUESTS
from tests.protocols.dwork.harness import DworkHarness, create, steal
from tests.protocols.dwork.test_codec import damaged, queries

# The table of the protocol's document, with our own fields and requests added.
#                       needs                  may have
ALLOWED = {
    QueryType.CREATE: ({"tasks"}, {"retry_us"}),
    QueryType.STEAL: ({"location"}, {"n", "wait_ms", "lease_ms", "tags", "resources"}),
    QueryType.COMPLETE: ({"tasks", "location"}, set()),
    QueryType.TRANSFER: ({"tasks", "location"}, set()),
    QueryType.LOOKUP: ({"name"}, set()),
    QueryType.OK: (set(), set()),
    QueryType.EXIT: ({"location"}, set()),
    QueryType.LIST: (set(), {"n", "cursor"}),
}
VALUES: dict[str, Any] = {
    "tasks": [Task(b"a", b"b")],
    "name": b"a",
    "n": 1,
    "location": b"w",
    "reason": b"why",
    "wait_ms": 0,
    "lease_ms": 1,
    "retry_us": 0,
    "cursor": 0,
    "tags": b"gpu",
    "resources": b"memory=64G",
}
WHOLE = {kind: Query(kind, **{field: VALUES[field] for field in needs}) for kind, (needs, _) in ALLOWED.items()}


def is_refused(query: Query) -> bool:
    """Whether it is answered by an error, and nothing happens."""
    world = DworkHarness()
    world.ask(create("x", "y"))
    world.ask(steal("w"))
    before = world.ask(Query(QueryType.LIST))
    answer = world.ask(query)
    if answer.type != QueryType.ERROR:
        return False
    assert answer == Query(QueryType.ERROR, reason=answer.reason)
    assert answer.reason
    [(code, text)] = world.harness.bad_input
    assert (code, text) == ("MALFORMED", answer.reason.decode())
    assert world.ask(Query(QueryType.LIST)) == before
    return True


def test_all_fields_are_tried() -> None:
    assert {"tasks" if field == "task" else field for field in FIELDS} == set(VALUES)
    assert set(ALLOWED) == set(REQUESTS)


@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.name)
def test_a_request_with_what_it_needs_is_taken(kind: QueryType) -> None:
    assert not is_refused(WHOLE[kind])
    for field in ALLOWED[kind][1]:
        assert not is_refused(replace(WHOLE[kind], **{field: VALUES[field]}))


@pytest.mark.parametrize("field", VALUES)
@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.name)
def test_a_request_without_what_it_needs_or_with_more_is_refused(kind: QueryType, field: str) -> None:
    needs, may_have = ALLOWED[kind]
    nothing: Any = () if field == "tasks" else None
    if field in needs:
        assert is_refused(replace(WHOLE[kind], **{field: nothing}))
    elif field not in may_have:
        assert is_refused(replace(WHOLE[kind], **{field: VALUES[field]}))


@pytest.mark.parametrize("kind", [5, 8, 9, 99, 101, -5, 2**31 - 1])
def test_what_is_no_request_is_refused(kind: int) -> None:
    assert is_refused(Query(kind))
    assert is_refused(Query(kind, tasks=VALUES["tasks"]))


@pytest.mark.parametrize(
    "query",
    [
        Query(QueryType.STEAL, location=b"w", wait_ms=-1),
        Query(QueryType.STEAL, location=b"w", lease_ms=0),
        Query(QueryType.STEAL, location=b"w", lease_ms=-1),
        Query(QueryType.STEAL, location=b"w" * 513),
        Query(QueryType.EXIT, location=b"w" * 513),
        Query(QueryType.TRANSFER, VALUES["tasks"], location=b"w" * 513),
        Query(QueryType.COMPLETE, VALUES["tasks"], location=b"w" * 513),
        Query(QueryType.CREATE, VALUES["tasks"], retry_us=-1),
        Query(QueryType.LIST, n=0),
        Query(QueryType.LIST, n=-1),
        Query(QueryType.LIST, cursor=-1),
        Query(QueryType.CREATE, [Task(b"a", b"b"), Task(b"", b"b")]),
        Query(QueryType.CREATE, [Task(b"a", b"b", error=b"x")]),
        Query(QueryType.TRANSFER, [Task(b"x", b"b", error=b"x")], location=b"w"),
        Query(QueryType.COMPLETE, [Task(b"x", b"b", id=1)], location=b"w"),
        Query(QueryType.COMPLETE, [Task(b"x", b"b", state=4)], location=b"w"),
        Query(QueryType.CREATE, [Task(b"a", b"b", after=[1])]),
    ],
    ids=repr,
)
def test_fields_that_make_no_sense_are_refused(query: Query) -> None:
    assert is_refused(query)


def test_a_location_may_have_512_bytes() -> None:
    assert not is_refused(Query(QueryType.STEAL, location=b"w" * 512))


def test_the_rest_of_what_the_original_has_in_a_task_is_taken_and_ignored() -> None:
    task = Task(b"a", b"b", [], [b"successor"], [(1, 2)])  # type: ignore[list-item]
    assert not is_refused(Query(QueryType.CREATE, [task]))


def test_an_error_says_what_is_wrong() -> None:
    world = DworkHarness()
    assert world.ask(Query(QueryType.STEAL)).reason == b"Steal takes location"
    assert world.ask(Query(QueryType.CREATE)).reason == b"Create takes task"
    assert world.ask(replace(WHOLE[QueryType.OK], n=1)).reason == b"OK takes no n"


@given(st.lists(st.binary(max_size=40) | damaged() | queries(own_fields=False).map(encode), min_size=1, max_size=6))
def test_any_bytes_get_one_answer(payloads: list[bytes]) -> None:
    world = DworkHarness()
    world.ask(create("a", "b after a"))
    world.ask(steal("w"))
    for number, payload in enumerate(payloads):
        peer = b"%d" % number
        world.listener.send(peer, b"", payload)
        world.harness.pass_time(3_000_000)  # a steal may wait for 25 days
        [[_, answer]] = world.listener.heard(peer)
        decode_reply(answer)


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=6))
def test_any_frames_are_survived(frames: list[bytes]) -> None:
    world = DworkHarness()
    world.listener.send(b"peer", *frames)
    assert len(world.listener.heard_by_all()) <= 1
