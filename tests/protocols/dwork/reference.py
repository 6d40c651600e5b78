"""What a dwork server must do with a task graph, in a few lines and without any speed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

__all__ = ["Graph", "Node"]


@dataclass
class Node:
    """An unfinished task: what it waits for, who has it, and how often it was completed before it is forgotten."""

    after: set[str] = field(default_factory=set)
    holder: str = ""


@dataclass
class Graph:
    """Tasks by name.  `failed` ones are over, but whoever waits for them waits on."""

    tasks: dict[str, Node] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def copy(self) -> Graph:
        return deepcopy(self)

    def is_ready(self, name: str) -> bool:
        node = self.tasks.get(name)
        return node is not None and not node.after and not node.holder

    def ready(self) -> set[str]:
        return {name for name in self.tasks if self.is_ready(name)}

    def is_over(self) -> bool:
        """Whether nothing can be done any more."""
        return all(node.after and not node.holder for node in self.tasks.values())

    def unfinished(self, names: list[str]) -> set[str]:
        return {name for name in names if name in self.tasks or name in self.failed}

    def create(self, lines: list[tuple[str, list[str]]]) -> Graph | None:
        """The graph with these tasks created, or None if that cannot be."""
        changed = self.copy()
        for name, after in lines:
            node = changed.tasks.get(name)
            if node is None:
                node = changed.tasks[name] = Node()
                changed.failed.discard(name)
            added = changed.unfinished(after) - node.after
            if node.holder and added:
                return None
            node.after |= added
        return None if changed.has_circle() else changed

    def transfer(self, worker: str, lines: list[tuple[str, list[str]]]) -> Graph | None:
        changed = self.copy()
        for name, after in lines:
            assert changed.tasks[name].holder == worker
            changed.tasks[name] = Node(changed.unfinished(after))
        return None if changed.has_circle() else changed

    def has_circle(self) -> bool:
        left = {name: set(node.after) & self.tasks.keys() for name, node in self.tasks.items()}
        while free := [name for name, after in left.items() if not after & left.keys()]:
            for name in free:
                del left[name]
        return bool(left)

    def complete(self, name: str) -> bool:
        """Whether it could be completed; the first report counts, whoever makes it."""
        node = self.tasks.get(name)
        if node is None or node.after:
            return False
        del self.tasks[name]
        for other in self.tasks.values():
            other.after.discard(name)
        return True

    def fail(self, worker: str, name: str) -> bool:
        node = self.tasks.get(name)
        if node is None or node.holder != worker:
            return False
        del self.tasks[name]
        self.failed.add(name)
        return True

    def held_by(self, worker: str) -> list[str]:
        return [name for name, node in self.tasks.items() if node.holder == worker]

    def let_go(self, worker: str = "") -> None:
        """A worker, or every worker, is gone."""
        for node in self.tasks.values():
            if not worker or node.holder == worker:
                node.holder = ""
