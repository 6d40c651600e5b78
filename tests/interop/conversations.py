"""All conversations, and the places where we differ from gearmand on purpose.

A difference is named by its conversation and the note on its step, and says what each side answers: when either
side changes its mind a test fails, so the table cannot rot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.interop.conversation import Conversation
from tests.interop.scripts import admin, jobs, malformed, uniques, workers
from tests.support.wire import CLOSED, Kind, Line, Message, Packet

CONVERSATIONS: tuple[Conversation, ...] = (
    *malformed.CONVERSATIONS,
    *jobs.CONVERSATIONS,
    *uniques.CONVERSATIONS,
    *workers.CONVERSATIONS,
    *admin.CONVERSATIONS,
)

_names = [talk.name for talk in CONVERSATIONS]
assert len(_names) == len(set(_names)), "two conversations have the same name"


@dataclass(frozen=True)
class Difference:
    reason: str
    gearmand: tuple[Message, ...]
    switchgear: tuple[Message, ...]
    # `switchgear gearmand` has gearmand's defaults, `switchgear serve` has its own.
    only_with_own_defaults: bool = False


Place = tuple[str, str]  # the conversation's name, the step's note


def _lines(*texts: str) -> tuple[Message, ...]:
    return tuple(Line(text.encode() + b"\n") for text in texts)


def _packet(kind: Kind, *args: str | bytes) -> tuple[Message, ...]:
    encoded = (arg.encode() if isinstance(arg, str) else arg for arg in args)
    return (Packet(kind, b"\0".join(encoded)),)


def _error(code: str, text: str) -> tuple[Message, ...]:
    return _packet(Kind.ERROR, code, text)


def _unknown_commands(*commands: str) -> tuple[Message, ...]:
    return _lines(*(f"ERR UNKNOWN_COMMAND Unknown+server+command{command}\r" for command in commands))


NOTHING: tuple[Message, ...] = ()
HUNG_UP: tuple[Message, ...] = (CLOSED,)
_NOT_FOUND = _error("JOB_NOT_FOUND", "Job given in work result not found")


def _each(places: Iterable[Place], difference: Difference) -> dict[Place, Difference]:
    return dict.fromkeys(places, difference)


# --- what is no packet ----------------------------------------------------------------------------------------

_MALFORMED = {
    **_each(
        ((f"an unknown packet type: {kind}", "the answer") for kind in malformed.UNKNOWN_TYPES),
        Difference(
            "the length of an unknown packet is known, so it can be skipped and the peer told",
            HUNG_UP,
            _error("INVALID_COMMAND", "Command not expected"),
        ),
    ),
    **{
        (f"too few arguments: {kind.name}", "the answer"): Difference(
            "gearmand swallows the next packet as the missing argument and then hangs up",
            HUNG_UP,
            _error("INVALID_PACKET", f"{kind.name} takes {wanted} arguments, got {len(args)}"),
        )
        for kind, (wanted, args) in malformed.TOO_FEW.items()
    },
    ("a browser knocks", "the answer"): Difference(
        "the lines of its request might be commands that somebody has made it send",
        _unknown_commands("GET", "Host:", ""),
        (
            *_lines(
                "HTTP/1.1 400 Bad Request\r",
                "Content-Type: text/plain; charset=utf-8\r",
                "X-Content-Type-Options: nosniff\r",
                "Cache-Control: no-store\r",
                "Content-Length: 102\r",
                "Connection: close\r",
                "\r",
                "This port speaks Gearman, not HTTP.  The request was not executed.",
                "The default port for HTTP is 4740.",
            ),
            *HUNG_UP,
        ),
    ),
    ("a first line that is no command", "the answer"): Difference(
        "somebody else's protocol, perhaps, and the next lines might be commands",
        _unknown_commands("nonsense"),
        (*_unknown_commands("nonsense"), *HUNG_UP),
    ),
    ("wrong magic", "the answer"): Difference(
        "the peer is told why", HUNG_UP, (*_error("INVALID_MAGIC", "unknown magic bytes"), *HUNG_UP)
    ),
    ("an option with a NUL in its name", "the answer"): Difference(
        "gearmand compares up to the NUL: this is another name",
        _packet(Kind.OPTION_RES, "exceptions", "more"),
        _error("UNKNOWN_OPTION", "Server does not recognize given option"),
    ),
    ("a time that is no 64-bit number", "the answer"): Difference(
        "gearmand gives no answer and drops the connection later",
        HUNG_UP,
        _error("ARGUMENT_TOO_LARGE", "epoch is too far away"),
    ),
}

# --- names and numbers ----------------------------------------------------------------------------------------

_KEY_64 = b"k" * 64
_BEYOND = ("4294967296", "4294967297")
_TEN, _ELEVEN, _TWELVE = "1234567890", ("12345678901", "12345678901"), "123456789012"

_NAMES = {
    ("a key of exactly 64 bytes", "the key of 64 bytes"): Difference(
        "gearmand cuts the key to 63 bytes and puts one NUL too many before the payload",
        _packet(Kind.JOB_ASSIGN_UNIQ, "H1", "f", _KEY_64[:63], "", "payload"),
        _packet(Kind.JOB_ASSIGN_UNIQ, "H1", "f", _KEY_64, "payload"),
    ),
    ("status of a key of 64 bytes", "the answer"): Difference(
        "a key of 64 bytes is a key",
        HUNG_UP,
        _packet(Kind.STATUS_RES_UNIQUE, _KEY_64, "0", "0", "0", "0", "0"),
    ),
    ("a function name of 8000 bytes", "the answer"): Difference(
        "names are limited, so that they fit logs, metrics and pages",
        _packet(Kind.JOB_CREATED, "H1"),
        _error("ARGUMENT_TOO_LARGE", "Function name over 512 bytes"),
    ),
    ("a function name of 9000 bytes", "the answer"): Difference(
        "a name that is too long is no reason to hang up",
        HUNG_UP,
        _error("ARGUMENT_TOO_LARGE", "Function name over 512 bytes"),
    ),
    ("a reduce job with a long key", "a long key"): Difference(
        "gearmand checks the reducer twice and the key never, and sends the worker bytes of its memory",
        _packet(Kind.JOB_CREATED, "H1"),
        _error("ARGUMENT_TOO_LARGE", "Unique value too large"),
    ),
    ("creating a function with a bare newline", "the name"): Difference(
        "gearmand counts the line end as two bytes and cuts off a letter",
        _lines("resiz\t0\t0\t0", "."),
        _lines("resize\t0\t0\t0", "."),
    ),
}

# gearmand keeps 32 bits, reads the numerator with atoi, copies the denominator into 11 bytes, and hangs up on
# the worker, whose job is then given to the next, when that buffer is too small.
_FIGURES = "progress has no sign and is not folded into 32 bits; a figure is no reason to lose a worker"

_NUMBERS = {
    ("progress is stored as numbers and forwarded as it is", "with signs"): Difference(
        _FIGURES,
        (*_packet(Kind.WORK_STATUS, "H1", "-1", "+2"), *_packet(Kind.STATUS_RES, "H1", "1", "1", "4294967295", "2")),
        (*_packet(Kind.WORK_STATUS, "H1", "-1", "+2"), *_packet(Kind.STATUS_RES, "H1", "1", "1", "0", "0")),
    ),
    ("progress beyond 32 bits", "just beyond"): Difference(
        _FIGURES,
        (*_packet(Kind.WORK_STATUS, "H1", *_BEYOND), *_packet(Kind.STATUS_RES, "H1", "1", "1", "0", "1")),
        (*_packet(Kind.WORK_STATUS, "H1", *_BEYOND), *_packet(Kind.STATUS_RES, "H1", "1", "1", *_BEYOND)),
    ),
    ("progress beyond 32 bits", "eleven digits"): Difference(
        _FIGURES,
        (*_packet(Kind.WORK_STATUS, "H1", *_ELEVEN), *_packet(Kind.STATUS_RES, "H1", "1", "1", "3755744309", _TEN)),
        (*_packet(Kind.WORK_STATUS, "H1", *_ELEVEN), *_packet(Kind.STATUS_RES, "H1", "1", "1", *_ELEVEN)),
    ),
    ("progress beyond 32 bits", "twelve digits"): Difference(_FIGURES, HUNG_UP, NOTHING),
    ("progress beyond 32 bits", "after twelve digits"): Difference(
        _FIGURES,
        _packet(Kind.STATUS_RES, "H1", "1", "0", "0", "0"),
        (*_packet(Kind.WORK_STATUS, "H1", "1", _TWELVE), *_packet(Kind.STATUS_RES, "H1", "1", "1", "1", _TWELVE)),
    ),
}

# --- workers --------------------------------------------------------------------------------------------------

_TAKEN_BACK = ("a function taken back while its job runs", "all functions taken back while a job runs")

_WORKERS = {
    ("a function named twice", "how many workers"): Difference(
        "one connection is one worker", _lines("f\t0\t0\t2", "."), _lines("f\t0\t0\t1", ".")
    ),
    ("a function named twice", "its functions"): Difference(
        "one connection is one worker",
        _lines("FD 127.0.0.1 - : f f", "FD 127.0.0.1 - :", "."),
        _lines("FD 127.0.0.1 - : f", "FD 127.0.0.1 - :", "."),
    ),
    **_each(
        ((name, "the job") for name in _TAKEN_BACK),
        Difference(
            "clients that forget their functions for a graceful stop would lose the last result",
            _packet(Kind.STATUS_RES, "H1", "1", "0", "0", "0"),
            _packet(Kind.STATUS_RES, "H1", "1", "1", "0", "0"),
        ),
    ),
    **_each(
        ((name, "the result") for name in _TAKEN_BACK),
        Difference("the job is still the worker's", _NOT_FOUND, NOTHING),
    ),
    **_each(
        ((name, "the client") for name in _TAKEN_BACK),
        Difference("the job is still the worker's", NOTHING, _packet(Kind.WORK_COMPLETE, "H1", "done")),
    ),
    **_each(
        (("a job comes, and three sleep", f"the {name} sleeper") for name in ("second", "third")),
        Difference(
            "one job is work for one worker; waking all costs a NOOP and a NO_JOB for each of the others",
            _packet(Kind.NOOP),
            NOTHING,
            only_with_own_defaults=True,
        ),
    ),
    **{
        ("a worker's functions are served newest first", f"grab {n}"): Difference(
            "priority counts over all functions of a worker, and they take turns: nobody starves",
            _packet(Kind.JOB_ASSIGN, *theirs),
            _packet(Kind.JOB_ASSIGN, *ours),
            only_with_own_defaults=True,
        )
        for n, theirs, ours in (
            (1, ("H4", "two", "two normal"), ("H3", "one", "one high")),
            (2, ("H2", "two", "two low"), ("H4", "two", "two normal")),
            (3, ("H3", "one", "one high"), ("H1", "one", "one normal")),
            (4, ("H1", "one", "one normal"), ("H2", "two", "two low")),
        )
    },
    ("a sleeper learns a function that has work", "the new function"): Difference(
        "otherwise the jobs wait until somebody submits another", NOTHING, _packet(Kind.NOOP)
    ),
    **_each(
        (("a job that loses every worker", f"attempt {n}") for n in (4, 5)),
        Difference(
            "a job that kills its workers should not kill all of them: three attempts",
            _packet(Kind.JOB_ASSIGN, "H1", "f", "x"),
            _packet(Kind.NO_JOB),
            only_with_own_defaults=True,
        ),
    ),
    ("a job that loses every worker", "what is left"): Difference(
        "the job is given up after three attempts",
        _lines("H1\t5\t0\t0", "."),
        _lines("."),
        only_with_own_defaults=True,
    ),
    ("a job that loses every worker", "the client"): Difference(
        "the job is given up after three attempts",
        NOTHING,
        _packet(Kind.WORK_FAIL, "H1"),
        only_with_own_defaults=True,
    ),
}

# --- jobs that end, and clients that leave --------------------------------------------------------------------

_NOBODY_WAITS = "nobody waits for the job: it is gone at once, not when it reaches the head of the queue"

_ENDINGS = {
    (
        "an exception goes to clients that asked for it and is a failure for the others",
        "who did not ask hears a failure",
    ): Difference(
        "gearmand puts a stray NUL after the handle",
        _packet(Kind.WORK_FAIL, "H1", ""),
        _packet(Kind.WORK_FAIL, "H1"),
    ),
    ("a failure after an exception", "the worker's own failure after its exception"): Difference(
        "the Perl worker sends exactly this pair and dies of the error", _NOT_FOUND, NOTHING
    ),
    **_each(
        (
            ("the only client of a queued job leaves", "the job in the listing"),
            ("the only client of a queued job is cut off", "the job in the listing"),
            ("the only client of a running job leaves, and then its worker", "the job in the listing"),
        ),
        Difference(_NOBODY_WAITS, _lines("f\t1\t0\t0", "."), _lines("f\t0\t0\t0", ".")),
    ),
    ("the only client of a queued job leaves", "the job by its handle"): Difference(
        _NOBODY_WAITS,
        _packet(Kind.STATUS_RES, "H1", "1", "0", "0", "0"),
        _packet(Kind.STATUS_RES, "H1", "0", "0", "0", "0"),
    ),
    ("a foreground client joins a background job and leaves", "the background job"): Difference(
        "gearmand loses the background job", _packet(Kind.NO_JOB), _packet(Kind.JOB_ASSIGN, "H1", "f", "x")
    ),
    (
        "a time in the future is waited for, and does not hold up others",
        "the job that waits for its time",
    ): Difference(
        "these figures tell what a worker could take now",
        _lines("f\t0\t1\t0\t1", "."),
        _lines("f\t0\t0\t0\t1", "."),
    ),
    ("a time in the future and a job of lower priority", "the job of lower priority"): Difference(
        "gearmand looks only at the first priority that has any job, runnable or not",
        _packet(Kind.NO_JOB),
        _packet(Kind.JOB_ASSIGN, "H2", "f", "now"),
    ),
}

# --- text commands --------------------------------------------------------------------------------------------

_CANCEL = "a cancelled job is gone at once, not when it reaches the head of the queue"
_CANCEL_RUNNING = "a cancelled job is over for its clients; its worker may finish in peace"

_ADMIN = {
    ("cancelling a queued job", "the job by its handle"): Difference(
        _CANCEL,
        _packet(Kind.STATUS_RES, "H1", "1", "0", "0", "0"),
        _packet(Kind.STATUS_RES, "H1", "0", "0", "0", "0"),
    ),
    ("cancelling a queued job", "the job in the counts"): Difference(
        _CANCEL, _lines("f\t1\t0\t0", "."), _lines("f\t0\t0\t0", ".")
    ),
    ("cancelling a queued job", "the job in the listing"): Difference(_CANCEL, _lines("H1\t0\t1\t0", "."), _lines(".")),
    ("cancelling a running job", "the counts"): Difference(
        _CANCEL_RUNNING, _lines("f\t1\t1\t1", "."), _lines("f\t0\t0\t1", ".")
    ),
    ("cancelling a running job", "the client after the result"): Difference(
        _CANCEL_RUNNING,
        (*_packet(Kind.WORK_DATA, "H1", "data"), *_packet(Kind.WORK_COMPLETE, "H1", "result")),
        NOTHING,
    ),
    ("a limit for a function that nobody knows", "the function"): Difference(
        "the limit is remembered, so the function is known", _lines("."), _lines("f\t0\t0\t0", ".")
    ),
    ("a limit for a function that nobody knows", "one more than the limit"): Difference(
        "who sets limits before the first job comes means them",
        _packet(Kind.JOB_CREATED, "H2"),
        _error("QUEUE_ERROR", "Job queue is full"),
    ),
    ("dropping a function that has a job", "the answer"): Difference(
        "gearmand leaves the job with a pointer to freed memory",
        (Line(b"OK\r\n"),),
        (Line(b"ERR there are still connected workers or executing clients\r\n"),),
    ),
}

DELIBERATE_DIFFERENCES: dict[Place, Difference] = {
    **_MALFORMED,
    **_NAMES,
    **_NUMBERS,
    **_WORKERS,
    **_ENDINGS,
    **_ADMIN,
}
