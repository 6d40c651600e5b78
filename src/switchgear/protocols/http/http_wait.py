"""`HttpWait`: a request that waits for the end of a job, for a job to run, or for events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from switchgear.model import Job

if TYPE_CHECKING:
    from switchgear.protocols.http.session import HttpSession

__all__ = ["HttpWait"]


@mypyc_attr(allow_interpreted_subclasses=True)
class HttpWait:
    """A request that is answered later.  The session has at most one.

    Its methods are called by the engine, which must not be called back: they answer, or have the session go on with
    something in a later turn (`HttpSession.continue_with`).
    """

    job: Job | None = None  # that it waits for
    is_of_new_job: bool = False  # which the same request has submitted

    def job_finished(self, session: HttpSession, job: Job) -> None:
        """A job has ended that the session is subscribed to."""

    def timed_out(self, session: HttpSession) -> None:
        """Called when the wait has timed out."""

    def server_stops(self, session: HttpSession) -> None:
        """Called when the server is about to stop. The engine may be called."""
        self.timed_out(session)

    def job_event(self, session: HttpSession, job: Job, kind: str, data: bytes) -> None:
        """Called with progress, a part of the result, or a warning of a job."""

    def give_back(self) -> None:
        """The answer could not be sent: others may have the jobs in it.  See `HttpSession.give_back_if_unsent`."""

    def end(self, session: HttpSession) -> None:
        """Called when the peer has disconnected. The engine may be called."""
