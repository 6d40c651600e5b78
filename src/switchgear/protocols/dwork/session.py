"""The dwork server: requests to engine calls, news to answers.

One request, one answer.  An answer goes back in the envelope that its request came in: the sender's identity, whatever
other frames stand before the empty one, and the empty one.

A task is a durable job of one function, whose name and payload are the task's name.  Jobs that others submit to that
function are tasks as well, called by their payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchgear.engine.core import REFUSED_DRAINING
from switchgear.errors import PeerError, Refused
from switchgear.protocols.base import Context, Message, Wire
from switchgear.protocols.dwork.codec import malformed
from switchgear.protocols.dwork.creators import on_create
from switchgear.protocols.dwork.desk import Desk, DworkSetup, error_text, with_reason
from switchgear.protocols.dwork.listing import on_list, on_lookup, on_status
from switchgear.protocols.dwork.messages import Query, QueryType
from switchgear.protocols.dwork.requests import read_request
from switchgear.protocols.dwork.workers import on_complete, on_exit, on_steal, on_transfer
from switchgear.text import harmless

__all__ = ["ON_REQUEST", "DworkSession", "DworkSetup"]

# Workers send the same few bytes again and again.  Short requests without tasks are read once, and as many remembered.
REMEMBERED_REQUESTS = 4096
SHORT_REQUEST_BYTES: Final = 128

# What comes before a request is kept while it waits.  Each hop on the way adds a frame, so few are enough.
MOST_ENVELOPE_FRAMES: Final = 16
MOST_ENVELOPE_BYTES: Final = 4096


class DworkSession(Desk):
    """All conversations of a dwork listener."""

    def __init__(self, context: Context, wire: Wire, setup: DworkSetup) -> None:
        super().__init__(context, wire, setup)
        self._requests: dict[bytes, Query] = {}

    def receive_message(self, message: Message) -> None:
        """[identity, any other frames, an empty one, the request]"""
        try:
            empty = message.index(b"", 1)
        except ValueError:
            empty = len(message)
        if empty >= len(message) - 1:  # nobody could find the answer, so there is none
            self.context.count_bad_input(self, "MALFORMED", "no empty frame between the envelope and the request")
            return
        payload = message.pop()
        try:
            if empty != len(message) - 1:
                del message[empty + 1 :]
                raise malformed("a request of several frames")
            if empty > 1 and (empty > MOST_ENVELOPE_FRAMES + 1 or sum(map(len, message)) > MOST_ENVELOPE_BYTES):
                limits = f"{MOST_ENVELOPE_FRAMES} frames and {MOST_ENVELOPE_BYTES} bytes"
                raise malformed(f"more than {limits} before the request")
            query = self._requests.get(payload)
            if query is None:
                query = self._read(payload)
            ON_REQUEST[query.type](self, message, query)
        except PeerError as error:
            text = harmless(str(error))
            self.context.count_bad_input(self, error.code, text)
            self.answer(message, error_text(text))
        except Refused as refused:
            if refused.reason == REFUSED_DRAINING:
                self.answer(message, with_reason(QueryType.EXIT, str(refused)))
            else:
                self.answer(message, error_text(str(refused)))

    def _read(self, payload: bytes) -> Query:
        query = read_request(payload)
        if not query.tasks and len(payload) <= SHORT_REQUEST_BYTES:
            if len(self._requests) >= REMEMBERED_REQUESTS:
                self._requests.clear()
            self._requests[payload] = query
        return query


ON_REQUEST: Final[dict[int, Callable[[Desk, Message, Query], None]]] = {
    QueryType.CREATE: on_create,
    QueryType.STEAL: on_steal,
    QueryType.COMPLETE: on_complete,
    QueryType.TRANSFER: on_transfer,
    QueryType.LOOKUP: on_lookup,
    QueryType.OK: on_status,
    QueryType.EXIT: on_exit,
    QueryType.LIST: on_list,
}
