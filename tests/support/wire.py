"""A raw Gearman socket for tests.

It judges the product's codec, so it shares nothing with it: the numbers and the framing are written down here
again, from gearmand's documents.  One port carries packets and text, told apart by the first byte of a message.

How to see that *nothing* was sent without waiting for it: a server answers the requests of one connection in
their order, so we send an ECHO_REQ with a token never used before (a *fence*) and read up to its ECHO_RES.
Everything the server had to say to this connection lies before it.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple, Self

from tests.support.waiting import DEADLINE_SECONDS

REQ = b"\0REQ"
RES = b"\0RES"
_HEADER = struct.Struct(">4sII")


class Kind(IntEnum):
    """The packets of gearmand 1.1.20."""

    CAN_DO = 1
    CANT_DO = 2
    RESET_ABILITIES = 3
    PRE_SLEEP = 4
    UNUSED = 5
    NOOP = 6
    SUBMIT_JOB = 7
    JOB_CREATED = 8
    GRAB_JOB = 9
    NO_JOB = 10
    JOB_ASSIGN = 11
    WORK_STATUS = 12
    WORK_COMPLETE = 13
    WORK_FAIL = 14
    GET_STATUS = 15
    ECHO_REQ = 16
    ECHO_RES = 17
    SUBMIT_JOB_BG = 18
    ERROR = 19
    STATUS_RES = 20
    SUBMIT_JOB_HIGH = 21
    SET_CLIENT_ID = 22
    CAN_DO_TIMEOUT = 23
    ALL_YOURS = 24
    WORK_EXCEPTION = 25
    OPTION_REQ = 26
    OPTION_RES = 27
    WORK_DATA = 28
    WORK_WARNING = 29
    GRAB_JOB_UNIQ = 30
    JOB_ASSIGN_UNIQ = 31
    SUBMIT_JOB_HIGH_BG = 32
    SUBMIT_JOB_LOW = 33
    SUBMIT_JOB_LOW_BG = 34
    SUBMIT_JOB_SCHED = 35
    SUBMIT_JOB_EPOCH = 36
    SUBMIT_REDUCE_JOB = 37
    SUBMIT_REDUCE_JOB_BACKGROUND = 38
    GRAB_JOB_ALL = 39
    JOB_ASSIGN_ALL = 40
    GET_STATUS_UNIQUE = 41
    STATUS_RES_UNIQUE = 42


class Packet(NamedTuple):
    """A packet from the server.  The arguments are not taken apart: where they end depends on the type."""

    type: int
    body: bytes

    def __repr__(self) -> str:
        name = Kind(self.type).name if self.type in set(Kind) else str(self.type)
        return f"<{name} {self.body!r}>"


class Line(NamedTuple):
    """A line of text from the server, with its line end."""

    text: bytes

    def __repr__(self) -> str:
        return f"<line {self.text!r}>"


class _Closed:
    def __repr__(self) -> str:
        return "<closed by the server>"


CLOSED = _Closed()
Message = Packet | Line | _Closed


class BrokenFramingError(AssertionError):
    """The server sent something that is neither a response packet nor a line."""


class NothingArrivedError(AssertionError):
    """The deadline passed; what did arrive is in the text."""


def request(kind: int, *args: bytes, magic: bytes = REQ) -> bytes:
    """The bytes of one packet; the arguments are joined by NULs."""
    body = b"\0".join(args)
    return _HEADER.pack(magic, kind, len(body)) + body


def split_message(data: bytes) -> tuple[Message, bytes] | None:
    """The first message in ``data`` and the rest; None when it is not whole yet."""
    if data[:1] == b"\0":
        if len(data) < _HEADER.size:
            return None
        magic, kind, size = _HEADER.unpack_from(data)
        if magic != RES:
            raise BrokenFramingError(f"expected \\0RES, got {data[:64]!r}")
        end = _HEADER.size + size
        return (Packet(kind, data[_HEADER.size : end]), data[end:]) if len(data) >= end else None
    line, newline, rest = data.partition(b"\n")
    return (Line(line + newline), rest) if newline else None


_fence_numbers = itertools.count(1)


def _fence_token() -> bytes:
    return b"fence %d %s" % (next(_fence_numbers), os.urandom(8).hex().encode())


class Wire:
    """One connection to a Gearman server."""

    def __init__(self, address: tuple[str, int], deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self.deadline_seconds = deadline_seconds
        self._socket = socket.create_connection(address, timeout=deadline_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._closed_by_server = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Close without a goodbye: the server gets a reset instead of an end."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def send_no_more(self) -> None:
        """Close the sending side only, as ``printf ... | nc`` does."""
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, kind: int, *args: bytes, magic: bytes = REQ) -> None:
        self.send_bytes(request(kind, *args, magic=magic))

    def send_line(self, text: str) -> None:
        """A text command; the newline is added."""
        self.send_bytes(text.encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """A server that has hung up is noticed when reading: something to read may still lie before the end."""
        self._socket.settimeout(self.deadline_seconds)
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def receive(self, within_seconds: float | None = None) -> Message:
        """The next packet or line, or CLOSED."""
        deadline = self._deadline(within_seconds)
        while True:
            whole = split_message(self._received) if self._received else None
            if whole is not None:
                message, self._received = whole
                return message
            if self._closed_by_server:
                if self._received:
                    raise BrokenFramingError(f"closed in the middle of a message: {self._received!r}")
                return CLOSED
            self._read_more(deadline)

    def receive_packet(self, within_seconds: float | None = None) -> Packet:
        message = self.receive(within_seconds)
        if not isinstance(message, Packet):
            raise AssertionError(f"expected a packet, got {message!r}")
        return message

    def receive_until_fence(self, within_seconds: float | None = None) -> list[Message]:
        """All that the server has to say to this connection now; ends with CLOSED if it has hung up."""
        token = _fence_token()
        self.send(Kind.ECHO_REQ, token)
        messages: list[Message] = []
        try:
            while True:
                message = self.receive(within_seconds)
                if message == Packet(Kind.ECHO_RES, token):
                    return messages
                messages.append(message)
                if message is CLOSED:
                    return messages
        except NothingArrivedError as error:
            raise NothingArrivedError(f"{error}; before the fence came {messages!r}") from None

    def receive_until_closed(self) -> list[Message]:
        """All that the server says before it hangs up, and CLOSED."""
        messages = [self.receive()]
        while messages[-1] is not CLOSED:
            messages.append(self.receive())
        return messages

    def expect_nothing(self) -> None:
        messages = self.receive_until_fence()
        assert messages == [], f"the server should have been silent, but sent {messages!r}"

    def ask(self, command: str) -> list[bytes]:
        """A text command and the lines of its answer, which ends at a line ``.`` or is one line."""
        self.send_line(command)
        lines: list[bytes] = []
        one_line = command.split()[:1] not in [["status"], ["workers"], ["prioritystatus"], ["show"]]
        while True:
            message = self.receive()
            if not isinstance(message, Line):
                raise AssertionError(f"expected a line in answer to {command!r}, got {message!r}")
            lines.append(message.text)
            if one_line or message.text.rstrip() == b"." or message.text.startswith(b"ERR"):
                return lines

    def _deadline(self, within_seconds: float | None) -> float:
        return time.monotonic() + (self.deadline_seconds if within_seconds is None else within_seconds)

    def _read_more(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise NothingArrivedError(f"nothing whole arrived in time; half a message: {self._received!r}")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._closed_by_server = True
        self._received += data
