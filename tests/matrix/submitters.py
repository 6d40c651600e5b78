"""Submitters: the clients of this package, all of one shape."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from switchgear import App
from switchgear.client import Client, DraftClient, DworkClient, GearMonkeyClient, PingPongClient, UpdateKind
from switchgear.client.draft import JobType
from switchgear.client.gearmonkey import GearMonkeyJob
from switchgear.errors import JobFailed
from tests.matrix.addresses import Addresses
from tests.support.http_client import HttpClient
from tests.support.waiting import DEADLINE_SECONDS, eventually

__all__ = ["SUBMIT", "Ending", "Ticket", "done", "failed"]


@dataclass(frozen=True)
class Ending:
    """How a job ended, as its submitter was told."""

    well: bool
    data: bytes | None  # the result or the reason; None: the protocol has no room for it


def done(result: bytes | None) -> Ending:
    """The job was done."""
    return Ending(True, result)


def failed(reason: bytes | None) -> Ending:
    """The job came to nothing."""
    return Ending(False, reason)


class Ticket(ABC):
    """A job that was submitted.  What the protocol has no words for is not implemented."""

    @abstractmethod
    def ending(self) -> Ending:
        """Wait for the end."""

    def progress(self) -> tuple[int, int]:
        """Wait for news of how far it is."""
        raise NotImplementedError

    def last_progress(self) -> tuple[int, int] | None:
        """The progress that was told until the end; for after it."""
        return None

    def cancel(self) -> None:
        raise NotImplementedError


class GearmanTicket(Ticket):
    def __init__(self, addresses: Addresses, payload: bytes, closing: ExitStack) -> None:
        self._client = closing.enter_context(Client(addresses.gearman))
        self._submission = self._client.submit(addresses.function, payload)
        self._last: tuple[int, int] | None = None

    def progress(self) -> tuple[int, int]:
        for update in self._submission.updates(DEADLINE_SECONDS):
            if update.kind is UpdateKind.STATUS:
                return update.numerator, update.denominator
        raise AssertionError("the job ended without news")

    def ending(self) -> Ending:
        parts = []
        for update in self._submission.updates(DEADLINE_SECONDS):
            match update.kind:
                case UpdateKind.STATUS:
                    self._last = (update.numerator, update.denominator)
                case UpdateKind.DATA | UpdateKind.COMPLETE:
                    parts.append(update.data)
                case UpdateKind.FAIL | UpdateKind.EXCEPTION:
                    return failed(update.data)
        return done(b"".join(parts))

    def last_progress(self) -> tuple[int, int] | None:
        return self._last

    def cancel(self) -> None:
        self._client.control("cancel", handle=self._submission.handle)


class DraftTicket(Ticket):
    def __init__(self, addresses: Addresses, payload: bytes, closing: ExitStack) -> None:
        self._client = closing.enter_context(DraftClient(addresses.gearman))
        self._record = self._client.submit(addresses.function, payload, job_type=JobType.SYNC_WAIT)
        self._last: tuple[int, int] | None = None

    def progress(self) -> tuple[int, int]:
        status = next(self._client.statuses(self._record, DEADLINE_SECONDS))
        return status.numerator, status.denominator

    def ending(self) -> Ending:
        for status in self._client.statuses(self._record, DEADLINE_SECONDS):
            self._last = (status.numerator, status.denominator)
        outcome = self._record.outcome
        assert outcome is not None
        return done(outcome.data) if outcome.code == 0 else failed(outcome.data)

    def last_progress(self) -> tuple[int, int] | None:
        return self._last


class PingPongTicket(Ticket):
    """A call waits for its answer, so it waits in a thread of its own."""

    def __init__(self, addresses: Addresses, payload: bytes, closing: ExitStack) -> None:
        self._answer: Future[Ending] = Future()
        self._client = PingPongClient(addresses.pingpong_clients)
        thread = threading.Thread(target=self._call, args=(payload,))
        thread.start()
        closing.callback(thread.join)

    def _call(self, payload: bytes) -> None:
        with self._client:
            try:
                self._answer.set_result(done(self._client.call(payload, DEADLINE_SECONDS)))
            except JobFailed as failure:
                self._answer.set_result(failed(failure.error))
            except BaseException as error:
                self._answer.set_exception(error)

    def ending(self) -> Ending:
        return self._answer.result()


class DworkTicket(Ticket):
    """Nobody is told of the end of a task: it is asked for."""

    def __init__(self, addresses: Addresses, payload: bytes, closing: ExitStack) -> None:
        self._client = closing.enter_context(DworkClient(addresses.dwork))
        self._name = payload
        self._client.create(payload)

    def ending(self) -> Ending:
        ending = eventually(self._ending_if_any, f"the task {self._name!r} ends")
        assert ending is not None
        return ending

    def _ending_if_any(self) -> Ending | None:
        record = self._client.lookup(self._name)
        assert record is not None
        match record.state:
            case "done":
                return done(None)
            case "failed" | "cancelled" | "expired":
                return failed((record.error or record.state).encode())
        return None


class GearMonkeyTicket(Ticket):
    def __init__(self, url: str, addresses: Addresses, payload: bytes, closing: ExitStack) -> None:
        self._client = closing.enter_context(GearMonkeyClient(url))
        self._function = addresses.function
        self._id = self._client.run(self._function, payload)

    def _job(self) -> GearMonkeyJob:
        return self._client.get(self._function, self._id)

    def progress(self) -> tuple[int, int]:
        progress = eventually(self.last_progress, f"job {self._id} of {self._function} gets on")
        assert progress is not None
        return progress

    def last_progress(self) -> tuple[int, int] | None:
        job = self._job()
        return None if job.dividend is None or job.divisor is None else (job.dividend, job.divisor)

    def ending(self) -> Ending:
        self._client.wait(self._function, self._id, DEADLINE_SECONDS)
        job = self._job()
        return done(job.output) if job.status == "success" else failed(job.output)

    def status(self) -> str:
        return self._job().status


def _over_the_listener(addresses: Addresses, payload: bytes, closing: ExitStack) -> Ticket:
    return GearMonkeyTicket(addresses.gearmonkey, addresses, payload, closing)


def _over_redis(addresses: Addresses, payload: bytes, closing: ExitStack) -> Ticket:
    return GearMonkeyTicket(addresses.redis, addresses, payload, closing)


class HttpTicket(Ticket):
    def __init__(self, addresses: Addresses, payload: bytes, closing: ExitStack) -> None:
        self._client = HttpClient(addresses.http)
        closing.callback(self._client.close)
        answer = self._client.call("POST", f"/v1/functions/{addresses.function}/jobs", payload)
        assert answer.status == 201, answer
        self._job = f"/v1/jobs/{answer.json['handle']}"

    def progress(self) -> tuple[int, int]:
        for kind, data in self._client.events(f"{self._job}/events"):
            if kind == "progress":
                return data["numerator"], data["denominator"]
        raise AssertionError("the job ended without news")

    def last_progress(self) -> tuple[int, int] | None:
        job = self._client.call("GET", self._job).json
        return (job["numerator"], job["denominator"]) if job["denominator"] else None

    def ending(self) -> Ending:
        answer = self._client.call("GET", f"{self._job}/result?wait={int(DEADLINE_SECONDS)}")
        if answer.status == 200:
            return done(answer.body)
        assert answer.status == 409, answer
        assert answer.json["code"] != "job_unfinished", answer
        return failed(answer.json.get("error", "").encode())

    def cancel(self) -> None:
        assert self._client.call("DELETE", self._job).status == 200


class PythonTicket(Ticket):
    def __init__(self, url: str, addresses: Addresses, payload: bytes, closing: ExitStack) -> None:
        app = closing.enter_context(App(url))

        def work(payload: bytes) -> bytes:
            raise NotImplementedError("the worker has a function of its own under this name")

        self._job = app.task(name=addresses.function)(work).submit(payload)

    def progress(self) -> tuple[int, int]:
        for progress in self._job.updates():
            return progress.done, progress.total
        raise AssertionError("the job ended without news")

    def ending(self) -> Ending:
        try:
            return done(self._job.result(DEADLINE_SECONDS))
        except JobFailed as failure:
            return failed(failure.error)

    def cancel(self) -> None:
        self._job.cancel()


def _python(addresses: Addresses, payload: bytes, closing: ExitStack) -> Ticket:
    return PythonTicket(addresses.gearman, addresses, payload, closing)


def _python_over_http(addresses: Addresses, payload: bytes, closing: ExitStack) -> Ticket:
    return PythonTicket(addresses.http, addresses, payload, closing)


SUBMIT: Final[dict[str, Callable[[Addresses, bytes, ExitStack], Ticket]]] = {
    "gearman": GearmanTicket,
    "draft": DraftTicket,
    "pingpong": PingPongTicket,
    "dwork": DworkTicket,
    "gearmonkey": _over_the_listener,
    "redis": _over_redis,
    "http": HttpTicket,
    "python": _python,
    "python_http": _python_over_http,
}
