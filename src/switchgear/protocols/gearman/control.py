"""Extension packets: what the protocol of other servers cannot say.

SUBMIT_JOB_OPTIONS  function, unique, options (a JSON object), payload  -> JOB_CREATED, then WORK_* if `wait` is true
CONTROL             verb, arguments (a JSON object)                     -> CONTROL_RES (JSON), or ERROR

A server that does not know them answers with an error or hangs up, so a client can tell.
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final, TypeVar

import msgspec

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import PeerError
from switchgear.model import PRIORITY_NAMES, SECOND_US, Delivery
from switchgear.protocols.gearman.clients import UNIQUE_BYTES, submit_with_options
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, split

__all__ = ["JobOptions", "on_control", "on_submit_options"]

Parsed = TypeVar("Parsed")

YEAR_SECONDS: Final = 366 * 24 * 3600
# Looking for circles takes time that others wait for.
MOST_PREDECESSORS: Final = 10_000
CHANGING_VERBS: Final = frozenset({b"cancel", b"retry", b"pause", b"resume"})


class JobOptions(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The options of SUBMIT_JOB_OPTIONS; times in seconds."""

    wait: bool = False
    priority: str = "normal"
    run_at: float = 0.0  # seconds since the epoch
    expires_at: float = 0.0  # seconds since the epoch
    timeout: float = 0.0  # longest run of one attempt
    attempts: int = -1  # 0: no limit; -1: the server's setting
    after: list[str] = []  # handles of predecessors
    name: str = ""
    reducer: str = ""


def on_submit_options(session: GearmanSession, body: bytes) -> None:
    function, unique, text, payload = split(body, Packet.SUBMIT_JOB_OPTIONS)
    options = parsed(text, JobOptions, "options")
    if len(options.after) > MOST_PREDECESSORS:
        raise PeerError(f"options: after: at most {MOST_PREDECESSORS} handles", code="ARGUMENT_TOO_LARGE")
    if options.priority not in PRIORITY_NAMES:
        raise PeerError(f"options: priority is one of {', '.join(PRIORITY_NAMES)}", code="INVALID_ARGUMENT")
    predecessors = tuple(predecessor(session, handle) for handle in options.after)
    submit_with_options(
        session,
        function,
        unique,
        payload,
        PRIORITY_NAMES.index(options.priority),
        Delivery.WAIT if options.wait else Delivery.HANDLE,
        SubmitOptions(
            run_at_us=microseconds(options.run_at, "run_at"),
            expires_us=microseconds(options.expires_at, "expires_at"),
            timeout_us=microseconds(options.timeout, "timeout"),
            attempts_limit=max(-1, min(options.attempts, 1_000_000)),
            predecessors=predecessors,
            name=short(options.name, session.setup.name_bytes, "name"),
            reducer=short(options.reducer, UNIQUE_BYTES, "reducer"),
        ),
    )


def parsed(text: bytes, kind: type[Parsed], name: str) -> Parsed:
    """A JSON object; nothing is an empty one."""
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


def on_control(session: GearmanSession, body: bytes) -> None:
    verb, text = split(body, Packet.CONTROL)
    arguments = parsed(text, dict[str, Any], "arguments")
    handle = arguments.pop("handle", None)
    if handle is not None:
        arguments["job_id"] = session.job_id(str(handle).encode())
    if isinstance(arguments.get("function"), str):
        session.name_of(arguments["function"].encode())
    try:
        answer = session.context.operate(verb.decode("utf-8", "replace"), arguments)
    except LookupError as error:
        session.send_error("JOB_NOT_FOUND", str(error.args[0]))
        return
    except (TypeError, ValueError) as error:
        raise PeerError(str(error), code="INVALID_ARGUMENT") from error
    if verb in CHANGING_VERBS:
        session.pledge()
    packet = response(Packet.CONTROL_RES, msgspec.json.encode(answer))
    session.long_bytes += len(packet)
    session.send(packet)
