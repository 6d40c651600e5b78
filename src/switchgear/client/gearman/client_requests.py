"""Requests of the blocking and the asyncio client, and how their answers are decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from switchgear.client.gearman.error_codes import INVALID_COMMAND, UNKNOWN_EXTENSION, error_in_packet
from switchgear.client.gearman.packets import control_packet
from switchgear.errors import ClientError, ServerRefused
from switchgear.numbers import whole_number
from switchgear.protocols.gearman.messages import Packet

__all__ = ["EXTENSION_PROBE", "JobStatus", "admin_request", "check_echo", "check_extensions", "status_of"]

# A server without our extensions answers with an error or closes the connection.
EXTENSION_PROBE: Final = control_packet("server", {})
_LONG_ANSWERS: Final = frozenset({"status", "prioritystatus", "workers", "show"})


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The answer to GET_STATUS.  A job that the server does not know has ended, or never was there."""

    known: bool
    running: bool
    numerator: int
    denominator: int


def status_of(body: bytes, server: object) -> JobStatus:
    """The status in a STATUS_RES."""
    fields = body.split(b"\0")
    if len(fields) != 5:
        raise ClientError(f"{server} answered with a status of {len(fields)} fields")
    known, running, numerator, denominator = (whole_number(field) or 0 for field in fields[1:])
    return JobStatus(bool(known), bool(running), numerator, denominator)


def admin_request(line: str) -> tuple[bytes, bool]:
    """A command of the text protocol, and whether its answer has many lines, with a dot for the last."""
    if "\n" in line or "\r" in line:
        raise ValueError("a command of the text protocol is one line")
    words = line.lower().split()
    return line.encode() + b"\r\n", bool(words) and words[0] in _LONG_ANSWERS


def check_echo(kind: int, body: bytes) -> None:
    """Raise ServerRefused if this answer to ECHO_REQ is an error: another protocol is spoken at the port."""
    if kind == Packet.ERROR:
        raise error_in_packet(body)


def check_extensions(kind: int, body: bytes, server: object) -> None:
    """Raise ServerRefused if this is the answer to `EXTENSION_PROBE` of a server without our extensions."""
    if kind == Packet.ERROR and body.startswith(INVALID_COMMAND.encode()):
        text = f"{server} is a Gearman server that does not know the extension packets of switchgear"
        raise ServerRefused(UNKNOWN_EXTENSION, text)
