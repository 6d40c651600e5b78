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
        │   ├── AlreadySubmitted     another job has the unique key, and the submission was not to join it
        │   └── NotFound             the server has nothing of that name (a LookupError too)
        │       └── JobUnknown           it has no such job, or not any more
        ├── ExtensionRequired    the server is a plain Gearman server, and cannot do what was asked for
        ├── ArgumentError        these are not arguments of the task (a TypeError too)
        ├── ResultError          the result is not what the task says it returns
        └── JobFailed            the job ended, but not well
            ├── TaskFailed           the task raised an exception; with the traceback of the worker
            ├── PredecessorFailed    a job it waited for did not succeed
            ├── JobCancelled         somebody cancelled it, or it was not wanted any more
            ├── JobExpired           it was not started in time
            └── JobLost              it is dead: its last attempt was lost with its worker, or took too long
                └── JobTimedOut      it took too long

Outcomes that are part of normal life, such as a worker reporting on a job it no longer holds, are return values.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = [
    "AlreadySubmitted",
    "ArgumentError",
    "ClientError",
    "ConfigError",
    "CycleRefused",
    "ExtensionRequired",
    "IllegalMove",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobLost",
    "JobTimedOut",
    "JobUnknown",
    "NotFound",
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
    """The engine does not take this command; `reason` is one of the REFUSED_* words of the engine.

    The engine knows jobs by their ids, and peers by other names.  So `text` has a pair of braces for each of `job_ids`,
    in their order, and whoever tells it to a peer says what to put there.
    """

    def __init__(self, reason: str, text: str, *job_ids: int) -> None:
        self.reason = reason
        self._text = text
        self._job_ids = job_ids
        super().__init__(self.told("job {}".format))

    def told(self, name: Callable[[int], str]) -> str:
        """The text, with the jobs called by these names."""
        first, *parts = self._text.split("{}", len(self._job_ids))  # braces of strangers come after our own
        return first + "".join(name(job_id) + part for job_id, part in zip(self._job_ids, parts, strict=True))


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


class AlreadySubmitted(ServerRefused):
    """Another job has the unique key of this submission, whose policy is to be refused then."""


class NotFound(ServerRefused, LookupError):
    """The server has nothing of that name, such as a schedule."""


class JobUnknown(NotFound):
    """The server has no such job: it never had, or the job ended so long ago that it was forgotten."""


class ExtensionRequired(ClientError):
    """The server is a plain Gearman server, and what was asked for needs one of ours."""


class ArgumentError(ClientError, TypeError):
    """These are not arguments that the task can be called with."""


class ResultError(ClientError):
    """What a task returned is not of the type that it says it returns, or cannot be written as JSON."""


class TaskFailed(JobFailed):
    """The task raised an exception on the worker.

    Errors travel as text: the class and the message of the exception in the first line, then an empty line, then the
    traceback.  Workers in other languages may say less.
    """

    @property
    def error_type(self) -> str:
        """The name of the exception's class; empty if the worker did not say."""
        name, colon, _ = self._first_line.partition(": ")
        return (
            name.removesuffix(":") if (colon or name.isidentifier() or name.endswith(":")) and " " not in name else ""
        )

    @property
    def message(self) -> str:
        """What the exception said."""
        kind = self.error_type
        return self._first_line.removeprefix(kind).removeprefix(":").strip() if kind else self._first_line

    @property
    def remote_traceback(self) -> str:
        """The traceback of the worker as text; empty if it sent none."""
        return self.error.decode(errors="replace").partition("\n\n")[2]

    @property
    def _first_line(self) -> str:
        return self.error.decode(errors="replace").partition("\n")[0]


class PredecessorFailed(JobFailed):
    """A job that this one waited for ended without success, and this one was to fail then."""

    @property
    def predecessor(self) -> str:
        """The handle of that job; empty if the server did not say."""
        handle, found, _ = self.error.decode(errors="replace").partition(", which ")
        return handle if found else ""


class JobCancelled(JobFailed):
    """The job was cancelled: by somebody, because another took its place, or because it was not wanted any more."""


class JobExpired(JobFailed):
    """The job was not started by its expiry."""


class JobLost(JobFailed):
    """The job is dead: its worker was lost, or took too long, as often as is allowed."""


class JobTimedOut(JobLost):
    """The job is dead because its last attempt ran for longer than its timeout."""
