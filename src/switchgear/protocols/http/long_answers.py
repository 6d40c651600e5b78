"""Answers that may be long: JSON with payloads or results, sent piece by piece as fast as the peer reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from switchgear.errors import Refused
from switchgear.json_bytes import LongBytes, encoded_around, pieces_of
from switchgear.protocols.http.messages import JSON
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.pending_read import Step
from switchgear.refusals import REFUSED_LIMIT

__all__ = ["respond_json_in_steps"]


def respond_json_in_steps(session: HttpSession, status: int, answer: Any, *, may_refuse: bool = True) -> Iterator[Step]:
    """Answer the present request with a JSON body in which payloads or results may be long (`json_bytes.told`).

    Raises Refused if there is no memory to hold them until they are sent.
    """
    parts, values = encoded_around(answer)
    if not values:
        session.respond(status, parts[0])
        return
    memory = session.engine.memory
    held_bytes = sum([len(value) for value in values])
    if may_refuse and not memory.has_room(held_bytes):
        raise Refused(REFUSED_LIMIT, "the server holds as much as it may; try again later")
    memory.draft_bytes += held_bytes
    try:
        session.begin_stream(status, JSON)
        if not session.has_no_body:
            yield from _send_json(session, parts, values)
        session.end_stream()
    finally:
        memory.draft_bytes -= held_bytes


def _send_json(session: HttpSession, parts: list[bytes], values: list[LongBytes]) -> Iterator[Step]:
    for part, value in zip(parts, values, strict=False):
        session.send_piece(part)
        for piece in pieces_of(value.data):
            if session.has_left:
                return
            if not piece:
                yield False
                continue
            session.send_piece(piece)
            session.note_long_answer(len(piece))
            yield True  # until the peer has taken it
    session.send_piece(parts[-1])
