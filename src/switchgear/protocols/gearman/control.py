"""Extension packets: what the protocol of other servers cannot say.

SUBMIT_JOB_OPTIONS  function, unique, options (a JSON object), payload  -> JOB_CREATED, then WORK_* if `wait` is true
CONTROL             verb, arguments (a JSON object)                     -> CONTROL_RES (JSON), or ERROR

A server that does not know them answers with an error or hangs up, so a client can tell.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import PeerError
from switchgear.model import PRIORITY_NAMES, SECOND_US, Delivery
from switchgear.protocols.gearman.clients import submit_with_options
from switchgear.protocols.gearman.codec import response
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, split

__all__ = ["JobOptions", "on_control", "on_submit_options"]

YEAR_SECONDS: Final = 366 * 24 * 3600
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
    try:
        options = msgspec.json.decode(text or b"{}", type=JobOptions)
    except msgspec.DecodeError as error:
        raise PeerError(f"options: {error}", code="INVALID_ARGUMENT") from error
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
            name=options.name.encode(),
            reducer=options.reducer.encode(),
        ),
    )


def predecessor(session: GearmanSession, handle: str) -> int:
    job_id = session.job_id(handle.encode())
    if not 0 < job_id < session.engine.next_job_id:
        raise PeerError(f"options: after: {handle} was never a job of this server", code="INVALID_ARGUMENT")
    return job_id


def microseconds(seconds: float, name: str) -> int:
    if not 0 <= seconds < 100_000 * YEAR_SECONDS:
        raise PeerError(f"options: {name} is out of range", code="INVALID_ARGUMENT")
    return int(seconds * SECOND_US)


def on_control(session: GearmanSession, body: bytes) -> None:
    verb, text = split(body, Packet.CONTROL)
    try:
        arguments: dict[str, Any] = msgspec.json.decode(text or b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise PeerError(f"arguments: {error}", code="INVALID_ARGUMENT") from error
    handle = arguments.pop("handle", None)
    if handle is not None:
        arguments["job_id"] = session.job_id(str(handle).encode())
    try:
        answer = session.context.operate(verb.decode("utf-8", "replace"), arguments)
    except LookupError as error:
        session.send_error("JOB_NOT_FOUND", str(error.args[0]))
        return
    except (TypeError, ValueError) as error:
        raise PeerError(str(error), code="INVALID_ARGUMENT") from error
    if verb in CHANGING_VERBS:
        session.pledge()
    session.send(response(Packet.CONTROL_RES, msgspec.json.encode(answer)))
