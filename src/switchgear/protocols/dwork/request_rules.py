"""The fields of each type of request. All others must be absent, or the request is malformed."""

from __future__ import annotations

from typing import Final

from switchgear.protocols.dwork.codec import decode_with_fields
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.protobuf import malformed
from switchgear.trace_context import is_traceparent

__all__ = ["FIELDS", "REQUESTS", "Rule", "check_fields", "check_task", "check_values", "read_request"]

FIELDS: Final = {
    "task": 2,
    "name": 3,
    "n": 4,
    "location": 6,
    "reason": 100,
    "wait_ms": 101,
    "lease_ms": 102,
    "retry_us": 103,
    "cursor": 104,
    "tags": 105,
    "resources": 106,
}
TYPE_BIT: Final = 1 << 1

LONGEST_LOCATION: Final = 512  # it is kept in memory


class Rule:
    """The required and optional fields of a type of request, as bit sets."""

    def __init__(self, needs: str = "", may_have: str = "") -> None:
        self.needs = sum(1 << FIELDS[field] for field in needs.split())
        self.allowed = self.needs | TYPE_BIT | sum(1 << FIELDS[field] for field in may_have.split())


REQUESTS: Final = {
    QueryType.CREATE: Rule("task", "retry_us"),
    QueryType.STEAL: Rule("location", "n wait_ms lease_ms tags resources"),
    QueryType.COMPLETE: Rule("task location"),
    QueryType.TRANSFER: Rule("task location"),
    QueryType.LOOKUP: Rule("name"),
    QueryType.OK: Rule(),
    QueryType.EXIT: Rule("location"),
    QueryType.LIST: Rule("", "n cursor"),
}
COMPLETE: Final = int(QueryType.COMPLETE)
BY_NUMBER: Final[dict[int, Rule]] = {int(kind): rule for kind, rule in REQUESTS.items()}


def read_request(data: bytes) -> Query:
    """Decode and check a request; raises PeerError."""
    if not data:
        raise malformed("the message is empty")
    query, fields = decode_with_fields(data)
    check_fields(query, fields)
    check_values(query)
    for task in query.tasks:
        check_task(query.type, task)
    return query


def check_fields(query: Query, fields: int) -> None:
    """Check that all required fields are there, and no unexpected ones."""
    rule = BY_NUMBER.get(query.type)
    if rule is None:
        raise malformed(f"no request has the type {query.type}")
    if rule.needs & ~fields:
        raise malformed(f"{kind_of(query)} takes {first_of(rule.needs & ~fields)}")
    if fields & ~rule.allowed:
        raise malformed(f"{kind_of(query)} takes no {first_of(fields & ~rule.allowed)}")


def check_task(kind: int, task: Task) -> None:
    """Check a task of a request."""
    if kind != QueryType.CREATE and kind != QueryType.TRANSFER:
        return
    if task.error is not None:
        raise malformed(f"{kind_of(Query(kind))} takes no error")
    if task.trace and kind == QueryType.CREATE and not is_traceparent(task.trace):
        raise malformed("trace is no traceparent of W3C Trace Context")
    if not task.name and kind == QueryType.CREATE:
        raise malformed("the name of a task is empty")


def check_values(query: Query) -> None:
    """Check the numbers of a request."""
    kind = query.type
    if query.location is not None and len(query.location) > LONGEST_LOCATION:
        raise malformed(f"location has {len(query.location)} bytes; at most {LONGEST_LOCATION} are taken")
    if kind == COMPLETE:
        return
    if kind == QueryType.STEAL:
        if query.wait_ms is not None and query.wait_ms < 0:
            raise malformed("wait_ms is below 0")
        if query.lease_ms is not None and query.lease_ms < 1:
            raise malformed("lease_ms is below 1")
    elif kind == QueryType.LIST:
        if query.n is not None and query.n < 1:
            raise malformed("a list of less than one task")
        if query.cursor is not None and query.cursor < 0:
            raise malformed("cursor is below 0")
    elif query.retry_us is not None and query.retry_us < 0:
        raise malformed("retry_us is below 0")


def kind_of(query: Query) -> str:
    name = QueryType(query.type).name
    return name.capitalize() if query.type != QueryType.OK else name


def first_of(fields: int) -> str:
    return next(field for field, number in FIELDS.items() if fields & 1 << number)
