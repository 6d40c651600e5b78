"""`JobSubscriptions`: subscribes peers to jobs, and drops a foreground job when its last subscriber disconnects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from switchgear.engine.function_placement import is_copy, is_foreign
from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.engine.transitions import Transitions
from switchgear.model import QUEUED_STATES, Cause, Delivery, Job, Peer
from switchgear.model.job import SUBSCRIPTION_BYTES

__all__ = ["JobSubscriptions"]


class JobSubscriptions:
    """Subscribes peers to the progress and the end of jobs, and removes peers that are gone."""

    def __init__(self, state: EngineState, sliced_work: SlicedWork, transitions: Transitions) -> None:
        self._state = state
        self._sliced_work = sliced_work
        self._transitions = transitions

    def refuse_more(self) -> None:
        """Raise Refused if there is no memory for one more subscription to a job."""
        self._state.refuse_without_memory(SUBSCRIPTION_BYTES)

    def subscribe(self, job: Job, subscriber: Peer) -> None:
        """Subscribe this peer to the job."""
        ended = subscriber.ended_subscriptions
        if ended is not None and ended.pop(job.id, None) is not None:
            self._unlist(job, subscriber)  # the earlier subscription, or the peer would be told everything twice
        if job.subscribers is None:
            job.subscribers = []
        job.subscribers.append(subscriber)
        subscriber.subscriptions[job.id] = job
        self._state.count_more(job, SUBSCRIPTION_BYTES)
        placement = self._state.placement
        if placement is not None and is_foreign(job.function) and not self._is_own(job):
            placement.watch(job)

    def _is_own(self, job: Job) -> bool:
        """Whether this engine has the job itself, though it does not accept submissions to the function: not yet, or
        not any more."""
        return self._state.jobs.get(job.id) is job and not is_copy(job)

    def unsubscribe(self, subscriber: Peer) -> None:
        """End all subscriptions of a peer that is gone. A job that only this peer waited for is cancelled, unless it is
        running."""
        subscriptions, subscriber.subscriptions = subscriber.subscriptions, {}
        self._end(subscriber, subscriptions)

    def unsubscribe_from(self, subscriber: Peer, job_ids: Iterable[int]) -> None:
        """End the subscriptions to some jobs: the requests for which the peer had subscribed are gone."""
        subscriptions: dict[int, Job] = {}
        for job_id in job_ids:
            job = subscriber.subscriptions.pop(job_id, None)
            if job is not None:
                subscriptions[job_id] = job
        self._end(subscriber, subscriptions)

    def _end(self, subscriber: Peer, subscriptions: dict[int, Job]) -> None:
        """Tell the peer nothing more about these jobs, and remove it from their lists in slices."""
        if not subscriptions:
            return
        if subscriber.ended_subscriptions:
            subscriber.ended_subscriptions.update(subscriptions)
        else:
            subscriber.ended_subscriptions = subscriptions
        jobs = list(subscriptions.values())
        self._sliced_work.start(self._remove_ended(subscriber, jobs), SlicedKind.UNSUBSCRIBE, subscriber)

    def _remove_ended(self, subscriber: Peer, jobs: list[Job]) -> Iterator[None]:
        """Remove a peer from the lists of these jobs, one job at a time, unless it has subscribed to the job again."""
        for job in jobs:
            ended = subscriber.ended_subscriptions
            if ended is None or ended.pop(job.id, None) is None:
                continue
            if not ended:
                subscriber.ended_subscriptions = None
            self._unlist(job, subscriber)
            if job.delivery == Delivery.WAIT and job.subscribers is None and job.state in QUEUED_STATES:
                placement = self._state.placement
                if placement is not None and placement.abandon(job):
                    yield
                    continue
                self._transitions.leave_queue(job)
                self._transitions.finish(job, Cause.ABANDONED)
            yield

    def _unlist(self, job: Job, subscriber: Peer) -> None:
        """Remove a peer from the subscribers of a job."""
        if job.subscribers is not None:
            before = len(job.subscribers)
            job.subscribers = [other for other in job.subscribers if other is not subscriber] or None
            self._state.count_more(job, SUBSCRIPTION_BYTES * (len(job.subscribers or ()) - before))
