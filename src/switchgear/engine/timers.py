"""`Timers`: calls `Peer.timer_fired` of a session at the time that the session has set.

A timer measures a time span, so setting the wall clock does not move it. It is counted in the memory account, refused
when the share for waiting requests is full, and cancelled when its peer is gone.
"""

from __future__ import annotations

from typing import Final

from switchgear.engine.deadlines import DeadlineKind, Deadlines
from switchgear.engine.state import EngineState
from switchgear.memory import FOR_WAITING
from switchgear.model import Peer, Timer

__all__ = ["TIMER_BYTES", "Timers"]

# The approximate memory of a timer, with its entry in the index of deadlines.
TIMER_BYTES: Final = 500


class Timers:
    """Sets, cancels and fires the timers of peers."""

    def __init__(self, state: EngineState, deadlines: Deadlines) -> None:
        self._state = state
        self._deadlines = deadlines

    def set(self, peer: Peer, at_us: int) -> Timer:
        """Call `Peer.timer_fired` at this time; raises Refused if there is no memory for another timer."""
        self._state.refuse_registration(TIMER_BYTES, FOR_WAITING)
        timer = Timer(peer)
        if peer.timers is None:
            peer.timers = {}
        peer.timers[timer] = None
        self._state.memory.registration_bytes += TIMER_BYTES
        self._deadlines.add(at_us, DeadlineKind.TIMER, timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a timer. Does nothing if the timer has fired."""
        if timer.is_set:
            self._deadlines.note_stale()
            self._forget(timer)

    def cancel_all(self, peer: Peer) -> None:
        """Cancel all timers of a peer that is gone."""
        if peer.timers:
            for timer in list(peer.timers):
                self.cancel(timer)

    def fire(self, timer: Timer) -> None:
        """Handle the deadline of a timer."""
        self._forget(timer)
        timer.peer.timer_fired(timer)

    def _forget(self, timer: Timer) -> None:
        timer.is_set = False
        self._state.memory.registration_bytes -= TIMER_BYTES
        timers = timer.peer.timers
        assert timers is not None
        del timers[timer]
        if not timers:
            timer.peer.timers = None
