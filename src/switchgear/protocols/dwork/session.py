"""`DworkSession`: the server side of dwork; translates requests into engine calls, and events into answers.

Each request gets one answer, in the envelope of the request: the sender's routing id, any other frames before the empty
one, and the empty one.

A task is a durable job of one function, whose name and payload are the task's name. Jobs submitted to that function
over other protocols are tasks as well, named by their payload.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from switchgear.access.permissions import Permissions
from switchgear.errors import PeerError, Refused
from switchgear.protocols.context import Context
from switchgear.protocols.dwork.codec import RequestReader, encode
from switchgear.protocols.dwork.create_requests import must_read, on_create
from switchgear.protocols.dwork.listing import on_list, on_lookup, on_status
from switchgear.protocols.dwork.long_requests import FIELDS_PER_STEP, complete, concerns_graph, create, steal, transfer
from switchgear.protocols.dwork.messages import Query, QueryType
from switchgear.protocols.dwork.protobuf import malformed
from switchgear.protocols.dwork.request_rules import check_fields, check_values, read_request
from switchgear.protocols.dwork.session_base import DworkSessionBase, DworkSetup, error_text, with_reason
from switchgear.protocols.dwork.worker_requests import on_complete, on_exit, on_steal, on_transfer
from switchgear.protocols.multipart import Message
from switchgear.protocols.pending_read import Step
from switchgear.protocols.transport import PeerTransport
from switchgear.refusals import REFUSALS, REFUSED_LIMIT, REFUSED_RUNNING
from switchgear.text import harmless
from switchgear.verbs.access import Role

__all__ = ["ON_REQUEST", "REQUEST_ROLES", "DworkSession", "DworkSetup"]

# Workers repeat the same few requests. Short requests without tasks are decoded once, and this many are cached.
REMEMBERED_REQUESTS = 4096
SHORT_REQUEST_BYTES: Final = 128

# Longer requests, and a Steal of more tasks, run in steps. This many bytes are up to a thousand tasks.
LONG_REQUEST_BYTES = 16_384
LONG_STEAL_TASKS = 200
# How many requests may wait for one of the same sender that runs in steps.
MOST_PIPELINED = 1_000

# The envelope is kept while a request waits. Each hop adds a frame, so few are enough.
MOST_ENVELOPE_FRAMES: Final = 16
MOST_ENVELOPE_BYTES: Final = 4096


ANSWERED_BY_EXIT: Final = frozenset(reason for reason, refusal in REFUSALS.items() if refusal.dwork == "Exit")


class DworkSession(DworkSessionBase):
    """The session of a dwork listener, with all its peers."""

    def __init__(self, context: Context, transport: PeerTransport, setup: DworkSetup) -> None:
        super().__init__(context, transport, setup)
        self._requests: dict[bytes, Query] = {}
        # By the sender of a request that runs in steps, its later requests.
        self._pipelined: dict[bytes, deque[tuple[Message, bytes]]] = {}

    def handle_message(self, message: Message) -> None:
        """[identity, any other frames, an empty one, the request]"""
        self.is_arriving = True
        try:
            self._handle(message)
        finally:
            self.is_arriving = False

    def _handle(self, message: Message) -> None:
        try:
            empty = message.index(b"", 1)
        except ValueError:
            empty = len(message)
        if empty >= len(message) - 1:  # without a delimiter the answer could not be delivered
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
            if self._pipelined:
                pipelined = self._pipelined.get(message[0])
                if pipelined is not None:
                    self._defer(pipelined, message, payload)
                    return
            query = self._requests.get(payload)
            if query is None:
                if len(payload) > LONG_REQUEST_BYTES:
                    self._begin_long(message, payload)
                    return
                query = self._read(payload)
            if self.is_guarded:
                self._check_access(query)
            if self._is_long(query):
                self._begin_long(message, payload)
                return
            ON_REQUEST[query.type](self, message, query)
        except (PeerError, Refused) as error:
            self._answer_error(message, error)

    def _check_access(self, query: Query) -> None:
        """Refuse a request that its sender may not make; raises Refused."""
        kind = QueryType(query.type)
        self.require(kind.name.title(), REQUEST_ROLES[kind], self.setup.function)

    def _answer_error(self, message: Message, error: PeerError | Refused) -> None:
        text = harmless(str(error))
        if isinstance(error, PeerError):
            self.context.count_bad_input(self, error.code, text)
            self.answer(message, error_text(text))
        elif error.reason in ANSWERED_BY_EXIT:
            self.answer(message, with_reason(QueryType.EXIT, str(error)))
        elif error.reason == REFUSED_RUNNING:
            self.answer(message, error_text(f"{error.told(self.task_label)}, by Transfer"))
        else:
            self.answer(message, error_text(str(error)))

    # --- requests that run in steps ---

    def _is_long(self, query: Query) -> bool:
        """Whether a request takes more than one turn: it is long, or needs a read of the store."""
        if query.type == QueryType.STEAL:
            return query.n is not None and query.n > LONG_STEAL_TASKS
        if query.type in IN_STEPS or must_read(self, query):
            return True
        return self.engine.is_graph_under_way and concerns_graph(self, query)

    def _begin_long(self, message: Message, payload: bytes) -> None:
        """Run a request in steps. Later requests of its sender wait for its answer."""
        if not self.engine.memory.has_room(len(payload)):
            raise Refused(REFUSED_LIMIT, "the server holds as much as it may; try again later")
        identity = message[0]
        self._pipelined[identity] = deque()
        self.work_off(self._work_off(identity, message, payload, self.permissions))

    def _work_off(self, identity: bytes, message: Message, payload: bytes, permissions: Permissions) -> Iterator[Step]:
        # The permissions are those on arrival: the peer may be gone before its request is read.
        memory = self.engine.memory
        pipelined = self._pipelined[identity]
        try:
            memory.input_bytes += len(payload)
            while True:
                try:
                    yield from self._answer_long(message, payload, permissions)
                except (PeerError, Refused) as error:
                    self._answer_error(message, error)
                finally:
                    memory.input_bytes -= len(payload)
                if not pipelined:
                    return
                yield False
                message, payload = pipelined.popleft()
        finally:
            self._pipelined.pop(identity, None)

    def _answer_long(self, message: Message, payload: bytes, permissions: Permissions) -> Iterator[Step]:
        if not payload:
            raise malformed("the message is empty")
        reader = RequestReader(payload)
        while reader.scan(FIELDS_PER_STEP):
            yield False
        query = reader.query
        check_fields(query, reader.fields)
        check_values(query)
        self.identify(permissions)
        if self.is_guarded:
            self._check_access(query)
        if query.type == QueryType.CREATE:
            yield from create(self, message, query, reader)
        elif query.type == QueryType.COMPLETE:
            yield from complete(self, message, query, reader)
        elif query.type == QueryType.TRANSFER:
            yield from transfer(self, message, query, reader)
        elif query.type == QueryType.STEAL and query.n is not None:
            yield from steal(self, message, query)
        elif query.type in IN_STEPS:
            yield from self.while_connected(message[0], IN_STEPS[query.type](self, message, query))
        else:
            ON_REQUEST[query.type](self, message, query)

    def _defer(self, pipelined: deque[tuple[Message, bytes]], message: Message, payload: bytes) -> None:
        """Let a request wait for one of the same sender that is in progress."""
        if len(pipelined) >= MOST_PIPELINED or not self.engine.memory.has_room(len(payload)):
            text = f"{len(pipelined)} requests wait already for one that is being worked off"
            raise PeerError(text, code="TOO_MANY")
        self.engine.memory.input_bytes += len(payload)
        pipelined.append((message, payload))

    def peer_gone(self, identity: bytes) -> None:
        """The peer has disconnected: drop its waiting queries, and carry out its waiting changes."""
        pipelined = self._pipelined.get(identity)
        if pipelined:
            for _ in range(len(pipelined)):
                message, payload = pipelined.popleft()
                if payload[:2] in QUESTIONS:
                    self.engine.memory.input_bytes -= len(payload)
                else:
                    pipelined.append((message, payload))
        super().peer_gone(identity)

    def _read(self, payload: bytes) -> Query:
        query = read_request(payload)
        if not query.tasks and len(payload) <= SHORT_REQUEST_BYTES:
            if len(self._requests) >= REMEMBERED_REQUESTS:
                self._requests.clear()
            self._requests[payload] = query
        return query


ON_REQUEST: Final[dict[int, Callable[[DworkSessionBase, Message, Query], None]]] = {
    QueryType.CREATE: on_create,
    QueryType.STEAL: on_steal,
    QueryType.COMPLETE: on_complete,
    QueryType.TRANSFER: on_transfer,
    QueryType.OK: on_status,
    QueryType.EXIT: on_exit,
}

# Requests that may need a read of the store.
IN_STEPS: Final[dict[int, Callable[[DworkSessionBase, Message, Query], Iterator[Step]]]] = {
    QueryType.LOOKUP: on_lookup,
    QueryType.LIST: on_list,
}

REQUEST_ROLES: Final[dict[int, frozenset[Role]]] = {
    QueryType.CREATE: frozenset({Role.SUBMIT}),
    QueryType.STEAL: frozenset({Role.WORK}),
    QueryType.COMPLETE: frozenset({Role.WORK}),
    QueryType.TRANSFER: frozenset({Role.WORK}),
    QueryType.OK: frozenset({Role.READ, Role.SUBMIT, Role.WORK}),
    QueryType.EXIT: frozenset({Role.WORK}),
    QueryType.LOOKUP: frozenset({Role.READ, Role.SUBMIT, Role.WORK}),
    QueryType.LIST: frozenset({Role.READ, Role.SUBMIT}),
}

# How their messages begin, as everybody writes them: with the field `type`.
QUESTIONS: Final = frozenset([encode(Query(kind))[:2] for kind in IN_STEPS])
