"""`RecordingPeer`: a peer that records the events of the engine."""

from __future__ import annotations

from switchgear.model import Cause, Job, JobState, Peer, Timer, Worker

__all__ = ["RecordingPeer"]


class RecordingPeer(Peer):
    """Replaces a protocol session: every event of the engine becomes a tuple in `heard`.

    wake(worker id) · assign(worker id, job id) · revoke(worker id, job id) · expired(worker id) ·
    waited in vain(worker id, ticket) · timer(timer) · started(job id) · finished(job id, state) ·
    progress(job id, numerator, denominator, time left) · data(job id, bytes) · warning(job id, bytes)
    """

    def __init__(self, *, collects_data: bool = False) -> None:
        super().__init__()
        self.collects_data = collects_data
        self.heard: list[tuple[object, ...]] = []

    def take_heard(self) -> list[tuple[object, ...]]:
        """Return and clear the recorded events."""
        heard, self.heard = self.heard, []
        return heard

    def words(self) -> list[object]:
        """Only the first word of each event."""
        return [news[0] for news in self.heard]

    def wake(self, worker: Worker) -> None:
        self.heard.append(("wake", worker.id))

    def assign(self, worker: Worker, job: Job) -> None:
        self.heard.append(("assign", worker.id, job.id))

    def revoke(self, worker: Worker, job: Job, cause: Cause) -> None:
        self.heard.append(("revoke", worker.id, job.id))

    def expired(self, worker: Worker) -> None:
        self.heard.append(("expired", worker.id))

    def wait_timed_out(self, worker: Worker, ticket: int) -> None:
        self.heard.append(("waited in vain", worker.id, ticket))

    def timer_fired(self, timer: Timer) -> None:
        self.heard.append(("timer", timer))

    def job_started(self, job: Job) -> None:
        self.heard.append(("started", job.id))

    def job_finished(self, job: Job) -> None:
        self.heard.append(("finished", job.id, JobState(job.state)))

    def job_progress(self, job: Job) -> None:
        self.heard.append(("progress", job.id, job.numerator, job.denominator, job.time_left_s))

    def job_data(self, job: Job, data: bytes) -> None:
        self.heard.append(("data", job.id, data))

    def job_warning(self, job: Job, data: bytes) -> None:
        self.heard.append(("warning", job.id, data))
