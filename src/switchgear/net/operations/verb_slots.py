"""`VerbSlots`: limits how many requests for the same verb are worked off at once; the others wait for their turn.

A verb that looks at all jobs or functions of the server holds what it has found until it answers: the graph of 100,000
jobs some 20 MB. Working off very many such requests a little at a time would hold all of that for each of them, and
none would be answered earlier. Each verb has slots of its own, so that a short one does not wait behind a long one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from switchgear.net.operations.verb_steps import Steps
from switchgear.protocols.pending_read import PendingRead, awaited

__all__ = ["MOST_AT_ONCE", "VerbSlots"]

MOST_AT_ONCE: Final = 4


class SlotsOfVerb:
    """The slots of one verb."""

    def __init__(self) -> None:
        self.used = 0
        self.waiting: deque[PendingRead] = deque()

    def free(self) -> None:
        """Give a slot back, or to the request that has waited longest."""
        if self.waiting:
            self.waiting.popleft().finish(None)
        else:
            self.used -= 1


class VerbSlots:
    """The slots of the verbs that need one."""

    def __init__(self, verbs: frozenset[str]) -> None:
        self._slots = {verb: SlotsOfVerb() for verb in verbs}

    def used(self, verb: str) -> int:
        """How many requests for a verb are being worked off."""
        return self._slots[verb].used

    def holding(self, verb: str, steps: Steps) -> Steps:
        """These steps, when there is a slot for them, which is free again after them; returns what they return."""
        slots = self._slots.get(verb)
        if slots is None:
            return (yield from steps)
        wait: PendingRead | None = None
        try:
            if slots.used < MOST_AT_ONCE:
                slots.used += 1
            else:
                wait = PendingRead()
                wait.on_abandoned = lambda: slots.waiting.remove(wait)
                slots.waiting.append(wait)
                yield from awaited(wait)
            return (yield from steps)
        finally:
            # The peer may have left before it got a slot, or just when it was given one.
            if wait is None or (wait.is_done and not wait.is_given_up):
                slots.free()
