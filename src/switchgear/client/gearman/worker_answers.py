"""Reads what a server of ours sends to workers in JSON: answers of verbs, and requests of operators."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec

from switchgear.client.gearman.packets import split_fields, wire_number
from switchgear.client.gearman.worker_events import ControlRequested, FoundUndeclared
from switchgear.errors import PeerError

__all__ = ["control_request", "ready_jobs", "undeclared_in"]


class _WorkerControl(msgspec.Struct):
    """The request in a WORKER_CONTROL packet."""

    action: str
    slots: int = 0
    text: str = ""


def control_request(body: bytes) -> ControlRequested:
    """The request of an operator in a WORKER_CONTROL packet; raises PeerError."""
    number_text, request = split_fields(body, 2)
    try:
        wanted = msgspec.json.decode(request, type=_WorkerControl)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PeerError(f"a request of an operator that cannot be read: {error}") from error
    return ControlRequested(wire_number(number_text), wanted.action, wanted.slots, wanted.text)


def ready_jobs(body: bytes, functions: Container[str]) -> int:
    """How many jobs of these functions are ready and not paused, by an answer of the verb `functions`.

    Raises PeerError.
    """
    try:
        found = msgspec.json.decode(body, type=list[dict[str, Any]])
        rows = [row for row in found if isinstance(row["name"], str) and row["name"] in functions]
        return sum(int(row["ready"]) for row in rows if not row.get("paused"))
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise PeerError(f"an answer about functions that cannot be read: {error}") from error


def undeclared_in(body: bytes) -> FoundUndeclared:
    """The schedules and functions that an answer of the verb `declare` names; raises PeerError."""
    try:
        answer = msgspec.json.decode(body, type=dict[str, Any])
        schedules, functions = (tuple(map(str, answer[kind])) for kind in ("schedules", "functions"))
    except (msgspec.MsgspecError, KeyError, TypeError, RecursionError) as error:
        raise PeerError(f"an answer about declarations that cannot be read: {error}") from error
    return FoundUndeclared(schedules, functions, bool(answer.get("removed")))
