"""The verb `flows`: the number of jobs by the protocols of their submitters and workers."""

from __future__ import annotations

from typing import Final

from switchgear.model import SECOND_US
from switchgear.model.duration_histogram import BOUNDS_US
from switchgear.model.flow import Flow
from switchgear.net.monitoring.recent_counts import RecentCounts
from switchgear.net.operations.context import OperationsContext
from switchgear.verbs.live_answers import FlowAnswer, FlowsAnswer

__all__ = ["FlowOperations", "share_within"]

P99: Final = 0.99


class FlowOperations:
    """The verb `flows`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine
        self._recent: dict[tuple[str, str], RecentCounts] = {}

    def flows(self) -> FlowsAnswer:
        found = [self._flow(submitter, worker, flow) for submitter, worker, flow in self._counted()]
        self.note()
        return {
            "since": self._context.started_us / SECOND_US,
            "submitters": sorted({flow["submitter"] for flow in found}),
            "workers": sorted({flow["worker"] for flow in found}),
            "flows": sorted(found, key=lambda flow: (flow["submitter"], flow["worker"])),
        }

    def note(self) -> None:
        """Remember the current counts, to compute rates from."""
        now_us = self._engine.now_us
        for submitter, worker, flow in self._counted():
            recent = self._recent.get((submitter, worker))
            if recent is None:
                recent = self._recent[submitter, worker] = RecentCounts()
            recent.note(now_us, [sum(flow.counts())])

    def _counted(self) -> list[tuple[str, str, Flow]]:
        """The pairs of protocols of which there were jobs."""
        flows = self._engine.flows
        return [
            (submitter, worker, flow)
            for worker, by_source in flows.by_worker.items()
            for submitter, flow in zip(flows.sources, by_source, strict=True)
            if any(flow.counts())
        ]

    def _flow(self, submitter: str, worker: str, flow: Flow) -> FlowAnswer:
        counts = flow.counts()
        ended = sum(counts)
        recent = self._recent.get((submitter, worker))
        rate = recent.rates(self._engine.now_us, [ended])[1][0] if recent is not None else None
        return {
            "submitter": submitter,
            "worker": worker,
            "done": ended - flow.failed,
            "failed": flow.failed,
            "rate": rate,
            "mean_seconds": round(flow.sum_us / ended / SECOND_US, 6),
            "p99_seconds": share_within(counts, P99),
        }


def share_within(counts: list[int], share: float) -> float | None:
    """Within how many seconds this share of all durations ended, as far as the ranges tell; `None` beyond the last."""
    wanted = sum(counts) * share
    reached = 0
    for bound_us, count in zip(BOUNDS_US, counts, strict=False):
        reached += count
        if reached >= wanted:
            return bound_us / SECOND_US
    return None
