"""Every error this package raises on purpose.

    SwitchgearError
    ├── PeerError        the other side broke its protocol: answer, drop it, go on
    ├── Refused          the engine will not take a command now; the caller is told why
    │   └── CycleRefused     the command would make a job wait for itself
    ├── IllegalMove      a job was asked to make a move its life does not have (a defect)
    ├── StorageError     something we promised to keep may not be kept
    │   └── SchemaTooNew     the file was written by a later version
    ├── ConfigError      a setting is unknown, malformed or contradicts another
    └── ClientError      what the client library raises
        ├── ServerUnreachable    no connection, or it was lost
        ├── ServerRefused        the server answered with an error
        └── JobFailed            the job ended, but not well

Outcomes that are part of normal life, such as a worker reporting on a job it no longer holds, are return values.
"""

from __future__ import annotations

__all__ = [
    "ClientError",
    "ConfigError",
    "CycleRefused",
    "IllegalMove",
    "JobFailed",
    "PeerError",
    "Refused",
    "SchemaTooNew",
    "ServerRefused",
    "ServerUnreachable",
    "StorageError",
    "SwitchgearError",
]


class SwitchgearError(Exception):
    """The root: catch this to catch everything of ours."""


class PeerError(SwitchgearError):
    """A peer sent something its protocol does not allow.

    `framing_lost` tells the listener that nothing after this point can be understood, so the connection has to be
    closed once the answer (if the protocol has one) is sent.
    """

    def __init__(self, text: str, *, code: str = "INVALID_PACKET", framing_lost: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.framing_lost = framing_lost


class Refused(SwitchgearError):
    """The engine does not take this command; `reason` is one of the REFUSED_* words of the engine."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class CycleRefused(Refused):
    """The command would make a job wait for itself; `path` names the jobs of the circle in order."""

    def __init__(self, path: list[str]) -> None:
        super().__init__("cycle", "jobs would wait for each other: " + " -> ".join(path))
        self.path = path


class IllegalMove(SwitchgearError):
    """A job was asked for a move that the table of its life does not have."""


class StorageError(SwitchgearError):
    """The store could not keep or give back what it was asked to."""


class SchemaTooNew(StorageError):
    """The store was written by a later version of this program."""


class ConfigError(SwitchgearError):
    """A setting is unknown, malformed, or contradicts another one."""


class ClientError(SwitchgearError):
    """The root of what the client library raises."""


class ServerUnreachable(ClientError):
    """No connection could be made, or it was lost before the answer came."""


class ServerRefused(ClientError):
    """The server answered with an error packet."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}" if text else code)
        self.code = code
        self.text = text


class JobFailed(ClientError):
    """The job ended without success; `error` carries what the worker said, if it said anything."""

    def __init__(self, text: str, error: bytes = b"") -> None:
        super().__init__(text)
        self.error = error
