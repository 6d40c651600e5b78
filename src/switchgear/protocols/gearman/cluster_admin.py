"""Text commands at one of several nodes that own functions: the lines are about the functions and jobs of all nodes.

The formats have no room for a remark, so a node that has not answered is a line like the others, whose name says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from switchgear.access.permissions import EVERYBODY
from switchgear.errors import PeerError, Refused
from switchgear.json_bytes import bytes_of, plain
from switchgear.protocols.gearman.admin import (
    END,
    OK,
    UNKNOWN_JOB,
    Words,
    incomplete,
    queue_limits,
    refusal,
    send_in_steps,
    unknown,
    worker_lines,
)
from switchgear.protocols.gearman.session import GearmanSession, refusal_code
from switchgear.protocols.pending_read import Step
from switchgear.text import escaped_name, harmless
from switchgear.verbs.permitted_values import MOST_JOBS, UNFINISHED_NAMES

__all__ = ["ON_CLUSTER_COMMAND", "answer_of_cluster"]


def answer_of_cluster(session: GearmanSession, command: bytes, words: Words) -> Iterator[Step]:
    """Carry out a command of `ON_CLUSTER_COMMAND`, and send the answer."""
    try:
        yield from ON_CLUSTER_COMMAND[command](session, words)
    except PeerError as error:
        text = harmless(str(error))
        session.context.count_bad_input(session, error.code, text)
        session.send(refusal(error.code.encode(), text))
    except Refused as refused:
        session.send(refusal(refusal_code(refused), str(refused)))
    except ValueError as error:
        session.send(refusal(b"INVALID_ARGUMENTS", harmless(str(error))))


class Asked:
    """The answer to a verb, and the names under which the missing parts of it are listed."""

    def __init__(self, answers: list[Any]) -> None:
        self.answer: Any = answers[0]
        self.missing: list[bytes] = []
        if len(answers) > 1:
            self.missing = [b"(no answer from %b)" % name.encode() for name in answers[1]["unreachable"]]
            if answers[1]["partitions_without_owner"]:
                self.missing.append(b"(%d partitions without owner)" % answers[1]["partitions_without_owner"])


def ask(session: GearmanSession, verb: str, arguments: dict[str, Any], found: list[Asked]) -> Iterator[Step]:
    """Use a verb; at the end the answer is added to the list."""
    answers: list[Any] = []
    yield from session.context.operate_in_steps(verb, arguments, answers)
    found.append(Asked(answers))


# --- lists ---


def on_status(session: GearmanSession, words: Words) -> Iterator[Step]:
    found: list[Asked] = []
    yield from ask(session, "functions", {}, found)
    yield from send_in_steps(session, status_lines(found[0]))


def status_lines(asked: Asked) -> Iterator[bytes]:
    for row in asked.answer:
        name = escaped_name(bytes_of(row["name"], "name"))
        yield b"%b\t%d\t%d\t%d\n" % (name, row["total"], row["running"], row["workers"])
    for name in asked.missing:
        yield b"%b\t0\t0\t0\n" % escaped_name(name)


def on_priority_status(session: GearmanSession, words: Words) -> Iterator[Step]:
    found: list[Asked] = []
    yield from ask(session, "functions", {}, found)
    yield from send_in_steps(session, priority_lines(found[0]))


def priority_lines(asked: Asked) -> Iterator[bytes]:
    for row in asked.answer:
        _, normal, low = row["ready_by_priority"]
        name = escaped_name(bytes_of(row["name"], "name"))
        yield b"%b\t%d\t%d\t%d\t%d\n" % (name, row["ready"] - normal - low, normal, low, row["workers"])
    for name in asked.missing:
        yield b"%b\t0\t0\t0\t0\n" % escaped_name(name)


def on_workers(session: GearmanSession, words: Words) -> Iterator[Step]:
    """The connections of this node, and the Gearman workers of the others, which have no descriptor here."""
    found: list[Asked] = []
    yield from ask(session, "workers", {}, found)
    yield from send_in_steps(session, all_worker_lines(session, found[0], session.context.node_name))


def all_worker_lines(session: GearmanSession, asked: Asked, own: str) -> Iterator[bytes]:
    yield from worker_lines(session)
    for row in asked.answer:
        if row["node"] != own and row["protocol"] == "gearman":
            names = b"".join([b" " + escaped_name(bytes_of(name, "name")) for name in row["functions"]])
            host = row["address"].rpartition(":")[0].encode()
            yield b"0 %b %b :%b\n" % (host, escaped_name(bytes_of(row["name"], "name")) or b"-", names)
    for name in asked.missing:
        yield b"0 - %b :\n" % escaped_name(name)


def on_show(session: GearmanSession, words: Words) -> Iterator[Step]:
    what = [word.lower() for word in words]
    if not words:
        session.send(unknown(b"show"))
    elif what == [b"jobs"]:
        yield from send_jobs(session, job_line)
    elif what == [b"unique", b"jobs"]:
        yield from send_jobs(session, unique_line)
    else:
        session.send(b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n")


def send_jobs(session: GearmanSession, line: Callable[[dict[str, Any]], bytes]) -> Iterator[Step]:
    """Send a line for each unfinished job, page by page, and pause while the peer does not read."""
    before_id = 0
    missing: dict[bytes, bool] = {}
    while True:
        found: list[Asked] = []
        page = {"states": list(UNFINISHED_NAMES), "limit": MOST_JOBS, "before_id": before_id}
        yield from ask(session, "jobs", page, found)
        lines = b"".join([line(job) for job in found[0].answer["jobs"]])
        if session not in session.setup.sessions:
            return  # the peer is gone
        session.send(lines)
        session.long_bytes += len(lines)
        for name in found[0].missing:
            missing[name] = True
        before_id = found[0].answer["next_before_id"] or 0
        if not before_id:
            break
        yield True
    for name in missing:
        session.send(line({"handle": name.decode(), "attempts": 0, "state": "", "delivery": "", "unique": ""}))
    session.send(END)


def job_line(job: dict[str, Any]) -> bytes:
    retries = max(0, job["attempts"] - (job["state"] == "running"))
    return b"%b\t%d\t0\t%d\n" % (job["handle"].encode(), retries, job["delivery"] not in ("", "wait"))


def unique_line(job: dict[str, Any]) -> bytes:
    return b"%b\n" % escaped_name(bytes_of(job["unique"], "unique") if job["state"] else job["handle"].encode())


# --- changes ---


def on_cancel(session: GearmanSession, words: Words) -> Iterator[Step]:
    if len(words) < 2:
        session.send(unknown(b"cancel"))
        return
    if len(words) > 2 or words[0].lower() != b"job":
        session.send(b"ERR UNKNOWN_ERROR\r\n")
        return
    try:
        yield from ask(session, "cancel", {"handle": words[1].decode("utf-8", "replace")}, [])
    except LookupError:
        session.send(UNKNOWN_JOB)
        return
    session.send(OK)


def on_maxqueue(session: GearmanSession, words: Words) -> Iterator[Step]:
    if not words:
        session.send(incomplete(b"maxqueue"))
        return
    session.require("maxqueue", EVERYBODY, words[0])
    name = session.name_of(words[0])
    limits = list(queue_limits(words[1:4]))
    yield from ask(session, "queue_limits", {"function": plain(name), "limits": limits}, [])
    confirm(session, "maxqueue", words)


def on_create(session: GearmanSession, words: Words) -> Iterator[Step]:
    if len(words) != 2 or words[0].lower() != b"function":
        session.send(incomplete(b"create"))
        return
    session.require("create", EVERYBODY, words[1])
    yield from ask(session, "create_function", {"function": plain(session.name_of(words[1]))}, [])
    confirm(session, "create", words)


def on_drop(session: GearmanSession, words: Words) -> Iterator[Step]:
    if len(words) != 2 or words[0].lower() != b"function":
        session.send(incomplete(b"drop"))
        return
    session.require("drop", EVERYBODY, words[1])
    found: list[Asked] = []
    try:
        yield from ask(session, "drop_function", {"function": plain(words[1])}, found)
    except LookupError:
        session.send(b"ERR function not found\r\n")
        return
    if found[0].answer:
        confirm(session, "drop", words)
    else:
        session.send(b"ERR there are still connected workers or executing clients\r\n")


def confirm(session: GearmanSession, command: str, words: Words) -> None:
    """Answer that a command was carried out."""
    session.context.audit(session, command, harmless(b" ".join(words).decode("utf-8", "replace")))
    session.send(OK)


ON_CLUSTER_COMMAND: Final[dict[bytes, Callable[[GearmanSession, Words], Iterator[Step]]]] = {
    b"status": on_status,
    b"prioritystatus": on_priority_status,
    b"workers": on_workers,
    b"show": on_show,
    b"cancel": on_cancel,
    b"maxqueue": on_maxqueue,
    b"create": on_create,
    b"drop": on_drop,
}
