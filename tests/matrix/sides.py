"""Who submits and who works, and what each protocol has words for.  The page docs/interop.md is made from this.

What a protocol cannot say is declared here with the reason; the tests then find out that every pair carries exactly
what both of its sides can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

__all__ = ["CAPABILITIES", "PAIRS", "SUBMITTERS", "WORKERS", "Capability", "Degree", "Pair", "Side", "expected"]


class Degree(IntEnum):
    """How much of it a side can say, or a pair carries."""

    NONE = 0
    PART = 1
    ALL = 2


class Capability(StrEnum):
    """What may pass between a submitter and a worker."""

    RESULT = "result"
    PROGRESS = "progress"
    FAILURE = "failure"
    CANCEL = "cancel"
    DEATH = "death"


CAPABILITIES: Final = tuple(Capability)


@dataclass(frozen=True)
class Can:
    """What a side can say, and the words for it; or why not."""

    degree: Degree
    how: str


@dataclass(frozen=True)
class Side:
    """A submitter or a worker."""

    key: str
    title: str
    can: Mapping[Capability, Can]
    needs_redis: bool = False

    def degree(self, capability: Capability) -> Degree:
        return self.can[capability].degree


def _side(key: str, title: str, *can: Can, needs_redis: bool = False) -> Side:
    """`can`: in the order of the capabilities."""
    return Side(key, title, dict(zip(CAPABILITIES, can, strict=True)), needs_redis)


def _all(how: str) -> Can:
    return Can(Degree.ALL, how)


def _part(how: str) -> Can:
    return Can(Degree.PART, how)


def _none(why: str) -> Can:
    return Can(Degree.NONE, why)


_HEARS_NOTHING_OF_DEATH = _all("gets the result of the next attempt; no message about the lost one")

_GEARMONKEY_SUBMITTER = (
    _all("`output` in the job's hash, after the lock signals the end"),
    _all("`status:dividend` and `status:divisor`, when it reads them"),
    _all("`status` error; the reason is the `output`"),
    _none("no command for it"),
)
_GEARMONKEY_WORKER = (
    _all("`output`"),
    _all("`status:dividend` and `status:divisor`"),
    _all("`status` error; the reason is the `output`"),
    _part("is not told; its report is dropped"),
)

SUBMITTERS: Final = {
    side.key: side
    for side in (
        _side(
            "gearman",
            "Gearman",
            _all("WORK_COMPLETE"),
            _all("WORK_STATUS"),
            _all("WORK_EXCEPTION, with the reason"),
            _all("CONTROL cancel, an extension packet"),
            _HEARS_NOTHING_OF_DEATH,
        ),
        _side(
            "draft",
            "2005 draft",
            _all("job_complete_res"),
            _all("job_status_res"),
            _all("job_complete_res with a code and the reason"),
            _none("no packet for it"),
            _HEARS_NOTHING_OF_DEATH,
        ),
        _side(
            "pingpong",
            "PING/PONG",
            _all("the answer"),
            _none("a request has one answer, and nothing before it"),
            _all("FAILED, with the reason"),
            _none("no message for it"),
            _HEARS_NOTHING_OF_DEATH,
        ),
        _side(
            "dwork",
            "dwork",
            _part("Lookup says that the task is done; tasks have no results"),
            _none("no field for it"),
            _all("Lookup says that the task has failed, with the reason"),
            _none("no message for it"),
            _HEARS_NOTHING_OF_DEATH,
        ),
        _side("gearmonkey", "GearMonkey", *_GEARMONKEY_SUBMITTER, _HEARS_NOTHING_OF_DEATH),
        _side("redis", "GearMonkey, Redis", *_GEARMONKEY_SUBMITTER, _HEARS_NOTHING_OF_DEATH, needs_redis=True),
        _side(
            "http",
            "HTTP",
            _all("the body of `GET /v1/jobs/{handle}/result?wait=`"),
            _all("`event: progress` of `GET /v1/jobs/{handle}/events`"),
            _all("a problem, with the reason"),
            _all("`DELETE /v1/jobs/{handle}`"),
            _HEARS_NOTHING_OF_DEATH,
        ),
        _side(
            "python",
            "Python API",
            _all("`job.result()`"),
            _all("`job.updates()`"),
            _all("an exception with the reason, and with the traceback if the worker is a Python worker"),
            _all("`job.cancel()`"),
            _HEARS_NOTHING_OF_DEATH,
        ),
        _side(
            "python_http",
            "Python API, HTTP",
            _all("`job.result()`"),
            _all("`job.updates()`"),
            _all("an exception with the reason, and with the traceback if the worker is a Python worker"),
            _all("`job.cancel()`"),
            _HEARS_NOTHING_OF_DEATH,
        ),
    )
}

WORKERS: Final = {
    side.key: side
    for side in (
        _side(
            "gearman",
            "Gearman",
            _all("WORK_COMPLETE"),
            _all("WORK_STATUS"),
            _all("WORK_EXCEPTION, with the reason"),
            _part("is not told; its report is dropped"),
            _all("at once: its connection closes"),
        ),
        _side(
            "draft",
            "2005 draft",
            _all("job_complete_announce"),
            _all("job_status_announce"),
            _all("job_complete_announce with a code and the reason"),
            _part("is not told; its announcement is dropped"),
            _all("at once: its connection closes"),
        ),
        _side(
            "pingpong",
            "PING/PONG",
            _all("the result"),
            _none("it sends nothing while it works"),
            _none("no message for it: the worker sends no answer, and the job runs again"),
            _part("is not told; its result is dropped"),
            _all("after `resend` seconds"),
        ),
        _side(
            "wmp",
            "WMP",
            _all("DONE"),
            _all("STATUS"),
            _all("DONE with an error"),
            _all("CANCEL"),
            _all("when its lease expires"),
        ),
        _side(
            "dwork",
            "dwork",
            _part("Complete says that it is done; the result is empty"),
            _none("no field for it"),
            _all("Complete with an error, an extension field"),
            _part("is not told; its Complete is answered with NotFound"),
            _all("when its lease expires"),
        ),
        _side("gearmonkey", "GearMonkey", *_GEARMONKEY_WORKER, _all("at once: its connection closes")),
        _side(
            "redis",
            "GearMonkey, Redis",
            *_GEARMONKEY_WORKER,
            _all("after `busy` seconds without progress"),
            needs_redis=True,
        ),
        _side(
            "http",
            "HTTP",
            _all("the body of `PUT /v1/jobs/{handle}/result`"),
            _all("`POST /v1/jobs/{handle}/progress`"),
            _all("`POST /v1/jobs/{handle}/fail`, with the reason"),
            _all("`cancelled` in the answer to its progress"),
            _all("when its lease expires"),
        ),
        _side(
            "python",
            "Python API",
            _all("the return value of the task"),
            _all("`current_job().progress()`"),
            _all("an exception; its traceback is part of the reason"),
            _all("`current_job().cancelled`"),
            _all("at once: its connection closes"),
        ),
        _side(
            "python_http",
            "Python API, HTTP",
            _all("the return value of the task"),
            _all("`current_job().progress()`"),
            _all("an exception; its traceback is part of the reason"),
            _all("`current_job().cancelled`"),
            _all("when its lease expires"),
        ),
    )
}


@dataclass(frozen=True)
class Pair:
    """One cell of the table."""

    submitter: Side
    worker: Side

    @property
    def name(self) -> str:
        return f"{self.submitter.key}-{self.worker.key}"

    @property
    def never_leaves_redis(self) -> bool:
        """Client and worker find each other in their Redis, and the server has nothing to do with it."""
        return self.submitter.needs_redis and self.worker.needs_redis


PAIRS: Final = tuple(Pair(submitter, worker) for submitter in SUBMITTERS.values() for worker in WORKERS.values())


def expected(pair: Pair, capability: Capability) -> Degree:
    """What a pair carries by what its sides declare."""
    submitter, worker = pair.submitter.degree(capability), pair.worker.degree(capability)
    if capability is Capability.DEATH and pair.never_leaves_redis:
        return Degree.NONE
    return min(submitter, worker)
