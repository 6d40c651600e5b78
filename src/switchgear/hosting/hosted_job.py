"""`HostedJob`: a job that a program has submitted to a server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from switchgear.client.gearman.job_subscriber import JobEnd, JobSubscriber, Progress
from switchgear.client.gearman.pending_requests import ControlRequest

if TYPE_CHECKING:
    from switchgear.hosting.hosted_server import HostedServer

__all__ = ["HostedJob", "shared_future"]


class HostedJob:
    """A submitted job: its result, by blocking or with `await`; its progress; and how to cancel it.

    A submission that the server refuses raises the refusal wherever the job is asked about.
    """

    def __init__(self, server: HostedServer, function: str) -> None:
        self.function = function
        self._server = server
        self.accepted: Future[str] = Future()  # the handle
        self.subscriber = JobSubscriber()

    def __repr__(self) -> str:
        end = self._known_end
        handle = (
            self.accepted.result() if self.accepted.done() and not self.accepted.exception() else "not accepted yet"
        )
        return f"<HostedJob {self.function} {handle}{' ' + end.state if end is not None else ''}>"

    # --- the end ---

    def result(self, timeout: float | None = None) -> bytes:
        """Wait for the end of the job, and return its result.

        Raises JobFailed or one of its subclasses if the job ended without success, ServerRefused if the server did not
        take it, ServerUnreachable if the server was stopped first, and TimeoutError after `timeout` seconds.
        """
        try:
            return self._read(self.subscriber.future.result(timeout))
        except TimeoutError:
            raise TimeoutError(f"{self!r} has not ended within {timeout:g} s") from None

    async def result_async(self, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - like `result`
        """The same with asyncio; `await job` is short for it."""
        try:
            async with asyncio.timeout(timeout):
                return self._read(await asyncio.wrap_future(shared_future(self.subscriber.future)))
        except TimeoutError:
            raise TimeoutError(f"{self!r} has not ended within {timeout:g} s") from None

    def __await__(self) -> Generator[Any, None, bytes]:
        return self.result_async().__await__()

    @property
    def is_done(self) -> bool:
        """Whether the end is known, whatever it is."""
        return self.subscriber.future.done()

    def _read(self, end: JobEnd) -> bytes:
        failure = end.failure(self.accepted.result())
        if failure is not None:
            raise failure
        return end.result

    @property
    def _known_end(self) -> JobEnd | None:
        future = self.subscriber.future
        return future.result() if future.done() and future.exception() is None else None

    # --- before the end ---

    def handle(self, timeout: float | None = None) -> str:
        """Wait until the server has taken the job, and stored it if there is a store; returns its handle."""
        return self.accepted.result(timeout)

    async def handle_async(self) -> str:
        """`handle` with asyncio."""
        return await asyncio.wrap_future(shared_future(self.accepted))

    @property
    def progress(self) -> Progress | None:
        """What the worker last reported; None if it has not."""
        return self.subscriber.progress

    def cancel(self) -> None:
        """Have the job cancelled, if it has not ended yet; its worker is told, if the worker's protocol can."""

        def when_accepted(accepted: Future[str]) -> None:
            if accepted.exception() is None:
                self._server.send(ControlRequest("cancel", {"handle": accepted.result()}))

        self.accepted.add_done_callback(when_accepted)

    # --- called by the server ---

    def on_submitted(self, submitted: Future[list[str | Exception]]) -> None:
        """Called when the submission is answered."""
        error = submitted.exception()
        outcome = error if error is not None else submitted.result()[0]
        if isinstance(outcome, str):
            self.accepted.set_result(outcome)
        else:
            self.fail(outcome)

    def fail(self, error: BaseException) -> None:
        """The server has not taken the job."""
        if not self.accepted.done():
            self.accepted.set_exception(error)
        self.subscriber.give_up(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def shared_future(future: Future[Any]) -> Future[Any]:
    """A future that may be cancelled, as asyncio does it, without cancelling the one that others wait for too."""
    own: Future[Any] = Future()

    def set_outcome(done: Future[Any]) -> None:
        if own.set_running_or_notify_cancel():
            error = done.exception()
            if error is not None:
                own.set_exception(error)
            else:
                own.set_result(done.result())

    future.add_done_callback(set_outcome)
    return own
