"""`Administration`: settings that operators change for a function or for the whole server (pause, limits, draining)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from switchgear.engine.dispatcher import Dispatcher
from switchgear.engine.key_distribution import KeyDistribution
from switchgear.engine.sliced_work import SlicedKind, SlicedWork
from switchgear.engine.state import EngineState
from switchgear.errors import Refused
from switchgear.model import Function
from switchgear.policy import Policy
from switchgear.refusals import REFUSED_DRAINING

__all__ = ["Administration"]

# So many jobs are moved to the queues of their keys, or queues of keys are reviewed, before workers are told.
STEPS_BEFORE_OFFER: Final = 100


class Administration:
    """Pauses and limits functions, and stops and starts assignment for the whole server."""

    def __init__(
        self, state: EngineState, sliced_work: SlicedWork, key_distribution: KeyDistribution, dispatcher: Dispatcher
    ) -> None:
        self.units_per_step = 1  # of sliced work; more of them make changes of limits take more turns
        self._state = state
        self._sliced_work = sliced_work
        self.key_distribution = key_distribution
        self._dispatcher = dispatcher

    def pause(self, function: Function) -> None:
        """Assign no jobs of this function until it is resumed."""
        self._state.refuse_foreign(function.name)
        if function.paused:
            self._state.concern_speaker()  # the pause may not be stored yet
        else:
            function.paused = True
            self._state.note_function(function)

    def resume(self, function: Function) -> None:
        """Assign jobs of this function again."""
        self._state.refuse_foreign(function.name)
        if not function.paused:
            self._state.concern_speaker()  # the change may not be stored yet
        else:
            function.paused = False
            self._state.note_function(function)
            self._sliced_work.start(self._dispatcher.offer(function), SlicedKind.OFFER, function)

    def set_limits(self, function: Function, high: int, normal: int, low: int) -> None:
        """Accept submissions only while the function has fewer unfinished jobs than this; 0: no limit."""
        self._state.refuse_foreign(function.name)
        function.limits = [high, normal, low]
        self._state.note_function(function)

    def set_policy(self, function: Function, policy: Policy) -> None:
        """Set the limits of a function, which apply at once.

        Setting the same policy again changes nothing. Jobs that run beyond a lower limit continue. If keys are
        distinguished, before or after, the queues of keys are filled or reviewed over several turns.
        """
        self._state.refuse_foreign(function.name)
        if policy == (function.limiter.policy if function.limiter is not None else Policy()):
            self._state.concern_speaker()  # the policy may not be stored yet
            return
        steps = self.key_distribution.use_policy(function, policy)
        self._state.note_function(function)
        self._sliced_work.start(self._offering(function, steps), SlicedKind.LIMITS, function)

    def _offering(self, function: Function, steps: Iterator[None]) -> Iterator[None]:
        """Do the steps of a change of limits, and offer the jobs that can be assigned after some of them."""
        for number, _ in enumerate(steps, 1):
            if number % STEPS_BEFORE_OFFER == 0:
                yield from self._dispatcher.offer(function)
            for _ in range(self.units_per_step):
                yield
        yield from self._dispatcher.offer(function)

    def stop_handing_out(self) -> None:
        """Let running jobs finish, and start no others."""
        self._state.set_handing_out(False, self._state.has_wake_policy)

    def start_handing_out(self) -> None:
        """Let jobs start again after `stop_handing_out`."""
        self._state.set_handing_out(True, self._state.has_wake_policy)
        self._sliced_work.start(self._offer_all(list(self._state.functions.values())), SlicedKind.OFFER, None)

    def _offer_all(self, functions: list[Function]) -> Iterator[None]:
        for function in functions:
            yield from self._dispatcher.offer(function)
            yield

    def drain(self) -> None:
        """Let running jobs finish; start and accept no others."""
        self._state.refusal = Refused(REFUSED_DRAINING, "server is shutting down")
        self.stop_handing_out()
