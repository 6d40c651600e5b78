"""`TaskGraph`: counts of states, the critical path, and stuck tasks of a task graph."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from switchgear.client.dwork.records import TaskRecord
from switchgear.client.dwork.taskfile import TaskFile

__all__ = ["STATES", "UNSUCCESSFUL", "GraphTask", "TaskGraph"]

# In reading order. A task is stuck if it waits, directly or indirectly, for an unsuccessful task.
STATES: Final = ("done", "running", "ready", "scheduled", "waiting", "stuck", "failed", "cancelled", "expired")
UNSUCCESSFUL: Final = frozenset({"failed", "cancelled", "expired"})


@dataclass(frozen=True, slots=True)
class GraphTask:
    """One task of a graph."""

    id: int
    name: str
    state: str
    after: tuple[int, ...] = ()
    seconds: float = 0.0  # that it took, or has taken until now
    error: str | None = None


class TaskGraph:
    """Tasks by id.  Predecessors that are not among them are ignored."""

    def __init__(self, tasks: Iterable[GraphTask]) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.before: dict[int, list[int]] = {}
        self.behind: dict[int, list[int]] = {task_id: [] for task_id in self.tasks}
        for task in self.tasks.values():
            known = [task_id for task_id in dict.fromkeys(task.after) if task_id in self.tasks and task_id != task.id]
            self.before[task.id] = known
            for task_id in known:
                self.behind[task_id].append(task.id)
        self.order = self._order()
        self.stuck = self.all_behind(task.id for task in self.tasks.values() if task.state in UNSUCCESSFUL)

    @classmethod
    def of_records(cls, records: Iterable[TaskRecord], now_us: int) -> TaskGraph:
        """The graph of a server's task records."""
        return cls(
            GraphTask(record.id, record.name, record.state, record.after, record.seconds(now_us), record.error)
            for record in records
        )

    @classmethod
    def of_file(cls, file: TaskFile) -> TaskGraph:
        """The graph of a task file, before anything has run."""
        ids = {name: number for number, name in enumerate(file.tasks, 1)}
        tasks = []
        for name, predecessors in file.tasks.items():
            after = tuple(ids[predecessor] for predecessor in predecessors if predecessor in ids)
            tasks.append(GraphTask(ids[name], name, "waiting" if after else "ready", after))
        return cls(tasks)

    def _order(self) -> list[int]:
        """All ids, each after its predecessors.  Tasks in a cycle, which a server may have, come last."""
        blockers = {task_id: len(before) for task_id, before in self.before.items()}
        pending = deque(task_id for task_id, number in blockers.items() if not number)
        order: dict[int, None] = {}
        while pending:
            task_id = pending.popleft()
            order[task_id] = None
            for other in self.behind[task_id]:
                blockers[other] -= 1
                if not blockers[other]:
                    pending.append(other)
        return [*order, *(task_id for task_id in self.tasks if task_id not in order)]

    def state_of(self, task: GraphTask) -> str:
        """The state of a task, or that it is stuck."""
        return "stuck" if task.id in self.stuck and task.state not in UNSUCCESSFUL else task.state

    def counts(self) -> dict[str, int]:
        """How many tasks are in which state, without empty states."""
        counted = Counter(map(self.state_of, self.tasks.values()))
        return {state: counted[state] for state in (*STATES, *(counted.keys() - set(STATES))) if counted[state]}

    def all_behind(self, ids: Iterable[int]) -> set[int]:
        """All unfinished tasks that wait for any of these, directly or not."""
        found: set[int] = set()
        pending = list(ids)
        while pending:
            for task_id in self.behind[pending.pop()]:
                if task_id not in found and self.tasks[task_id].state != "done":
                    found.add(task_id)
                    pending.append(task_id)
        return found

    def unsuccessful(self) -> list[GraphTask]:
        """Tasks that ended without success."""
        return [task for task in self.tasks.values() if task.state in UNSUCCESSFUL]

    def critical_path(self) -> list[GraphTask]:
        """The chain of dependent tasks that took longest in total."""
        best: dict[int, tuple[float, int]] = {}  # the length of the longest chain up to each, and the task before it
        for task_id in self.order:
            seconds, previous = max(
                ((best[other][0], other) for other in self.before[task_id] if other in best), default=(0.0, 0)
            )
            best[task_id] = (seconds + self.tasks[task_id].seconds, previous)
        path: list[GraphTask] = []
        current = max(best, key=lambda task_id: best[task_id][0], default=0)
        while current in best and best[current][0] > 0:
            path.append(self.tasks[current])
            current = best[current][1]
        return path[::-1]
