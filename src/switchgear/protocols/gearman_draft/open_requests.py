"""`OpenRequests`: requests of a 2005-draft connection that are answered in the order in which they came.

Answers about jobs carry no handle, so only their order tells which request they answer. A connection is therefore
answered in the order of its requests: a request that waits for a job is answered by the end of the job and, while it is
the oldest open request, also by its progress; later requests wait. (The packet that a job was accepted or refused is
sent at once: it cannot be confused with another.)
"""

from __future__ import annotations

from collections import deque

from switchgear.model import CANCELLED, DONE, EXPIRED, FINAL_STATES, SECOND_US, Job
from switchgear.protocols.gearman_draft.codec import packet
from switchgear.protocols.gearman_draft.messages import LARGEST_NUMBER, Completion, Packet, Progress

__all__ = ["OpenRequest", "OpenRequests", "completion_of", "progress_of"]

# The result of a job that ended without a worker.
SERVER_CODE = 255
SERVER_WORDS = {CANCELLED: b"cancelled", EXPIRED: b"expired"}


def progress_of(job: Job) -> Progress:
    """The progress of a job."""
    if job.state is DONE:
        whole = min(job.denominator, LARGEST_NUMBER) or 1
        return Progress(whole, whole)
    if job.state in FINAL_STATES:
        return Progress(job.numerator, job.denominator)
    return Progress(job.numerator, job.denominator, max(0, job.time_left_s))


def completion_of(job: Job) -> Completion:
    """The completion packet's body: whether a job is complete, and how it ended."""
    if job.state not in FINAL_STATES:
        return Completion(0)
    elapsed_seconds = max(1, (job.finished_us - job.created_us) // SECOND_US)
    if job.state is DONE:
        return Completion(elapsed_seconds, 0, job.whole_result)
    if job.state in SERVER_WORDS:
        return Completion(elapsed_seconds, SERVER_CODE, SERVER_WORDS[job.state])
    # A worker of another protocol may have sent parts of a result before it failed: the error is more useful.
    data = job.whole_result
    if job.error is not None and not data.startswith(job.error):  # of a long error only the beginning is stored
        data = job.error
    return Completion(elapsed_seconds, job.result_code or SERVER_CODE, data)


class OpenRequest:
    """A request without an answer yet: a wait for a job, or a query.

    It refers to its job while that is unfinished. A finished job is read from the store when the answer is due: results
    may be large, and queries many.
    """

    def __init__(self, kind: Packet, job_id: int, job: Job | None) -> None:
        self.kind = kind
        self.job_id = job_id
        self.job = job
        self.answer = b""  # of a wait, when the job has ended
        self.is_oldest = False

    def is_due(self) -> bool:
        """Whether it can be answered when it is the oldest."""
        return self.kind is not Packet.JOB_CREATE_REQ or bool(self.answer)

    def answer_about(self, job: Job) -> bytes:
        """The packet that answers a status or completion request about this job."""
        if self.kind is Packet.JOB_STATUS_REQ:
            return packet(Packet.JOB_STATUS_RES, progress_of(job).pack())
        return packet(Packet.JOB_COMPLETE_RES, completion_of(job).pack())


class OpenRequests:
    """The open requests of one connection, the oldest first."""

    def __init__(self) -> None:
        self.held_bytes = 0  # of answers that are not due yet
        self._requests: deque[OpenRequest] = deque()
        self._waits: dict[int, list[OpenRequest]] = {}  # by job; a duplicate key makes several for one job

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: OpenRequest) -> None:
        """Add a request, the newest."""
        self._requests.append(request)
        if request.kind is Packet.JOB_CREATE_REQ:
            self._waits.setdefault(request.job_id, []).append(request)

    def job_ended(self, job: Job, answer: bytes) -> None:
        """Set the answers of requests that wait for this job: in its present state, since it may be retried later."""
        for request in self._waits.pop(job.id, ()):
            request.answer = answer
            self.held_bytes += len(answer)

    def is_oldest(self, job: Job) -> bool:
        """Whether the oldest request waits for this job."""
        return bool(self._requests) and self._requests[0].job is job

    def take_due(self) -> OpenRequest | None:
        """Remove and return the oldest request, if it can be answered."""
        if not self._requests or not self._requests[0].is_due():
            return None
        request = self._requests.popleft()
        self.held_bytes -= len(request.answer)
        return request

    def clear(self) -> None:
        """Drop all requests: the connection is closed."""
        self._requests.clear()
        self._waits.clear()
        self.held_bytes = 0

    def new_oldest(self) -> Job | None:
        """The job that the oldest request waits for, if it has just become the oldest."""
        if not self._requests or self._requests[0].is_oldest:
            return None
        self._requests[0].is_oldest = True
        return self._requests[0].job
