"""Handlers of two extension packets: SUBMIT_JOB_OPTIONS and CONTROL.

SUBMIT_JOB_OPTIONS  function, unique, options (a JSON object), payload  -> JOB_CREATED, then the job's news if `wait` or
                                                                          `watch` is true
CONTROL             verb, arguments (a JSON object)                     -> CONTROL_RES (JSON), or ERROR

If one of several servers that own functions has not answered, CONTROL_RES has a second argument, a JSON object that
says what is missing (`verbs.answers.Incomplete`).

A server that does not know them answers with an error or hangs up, so a client can tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from switchgear.engine.engine import SubmitOptions
from switchgear.errors import OptionError, PeerError, Refused
from switchgear.json_bytes import LongBytes, encoded_around, pieces_of
from switchgear.model import Delivery
from switchgear.model.job_details import shared_details
from switchgear.protocols.gearman.client_packets import submit_in_steps, submit_with_options
from switchgear.protocols.gearman.codec import HEADER, RESPONSE, response
from switchgear.protocols.gearman.job_options import JobOptions, given_options
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.session import GearmanSession, split
from switchgear.protocols.option_reading import read_options
from switchgear.protocols.pending_read import Step
from switchgear.refusals import REFUSED_LIMIT
from switchgear.verbs.operator_verb import Keeps
from switchgear.verbs.table import VERBS

__all__ = ["on_control", "on_submit_options", "submit_options"]

Parsed = TypeVar("Parsed")

# Room for the handles of all predecessors. Decoded JSON can take twenty times the memory of its text.
MOST_JSON_BYTES = 12 * 1024 * 1024
# A million values take 100 ms to decode, in which no other peer is served. This is enough for the handles of all
# predecessors that a job may have and a word for each.
MOST_JSON_VALUES = 201_000

# A submitter uses the same options for each of its jobs. This many texts are cached, and no long one.
MOST_REMEMBERED: Final = 256
LONGEST_REMEMBERED_BYTES: Final = 256


class Remembered:
    """Cached options for any number of jobs; none of them is specific to a job."""

    __slots__ = ("delivery", "options", "priority", "watch")

    def __init__(self, priority: int, delivery: Delivery, options: SubmitOptions, watch: bool) -> None:
        self.priority = priority
        self.delivery = delivery
        self.options = options
        self.watch = watch


_remembered: Final[dict[bytes, Remembered]] = {}


def on_submit_options(session: GearmanSession, body: bytes) -> None:
    submit_options(session, split(body, Packet.SUBMIT_JOB_OPTIONS))


def submit_options(session: GearmanSession, arguments: list[bytes]) -> None:
    function, unique, text, payload = arguments
    known = _remembered.get(text)
    if known is None:
        submit_parsed(session, function, unique, text, payload)
    else:
        submit_with_options(
            session, function, unique, payload, known.priority, known.delivery, known.options, watch=known.watch
        )


def submit_parsed(session: GearmanSession, function: bytes, unique: bytes, text: bytes, payload: bytes) -> None:
    given = given_options(parsed(text, JobOptions, "options"))
    wait, watch = given.pop("wait", False), given.pop("watch", False)
    if wait and watch:
        raise invalid("wait is for foreground jobs and watch for others; give one of them")
    delivery = Delivery.WAIT if wait else Delivery.HANDLE
    try:
        read = read_options(
            given,
            has_unique=bool(unique),
            name_bytes=session.setup.name_bytes,
            predecessor=partial(predecessor, session),
        )
    except OptionError as error:
        raise bad_option(error) from error
    edges = read.edges
    predecessors = read.options.predecessors
    if edges is None and predecessors and not wait and session.engine.relies_on_many(predecessors):
        edges = iter(())
    if edges is not None:
        submission = submit_in_steps(session, function, unique, payload, read.priority, delivery, read.options, watch)
        steps = chain(edges_of(edges), submission)
        session.work_off(counted(session, len(text) + len(payload), steps))
        return
    if read.may_be_shared and len(text) <= LONGEST_REMEMBERED_BYTES:
        remember(text, Remembered(read.priority, delivery, read.options, watch))
    submit_with_options(session, function, unique, payload, read.priority, delivery, read.options, watch=watch)


def remember(text: bytes, known: Remembered) -> None:
    if len(_remembered) >= MOST_REMEMBERED:
        _remembered.clear()
    options = known.options
    options.details = shared_details(
        timeout_us=options.timeout_us,
        attempts_limit=options.attempts_limit,
        crash_limit=options.crash_limit,
        retention_us=options.retention_us,
        requires=options.requires,
    )
    _remembered[text] = known


def counted(session: GearmanSession, held_bytes: int, steps: Iterator[Step]) -> Iterator[Step]:
    """Work off a long request, which is counted as input meanwhile; raises Refused if there is no memory for it."""
    memory = session.engine.memory
    if not memory.has_room(held_bytes):
        raise Refused(REFUSED_LIMIT, "the server holds as much as it may; try again later")
    memory.input_bytes += held_bytes
    try:
        yield from steps
    finally:
        memory.input_bytes -= held_bytes


def edges_of(steps: Iterator[Step]) -> Iterator[Step]:
    """Read the predecessors of a wide job; raises PeerError."""
    try:
        yield from steps
    except OptionError as error:
        raise bad_option(error) from error


def bad_option(error: OptionError) -> PeerError:
    code = "ARGUMENT_TOO_LARGE" if error.is_too_large else "INVALID_ARGUMENT"
    return PeerError(f"options: {error}", code=code)


def invalid(text: str) -> PeerError:
    return PeerError(f"options: {text}", code="INVALID_ARGUMENT")


def parsed(text: bytes, kind: type[Parsed], name: str) -> Parsed:
    """Decode a JSON object; an empty text is an empty object."""
    if len(text) > MOST_JSON_BYTES:
        raise PeerError(f"{name} of more than {MOST_JSON_BYTES} bytes", code="ARGUMENT_TOO_LARGE")
    if len(text) > MOST_JSON_VALUES and text.count(b",") + text.count(b"[") + text.count(b"{") > MOST_JSON_VALUES:
        raise PeerError(f"{name} of more than {MOST_JSON_VALUES} values", code="ARGUMENT_TOO_LARGE")
    try:
        return msgspec.json.decode(text or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PeerError(f"{name}: {error}", code="INVALID_ARGUMENT") from error


def predecessor(session: GearmanSession, handle: str) -> int:
    """The id of the job with this handle; 0 if there never was one. Raises Refused if the peer may not see it."""
    job_id = session.job_id(handle.encode())
    if not 0 < job_id < session.engine.ids_end:
        return 0
    session.require_predecessor(job_id)
    return job_id


def on_control(session: GearmanSession, body: bytes) -> None:
    name, text = split(body, Packet.CONTROL)
    arguments = parsed(text, dict[str, Any], "arguments")
    if isinstance(arguments.get("function"), str):
        session.name_of(arguments["function"].encode())
    session.work_off(operation(session, name.decode("utf-8", "replace"), arguments))


def operation(session: GearmanSession, verb: str, arguments: dict[str, Any]) -> Iterator[Step]:
    """Run a verb, and answer."""
    answers: list[Any] = []
    try:
        yield from session.context.operate_in_steps(verb, arguments, answers)
    except LookupError as error:  # an unknown job, or another unknown name
        code = "JOB_NOT_FOUND" if "handle" in arguments else "NOT_FOUND"
        session.send_error(code, str(error.args[0]))
        return
    except (TypeError, ValueError) as error:
        raise PeerError(str(error), code="INVALID_ARGUMENT") from error
    answer = answers[0]
    if VERBS[verb].keeps is Keeps.EARLIER:
        session.await_commit()
    parts, values = encoded_around(answer)
    if len(answers) > 1:  # what the answer lacks; JSON has no NUL
        parts[-1] += b"\0" + msgspec.json.encode(answers[1])
    if values:
        yield from send_long_answer(session, parts, values)
        return
    packet = response(Packet.CONTROL_RES, parts[0])
    session.note_long_answer(len(packet))
    session.send(packet)


def send_long_answer(session: GearmanSession, parts: list[bytes], values: list[LongBytes]) -> Iterator[Step]:
    """Send an answer with a long payload or result, which is encoded in steps; raises Refused if there is no memory."""
    memory = session.engine.memory
    pieces: list[bytes] = []
    held_bytes = 0
    try:
        for part, value in zip(parts, values, strict=False):
            pieces.append(part)
            for piece in pieces_of(value.data):
                if not memory.has_room(len(piece)):
                    raise Refused(REFUSED_LIMIT, "the server holds as much as it may; try again later")
                memory.draft_bytes += len(piece)
                held_bytes += len(piece)
                pieces.append(piece)
                yield False
    finally:
        memory.draft_bytes -= held_bytes
    pieces.append(parts[-1])
    size = sum(map(len, pieces))
    session.note_long_answer(size)
    session.send(HEADER.pack(RESPONSE, Packet.CONTROL_RES, size))
    for piece in pieces:
        session.send(piece)
