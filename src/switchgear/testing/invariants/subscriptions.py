"""Invariants: jobs and peers agree about subscriptions."""

from __future__ import annotations

from switchgear.engine.engine import Engine
from switchgear.engine.sliced_work import SlicedKind
from switchgear.testing.invariants.broken_invariant import broken

__all__ = ["check_subscribers"]


def check_subscribers(engine: Engine) -> None:
    """The jobs and the peers agree about subscriptions."""
    for job in engine.jobs.values():
        if job.subscribers is None:
            continue
        if not job.subscribers:
            broken(f"{job} has an empty list of subscribers")
        for subscriber in job.subscribers:
            if subscriber.hears_of(job.id):
                if subscriber.subscriptions.get(job.id) is not job:
                    broken(f"{job} has a subscriber that does not know")
            elif not engine.sliced_work.is_pending(SlicedKind.UNSUBSCRIBE, subscriber):
                broken(f"{job} has a subscriber that is gone, and nothing will remove it")
            for other_id, other in subscriber.subscriptions.items():
                if (
                    engine.jobs.get(other_id) is not other
                    or not other.subscribers
                    or subscriber not in other.subscribers
                ):
                    broken(f"a peer believes to be subscribed to {other}")
