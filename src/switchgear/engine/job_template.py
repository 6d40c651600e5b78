"""`JobTemplate`: what several jobs of a graph have in common: function, options, priority, subscriber."""

from __future__ import annotations

from switchgear.engine.submit_options import SubmitOptions
from switchgear.model import Function, Peer
from switchgear.model.job import JOB_BYTES, SUBSCRIPTION_BYTES

__all__ = ["JobTemplate"]


class JobTemplate:
    """Options that several jobs of a graph share."""

    __slots__ = ("count", "delivery", "entry_bytes", "function", "options", "priority", "subscriber")

    def __init__(
        self, function: Function, options: SubmitOptions, priority: int, delivery: int, subscriber: Peer | None
    ) -> None:
        self.function = function
        self.options = options  # name, predecessors and edges differ between jobs, and are set when a job is submitted
        self.priority = priority
        self.delivery = delivery
        self.subscriber = subscriber
        self.count = 0  # number of jobs
        self.entry_bytes = JOB_BYTES + options.held_bytes() + (SUBSCRIPTION_BYTES if subscriber is not None else 0)
