"""`Flows`: counts ended jobs by the protocols of their submitters and workers.

Each protocol by which jobs are submitted has a number, which a job carries (`Job.source`), and each worker has a list
of counters by that number (`Worker.flows`), which all workers of its protocol share.  So counting a job takes no table.
"""

from __future__ import annotations

from typing import Final

from switchgear.model.flow import Flow

__all__ = ["SCHEDULE_SOURCE", "UNKNOWN_SOURCE", "Flows"]

UNKNOWN_SOURCE: Final = 0  # of jobs that were restored, and of those that no peer has submitted
SCHEDULE_SOURCE: Final = 1

# A number has to fit into six bits of a packed job; see `model.segments`.
MOST_SOURCES: Final = 64


class Flows:
    """The numbers of protocols, and the counters."""

    def __init__(self) -> None:
        self.sources = ["unknown", "schedule"]  # by number
        self.by_worker: dict[str, list[Flow]] = {}  # by the protocol of workers, and the number of the submitter's
        self._numbers: dict[str, int] = {}

    def source(self, protocol: str) -> int:
        """The number of a protocol by which jobs are submitted."""
        number = self._numbers.get(protocol)
        if number is None:
            if len(self.sources) >= MOST_SOURCES or not protocol:
                return UNKNOWN_SOURCE
            number = self._numbers[protocol] = len(self.sources)
            self.sources.append(protocol)
            for flows in self.by_worker.values():
                flows.append(Flow())
        return number

    def of_workers(self, protocol: str) -> list[Flow]:
        """The counters of workers of a protocol, by the number of the submitter's."""
        flows = self.by_worker.get(protocol)
        if flows is None:
            flows = self.by_worker[protocol] = [Flow() for _ in self.sources]
        return flows
