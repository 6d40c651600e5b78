"""The packets of the 2005 draft: their types, and what is in each body, for both ends of a connection.

Numbers are unsigned, 4 bytes, most significant byte first. A malformed body raises PeerError.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from switchgear.errors import PeerError

__all__ = [
    "FROM_SERVER",
    "LARGEST_NUMBER",
    "WITHOUT_BODY",
    "Assignment",
    "Completion",
    "ErrorCode",
    "ErrorReport",
    "JobRequest",
    "JobType",
    "Packet",
    "Progress",
    "Result",
    "join_names",
    "malformed",
    "split_names",
]

LARGEST_NUMBER: Final = 2**32 - 1
LARGEST_RESULT_CODE: Final = 255

_PROGRESS: Final = Struct(">III")
_FIGURES: Final = Struct(">II")  # progress without the estimate
_COMPLETION: Final = Struct(">IB")


class Packet(IntEnum):
    """The types of packets, by number."""

    NOOP = 0x00
    WORKER_CONNECT = 0x01
    WORKER_DISCONNECT = 0x02
    WORKER_SLEEP = 0x03
    JOB_CREATE_REQ = 0x04
    JOB_CREATE_RES = 0x05
    JOB_ASSIGN_REQ = 0x06
    JOB_ASSIGN_RES = 0x07
    JOB_STATUS_ANNOUNCE = 0x08
    JOB_STATUS_REQ = 0x09
    JOB_STATUS_RES = 0x0A
    JOB_COMPLETE_ANNOUNCE = 0x0B
    JOB_COMPLETE_REQ = 0x0C
    JOB_COMPLETE_RES = 0x0D
    ERROR = 0x0E  # not in the draft, which leaves errors open


FROM_SERVER: Final = frozenset(
    {
        Packet.NOOP,
        Packet.JOB_CREATE_RES,
        Packet.JOB_ASSIGN_RES,
        Packet.JOB_STATUS_RES,
        Packet.JOB_COMPLETE_RES,
        Packet.ERROR,
    }
)

WITHOUT_BODY: Final = frozenset(
    {Packet.NOOP, Packet.WORKER_DISCONNECT, Packet.WORKER_SLEEP, Packet.JOB_ASSIGN_REQ},
)


class ErrorCode(IntEnum):
    """The first byte of an error packet. The server closes the connection after those marked with a star."""

    MALFORMED = 1  # a body that its packet type does not allow
    UNEXPECTED = 2  # a packet that must not be sent now, or ever
    UNKNOWN_HANDLE = 3  # no job of this server, or one that was dropped from its log
    BUSY = 4  # the worker has a task already, or the application too many open requests
    REFUSED = 5  # the job was refused: queue full, store failed, server stopping
    TOO_LARGE = 6  # a name over the limit, or (*) a packet
    BAD_MAGIC = 7  # * no packet begins here


class JobType(IntEnum):
    """How an application uses a job's result."""

    SYNC_WAIT = 0  # waits for it on the connection
    ASYNC_HANDLE = 1  # gets a handle to ask for it
    ASYNC_THROW_AWAY = 2  # does not use it


def malformed(text: str) -> PeerError:
    return PeerError(text, code=ErrorCode.MALFORMED.name)


class JobRequest(NamedTuple):
    """The body of job_create_req."""

    name: bytes
    dupkey: bytes  # empty: no check for duplicates
    job_type: JobType
    args: bytes
    flags: int = 0  # reserved

    def pack(self) -> bytes:
        return b"%b\0%b\0%c%c%b" % (self.name, self.dupkey, self.flags, self.job_type, self.args)

    @classmethod
    def unpack(cls, body: bytes) -> JobRequest:
        name, name_end, rest = body.partition(b"\0")
        dupkey, dupkey_end, rest = rest.partition(b"\0")
        if not name_end or not dupkey_end or len(rest) < 2:
            raise malformed("job_create_req takes a name, a duplicate key, flags and a type")
        if rest[1] > JobType.ASYNC_THROW_AWAY:
            raise malformed(f"job_create_req: there is no job type {rest[1]}")
        return cls(_name(name), _ascii(dupkey, "duplicate key"), JobType(rest[1]), rest[2:], rest[0])


class Assignment(NamedTuple):
    """The body of job_assign_res."""

    name: bytes
    args: bytes

    def pack(self) -> bytes:
        return b"%b\0%b" % (self.name, self.args)

    @classmethod
    def unpack(cls, body: bytes) -> Assignment:
        name, end, args = body.partition(b"\0")
        if not end:
            raise malformed("job_assign_res takes a name and arguments")
        return cls(name, args)


class Progress(NamedTuple):
    """The body of job_status_announce and of job_status_res."""

    numerator: int
    denominator: int
    seconds_left: int = 0  # 0: unknown

    def pack(self) -> bytes:
        return _PROGRESS.pack(*(max(0, min(number, LARGEST_NUMBER)) for number in self))

    @classmethod
    def unpack(cls, body: bytes) -> Progress:
        if len(body) == _PROGRESS.size:
            return cls(*_PROGRESS.unpack(body))
        if len(body) == _FIGURES.size:  # the estimate is optional
            return cls(*_FIGURES.unpack(body))
        raise malformed(f"a job's status has {_PROGRESS.size} bytes, or {_FIGURES.size}, not {len(body)}")


class Result(NamedTuple):
    """The body of job_complete_announce."""

    code: int  # 0 is success, 1 to 255 an error
    data: bytes = b""

    def pack(self) -> bytes:
        if not 0 <= self.code <= LARGEST_RESULT_CODE:
            raise ValueError(f"a result code is 0 to {LARGEST_RESULT_CODE}, not {self.code}")
        return b"%c%b" % (self.code, self.data)

    @classmethod
    def unpack(cls, body: bytes) -> Result:
        if not body:
            raise malformed("job_complete_announce takes a result code")
        return cls(body[0], body[1:])


class Completion(NamedTuple):
    """The body of job_complete_res."""

    elapsed_seconds: int  # since the job was created; 0: it is not complete
    code: int = 0
    data: bytes = b""

    def pack(self) -> bytes:
        return _COMPLETION.pack(min(self.elapsed_seconds, LARGEST_NUMBER), self.code) + self.data

    @classmethod
    def unpack(cls, body: bytes) -> Completion:
        if len(body) < _COMPLETION.size:
            raise malformed(f"job_complete_res has {_COMPLETION.size} bytes or more, not {len(body)}")
        elapsed_seconds, code = _COMPLETION.unpack_from(body)
        return cls(elapsed_seconds, code, body[_COMPLETION.size :])


class ErrorReport(NamedTuple):
    """The body of error."""

    code: int  # mostly an ErrorCode; a reader should be prepared for others
    text: str

    def pack(self) -> bytes:
        return b"%c%b" % (self.code, self.text.encode("ascii", "replace"))

    @classmethod
    def unpack(cls, body: bytes) -> ErrorReport:
        if not body:
            raise malformed("error takes a code")
        return cls(body[0], body[1:].decode("ascii", "replace"))


def join_names(names: list[bytes]) -> bytes:
    """The body of worker_connect: the names of functions."""
    return b"\0".join(names)


def split_names(body: bytes, most: int) -> list[bytes]:
    """The names in the body of worker_connect, each once. A NUL may also end the last one; an empty body has no
    names."""
    if not body:
        return []
    if body.removesuffix(b"\0").count(b"\0") >= most:
        raise PeerError(f"more than {most} job names", code=ErrorCode.TOO_LARGE.name)
    return list(dict.fromkeys(_name(name) for name in body.removesuffix(b"\0").split(b"\0")))


def _name(name: bytes) -> bytes:
    if not name:
        raise malformed("a job name is empty")
    return _ascii(name, "job name")


def _ascii(text: bytes, what: str) -> bytes:
    if not text.isascii():
        raise malformed(f"a {what} is not ASCII")
    return text
