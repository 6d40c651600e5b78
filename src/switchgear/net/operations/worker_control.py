"""The verb `control_workers`: passes a request of an operator on to workers.

The workers answer with their status, some time later; the verb `workers` shows it with the number of the request.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

import msgspec

from switchgear.json_bytes import plain
from switchgear.model import Worker
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import ITEMS_PER_STEP, Steps
from switchgear.verbs.answers import ControlledWorker, ControlWorkersAnswer

__all__ = ["WorkerControlOperations"]

MOST_NAMED: Final = 10_000  # of the workers that cannot be controlled


class WorkerControlOperations:
    """The verb about workers as programs, which changes nothing in the server."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self.requests = 0  # how many there were; requests of a cluster have larger numbers

    def control_workers(self, action: str, workers: str, slots: int | None, text: str | None) -> Steps:
        """Pass a request on to the workers whose names match."""
        if (slots is None) == (action == "resize"):
            raise ValueError("slots: a number of slots is for the action resize, which needs one")
        if (text is None) == (action == "broadcast"):
            raise ValueError("text: a text is for the action broadcast, which needs one")
        self.requests += 1
        number = self.requests
        request = {"action": action, "slots": slots, "text": text}
        body = msgspec.json.encode({name: value for name, value in request.items() if value is not None})
        told: list[ControlledWorker] = []
        others: list[ControlledWorker] = []
        for count, worker in enumerate(self._context.workers(), 1):
            if worker.alive and matches(worker, workers):
                is_told = worker.peer.control_worker(worker, number, body)
                (told if is_told else others).append({"id": worker.id, "name": plain(worker.name)})
            if count % ITEMS_PER_STEP == 0:
                yield False
        answer: ControlWorkersAnswer = {"number": number, "told": told, "not_controllable": others[:MOST_NAMED]}
        return answer


def matches(worker: Worker, pattern: str) -> bool:
    """Whether the pattern is the id of the worker, or matches its name or the first part of its name.

    The workers of one process have names such as `HOST/PID/threads`, so `HOST/PID` and `HOST` name them together.
    """
    name = worker.name.decode(errors="replace")
    parts = name.split("/")
    names = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return pattern == str(worker.id) or any(fnmatchcase(each, pattern) for each in names)
