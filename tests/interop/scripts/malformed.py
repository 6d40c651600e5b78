"""What no well-behaved peer says: wrong types, wrong magic, too little, too much."""

from __future__ import annotations

import struct

from tests.interop.conversation import Conversation, conversation, frame, pour, say, tell
from tests.support.wire import RES, Kind

# Packets that only a server sends, or that nobody ever implemented, with as many arguments as they have.
NOT_FOR_SERVERS: dict[Kind, tuple[str, ...]] = {
    Kind.UNUSED: (),
    Kind.NOOP: (),
    Kind.JOB_CREATED: ("handle",),
    Kind.NO_JOB: (),
    Kind.JOB_ASSIGN: ("handle", "f", "x"),
    Kind.ECHO_RES: ("x",),
    Kind.ERROR: ("code", "text"),
    Kind.STATUS_RES: ("handle", "1", "1", "0", "0"),
    Kind.ALL_YOURS: (),
    Kind.OPTION_RES: ("exceptions",),
    Kind.JOB_ASSIGN_UNIQ: ("handle", "f", "key", "x"),
    Kind.SUBMIT_JOB_SCHED: ("f", "key", "0", "0", "1", "1", "*", "x"),
    Kind.JOB_ASSIGN_ALL: ("handle", "f", "key", "sum", "x"),
    Kind.STATUS_RES_UNIQUE: ("key", "1", "1", "0", "0", "0"),
}

UNKNOWN_TYPES = (0, 43, 999)  # never one with the top bit set: 12 such bytes kill gearmand

# Too few arguments: what is missing is one NUL and all that should follow it.  Only packets with a payload:
# with the others gearmand waits in silence, which cannot be seen without waiting too.
TOO_FEW: dict[Kind, tuple[int, tuple[str, ...]]] = {  # how many there should be, and what we send
    Kind.SUBMIT_JOB: (3, ("f", "key")),
    Kind.SUBMIT_JOB_LOW_BG: (3, ("f",)),
    Kind.SUBMIT_JOB_EPOCH: (4, ("f", "key", "0")),
    Kind.SUBMIT_REDUCE_JOB: (5, ("f", "key", "sum", "x")),
    Kind.WORK_COMPLETE: (2, ("handle",)),
    Kind.WORK_DATA: (2, ("handle",)),
}


def _unknown_type(kind: int) -> Conversation:
    return conversation(
        f"an unknown packet type: {kind}",
        pour("client", frame(kind, "x"), note="the answer"),
    )


def _too_few(kind: Kind) -> Conversation:
    return conversation(
        f"too few arguments: {kind.name}",
        pour("client", frame(kind, *TOO_FEW[kind][1]), note="the answer"),
    )


def header(magic: bytes, kind: int, size: int) -> bytes:
    return struct.pack(">4sII", magic, kind, size)


CONVERSATIONS = (
    conversation(
        "echo",
        say("client", Kind.ECHO_REQ, "hello"),
        say("client", Kind.ECHO_REQ, ""),
        say("client", Kind.ECHO_REQ, b"with\0NULs\0\0and\nlines"),
        say("client", Kind.ECHO_REQ, "x" * 100_000),
    ),
    conversation(
        "options",
        say("client", Kind.OPTION_REQ, "exceptions"),
        say("client", Kind.OPTION_REQ, "EXCEPTIONS"),
        say("client", Kind.OPTION_REQ, "Exceptions"),
        say("client", Kind.OPTION_REQ, "exception"),
        say("client", Kind.OPTION_REQ, "exceptionsandmore"),
        say("client", Kind.OPTION_REQ, "streaming"),
        say("client", Kind.OPTION_REQ, ""),
    ),
    conversation(
        "packets that are not for servers",
        [say("client", kind, *args) for kind, args in NOT_FOR_SERVERS.items()],
    ),
    conversation(
        "responses instead of requests",
        [
            pour("client", frame(kind, *args, magic=RES))
            for kind, args in (
                (Kind.ECHO_REQ, ("x",)),
                (Kind.SUBMIT_JOB, ("f", "", "x")),
                (Kind.GRAB_JOB, ()),
                (Kind.NOOP, ()),
                (Kind.JOB_CREATED, ("handle",)),
            )
        ],
    ),
    conversation(
        "a body where none belongs is skipped",
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "1"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "2"),
        say("client", Kind.SUBMIT_JOB_BG, "f", "", "3"),
        say("worker", Kind.CAN_DO, "g"),
        say("worker", Kind.RESET_ABILITIES, "body"),
        say("worker", Kind.CAN_DO, "f"),
        say("worker", Kind.GRAB_JOB, "body"),
        say("worker", Kind.GRAB_JOB_UNIQ, "body"),
        say("worker", Kind.GRAB_JOB_ALL, b"body\0with NUL"),
        say("worker", Kind.PRE_SLEEP, "body"),
        tell("admin", "workers"),
    ),
    conversation(
        "a NUL in a last argument that is no payload",
        say("worker", Kind.CAN_DO, b"f\0g"),
        say("client", Kind.GET_STATUS, b"handle\0more"),
        say("client", Kind.GET_STATUS_UNIQUE, b"key\0more"),
        tell("admin", "status"),
    ),
    conversation(
        "an option with a NUL in its name",
        say("client", Kind.OPTION_REQ, b"exceptions\0more", note="the answer"),
    ),
    conversation(
        "handles and option names at their limits",
        say("client", Kind.GET_STATUS, "h" * 63),
        say("client", Kind.GET_STATUS_UNIQUE, "k" * 63),
        say("client", Kind.OPTION_REQ, "o" * 63),
        say("client", Kind.OPTION_REQ, "o" * 200),
        say("client", Kind.WORK_FAIL, "h" * 63),
        say("client", Kind.WORK_FAIL, "h" * 64),
        say("client", Kind.WORK_FAIL, "h" * 100),
        say("client", Kind.WORK_COMPLETE, "h" * 100, "x"),
        say("client", Kind.WORK_DATA, "h" * 100, "x"),
        say("client", Kind.WORK_STATUS, "h" * 100, "1", "2"),
        say("client", Kind.WORK_EXCEPTION, "h" * 100, "x"),
    ),
    conversation(
        "status of a key of 64 bytes",
        say("client", Kind.GET_STATUS_UNIQUE, "k" * 64, note="the answer"),
    ),
    conversation(
        "a browser knocks",
        pour("client", b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", note="the answer"),
    ),
    conversation("a line of 9000 bytes", pour("client", b"x" * 9000 + b"\n", to_the_end=True)),
    conversation("a line of 8000 bytes", pour("client", b"show jobs\n" + b"x" * 8000 + b"\n")),
    conversation("a first line that is no command", pour("client", b"nonsense\n", note="the answer")),
    conversation(
        "a function name of 8000 bytes",
        say("client", Kind.SUBMIT_JOB_BG, "n" * 8000, "", "x", note="the answer"),
    ),
    conversation(
        "a function name of 9000 bytes",
        say("client", Kind.SUBMIT_JOB_BG, "n" * 9000, "", "x", note="the answer"),
    ),
    conversation(
        "wrong magic",
        pour("client", header(b"\0XXX", Kind.ECHO_REQ, 0), note="the answer", to_the_end=True),
    ),
    *(_unknown_type(kind) for kind in UNKNOWN_TYPES),
    *(_too_few(kind) for kind in TOO_FEW),
)
