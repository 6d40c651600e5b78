"""Extension packets: what the protocol of other servers cannot say.

SUBMIT_JOB_OPTIONS  function, unique, options (a JSON object), payload  -> JOB_CREATED, then the job's news if `wait` or
                                                                          `watch` is true
CONTROL             verb, arguments (a JSON object)                     -> CONTROL_RES (JSON), or ERROR

A server that does not know them answers with an error or hangs up, so a client can tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import ceil
from typing import Any, Final, TypeVar

import msgspec

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import PeerError
from switchgear.model import PRIORITY_NAMES, SECOND_US, Delivery, EdgePolicy, UniquePolicy, UniqueScope
from switchgear.model.job import shared_details
from switchgear.protocols.base import number_in_handle
from switchgear.protocols.gearman.clients import UNIQUE_BYTES, submit_with_options
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.job_options import JobOptions
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, split

__all__ = ["on_control", "on_submit_options"]

Parsed = TypeVar("Parsed")

YEAR_SECONDS: Final = 366 * 24 * 3600
# Looking for circles takes time that others wait for.
MOST_PREDECESSORS: Final = 10_000
# Room for the handles of all predecessors.  Read JSON can take twenty times the memory of its text.
MOST_JSON_BYTES = 4 * 1024 * 1024
# Whoever holds a key is remembered for so long.
LONGEST_HOLD_SECONDS: Final = 30 * 24 * 3600
MOST_ATTEMPTS: Final = 1_000_000
EDGE_POLICIES: Final = {policy.name.lower(): policy for policy in EdgePolicy}
UNIQUE_SCOPES: Final = {scope.name.lower(): scope for scope in UniqueScope}
UNIQUE_POLICIES: Final = {policy.name.lower(): policy for policy in UniquePolicy}
SCHEDULE_VERBS: Final = frozenset({b"schedule", b"unschedule", b"pause_schedule", b"resume_schedule"})
CHANGING_VERBS: Final = frozenset({b"cancel", b"retry", b"pause", b"resume", b"limit"}) | SCHEDULE_VERBS

# A submitter says the same of each of its jobs.  So many texts are remembered, and none that is long.
MOST_REMEMBERED: Final = 256
LONGEST_REMEMBERED_BYTES: Final = 256


class Remembered:
    """Options that may stand for any number of jobs, none of them a job's own."""

    __slots__ = ("delivery", "options", "priority", "watch")

    def __init__(self, priority: int, delivery: Delivery, options: SubmitOptions, watch: bool) -> None:
        self.priority = priority
        self.delivery = delivery
        self.options = options
        self.watch = watch


_remembered: Final[dict[bytes, Remembered]] = {}


def on_submit_options(session: GearmanSession, body: bytes) -> None:
    function, unique, text, payload = split(body, Packet.SUBMIT_JOB_OPTIONS)
    known = _remembered.get(text)
    if known is None:
        submit_parsed(session, function, unique, text, payload)
    else:
        submit_with_options(
            session, function, unique, payload, known.priority, known.delivery, known.options, watch=known.watch
        )


def submit_parsed(session: GearmanSession, function: bytes, unique: bytes, text: bytes, payload: bytes) -> None:
    options = parsed(text, JobOptions, "options")
    if options.wait and options.watch:
        raise invalid("wait is for foreground jobs and watch for others; give one of them")
    usual = (options.unique_scope, options.unique_policy, options.unique_seconds) == ("unfinished", "join", 0)
    if not unique and not usual:
        raise invalid("unique_scope, unique_policy and unique_seconds need a unique key")
    name_bytes = session.setup.name_bytes
    edges = edge_of_each(session, options)
    retention_us = -1 if options.retention is None else microseconds(options.retention, "retention")
    priority = PRIORITY_NAMES.index(one_of(options.priority, PRIORITY_NAMES, "priority"))
    delivery = Delivery.WAIT if options.wait else Delivery.HANDLE
    wanted = SubmitOptions(
        run_at_us=microseconds(options.run_at, "run_at"),
        expires_us=microseconds(options.expires_at, "expires_at"),
        timeout_us=microseconds(options.timeout, "timeout"),
        attempts_limit=within_reason(options.attempts),
        predecessors=tuple(edges),
        name=short(options.name, name_bytes, "name"),
        reducer=short(options.reducer, UNIQUE_BYTES, "reducer"),
        key=short(options.key, name_bytes, "key"),
        losses_limit=within_reason(options.crashes),
        edges=bytes(edges.values()) if any(edges.values()) else b"",
        unique_scope=UNIQUE_SCOPES[one_of(options.unique_scope, UNIQUE_SCOPES, "unique_scope")],
        unique_policy=UNIQUE_POLICIES[one_of(options.unique_policy, UNIQUE_POLICIES, "unique_policy")],
        unique_hold_us=hold_us(options.unique_seconds),
        retention_us=retention_us,
    )
    if usual and len(text) <= LONGEST_REMEMBERED_BYTES and may_be_shared(wanted):
        remember(text, Remembered(priority, delivery, wanted, options.watch))
    submit_with_options(session, function, unique, payload, priority, delivery, wanted, watch=options.watch)


def hold_us(seconds: float) -> int:
    """How long a unique key is held, in microseconds."""
    span_us = microseconds(seconds, "unique_seconds")
    if span_us > LONGEST_HOLD_SECONDS * SECOND_US:
        raise invalid(f"unique_seconds is at most {LONGEST_HOLD_SECONDS}, which is 30 days")
    return span_us


def may_be_shared(options: SubmitOptions) -> bool:
    """Whether nothing in it is one job's own, or to be checked against what a server allows."""
    own = options.run_at_us or options.expires_us or options.predecessors
    return not (own or options.name or options.reducer or options.key)


def remember(text: bytes, known: Remembered) -> None:
    if len(_remembered) >= MOST_REMEMBERED:
        _remembered.clear()
    options = known.options
    options.details = shared_details(
        timeout_us=options.timeout_us,
        attempts_limit=options.attempts_limit,
        losses_limit=options.losses_limit,
        retention_us=options.retention_us,
    )
    _remembered[text] = known


def edge_of_each(session: GearmanSession, options: JobOptions) -> dict[int, EdgePolicy]:
    """What becomes of the job should one of these, by id, not succeed."""
    handles = options.after
    if len(handles) > MOST_PREDECESSORS:
        raise PeerError(f"options: after: at most {MOST_PREDECESSORS} handles", code="ARGUMENT_TOO_LARGE")
    words = options.on_failure
    if isinstance(words, str):
        words = [words] * max(1, len(handles))
    elif len(words) != len(handles):
        raise invalid(f"on_failure is one word, or one for each handle of after: {len(handles)}, not {len(words)}")
    policies = [EDGE_POLICIES[one_of(word, EDGE_POLICIES, "on_failure")] for word in words]
    edges: dict[int, EdgePolicy] = {}
    for handle, policy in zip(handles, policies, strict=False):
        if edges.setdefault(predecessor(session, handle), policy) is not policy:
            raise invalid(f"after: {handle} is there twice, with different words of on_failure")
    return edges


def one_of(word: str, words: Collection[str], name: str) -> str:
    """A word that is one of these."""
    if word not in words:
        raise invalid(f"{name} is one of {', '.join(words)}")
    return word


def invalid(text: str) -> PeerError:
    return PeerError(f"options: {text}", code="INVALID_ARGUMENT")


def within_reason(count: int) -> int:
    return max(-1, min(count, MOST_ATTEMPTS))


def parsed(text: bytes, kind: type[Parsed], name: str) -> Parsed:
    """A JSON object; nothing is an empty one."""
    if len(text) > MOST_JSON_BYTES:
        raise PeerError(f"{name} of more than {MOST_JSON_BYTES} bytes", code="ARGUMENT_TOO_LARGE")
    try:
        return msgspec.json.decode(text or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PeerError(f"{name}: {error}", code="INVALID_ARGUMENT") from error


def predecessor(session: GearmanSession, handle: str) -> int:
    job_id = session.job_id(handle.encode())
    if not 0 < job_id < session.engine.next_job_id:
        raise PeerError(f"options: after: {handle} was never a job of this server", code="INVALID_ARGUMENT")
    return job_id


def microseconds(seconds: float, name: str) -> int:
    if not 0 <= seconds < 100_000 * YEAR_SECONDS:
        raise PeerError(f"options: {name} is out of range", code="INVALID_ARGUMENT")
    return ceil(seconds * SECOND_US)


def short(text: str, most_bytes: int, name: str) -> bytes:
    """A text that can be an argument of a packet."""
    data = text.encode()
    if len(data) > most_bytes:
        raise PeerError(f"options: {name} has at most {most_bytes} bytes", code="ARGUMENT_TOO_LARGE")
    if b"\0" in data:
        raise PeerError(f"options: {name} has a NUL", code="INVALID_ARGUMENT")
    return data


def job_ids(session: GearmanSession, handles: object) -> list[int]:
    if not isinstance(handles, list):
        raise PeerError("arguments: handles is a list", code="INVALID_ARGUMENT")
    return [session.job_id(str(handle).encode()) for handle in handles]


def named_job(session: GearmanSession, handle: bytes) -> int:
    """By its handle, or by its number alone, which is all that logs tell of jobs; 0 if it is neither."""
    return session.job_id(handle) or number_in_handle(handle, b"")


def on_control(session: GearmanSession, body: bytes) -> None:
    verb, text = split(body, Packet.CONTROL)
    arguments = parsed(text, dict[str, Any], "arguments")
    handle = arguments.pop("handle", None)
    if handle is not None:
        arguments["job_id"] = named_job(session, str(handle).encode())
    handles = arguments.pop("handles", None)
    if handles is not None:
        arguments["job_ids"] = job_ids(session, handles)
    if isinstance(arguments.get("function"), str):
        session.name_of(arguments["function"].encode())
    session.work_off(operation(session, verb, arguments))


def operation(session: GearmanSession, verb: bytes, arguments: dict[str, Any]) -> Iterator[bool]:
    """Do what an operator asks for, and answer."""
    answers: list[Any] = []
    try:
        yield from session.context.operate_in_steps(verb.decode("utf-8", "replace"), arguments, answers)
    except LookupError as error:  # either a job, or something else that has a name
        code = "JOB_NOT_FOUND" if "job_id" in arguments else "NOT_FOUND"
        session.send_error(code, str(error.args[0]))
        return
    except (TypeError, ValueError) as error:
        raise PeerError(str(error), code="INVALID_ARGUMENT") from error
    answer = answers[0]
    if verb in CHANGING_VERBS:
        session.pledge()
    packet = response(Packet.CONTROL_RES, msgspec.json.encode(answer))
    session.note_long_answer(len(packet))
    session.send(packet)
    if verb == b"run_schedule":
        session.pledge_job(session.engine.jobs[session.job_id(answer["handle"].encode())])
