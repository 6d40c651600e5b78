"""The text administration protocol: one line in, some lines out, formatted as gearmand does.

Line ends differ between the answers, because they do in gearmand and clients have come to rely on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from switchgear.access.permissions import EVERYBODY
from switchgear.errors import PeerError, Refused
from switchgear.model import HIGH, LOW, NORMAL, URGENT, Function, Job
from switchgear.numbers import leading_number
from switchgear.protocols.gearman.session import GearmanSession, refusal_code
from switchgear.protocols.pending_read import Step
from switchgear.text import escaped_name, harmless, printable
from switchgear.verbs.access import Role
from switchgear.verbs.operator_verb import OperatorVerb, Reach
from switchgear.verbs.table import VERBS

__all__ = ["ON_COMMAND", "first_line_refusal", "on_line"]

MOST_WORDS: Final = 5
MOST_LIMIT: Final = 2**31 - 1
LINES_AT_ONCE: Final = 200  # of a long answer, in one step
MOST_UNREAD_BYTES: Final = 65_536  # beyond this, the peer has to read before the answer continues
END: Final = b".\n"
OK: Final = b"OK\r\n"
UNKNOWN_JOB: Final = b"ERR UNKNOWN_JOB\r\n"

AUDITED: Final = (Role.OPERATE, Role.ADMIN)

Words = list[bytes]


def on_line(session: GearmanSession, line: bytes) -> None:
    """Handle a line of the text protocol, and send its answer."""
    first, *rest = line.split(b" ")  # names of functions may contain other white space
    words = [word for word in rest if word]
    if len(words) >= MOST_WORDS:
        session.context.count_bad_input(session, "TOO_MANY_WORDS", f"text command of {len(words) + 1} words")
        session.closing = True
        session.mark()
        return
    command = ON_COMMAND.get(first.lower())
    if command is None:
        session.context.count_bad_input(session, "UNKNOWN_COMMAND", "unknown text command")
        session.send(unknown(first))
        return
    try:
        session.require_access(VERB_OF_COMMAND[first.lower()])
        if session.engine.placement is not None and VERB_OF_COMMAND[first.lower()].reach is not Reach.HERE:
            from switchgear.protocols.gearman.cluster_admin import ON_CLUSTER_COMMAND, answer_of_cluster

            if first.lower() in ON_CLUSTER_COMMAND:
                session.work_off(answer_of_cluster(session, first.lower(), words))
                return
        answer: bytes | Iterator[bytes] = command(session, words)
        if answer is OK and VERB_OF_COMMAND[first.lower()].role in AUDITED:
            session.context.audit(
                session, first.decode().lower(), harmless(b" ".join(words).decode("utf-8", "replace"))
            )
    except PeerError as error:
        text = harmless(str(error))
        session.context.count_bad_input(session, error.code, text)
        answer = refusal(error.code.encode(), text)
    except Refused as refused:
        answer = refusal(refusal_code(refused), str(refused))
    if isinstance(answer, bytes):
        session.long_bytes += len(answer)
        session.send(answer)
    else:
        session.work_off(send_in_steps(session, answer))


def send_in_steps(session: GearmanSession, lines: Iterator[bytes]) -> Iterator[Step]:
    """Send a long answer as fast as the peer reads it."""
    unread_bytes = 0
    while piece := b"".join(islice(lines, LINES_AT_ONCE)):
        if session not in session.setup.sessions:
            return  # the peer is gone
        session.send(piece)
        session.long_bytes += len(piece)
        unread_bytes += len(piece)
        is_much = unread_bytes > MOST_UNREAD_BYTES
        if is_much:
            unread_bytes = 0
        yield is_much
    session.send(END)


def first_line_refusal(line: bytes) -> bytes:
    """The answer to the first line of a connection if it is not a command; otherwise empty.

    A peer that begins otherwise may be a program that was tricked into sending its user's text here, so the connection
    is closed.
    """
    first = line.partition(b" ")[0]
    return b"" if first.lower() in ON_COMMAND else unknown(first)


def unknown(command: bytes) -> bytes:
    return b"ERR UNKNOWN_COMMAND Unknown+server+command%b\r\n" % escaped_name(command)


def refusal(code: bytes, text: str) -> bytes:
    """An answer of one line, whatever the text: with another line, peers would take it for the answer to the next
    command."""
    return b"ERR %b %b\r\n" % (code, printable("+".join(text.split())).encode())


def incomplete(command: bytes) -> bytes:
    return b"ERR INVALID_ARGUMENTS An+incomplete+set+of+arguments+was+sent+to+this+command+%b\r\n" % command


def on_version(session: GearmanSession, words: Words) -> bytes:
    return b"OK %b\n" % session.setup.version.encode()


def on_getpid(session: GearmanSession, words: Words) -> bytes:
    return b"OK %d\n" % os.getpid()


def on_verbose(session: GearmanSession, words: Words) -> bytes:
    return b"OK %b\n" % session.setup.log_level.encode()


def visible_functions(session: GearmanSession) -> list[Function]:
    """The functions that the peer may use."""
    return [function for function in session.engine.functions.values() if session.may_see(function.name)]


def on_status(session: GearmanSession, words: Words) -> Iterator[bytes]:
    for f in visible_functions(session):
        yield b"%b\t%d\t%d\t%d\n" % (escaped_name(f.name), f.total, f.running, len(f.workers))


def on_priority_status(session: GearmanSession, words: Words) -> Iterator[bytes]:
    """The numbers of ready jobs. Gearman has three priorities, and urgent jobs count as high."""
    for function in visible_functions(session):
        ready = function.ready_of
        counts = (ready(URGENT) + ready(HIGH), ready(NORMAL), ready(LOW), len(function.workers))
        yield b"%b\t%d\t%d\t%d\t%d\n" % (escaped_name(function.name), *counts)


def on_workers(session: GearmanSession, words: Words) -> Iterator[bytes]:
    return worker_lines(session)


def worker_lines(session: GearmanSession) -> Iterator[bytes]:
    """One line per connection, whether it is a worker or not; the function registered last comes first."""
    for other in list(session.setup.sessions):
        functions = reversed(list(other.worker.timeouts_us)) if other.worker is not None else ()
        visible = [function.name for function in functions if session.may_see(function.name)]
        if not visible and session.permissions.globs and other.permissions is not session.permissions:
            continue  # a connection of somebody else, who does nothing for the functions that the peer may use
        names = b"".join([b" " + escaped_name(name) for name in visible])
        client_id = escaped_name(other.client_id)
        yield b"%d %b %b :%b\n" % (other.transport.descriptor, other.transport.host.encode(), client_id, names)


def unfinished_jobs(session: GearmanSession) -> Iterator[Job]:
    """All unfinished jobs by id, in portions: those that exist when their turn comes."""
    from_id = 0
    while some := list(islice(session.engine.unfinished_jobs(from_id), LINES_AT_ONCE)):
        yield from [job for job in some if session.may_see(job.function.told_name)]
        from_id = some[-1].id + 1


# Generator functions: a compiled generator expression would become a list first.


def job_lines(session: GearmanSession) -> Iterator[bytes]:
    for job in unfinished_jobs(session):
        retries = max(0, job.attempts - (job.worker is not None))
        yield b"%b\t%d\t0\t%d\n" % (session.handle(job), retries, job.durable)


def unique_lines(session: GearmanSession) -> Iterator[bytes]:
    for job in unfinished_jobs(session):
        yield b"%b\n" % escaped_name(job.client_unique)


def on_show(session: GearmanSession, words: Words) -> bytes | Iterator[bytes]:
    if not words:
        return unknown(b"show")
    what = [word.lower() for word in words]
    if what == [b"jobs"]:
        return job_lines(session)
    if what == [b"unique", b"jobs"]:
        return unique_lines(session)
    return b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"


def on_cancel(session: GearmanSession, words: Words) -> bytes:
    if len(words) < 2:
        return unknown(b"cancel")
    if len(words) > 2 or words[0].lower() != b"job":
        return b"ERR UNKNOWN_ERROR\r\n"
    job = session.engine.job(session.job_id(words[1]))
    if job is None:
        return UNKNOWN_JOB
    session.require_job("cancel", EVERYBODY, job.function.told_name)
    session.engine.cancel(job)
    return OK


def on_maxqueue(session: GearmanSession, words: Words) -> bytes:
    if not words:
        return incomplete(b"maxqueue")
    session.require("maxqueue", EVERYBODY, words[0])
    function = session.engine.function_named(session.name_of(words[0]))
    high, normal, low = queue_limits(words[1:4])
    session.engine.set_limits(function, high, normal, low)
    return OK


def queue_limits(words: Words) -> tuple[int, int, int]:
    """The limits for high, normal and low priority; a single one is for all of them."""
    numbers = [limit(word) for word in words]
    if len(numbers) == 1:
        numbers *= 3
    high, normal, low = (*numbers, 0, 0, 0)[:3]
    return high, normal, low


def limit(word: bytes) -> int:
    """A queue limit; missing, invalid and negative numbers mean no limit."""
    return min(leading_number(word), MOST_LIMIT)


def on_create(session: GearmanSession, words: Words) -> bytes:
    if len(words) != 2 or words[0].lower() != b"function":
        return incomplete(b"create")
    session.require("create", EVERYBODY, words[1])
    session.engine.function_named(session.name_of(words[1]))
    return OK


def on_drop(session: GearmanSession, words: Words) -> bytes:
    if len(words) != 2 or words[0].lower() != b"function":
        return incomplete(b"drop")
    session.require("drop", EVERYBODY, words[1])
    function: Function | None = session.engine.functions.get(words[1])
    if function is None:
        return b"ERR function not found\r\n"
    if not session.engine.drop_function(function):
        return b"ERR there are still connected workers or executing clients\r\n"
    return OK


def on_shutdown(session: GearmanSession, words: Words) -> bytes:
    graceful = [word.lower() for word in words]
    if graceful not in ([], [b"graceful"]):
        return b"ERR UNKNOWN_SHUTDOWN_ARGUMENTS\r\n"
    session.context.request_stop(graceful=bool(graceful))
    return OK


ON_COMMAND: Final[dict[bytes, Callable[[GearmanSession, Words], bytes | Iterator[bytes]]]] = {
    b"version": on_version,
    b"getpid": on_getpid,
    b"verbose": on_verbose,
    b"status": on_status,
    b"prioritystatus": on_priority_status,
    b"workers": on_workers,
    b"show": on_show,
    b"cancel": on_cancel,
    b"maxqueue": on_maxqueue,
    b"create": on_create,
    b"drop": on_drop,
    b"shutdown": on_shutdown,
}

# The verb that corresponds to a command decides who may use it.
VERB_OF_COMMAND: Final[dict[bytes, OperatorVerb]] = {
    command.encode(): verb for verb in VERBS.values() for command in verb.text_commands
}
