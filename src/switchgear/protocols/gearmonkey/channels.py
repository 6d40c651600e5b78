"""Messages between connections: who has subscribed to what.

Workers of GearMonkey tell of the start and the end of their jobs themselves.  What becomes of jobs otherwise, at
workers of other protocols or in nobody's hands, the listener tells, so that whoever has subscribed hears of every job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from switchgear.engine.engine import Engine
from switchgear.model import Job, Peer
from switchgear.protocols.gearmonkey.keys import CHANNEL
from switchgear.protocols.gearmonkey.patterns import Pattern

if TYPE_CHECKING:
    from switchgear.protocols.gearmonkey.session import GearMonkeySession

__all__ = ["Channels"]

Sessions = dict["GearMonkeySession", None]


class Channels(Peer):
    """Who has subscribed, and the listener's own news for them."""

    def __init__(self, engine: Engine, protocol: str) -> None:
        super().__init__()
        self.spoken_for = 0  # the job that a worker of ours reports on, or will: it tells of its end itself
        self._engine = engine
        self._protocol = protocol
        self._by_name: dict[bytes, Sessions] = {}
        self._by_pattern: dict[bytes, tuple[Pattern, Sessions]] = {}

    # --- who listens ---

    def subscribe(self, session: GearMonkeySession, name: bytes) -> None:
        self._by_name.setdefault(name, {})[session] = None
        self._follow_engine()

    def unsubscribe(self, session: GearMonkeySession, name: bytes) -> None:
        sessions = self._by_name.get(name, {})
        sessions.pop(session, None)
        if not sessions:
            self._by_name.pop(name, None)
        self._follow_engine()

    def subscribe_pattern(self, session: GearMonkeySession, text: bytes) -> None:
        if text not in self._by_pattern:
            self._by_pattern[text] = (Pattern(text), {})
        self._by_pattern[text][1][session] = None
        self._follow_engine()

    def unsubscribe_pattern(self, session: GearMonkeySession, text: bytes) -> None:
        if text in self._by_pattern:
            sessions = self._by_pattern[text][1]
            sessions.pop(session, None)
            if not sessions:
                del self._by_pattern[text]
        self._follow_engine()

    def _follow_engine(self) -> None:
        """Hear of what happens to jobs only while somebody wants to be told."""
        audience = self._engine.audience
        if self._by_name or self._by_pattern:
            if self not in audience:
                audience.append(self)
        elif self in audience:
            audience.remove(self)

    # --- telling them ---

    def publish(self, name: bytes, message: bytes, *, promised: bool = False) -> int:
        """Tell whoever has subscribed; returns how many that are.

        With `promised`, the message follows from something that may not be kept yet, and waits for that.
        """
        count = 0
        for session in self._by_name.get(name, ()):
            session.tell(b"message", name, message, promised=promised)
            count += 1
        for text, (pattern, sessions) in self._by_pattern.items():
            if pattern.matches(name):
                for session in sessions:
                    session.tell(b"pmessage", text, name, message, promised=promised)
                    count += 1
        return count

    def job_started(self, job: Job) -> None:
        worker = job.worker
        if worker is not None and worker.protocol != self._protocol:
            self.publish(CHANNEL + job.function.name, b"start:%d" % job.id)

    def job_finished(self, job: Job) -> None:
        if job.id == self.spoken_for:
            self.spoken_for = 0
        else:
            self.publish(CHANNEL + job.function.name, b"finish:%d" % job.id, promised=bool(job.delivery))
