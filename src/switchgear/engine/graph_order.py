"""`GraphOrder`: puts the jobs of a graph into an order in which each follows its predecessors, or finds a cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from switchgear.errors import CycleRefused

__all__ = ["GraphOrder"]


class GraphOrder:
    """The jobs visited so far, each after all jobs that block it."""

    def __init__(self, blockers: Callable[[int], list[int]], label: Callable[[int], str]) -> None:
        self.jobs: list[int] = []
        self._visited: set[int] = set()
        self._blockers = blockers  # the jobs for which a job waits
        self._label = label  # how an error names a job

    def visit(self, start: int) -> Iterator[None]:
        """Add a job after all jobs that block it, in small steps; raises CycleRefused."""
        visited = self._visited
        path = [start]
        on_path = {start}
        branches = [iter(self._blockers(start))] if start not in visited else []
        while branches:
            blocker = next(branches[-1], None)
            if blocker is None:
                branches.pop()
                done = path.pop()
                on_path.discard(done)
                visited.add(done)
                self.jobs.append(done)
            elif blocker in on_path:
                cycle = path[path.index(blocker) :]
                raise CycleRefused([self._label(job_id) for job_id in (*cycle, blocker)])
            elif blocker not in visited:
                path.append(blocker)
                on_path.add(blocker)
                branches.append(iter(self._blockers(blocker)))
            yield
