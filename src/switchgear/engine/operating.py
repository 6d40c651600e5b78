"""What operators decide for a function as a whole, and how jobs are offered that were held up."""

from __future__ import annotations

from switchgear.engine.waking import Waking
from switchgear.model import Function, Gate, Lane
from switchgear.policy import Policy

__all__ = ["Operating"]


class Operating(Waking):
    """The part of the engine that holds functions up and lets them go on."""

    # --- operators ---

    def pause(self, function: Function) -> None:
        """Hand out nothing of this function until it is resumed."""
        if not function.paused:
            function.paused = True
            self._note_function(function)

    def resume(self, function: Function) -> None:
        """Hand out jobs of this function again."""
        if function.paused:
            function.paused = False
            self._note_function(function)
            self._offer(function)

    def set_limits(self, function: Function, high: int, normal: int, low: int) -> None:
        """Take submissions only while the function has fewer unfinished jobs than this; 0: always."""
        function.limits = [high, normal, low]
        self._note_function(function)

    def set_policy(self, function: Function, policy: Policy) -> None:
        """Hand out jobs of this function as the policy says.  Takes longer the more of them are ready or running.

        The same policy once more changes nothing.  What runs beyond a lower limit goes on.
        """
        if policy == (function.gate.policy if function.gate is not None else Policy()):
            return
        self._use_policy(function, policy)
        self._note_function(function)
        self._offer(function)

    def stop_handing_out(self) -> None:
        """Running jobs may finish, no other is started."""
        self.handing_out = False

    def start_handing_out(self) -> None:
        self.handing_out = True
        for function in self.functions.values():
            self._offer(function)

    # --- offering ---

    def _has_work(self, function: Function) -> bool:
        """Whether somebody who asks for a job of this function now gets one."""
        if not function.ready or function.paused or not self.handing_out:
            return False
        return function.gate is None or self._is_open(function)

    def _offer(self, function: Function) -> None:
        """A function that was held up may be handed out again."""
        while function.pushers and self._has_work(function):
            self._push(function)
        if not function.sleepers or not self._has_work(function):
            return
        for _ in range(min(self._room(function), len(function.sleepers))):
            asleep = len(function.sleepers)
            self._wake(function)
            if len(function.sleepers) == asleep:
                break

    def _offer_one(self, function: Function) -> None:
        """One more job of a function may run than before."""
        if self._is_meeting:
            self._to_offer[function] = self._to_offer.get(function, 0) + 1
            return
        while function.pushers and self._has_work(function):
            self._push(function)
        if function.sleepers and self._has_work(function):
            self._wake(function)

    def _offer_room(self, function: Function) -> None:
        """A job of a function with a gate has left its worker, and is where it belongs now: another may run."""
        gate = function.gate
        if gate is not None and gate.has_room:
            gate.has_room = False
            self._offer_one(function)

    def _offer_all(self) -> None:
        """The deadlines that have come are met: offer what there is room for now."""
        offers, self._to_offer = self._to_offer, {}
        for function, count in offers.items():
            for _ in range(count):
                self._offer_one(function)

    def _meet_gate(self, subject: Gate | Lane) -> None:
        """A token has come back to the bucket of a function, or of one of its keys."""
        subject.check_us = 0  # this entry is used up, not stale
        function = subject.function
        gate = function.gate
        assert gate is not None
        if isinstance(subject, Lane):
            self._review(gate, subject)
            if not subject.ready:
                return
        else:
            self._await_token(gate)
        self._offer_one(function)
        if function.sleepers and self._has_work(function):
            self._await_more_tokens(subject)
