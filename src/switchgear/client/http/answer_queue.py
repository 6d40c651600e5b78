"""`AnswerQueue`: answers come from several connections in any order, and leave in the order of their requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from switchgear.client.gearman.error_codes import JOB_NOT_FOUND
from switchgear.client.http.answers import HttpAnswer, error_code_of
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import Packet

__all__ = ["AnswerQueue", "AnswerSlot", "error_packet", "problem_packet"]


class AnswerSlot:
    """The place of one answer among those before and after it."""

    __slots__ = ("on_sent", "packet")

    def __init__(self, on_sent: Callable[[], None] | None = None) -> None:
        self.packet: bytes | None = None  # until it is known
        self.on_sent = on_sent  # called when the answer has left


class AnswerQueue:
    """The answers that a Gearman core waits for, and the packets that are on their way to it."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []  # to be taken by the owner
        self._slots: deque[AnswerSlot] = deque()

    def add(self, on_sent: Callable[[], None] | None = None) -> AnswerSlot:
        """Reserve a slot for the answer of a request, behind all other slots."""
        slot = AnswerSlot(on_sent)
        self._slots.append(slot)
        return slot

    def answer(self, slot: AnswerSlot, packet: bytes) -> None:
        """The answer of a slot is known: send it, and those behind it that have waited for it."""
        slot.packet = packet
        while self._slots and self._slots[0].packet is not None:
            first = self._slots.popleft()
            assert first.packet is not None
            self.packets.append(first.packet)
            if first.on_sent is not None and not first.packet.startswith(_ERROR_START):
                first.on_sent()

    def send(self, packet: bytes) -> None:
        """Send a packet that is not an answer, ahead of all answers that are not known yet."""
        self.packets.append(packet)


_ERROR_START = response(Packet.ERROR)[:8]


def error_packet(code: str, text: str) -> bytes:
    """Encode an ERROR packet."""
    return response(Packet.ERROR, code.encode(), text.encode())


def problem_packet(answer: HttpAnswer, server: str, *, concerns_job: bool = False, verb: str = "") -> bytes:
    """The ERROR packet for an answer that is not good; `verb` is the operator verb that was used."""
    problem = answer.problem()
    if problem is None:
        text = f"{server} answered with {answer.words}; is that the HTTP interface of a Switchgear server?"
        return error_packet(f"HTTP_{answer.status}", text)
    code = JOB_NOT_FOUND if concerns_job and problem[0] == "not_found" else error_code_of(problem)
    text = problem[1]
    if verb and code == "INVALID_ARGUMENT" and not text.startswith(verb):
        text = f"{verb}: {text}"
    return error_packet(code, text)
