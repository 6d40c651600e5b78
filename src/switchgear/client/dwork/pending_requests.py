"""`PendingRequests`: the requests of a dwork client without I/O: to be sent, sent, and answered.

Each request carries a tag in a frame of its own in front of the empty one; every dwork server sends such frames back,
so answers may come in any order, and a late one is not taken for another.

When a connection is lost, so are the requests on it, or their answers; it is unknown which. They are sent again on the
next connection, in the same order. A repeated Create says how long ago it was first sent, so that the server can tell
what it has created since. A Complete, a Transfer or an Exit may be executed twice without harm. A Steal is repeated
too; tasks that the lost one may have taken return to the server's queue with the lease or the Exit of its location.
Requests that a server refuses because it is about to stop are repeated as well.

An abandoned Steal may still be answered, and its tasks are ours then: the next Steal returns them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from switchgear.errors import PeerError, ServerRefused
from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import Query, QueryType, Task

__all__ = ["DworkRefused", "DworkRequest", "PendingRequests"]


class DworkRefused(ServerRefused):
    """The server answered with an error, for which the protocol has a text but no code."""

    def __init__(self, text: str) -> None:
        super().__init__("ERROR", text)

    def __str__(self) -> str:
        return self.text


class DworkRequest:
    """A request, until it is answered."""

    def __init__(self, tag: bytes, query: Query) -> None:
        self.tag = tag
        self.query = query
        self.first_sent: float | None = None
        self.is_repeated = False
        self.answer: Query | None = None

    def is_answered(self) -> bool:
        return self.answer is not None

    def payload(self, now: float) -> bytes:
        """The encoded request, with its age if it is sent again."""
        if self.first_sent is None or self.query.type != QueryType.CREATE:
            return encode(self.query)
        # One more than has passed: what was created in that very moment counts.
        return encode(replace(self.query, retry_us=int((now - self.first_sent) * 1e6) + 1))

    def sent(self, now: float) -> None:
        """Note that the message of this request was sent, for the first time or again."""
        if self.first_sent is None:
            self.first_sent = now
        else:
            self.is_repeated = True

    def result(self) -> Query:
        """The answer; raises ServerRefused if it is an error."""
        answer = self.answer
        assert answer is not None
        if answer.type == QueryType.ERROR:
            reason = (answer.reason or b"").decode(errors="replace")
            raise DworkRefused(reason or "the server did not understand, and did not say why")
        return answer


class PendingRequests:
    """The requests of one client that are queued or not answered yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.outbox: deque[DworkRequest] = deque()  # to be sent as soon as there is a connection
        self.in_flight: dict[bytes, DworkRequest] = {}
        self.surplus: deque[Task] = deque()  # tasks of Steals that were given up
        self.is_connected = False
        self.problem = ""  # with the last attempt to connect, if it is known
        self._clock = clock
        self._numbers = count(1)

    # --- for those who ask ---

    def ask(self, query: Query) -> DworkRequest:
        """Queue a request."""
        request = DworkRequest(b"%x" % next(self._numbers), query)
        self.outbox.append(request)
        return request

    def forget(self, request: DworkRequest) -> None:
        """Drop a request whose answer is no longer needed."""
        if self.in_flight.pop(request.tag, None) is None and request in self.outbox:
            self.outbox.remove(request)

    # --- for the socket ---

    def next_message(self) -> tuple[bytes, bytes, bytes] | None:
        """The frames of the next message to send; None if there is none.  See `sent`."""
        if not self.outbox:
            return None
        request = self.outbox[0]
        return request.tag, b"", request.payload(self._clock())

    def sent(self) -> None:
        """Note that the first message of the outbox was sent; its request is in flight from now on."""
        request = self.outbox.popleft()
        request.sent(self._clock())
        self.in_flight[request.tag] = request

    def connected(self) -> None:
        self.is_connected = True
        self.problem = ""

    def disconnected(self, problem: str) -> None:
        """The connection was lost or could not be made: requests in flight are queued again."""
        self.is_connected = False
        self.problem = problem
        self.outbox.extendleft(reversed(self.in_flight.values()))
        self.in_flight.clear()

    def receive(self, frames: Sequence[bytes]) -> None:
        """Handle a message.  A malformed one is dropped, and its request times out."""
        if len(frames) != 3 or frames[1]:
            return
        try:
            answer = decode_reply(frames[2])
        except PeerError as error:
            answer = Query(QueryType.ERROR, reason=f"an answer that makes no sense: {error}".encode())
        request = self._request_of(frames[0])
        if request is None:
            if answer.type == QueryType.TRANSFER:
                self.surplus.extend(answer.tasks)
        elif answer.type == QueryType.EXIT and request.query.type != QueryType.STEAL:
            # The server is about to stop and has done nothing: this is still to be done when it is there again.
            self.problem = (answer.reason or b"it is shutting down").decode(errors="replace")
        else:
            request.answer = answer
            self.forget(request)

    def _request_of(self, tag: bytes) -> DworkRequest | None:
        """The request with this tag, also if it is queued again because its answer seemed to be lost."""
        repeated = (request for request in self.outbox if request.tag == tag and request.first_sent is not None)
        return self.in_flight.get(tag) or next(repeated, None)
