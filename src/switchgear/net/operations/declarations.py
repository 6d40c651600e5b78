"""The verb `declare`: removes limits and schedules that an app declared earlier and no longer declares.

A schedule or a limit belongs to the app that has declared it last, by the name of the app.  What an operator has set
belongs to no app, and is never removed here.
"""

from __future__ import annotations

from typing import Final

from switchgear.json_bytes import plain
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps
from switchgear.policy import Policy
from switchgear.verbs.answers import DeclareAnswer

__all__ = ["DeclarationOperations"]

LOOKED_AT_PER_STEP: Final = 1000


class DeclarationOperations:
    """The verb about what belongs to apps."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine

    def declare(self, owner: str, schedules: list[str], functions: list[str], remove: bool) -> Steps:
        """Remove, or only name, what belongs to this app and is not among these."""
        stale_schedules = yield from self._stale_schedules(owner.encode(), {name.encode() for name in schedules})
        stale_functions = yield from self._stale_limits(owner, {name.encode() for name in functions})
        if remove:
            for name in stale_schedules:
                schedule = self._engine.schedules.get(name)
                if schedule is not None:
                    self._engine.remove_schedule(schedule)
            for name in stale_functions:
                function = self._engine.functions.get(name)
                if function is not None:
                    self._engine.set_policy(function, Policy())
        answer: DeclareAnswer = {
            "owner": owner,
            "schedules": [plain(name) for name in stale_schedules],
            "functions": [plain(name) for name in stale_functions],
            "removed": remove,
        }
        return answer

    def _stale_schedules(self, owner: bytes, declared: set[bytes]) -> Steps:
        stale: list[bytes] = []
        for place, (name, schedule) in enumerate(sorted(self._engine.schedules.items())):
            if schedule.owner == owner and name not in declared:
                stale.append(name)
            if place % LOOKED_AT_PER_STEP == LOOKED_AT_PER_STEP - 1:
                yield False
        return stale

    def _stale_limits(self, owner: str, declared: set[bytes]) -> Steps:
        stale: list[bytes] = []
        for place, function in enumerate(self._context.functions()):
            limiter = function.limiter
            if limiter is not None and limiter.policy.owner == owner and function.name not in declared:
                stale.append(function.name)
            if place % LOOKED_AT_PER_STEP == LOOKED_AT_PER_STEP - 1:
                yield False
        return sorted(stale)
