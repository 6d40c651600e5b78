"""`JobSubscriptions`: subscribes peers to jobs, and drops a foreground job when its last subscriber disconnects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.model import QUEUED_STATES, Cause, Delivery, Job, Peer
from switchgear.model.job import SUBSCRIPTION_BYTES

__all__ = ["JobSubscriptions"]


class JobSubscriptions:
    """Subscribes peers to jobs."""

    def __init__(self, state: EngineState, sliced_work: SlicedWork, transitions: Transitions) -> None:
        self._state = state
        self._sliced_work = sliced_work
        self._transitions = transitions

    def refuse_more(self) -> None:
        """Raise Refused if there is no memory for one more subscription to a job."""
        self._state.refuse_without_memory(SUBSCRIPTION_BYTES)

    def subscribe(self, job: Job, subscriber: Peer) -> None:
        """Subscribe this peer to the job."""
        if job.subscribers is None:
            job.subscribers = []
        job.subscribers.append(subscriber)
        subscriber.subscriptions[job.id] = job
        self._state.count_more(job, SUBSCRIPTION_BYTES)

    def unsubscribe(self, subscriber: Peer) -> None:
        """Remove all subscriptions of a peer that is gone. A job that only this peer waited for is cancelled, unless
        it is running."""
        if subscriber.subscriptions:
            subscriptions, subscriber.subscriptions = subscriber.subscriptions, {}
            self._sliced_work.start(
                self._remove_from_all(subscriber, subscriptions), SlicedKind.UNSUBSCRIBE, subscriber
            )

    def unsubscribe_from(self, subscriber: Peer, job_ids: Iterable[int]) -> None:
        """Remove subscriptions to some jobs: the requests for which the peer had subscribed are gone."""
        subscriptions: dict[int, Job] = {}
        for job_id in job_ids:
            job = subscriber.subscriptions.pop(job_id, None)
            if job is not None:
                subscriptions[job_id] = job
        if subscriptions:
            self._sliced_work.start(
                self._remove_from_all(subscriber, subscriptions), SlicedKind.UNSUBSCRIBE, subscriber
            )

    def _remove_from_all(self, subscriber: Peer, subscriptions: dict[int, Job]) -> Iterator[None]:
        """Remove the subscriptions of a peer that is gone, one job at a time."""
        for job in subscriptions.values():
            if subscriber.subscriptions.get(job.id) is job:
                continue  # the peer has come back and subscribed again
            if job.subscribers is not None:
                before = len(job.subscribers)
                job.subscribers = [other for other in job.subscribers if other is not subscriber] or None
                self._state.count_more(job, SUBSCRIPTION_BYTES * (len(job.subscribers or ()) - before))
            if job.delivery == Delivery.WAIT and job.subscribers is None and job.state in QUEUED_STATES:
                self._transitions.leave_queue(job)
                self._transitions.finish(job, Cause.ABANDONED)
            yield
