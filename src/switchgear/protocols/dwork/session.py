"""The dwork server: requests to engine calls, news to answers.

One request, one answer.  An answer goes back in the envelope that its request came in: the sender's identity, whatever
other frames stand before the empty one, and the empty one.

A task is a durable job of one function, whose name and payload are the task's name.  Jobs that others submit to that
function are tasks as well, called by their payload.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from switchgear.engine.core import REFUSED_DRAINING, REFUSED_LIMIT
from switchgear.errors import PeerError, Refused
from switchgear.protocols.base import Context, Message, Wire
from switchgear.protocols.dwork.codec import RequestReader, malformed
from switchgear.protocols.dwork.creators import on_create
from switchgear.protocols.dwork.desk import Desk, DworkSetup, error_text, with_reason
from switchgear.protocols.dwork.listing import on_list, on_lookup, on_status
from switchgear.protocols.dwork.long_requests import FIELDS_PER_STEP, complete, concerns_change, create, steal, transfer
from switchgear.protocols.dwork.messages import Query, QueryType
from switchgear.protocols.dwork.requests import check_fields, check_values, read_request
from switchgear.protocols.dwork.workers import on_complete, on_exit, on_steal, on_transfer
from switchgear.text import harmless

__all__ = ["ON_REQUEST", "DworkSession", "DworkSetup"]

# Workers send the same few bytes again and again.  Short requests without tasks are read once, and as many remembered.
REMEMBERED_REQUESTS = 4096
SHORT_REQUEST_BYTES: Final = 128

# Longer ones, and a Steal of more tasks, are worked off in steps.  So many bytes are up to a thousand tasks.
LONG_REQUEST_BYTES = 16_384
LONG_STEAL_TASKS = 200
# So many requests may wait for one of the same sender that is worked off in steps.
MOST_BEHIND = 1_000

# What comes before a request is kept while it waits.  Each hop on the way adds a frame, so few are enough.
MOST_ENVELOPE_FRAMES: Final = 16
MOST_ENVELOPE_BYTES: Final = 4096


class DworkSession(Desk):
    """All conversations of a dwork listener."""

    def __init__(self, context: Context, wire: Wire, setup: DworkSetup) -> None:
        super().__init__(context, wire, setup)
        self._requests: dict[bytes, Query] = {}
        # By the sender of a request that is being worked off, what it has sent since.
        self._behind: dict[bytes, deque[tuple[Message, bytes]]] = {}

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
            if self._behind:
                behind = self._behind.get(message[0])
                if behind is not None:
                    self._put_off(behind, message, payload)
                    return
            query = self._requests.get(payload)
            if query is None:
                if len(payload) > LONG_REQUEST_BYTES:
                    self._begin_long(message, payload)
                    return
                query = self._read(payload)
            if self._is_long(query):
                self._begin_long(message, payload)
                return
            ON_REQUEST[query.type](self, message, query)
        except (PeerError, Refused) as error:
            self._answer_error(message, error)

    def _answer_error(self, message: Message, error: PeerError | Refused) -> None:
        text = harmless(str(error))
        if isinstance(error, PeerError):
            self.context.count_bad_input(self, error.code, text)
            self.answer(message, error_text(text))
        elif error.reason == REFUSED_DRAINING:
            self.answer(message, with_reason(QueryType.EXIT, str(error)))
        else:
            self.answer(message, error_text(str(error)))

    # --- requests that are worked off in steps ---

    def _is_long(self, query: Query) -> bool:
        if query.type == QueryType.STEAL:
            return query.n is not None and query.n > LONG_STEAL_TASKS
        return self.is_changing and concerns_change(self, query)

    def _begin_long(self, message: Message, payload: bytes) -> None:
        """Work a request off in steps.  What its sender asks for next waits until it is answered."""
        if not self.engine.memory.has_room(len(payload)):
            raise Refused(REFUSED_LIMIT, "the server holds as much as it may; try again later")
        identity = message[0]
        self._behind[identity] = deque()
        self.context.work_off(self._work_off(identity, message, payload))

    def _work_off(self, identity: bytes, message: Message, payload: bytes) -> Iterator[bool]:
        memory = self.engine.memory
        behind = self._behind[identity]
        try:
            memory.input_bytes += len(payload)
            while True:
                try:
                    yield from self._answer_long(message, payload)
                except (PeerError, Refused) as error:
                    self._answer_error(message, error)
                finally:
                    memory.input_bytes -= len(payload)
                if not behind:
                    return
                yield False
                message, payload = behind.popleft()
        finally:
            self._behind.pop(identity, None)

    def _answer_long(self, message: Message, payload: bytes) -> Iterator[bool]:
        if not payload:
            raise malformed("the message is empty")
        reader = RequestReader(payload)
        while reader.scan(FIELDS_PER_STEP):
            yield False
        query = reader.query
        check_fields(query, reader.fields)
        check_values(query)
        if query.type == QueryType.CREATE:
            yield from create(self, message, query, reader)
        elif query.type == QueryType.COMPLETE:
            yield from complete(self, message, query, reader)
        elif query.type == QueryType.TRANSFER:
            yield from transfer(self, message, query, reader)
        elif query.type == QueryType.STEAL and query.n is not None:
            yield from steal(self, message, query)
        else:
            ON_REQUEST[query.type](self, message, query)

    def _put_off(self, behind: deque[tuple[Message, bytes]], message: Message, payload: bytes) -> None:
        """Let a request wait for one of the same sender that is being worked off."""
        if len(behind) >= MOST_BEHIND or not self.engine.memory.has_room(len(payload)):
            text = f"{len(behind)} requests wait already for one that is being worked off"
            raise PeerError(text, code="TOO_MANY")
        self.engine.memory.input_bytes += len(payload)
        behind.append((message, payload))

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
