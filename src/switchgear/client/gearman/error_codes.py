"""Error codes of Gearman servers, and the exception class of each."""

from __future__ import annotations

from typing import Final

from switchgear.errors import AlreadySubmitted, JobUnknown, NotFound, ServerRefused

__all__ = [
    "ARGUMENT_TOO_LARGE",
    "AUTHENTICATION_FAILED",
    "FOREIGN_PROTOCOL",
    "GRAPH_NOT_FOUND",
    "INVALID_COMMAND",
    "JOB_NOT_FOUND",
    "LEASE_EXPIRED",
    "QUEUE_ERROR",
    "UNKNOWN_EXTENSION",
    "error_in_line",
    "error_in_packet",
    "error_of",
]

ALREADY_SUBMITTED: Final = "ALREADY_SUBMITTED"
ARGUMENT_TOO_LARGE: Final = "ARGUMENT_TOO_LARGE"
AUTHENTICATION_FAILED: Final = "AUTHENTICATION_FAILED"  # the server does not accept the token
FOREIGN_PROTOCOL: Final = "FOREIGN_PROTOCOL"  # the port speaks another protocol, such as TLS
GRAPH_NOT_FOUND: Final = "GRAPH_NOT_FOUND"  # the connection has not begun the graph that is committed
INVALID_COMMAND: Final = "INVALID_COMMAND"  # the answer to a packet that the server does not know
JOB_NOT_FOUND: Final = "JOB_NOT_FOUND"
LEASE_EXPIRED: Final = "LEASE_EXPIRED"
NOT_FOUND: Final = "NOT_FOUND"
QUEUE_ERROR: Final = "QUEUE_ERROR"  # among others: the store cannot be read
UNKNOWN_EXTENSION: Final = "UNKNOWN_EXTENSION"  # never sent: raised by the clients for a server without our extensions

# Every other code is a plain ServerRefused.
_CLASSES: Final[dict[str, type[ServerRefused]]] = {
    ALREADY_SUBMITTED: AlreadySubmitted,
    JOB_NOT_FOUND: JobUnknown,
    NOT_FOUND: NotFound,
}


def error_of(code: str, text: str) -> ServerRefused:
    """The exception for a code and its text."""
    return _CLASSES.get(code, ServerRefused)(code, text)


def error_in_packet(body: bytes) -> ServerRefused:
    """The exception for the body of an ERROR packet."""
    code, _, text = body.partition(b"\0")
    return error_of(code.decode(errors="replace"), text.decode(errors="replace"))


def error_in_line(line: str) -> ServerRefused | None:
    """The exception for a line of the text protocol, or None if the line is not an error."""
    if not line.startswith("ERR ") or "\t" in line:
        return None
    code, _, text = line.removeprefix("ERR ").partition(" ")
    return error_of(code, text.replace("+", " "))
