"""Questions and answers without a wire: what is to be sent, what was sent, and what came back for it.

Each question carries a tag in a frame of its own in front of the empty one; every dwork server sends such frames back,
so answers may come in any order, and a late one is not taken for another.

When a connection is lost, so are the questions on it, or their answers; nobody can tell which.  They are asked again on
the next connection, in the same order.  A Create that is asked again says how long ago it was first asked, so that the
server can tell what it has created since.  A Complete, a Transfer or an Exit may be done twice without harm.  A Steal
is asked again too; what the lost one may have taken comes back to the server's queue with the lease or the Exit of its
location.  The same is done with what a server refuses because it is about to stop.

A Steal that was given up may still be answered, and its tasks are ours then: they wait for the next one who steals.
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
    """The server answered with an error.  The protocol has only words for it, and no codes."""

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
        """What to send, now."""
        if self.first_sent is None or self.query.type != QueryType.CREATE:
            return encode(self.query)
        # One more than has passed: what was created in that very moment counts.
        return encode(replace(self.query, retry_us=int((now - self.first_sent) * 1e6) + 1))

    def sent(self, now: float) -> None:
        """It was sent."""
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
    """All questions of one client."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.outbox: deque[DworkRequest] = deque()  # to be sent as soon as there is a connection
        self.in_flight: dict[bytes, DworkRequest] = {}
        self.surplus: deque[Task] = deque()  # tasks that were stolen for somebody who had given up
        self.is_connected = False
        self.problem = ""  # with the last attempt to connect, if it is known
        self._clock = clock
        self._numbers = count(1)

    # --- for those who ask ---

    def ask(self, query: Query) -> DworkRequest:
        """Have this sent."""
        question = DworkRequest(b"%x" % next(self._numbers), query)
        self.outbox.append(question)
        return question

    def forget(self, question: DworkRequest) -> None:
        """The answer is not waited for any more."""
        if self.in_flight.pop(question.tag, None) is None and question in self.outbox:
            self.outbox.remove(question)

    # --- for the wire ---

    def next_message(self) -> tuple[bytes, bytes, bytes] | None:
        """The frames of what is to be sent next, if anything is; see `sent`."""
        if not self.outbox:
            return None
        question = self.outbox[0]
        return question.tag, b"", question.payload(self._clock())

    def sent(self) -> None:
        """It was sent."""
        question = self.outbox.popleft()
        question.sent(self._clock())
        self.in_flight[question.tag] = question

    def connected(self) -> None:
        self.is_connected = True
        self.problem = ""

    def disconnected(self, problem: str) -> None:
        """The connection is lost, or there was none: what was in flight will be asked again."""
        self.is_connected = False
        self.problem = problem
        self.outbox.extendleft(reversed(self.in_flight.values()))
        self.in_flight.clear()

    def receive(self, frames: Sequence[bytes]) -> None:
        """A message came.  One that makes no sense is no answer, and is dropped; whoever waits for it gives up."""
        if len(frames) != 3 or frames[1]:
            return
        try:
            answer = decode_reply(frames[2])
        except PeerError as error:
            answer = Query(QueryType.ERROR, reason=f"an answer that makes no sense: {error}".encode())
        question = self._question(frames[0])
        if question is None:
            if answer.type == QueryType.TRANSFER:
                self.surplus.extend(answer.tasks)
        elif answer.type == QueryType.EXIT and question.query.type != QueryType.STEAL:
            # The server is about to stop and has done nothing: this is still to be done when it is there again.
            self.problem = (answer.reason or b"it is shutting down").decode(errors="replace")
        else:
            question.answer = answer
            self.forget(question)

    def _question(self, tag: bytes) -> DworkRequest | None:
        """What is answered with this tag: also if it was to be asked again, because its answer seemed to be lost."""
        repeated = (question for question in self.outbox if question.tag == tag and question.first_sent is not None)
        return self.in_flight.get(tag) or next(repeated, None)
