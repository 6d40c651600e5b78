"""What applications are told of a job, and when.

The answers about jobs carry no handle, so their order has to tell what they are about.  A connection is therefore
answered in the order of its requests: a job that is waited for is answered by its end, and while it is the oldest
open request by its progress too; what was asked after it waits.  (That a job was taken, or not, is said at once: that
packet is not mistaken for another.)
"""

from __future__ import annotations

from collections import deque

from switchgear.model import CANCELLED, DONE, EXPIRED, FINAL_STATES, SECOND_US, Job
from switchgear.protocols.gearman_draft.codec import packet
from switchgear.protocols.gearman_draft.messages import LARGEST_NUMBER, Completion, Packet, Progress

__all__ = ["OpenRequest", "OpenRequests", "completion_of", "progress_of"]

# What the server itself has to say of a job that no worker has ended.
SERVER_CODE = 255
SERVER_WORDS = {CANCELLED: b"cancelled", EXPIRED: b"expired"}


def progress_of(job: Job) -> Progress:
    """How far along a job is."""
    if job.state is DONE:
        whole = min(job.denominator, LARGEST_NUMBER) or 1
        return Progress(whole, whole)
    if job.state in FINAL_STATES:
        return Progress(job.numerator, job.denominator)
    return Progress(job.numerator, job.denominator, max(0, job.time_left_s))


def completion_of(job: Job) -> Completion:
    """Whether a job is complete, and how it ended."""
    if job.state not in FINAL_STATES:
        return Completion(0)
    elapsed_seconds = max(1, (job.finished_us - job.created_us) // SECOND_US)
    if job.state is DONE:
        return Completion(elapsed_seconds, 0, job.whole_result)
    if job.state in SERVER_WORDS:
        return Completion(elapsed_seconds, SERVER_CODE, SERVER_WORDS[job.state])
    # A worker of another protocol may have sent parts of a result before it failed: the reason is worth more.
    data = job.whole_result
    if job.error is not None and not data.startswith(job.error):  # of a long one only the beginning is kept
        data = job.error
    return Completion(elapsed_seconds, job.result_code or SERVER_CODE, data)


class OpenRequest:
    """A request that is still to be answered: a job that is waited for, or a question.

    It holds on to its job while that is unfinished.  A finished one is read from the log when the answer is due:
    results may be large, and questions many.
    """

    def __init__(self, kind: Packet, job_id: int, job: Job | None) -> None:
        self.kind = kind
        self.job_id = job_id
        self.job = job
        self.answer = b""  # to a wait, once the job has ended
        self.is_oldest = False

    def is_due(self) -> bool:
        """Whether it can be answered as soon as it is the oldest."""
        return self.kind is not Packet.JOB_CREATE_REQ or bool(self.answer)

    def answer_about(self, job: Job) -> bytes:
        """The answer to a question."""
        if self.kind is Packet.JOB_STATUS_REQ:
            return packet(Packet.JOB_STATUS_RES, progress_of(job).pack())
        return packet(Packet.JOB_COMPLETE_RES, completion_of(job).pack())


class OpenRequests:
    """The requests of one connection that wait for their answers, the oldest first."""

    def __init__(self) -> None:
        self.held_bytes = 0  # in answers whose turn has not come
        self._requests: deque[OpenRequest] = deque()
        self._waits: dict[int, list[OpenRequest]] = {}  # by job; a duplicate key makes several of one

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: OpenRequest) -> None:
        """One more."""
        self._requests.append(request)
        if request.kind is Packet.JOB_CREATE_REQ:
            self._waits.setdefault(request.job_id, []).append(request)

    def job_ended(self, job: Job, answer: bytes) -> None:
        """What waits for this job has its answer now: as the job is now, since it may be run again later."""
        for request in self._waits.pop(job.id, ()):
            request.answer = answer
            self.held_bytes += len(answer)

    def is_oldest(self, job: Job) -> bool:
        """Whether the oldest request waits for this job."""
        return bool(self._requests) and self._requests[0].job is job

    def take_due(self) -> OpenRequest | None:
        """The oldest, if its answer can be given."""
        if not self._requests or not self._requests[0].is_due():
            return None
        request = self._requests.popleft()
        self.held_bytes -= len(request.answer)
        return request

    def clear(self) -> None:
        """Nobody waits for anything any more."""
        self._requests.clear()
        self._waits.clear()
        self.held_bytes = 0

    def new_oldest(self) -> Job | None:
        """The job that the oldest request waits for, the first time this is asked."""
        if not self._requests or self._requests[0].is_oldest:
            return None
        self._requests[0].is_oldest = True
        return self._requests[0].job
