"""`PayloadArrivals`: adds payloads that were read from the store to their jobs, and fails jobs whose payloads are lost.

A queued job need not have its payload in memory. The engine does not assign such a job, and names it in
`EngineState.wanted_payloads`. The owner reads the payload, and reports the outcome here.
"""

from __future__ import annotations

from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.model import READY, Cause, Function, Job

__all__ = ["PayloadArrivals"]

LOST_CODE = 255  # the result code of a job whose payload is lost


class PayloadArrivals:
    """Gives queued jobs their payloads, and fails those whose payloads are lost."""

    def __init__(self, state: EngineState, dispatcher: Dispatcher, transitions: Transitions) -> None:
        self._state = state
        self._dispatcher = dispatcher
        self._transitions = transitions

    def arrived(self, job: Job, payload: bytes) -> None:
        """Add the payload to an unfinished job. `offer` tells the workers."""
        if job.payload is None and self._state.jobs.get(job.id) is job:
            job.payload = payload
            if job.entry_bytes:
                self._state.memory.job_bytes += len(payload)

    def lost(self, job: Job, text: bytes) -> None:
        """Fail a ready job whose payload is not in the store."""
        if job.state is READY and job.payload is None and self._state.jobs.get(job.id) is job:
            job.has_details = True
            self._state.set_error(job, text)
            job.result_code = LOST_CODE
            self._transitions.end(job, Cause.ENDED_BADLY)

    def offer(self, function: Function, count: int) -> None:
        """Offer jobs of a function after this many payloads were read."""
        self._dispatcher.offer_loaded(function, count)

    def want_again(self, function: Function) -> None:
        """Want a payload that could not be read again, when a worker next asks for the job."""
        function.unloaded = None
