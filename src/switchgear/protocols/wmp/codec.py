"""The codec of WMP: frames to commands and headers, and back; for managers, workers and devices.

`decode` checks that a message belongs to the protocol, that its headers are plain data of bounded size and depth, and
that its routes are valid. Other headers are checked when they are read, with the functions below, so that unread
headers cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from switchgear.errors import PeerError
from switchgear.resources import resource_amounts
from switchgear.tags import tag_set
from switchgear.trace_context import is_traceparent

__all__ = [
    "CANCEL",
    "DONE",
    "GIVE",
    "LARGEST_HEADERS",
    "LONGEST_ELEMENT",
    "MOST_HOPS",
    "MOST_ROLES",
    "NO",
    "READY",
    "STATUS",
    "STATUSES",
    "TAKE",
    "VERSION",
    "WAKE",
    "code_of",
    "decode",
    "encode",
    "error_of",
    "job_of",
    "lease_of",
    "manager_of",
    "progress_of",
    "resources_of",
    "role_of",
    "roles_of",
    "slots_of",
    "status_of",
    "tags_of",
    "trace_of",
]

VERSION: Final = b"WMP1"

READY: Final = b"READY"
WAKE: Final = b"WAKE"
GIVE: Final = b"GIVE"
TAKE: Final = b"TAKE"
NO: Final = b"NO"
DONE: Final = b"DONE"
STATUS: Final = b"STATUS"
CANCEL: Final = b"CANCEL"

# How many frames each command has.  Only a job and its result have a payload.
FRAMES: Final = {READY: 4, WAKE: 4, GIVE: 4, TAKE: 5, NO: 4, DONE: 5, STATUS: 4, CANCEL: 4}
WITH_PAYLOAD: Final = 5

MOST_HOPS: Final = 16
LONGEST_ELEMENT: Final = 255  # of a route, as of a routing id
LARGEST_HEADERS: Final = 64 * 1024
DEEPEST: Final = 8  # nested arrays and maps, not counting the headers themselves
MOST_ROLES: Final = 1000
LONGEST_ROLE: Final = 512
LARGEST_NUMBER: Final = 2**63 - 1  # the maximum in a store
STATUSES: Final = ("done", "failed", "returned", "cancelled")

ROUTES: Final = frozenset({"path", "to"})
PLAIN: Final = frozenset({bytes, str, int, float, bool})

_decode_map: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode
_encode_map: Final = msgspec.msgpack.Encoder().encode


def encode(command: bytes, headers: dict[str, Any], payload: bytes | None = None) -> list[bytes]:
    """The frames of a message, from the empty delimiter on. Raises ValueError for an invalid message."""
    encoded = _encode_map(headers)
    if len(encoded) > LARGEST_HEADERS:
        raise ValueError(f"headers of {len(encoded)} bytes; at most {LARGEST_HEADERS} are taken")
    if FRAMES[command] == WITH_PAYLOAD:
        return [b"", VERSION, command, encoded, payload or b""]
    if payload is not None:
        raise ValueError(f"{command.decode()} has no payload")
    return [b"", VERSION, command, encoded]


def decode(frames: list[bytes]) -> tuple[bytes, dict[str, Any], bytes | None]:
    """Command, headers and payload of the frames from the empty delimiter on; raises PeerError.

    A header that is nil counts as absent.
    """
    count = len(frames)
    if not 4 <= count <= WITH_PAYLOAD:
        raise PeerError(f"a message has 4 or 5 frames, not {count}", code="BAD_FRAMES")
    if frames[0]:
        raise PeerError("the first frame is not empty", code="BAD_FRAMES")
    if frames[1] != VERSION:
        raise PeerError(f"protocol {frames[1][:16]!r}, not {VERSION.decode()}", code="BAD_VERSION")
    command = frames[2]
    expected = FRAMES.get(command)
    if expected is None:
        raise PeerError(f"unknown command {command[:16]!r}", code="UNKNOWN_COMMAND")
    if count != expected:
        wanted = "needs a" if expected == WITH_PAYLOAD else "has no"
        raise PeerError(f"{command.decode()} {wanted} payload", code="BAD_FRAMES")
    headers = _headers(frames[3])
    return command, headers, frames[4] if count == WITH_PAYLOAD else None


def _headers(encoded: bytes) -> dict[str, Any]:
    if len(encoded) > LARGEST_HEADERS:
        raise PeerError(f"headers of {len(encoded)} bytes; at most {LARGEST_HEADERS} are taken", code="TOO_LARGE")
    try:
        headers: dict[str, Any] = _decode_map(encoded)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:  # all errors of msgspec, and text that is not UTF-8
        raise bad_header(f"the headers are not a msgpack map with text for keys: {error}") from None
    has_nil = False
    for key, value in headers.items():
        if value is None:
            has_nil = True
        elif key in ROUTES:
            _check_route(key, value)
        elif type(value) not in PLAIN:
            _check_plain(value, DEEPEST)
    return {key: value for key, value in headers.items() if value is not None} if has_nil else headers


def _check_route(key: str, route: Any) -> None:
    if type(route) is not list:
        raise bad_header(f"`{key}` is not an array")
    if len(route) > MOST_HOPS:
        raise PeerError(f"`{key}` has {len(route)} elements; at most {MOST_HOPS} hops are taken", code="TOO_FAR")
    for element in route:
        if type(element) is not bytes or not 0 < len(element) <= LONGEST_ELEMENT:
            raise bad_header(f"an element of `{key}` is not bin of 1 to {LONGEST_ELEMENT} bytes")


def _check_plain(value: Any, depth: int) -> None:
    """Check that a value can be shown, compared and passed on unchanged, and is not too deep."""
    if type(value) is dict:
        if not all(type(key) is str for key in value):
            raise bad_header("a map within the headers has a key that is not text")
        value = value.values()
    elif type(value) is not list:
        raise bad_header("a header has a msgpack extension type")
    if depth == 0:
        raise too_deep()
    for element in value:
        if type(element) not in PLAIN and element is not None:
            _check_plain(element, depth - 1)


def bad_header(text: str) -> PeerError:
    return PeerError(text, code="BAD_HEADER")


def too_deep() -> PeerError:
    return bad_header(f"arrays and maps in the headers are nested more than {DEEPEST} deep")


# --- headers; each function raises PeerError for an invalid value ---


def roles_of(headers: dict[str, Any], longest: int = LONGEST_ROLE) -> tuple[bytes, ...] | None:
    """The functions of a worker, each once; `None` if the header is missing."""
    roles = headers.get("roles")
    if roles is None:
        return None
    if type(roles) is not list or not 0 < len(roles) <= MOST_ROLES:
        raise bad_header(f"`roles` is not an array of 1 to {MOST_ROLES} names")
    return tuple(dict.fromkeys(_names(roles, longest)))


def tags_of(headers: dict[str, Any]) -> frozenset[bytes]:
    """The tags of a worker."""
    tags = headers.get("tags", [])
    if type(tags) is not list and type(tags) is not str:
        raise bad_header("`tags` is neither an array of tags nor a text of tags with commas")
    try:
        return tag_set(tags)
    except ValueError as error:
        raise bad_header(f"`tags`: {error}") from None


def resources_of(headers: dict[str, Any]) -> dict[bytes, int]:
    """The resources of a worker, in thousandths."""
    resources = headers.get("resources", "")
    if type(resources) is not dict and type(resources) is not str:
        raise bad_header("`resources` is neither a map of amounts nor a text such as memory=64G,cores=8")
    try:
        return resource_amounts(resources)
    except ValueError as error:
        raise bad_header(f"`resources`: {error}") from None


def _names(roles: Iterable[Any], longest: int) -> Iterable[bytes]:
    for role in roles:
        yield _name(role, "roles", longest)


def role_of(headers: dict[str, Any], longest: int = LONGEST_ROLE) -> bytes | None:
    """The function of the job."""
    role = headers.get("role")
    return None if role is None else _name(role, "role", longest)


def _name(text: Any, key: str, longest: int) -> bytes:
    name = _text(text, key)
    if not 0 < len(name) <= longest:
        raise bad_header(f"a name in `{key}` has {len(name)} bytes, not 1 to {longest}")
    return name


def _text(text: Any, key: str) -> bytes:
    """A str or bin: the protocol does not distinguish them."""
    if type(text) is str:
        return text.encode()
    if not isinstance(text, bytes):
        raise bad_header(f"`{key}` is not str or bin")
    return text


def job_of(headers: dict[str, Any]) -> bytes:
    """The manager's reference for the job."""
    job = headers.get("job")
    if type(job) is not bytes or not 0 < len(job) <= LONGEST_ELEMENT:
        raise bad_header(f"`job` is not bin of 1 to {LONGEST_ELEMENT} bytes")
    return job


def manager_of(headers: dict[str, Any]) -> bytes | None:
    """The identity of the manager of the job; `None` if that is the origin of the path."""
    manager = headers.get("manager")
    if manager is None:
        return None
    if type(manager) is not bytes or not 0 < len(manager) <= LONGEST_ELEMENT:
        raise bad_header(f"`manager` is not bin of 1 to {LONGEST_ELEMENT} bytes")
    return manager


def lease_of(headers: dict[str, Any]) -> float | None:
    """The lease in seconds: how often a worker reports on each of its jobs."""
    lease = headers.get("lease")
    if lease is None:
        return None
    if type(lease) not in (int, float) or not 0 < lease <= LARGEST_NUMBER:
        raise bad_header("`lease` is not a positive number of seconds")
    return float(lease)


def slots_of(headers: dict[str, Any]) -> int | None:
    """How many jobs a worker runs at a time."""
    slots = headers.get("slots")
    return None if slots is None else _number(slots, "slots", 1, LARGEST_NUMBER)


def trace_of(headers: dict[str, Any]) -> str:
    """The traceparent of a TAKE; empty if it has none, or an invalid one, which is no reason to refuse a job."""
    trace = headers.get("trace")
    return trace if isinstance(trace, str) and is_traceparent(trace.encode(errors="replace")) else ""


def status_of(headers: dict[str, Any]) -> str:
    """The header `status`: how a job ended. Raises if it is none of the known ones."""
    status = headers.get("status", "done")
    if status not in STATUSES:
        raise bad_header(f"`status` is not one of {', '.join(STATUSES)}")
    return str(status)


def code_of(headers: dict[str, Any]) -> int:
    """The number of an error."""
    return _number(headers.get("code", 1), "code", 1, 255)


def error_of(headers: dict[str, Any]) -> bytes | None:
    """The header `error`: the reason of a failure; `None` without one."""
    error = headers.get("error")
    return None if error is None else _text(error, "error")


def progress_of(headers: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Numerator, denominator and seconds left; `None` for missing ones."""
    numerator = headers.get("numerator")
    denominator = headers.get("denominator")
    time_left = headers.get("time_left")
    return (
        None if numerator is None else _number(numerator, "numerator", 0, LARGEST_NUMBER),
        None if denominator is None else _number(denominator, "denominator", 0, LARGEST_NUMBER),
        None if time_left is None else _number(time_left, "time_left", 0, LARGEST_NUMBER),
    )


def _number(number: Any, key: str, least: int, most: int) -> int:
    if type(number) is not int or not least <= number <= most:
        raise bad_header(f"`{key}` is not a whole number from {least} to {most}")
    return number
