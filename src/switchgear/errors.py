"""Every error this package raises on purpose.

    SwitchgearError
    ├── PeerError        a peer broke its protocol; it gets an answer, and the server continues
    ├── Refused          the engine refuses a command; the text says why
    │   └── CycleRefused     the command would make a job wait for itself
    ├── IllegalMove      a change of state that the lifecycle does not have (a defect)
    ├── StorageError     the store cannot be written or read
    │   └── SchemaTooNew     the file was written by a later version
    ├── ConfigError      a setting is unknown, malformed or contradicts another
    │   └── AddressInUse     another process listens at the address
    ├── OptionError      a job option has a value that it cannot have (a ValueError too)
    └── ClientError      what the client library raises
        ├── ServerUnreachable    no connection, or it was lost
        ├── ServerRefused        the server answered with an error
        │   ├── AlreadySubmitted     another job has the unique key, and the submission was not to join it
        │   └── NotFound             the server has nothing of that name (a LookupError too)
        │       └── JobUnknown           the server has no such job (any more)
        ├── ExtensionRequired    the server is a plain Gearman server, and cannot do what was asked for
        ├── ArgumentError        these are not arguments of the task (a TypeError too)
        ├── ResultError          the result is not what the task says it returns
        └── JobFailed            the job ended without success
            ├── TaskFailed           the task raised an exception; with the traceback of the worker
            ├── PredecessorFailed    a job it waited for did not succeed
            ├── JobCancelled         it was cancelled, or no longer needed
            ├── JobExpired           it was not started in time
            └── JobLost              it is dead: its last attempt was lost with its worker, or took too long
                └── JobTimedOut      it took too long

Expected outcomes, such as a worker reporting on a job it no longer holds, are return values.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

__all__ = [
    "AddressInUse",
    "AlreadySubmitted",
    "ArgumentError",
    "ClientError",
    "ConfigError",
    "CycleRefused",
    "ExtensionRequired",
    "Fenced",
    "IllegalMove",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobLost",
    "JobTimedOut",
    "JobUnknown",
    "NotFound",
    "OptionError",
    "PeerError",
    "PredecessorFailed",
    "Refused",
    "ResultError",
    "SchemaTooNew",
    "ServerRefused",
    "ServerUnreachable",
    "StorageError",
    "SwitchgearError",
    "TaskFailed",
]


class SwitchgearError(Exception):
    """The base class of all errors of this package."""


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
    """The engine refuses this command; `reason` is one of `switchgear.refusals`.

    The engine knows jobs by their ids, and peers by other names. So `text` has a pair of braces for each of `job_ids`,
    in their order, which are replaced by the names that the peer uses.
    """

    def __init__(self, reason: str, text: str, *job_ids: int) -> None:
        self.reason = reason
        self._text = text
        self._job_ids = job_ids
        super().__init__(self.told("job {}".format))

    def told(self, name: Callable[[int], str]) -> str:
        """The text with the names of the jobs."""
        first, *parts = self._text.split("{}", len(self._job_ids))  # braces in texts of peers come after ours
        return first + "".join(name(job_id) + part for job_id, part in zip(self._job_ids, parts, strict=True))


class CycleRefused(Refused):
    """The command would make a job wait for itself; `path` has the jobs of the cycle in order."""

    def __init__(self, path: list[str]) -> None:
        super().__init__("cycle", "jobs would wait for each other: " + " -> ".join(path))
        self.path = path


class IllegalMove(SwitchgearError):
    """A change of a job's state that the lifecycle table does not have."""


class StorageError(SwitchgearError):
    """The store could not be written or read."""


class Fenced(StorageError):
    """Another server owns the jobs of the store now: this one must not tell any peer anything more."""


class SchemaTooNew(StorageError):
    """The store was written by a later version of this program."""


class ConfigError(SwitchgearError):
    """A setting is unknown, malformed, or contradicts another one."""


class AddressInUse(ConfigError):
    """Another process listens at the address."""


class OptionError(SwitchgearError, ValueError):
    """A job option has a value that it cannot have; the text begins with the name of the option."""

    def __init__(self, name: str, text: str, *, is_too_large: bool = False) -> None:
        super().__init__(f"{name} {text}")
        self.name = name
        self.is_too_large = is_too_large


class ClientError(SwitchgearError):
    """The base class of errors of the client library."""


class ServerUnreachable(ClientError):
    """No connection could be made, or it was lost before the answer came.

    `is_lasting`: the reason does not pass by itself, such as a wrong token or certificate. Requests that wait for a
    connection then fail at once.
    """

    def __init__(self, text: str = "", *, is_lasting: bool = False) -> None:
        super().__init__(text)
        self.is_lasting = is_lasting


class ServerRefused(ClientError):
    """The server answered with an error packet."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}" if text else code)
        self.code = code
        self.text = text


class JobFailed(ClientError):
    """The job ended without success; `error` is the worker's error text, if there is one."""

    def __init__(self, text: str, error: bytes = b"") -> None:
        super().__init__(text)
        self.error = error


class AlreadySubmitted(ServerRefused):
    """Another job has the unique key of this submission, and the submission's policy is `reject`."""


class NotFound(ServerRefused, LookupError):
    """The server has no such schedule or other object."""


class JobUnknown(NotFound):
    """The server has no such job: it never had, or the job ended so long ago that it was deleted."""


class ExtensionRequired(ClientError):
    """The server is a plain Gearman server, and the request needs a Switchgear server."""


class ArgumentError(ClientError, TypeError):
    """The task cannot be called with these arguments."""


class ResultError(ClientError):
    """The result of a task is not of the declared type, or cannot be written as JSON."""


# The last line of an error, if the class and the arguments of the exception do not follow from its first line.
RAISED_LINE: Final = "Raised: "


class TaskFailed(JobFailed):
    """The task raised an exception on the worker.

    Errors travel as text: the class and the message of the exception in the first line, then an empty line, then the
    traceback. Workers in other languages may send less.

    If the class of that exception is known here and allowed, what is raised is of that class as well, so that both
    `except TaskFailed` and `except ValueError` catch it.
    """

    original_args: tuple[Any, ...] | None = None
    """The arguments of the exception, if it is of the class that the task raised."""

    @property
    def raised(self) -> tuple[str, str, tuple[Any, ...] | None]:
        """The module and the name of the exception's class, and its arguments, None if they were not sent."""
        text = self.error.decode(errors="replace")
        line = text[text.rfind("\n") + 1 :]
        if "\n\n" in text and line.startswith(RAISED_LINE):
            name, _, arguments = line.removeprefix(RAISED_LINE).partition(" ")
            module, _, name = name.partition(":")
            try:
                read = json.loads(arguments)
            except (ValueError, RecursionError):
                read = None
            return module, name, tuple(read) if isinstance(read, list) else None
        message = self.message
        return "builtins", self.error_type, (message,) if message else ()

    @property
    def error_type(self) -> str:
        """The name of the exception's class; empty if the worker did not send it."""
        name, colon, _ = self._first_line.partition(": ")
        return (
            name.removesuffix(":") if (colon or name.isidentifier() or name.endswith(":")) and " " not in name else ""
        )

    @property
    def message(self) -> str:
        """The message of the exception."""
        kind = self.error_type
        return self._first_line.removeprefix(kind).removeprefix(":").strip() if kind else self._first_line

    @property
    def remote_traceback(self) -> str:
        """The traceback of the worker as text; empty if it sent none."""
        text = self.error.decode(errors="replace").partition("\n\n")[2]
        lines, end, last = text.rpartition("\n")
        return lines if end and last.startswith(RAISED_LINE) else text

    @property
    def _first_line(self) -> str:
        return self.error.decode(errors="replace").partition("\n")[0]


class PredecessorFailed(JobFailed):
    """A predecessor of the job ended without success, and the edge makes the job fail."""

    @property
    def predecessor(self) -> str:
        """The handle of that job, the first that did not succeed; empty if the server did not send it."""
        handle, found, _ = self.error.decode(errors="replace").partition(", which ")
        return handle if found else ""

    @property
    def root_cause(self) -> str:
        """The task and the error of that job, such as `shop.load: ValueError: no such file`; empty if unknown."""
        return self.error.decode(errors="replace").partition(", which ")[2].partition(": ")[2]


class JobCancelled(JobFailed):
    """The job was cancelled: on request, because another job replaced it, or because it was no longer needed."""


class JobExpired(JobFailed):
    """The job was not started by its expiry."""


class JobLost(JobFailed):
    """The job is dead: its worker was lost, or took too long, as often as the limit allows."""


class JobTimedOut(JobLost):
    """The job is dead because its last attempt ran for longer than its timeout."""
