"""`FunctionRegistry`: functions by name; unused ones are forgotten to make room."""

from __future__ import annotations

from itertools import islice
from typing import Final

from switchgear.engine.function_placement import FOREIGN_LIMIT, is_foreign
from switchgear.engine.ready_queues import ReadyQueues
from switchgear.engine.state import EngineState
from switchgear.engine.wakeups import Wakeups
from switchgear.errors import Refused
from switchgear.memory import FOR_FUNCTIONS
from switchgear.model import Function
from switchgear.refusals import REFUSED_LIMIT

__all__ = ["FUNCTION_BYTES", "FunctionRegistry"]

# The approximate memory of a function besides its name.
FUNCTION_BYTES: Final = 4_800

# How many functions are examined to find an unused one: takes a fraction of a millisecond.
MOST_LOOKED_AT: Final = 256
# The share of workers is smaller than that of functions, so one worker may need the room of many functions.
MOST_LOOKED_AT_FOR_WORKERS: Final = 2_000


class FunctionRegistry:
    """Creates functions, and forgets unused ones."""

    def __init__(self, state: EngineState, queues: ReadyQueues, wakeups: Wakeups) -> None:
        self._state = state
        self._queues = queues
        self._wakeups = wakeups
        self._released_first: set[bytes] = set()  # functions that another engine has now
        self._looked_in_vain_us = -1  # when `make_room` last found too little

    def named(self, name: bytes) -> Function:
        """The function of that name, created if it is new; raises Refused if there are too many."""
        state = self._state
        function = state.functions.get(name)
        if function is None:
            limit = state.settings.functions
            if limit and len(state.functions) >= limit and not self._forget_unused():
                raise Refused(REFUSED_LIMIT, f"there are {limit} functions already")
            memory = state.memory
            more_bytes = FUNCTION_BYTES + len(name)
            while not memory.has_registration_room(more_bytes):
                if not self._forget_unused():
                    state.refuse_registration(more_bytes, FOR_FUNCTIONS)
            memory.registration_bytes += more_bytes
            function = state.functions[name] = Function(name)
            if state.settings.jobs_per_function:
                function.limits = [state.settings.jobs_per_function] * 3
            if state.placement is not None:
                function.told_name = state.placement.told_name(name)
                if not state.placement.is_ours(name):
                    function.limits = [FOREIGN_LIMIT] * 3
            function.released_first = name in self._released_first
            state.observer.function_created(function)
        function.named_us = state.now_us
        return function

    def drop(self, function: Function) -> bool:
        """Forget a function with its settings, unless it is in use; returns whether it was forgotten.

        A function with its own order belongs to a peer that may come back to it, and a finished job may still hold a
        unique key in it.
        """
        if function.total or function.workers or function.released_first or function.uniques:
            return False
        if self._state.functions.get(function.name) is not function:
            return False
        self._drop(function)
        self._state.note_function(function)
        return True

    def forget(self, function: Function) -> None:
        """Forget a function without jobs and workers that another engine is going to have; its settings stay."""
        if self._state.functions.get(function.name) is function:
            if function.released_first:
                self._released_first.add(function.name)
            self._drop(function)

    def _drop(self, function: Function) -> None:
        del self._state.functions[function.name]
        counts = self._state.dropped_counts
        for index, count in enumerate(function.counts()):
            counts[index] += count
        self._state.memory.registration_bytes -= FUNCTION_BYTES + len(function.name)
        function.dropped = True
        self._queues.discard(function)
        self._wakeups.forget(function)

    def make_room(self, more_bytes: int, quarters: int) -> None:
        """Forget unused functions until a registration of this many bytes fits into its quarters, or until enough were
        examined.

        After a failure there is no second try in the same turn: one connection can ask hundreds of times in it.
        """
        state = self._state
        memory = state.memory
        if memory.has_registration_room(more_bytes, quarters) or self._looked_in_vain_us == state.now_us:
            return
        functions = state.functions
        for name in list(islice(functions, MOST_LOOKED_AT_FOR_WORKERS)):
            function = functions[name]
            if self._is_unused(function):
                self._drop(function)
                if memory.has_registration_room(more_bytes, quarters):
                    return
            else:
                functions[name] = functions.pop(name)
        self._looked_in_vain_us = state.now_us

    def _forget_unused(self) -> bool:
        """Forget an unused function without settings, approximately the oldest, to make room for another.

        Functions in use are moved to the end, so that the next call examines others.
        """
        functions = self._state.functions
        # A dictionary skips the slots of all entries removed at its beginning, so names are fetched only once.
        for name in list(islice(functions, MOST_LOOKED_AT)):
            function = functions[name]
            if self._is_unused(function):
                self._drop(function)
                return True
            functions[name] = functions.pop(name)
        return False

    def _is_unused(self, function: Function) -> bool:
        """Whether creating this function again would make no difference."""
        state = self._state
        if function.total or function.workers or function.uniques or function.released_first:
            return False
        # A function that was named in this turn is about to be used.
        if function.limiter is not None or function.paused or function.named_us >= state.now_us:
            return False
        return is_foreign(function) or function.limits == [state.settings.jobs_per_function] * 3
