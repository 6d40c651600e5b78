"""A client's side of a Gearman connection, without the connection: which answer belongs to which question.

Answers come in the order of the questions, so a question is one entry of a line: the next answer is for the oldest of
them.  News of jobs come in between, and carry the handle of the job they are about.

A connection that submits one unique key twice, or watches a job that it submitted, hears all news of that job twice.
So each copy goes to the next of those who follow the job, in turn.  Who follows is held weakly: a program that has
thrown its job away need not hear of it, but its copy still comes and has to be counted.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from switchgear.client.connection import LARGEST_PACKET_BYTES, LONGEST_LINE_BYTES, refusal
from switchgear.errors import ServerUnreachable
from switchgear.protocols.framing import Message
from switchgear.protocols.gearman.codec import RESPONSE, Decoder
from switchgear.protocols.gearman.messages import Packet

__all__ = ["FINAL_NEWS", "NEWS", "ClientProtocol", "EventHandler", "PendingRequest"]

FINAL_NEWS: Final = frozenset(
    int(kind) for kind in (Packet.WORK_COMPLETE, Packet.WORK_FAIL, Packet.WORK_EXCEPTION, Packet.JOB_ENDED)
)
NEWS: Final = FINAL_NEWS | frozenset(
    int(kind) for kind in (Packet.WORK_DATA, Packet.WORK_WARNING, Packet.WORK_STATUS, Packet.WORK_PROGRESS)
)
ERROR: Final = int(Packet.ERROR)
# What a server says of its own accord, to no question of ours.
_UNASKED: Final = frozenset({int(Packet.NOOP)})


class EventHandler:
    """Somebody who hears of a job."""

    def hear(self, kind: int, data: bytes) -> None:
        """A packet about the job, without the handle it began with."""

    def lose(self, error: ServerUnreachable) -> None:
        """The connection is over, and no more will be heard through it."""


class PendingRequest(ABC):
    """Something that was asked, and what to do with the answer."""

    takes_errors = False  # an error is part of its answer, and not the end of it

    @abstractmethod
    def answer(self, kind: int, body: bytes) -> bool:
        """The next packet for this question; whether there is more of the answer to come."""

    @abstractmethod
    def refuse(self, error: Exception) -> None:
        """The answer is an error."""

    def lose(self, error: ServerUnreachable) -> None:
        """The connection is over, and the answer will not come."""
        self.refuse(error)


class ClientProtocol:
    """Questions on their way, and who follows which job."""

    def __init__(self) -> None:
        self.outgoing: list[bytes] = []  # to be sent, by whoever has the connection
        self.followers: dict[bytes, weakref.ref[EventHandler] | deque[weakref.ref[EventHandler]]] = {}
        self._questions: deque[PendingRequest] = deque()
        self._decoder = Decoder(RESPONSE, LARGEST_PACKET_BYTES, LONGEST_LINE_BYTES)

    @property
    def unanswered(self) -> int:
        """How many questions are on their way."""
        return len(self._questions)

    def ask(self, packet: bytes, question: PendingRequest) -> None:
        """Send this, and have the question answered."""
        self.outgoing.append(packet)
        self._questions.append(question)

    def take_outgoing(self) -> bytes:
        """All that is to be sent, in one piece."""
        data = self.outgoing[0] if len(self.outgoing) == 1 else b"".join(self.outgoing)
        self.outgoing.clear()
        return data

    def follow(self, handle: bytes, follower: EventHandler) -> None:
        """Pass on one copy of the news about this job."""
        reference = weakref.ref(follower)
        known = self.followers.get(handle)
        if known is None:
            self.followers[handle] = reference
        elif isinstance(known, deque):
            known.append(reference)
        else:
            self.followers[handle] = deque([known, reference])

    def receive(self, data: bytes) -> None:
        """Bytes have come; raises ServerUnreachable if they are no Gearman, after what came before them was heard."""
        for kind, body in self._decoder.feed(data):
            if kind in NEWS:
                handle, _, rest = body.partition(b"\0")
                self.pass_on(kind, handle, rest)
            else:
                self._answer((kind, body))
        if self._decoder.failure is not None:
            raise ServerUnreachable(f"the server does not speak Gearman: {self._decoder.failure}")

    def _answer(self, message: Message) -> None:
        kind, body = message
        if kind in _UNASKED or not self._questions:
            return
        question = self._questions[0]
        if kind == ERROR and not question.takes_errors:
            self._questions.popleft()
            question.refuse(refusal(body))
        elif not question.answer(kind, body):
            self._questions.popleft()

    def pass_on(self, kind: int, handle: bytes, data: bytes) -> None:
        """News of a job, for the next who follows it."""
        known = self.followers.get(handle)
        if known is None:
            return
        if isinstance(known, deque):
            reference = known.popleft()
            if kind not in FINAL_NEWS:
                known.append(reference)
            elif not known:
                del self.followers[handle]
        else:
            reference = known
            if kind in FINAL_NEWS:
                del self.followers[handle]
        follower = reference()
        if follower is not None:
            follower.hear(kind, data)

    def lose(self, error: ServerUnreachable) -> None:
        """The connection is over: tell everybody."""
        questions, self._questions = self._questions, deque()
        for question in questions:
            question.lose(error)
        for _, follower in self.take_followers():
            follower.lose(error)

    def take_followers(self) -> list[tuple[bytes, EventHandler]]:
        """All who still follow a job, and no more will after this."""
        followers, self.followers = self.followers, {}
        found: list[tuple[bytes, EventHandler]] = []
        for handle, known in followers.items():
            for reference in known if isinstance(known, deque) else (known,):
                follower = reference()
                if follower is not None:
                    found.append((handle, follower))
        return found
