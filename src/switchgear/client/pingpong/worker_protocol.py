"""The PING/PONG worker without I/O and without a clock.

The time and messages go in, and actions come out. The time is in seconds, from any clock that does not jump.

idle      sends a PING every so often, and listens.  Silence for too long: the socket is made anew, and READY sent
  working   one job at a time; it neither sends nor listens
  away      a job failed, which the protocol has no word for.  The socket is closed without a result, and a moment
            later made anew.  From the READY that follows the broker sees that the job is lost, and has it done again,
            until its attempts are spent.  The moment is the broker timeout, counted from when the job came: an earlier
            READY might have crossed the job on its way, for all the broker knows
  leaving   has told the broker so, and listens until the broker has heard it, for a job may be on its way.  This word
            is not in the document; a broker that does not know it will not answer, and is left after the broker timeout
"""

from __future__ import annotations

from dataclasses import dataclass

from switchgear.protocols.pingpong.messages import GOODBYE, PING, PONG, READY

__all__ = ["Action", "ConnectStep", "DisconnectStep", "PingPongWorkerProtocol", "SendMessage", "StartWork"]


@dataclass(frozen=True, slots=True)
class ConnectStep:
    """Make a socket and connect it; if there is one already, close it first, with all that it has not sent yet."""


@dataclass(frozen=True, slots=True)
class DisconnectStep:
    """A step: close the socket; a new one is opened for the next connection."""


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send one message."""

    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class StartWork:
    """Run this job, and report its end with `PingPongWorkerProtocol.finished` or `failed`."""

    job: bytes


Action = ConnectStep | DisconnectStep | SendMessage | StartWork


class PingPongWorkerProtocol:
    """The state of a worker: when to connect, ping, reconnect and stop."""

    def __init__(
        self,
        broker_timeout_seconds: float = 1.0,
        n_timeouts: int = 3,
        ping_seconds: float = 1.0,
        *,
        says_goodbye: bool = True,
    ) -> None:
        if not 0 < ping_seconds < n_timeouts * broker_timeout_seconds:
            raise ValueError(
                f"with a PING every {ping_seconds:g} s no PONG can come within {n_timeouts} times"
                f" {broker_timeout_seconds:g} s"
            )
        self.broker_timeout_seconds = broker_timeout_seconds
        self.n_timeouts = n_timeouts
        self.ping_seconds = ping_seconds
        self.says_goodbye = says_goodbye
        self.is_over = False  # there is nothing more to do
        self._is_working = False
        self._is_leaving = False
        self._job_came_at = 0.0
        # Each of these is None where it does not apply.
        self._ping_at: float | None = None
        self._give_up_at: float | None = None  # when silence will have lasted too long
        self._come_back_at: float | None = None  # from being away

    @property
    def next_deadline(self) -> float | None:
        """When `advance` has to be called, if nothing arrives before; None while a job runs, and after the end."""
        deadlines = [at for at in (self._ping_at, self._give_up_at, self._come_back_at) if at is not None]
        return min(deadlines, default=None)

    def start(self, now: float) -> list[Action]:
        """Connect to the broker."""
        self._come_back_at = None
        self._be_idle(now)
        return [ConnectStep(), SendMessage([b"", READY])]

    def receive(self, frames: list[bytes], now: float) -> list[Action]:
        """Handle a message of the broker.  Not to be called while a job runs."""
        if self._is_leaving:
            if frames == GOODBYE:
                return self._end()
        else:
            self._on_message(now)  # any message is a sign of life
        if len(frames) != 2 or frames[0] or frames[1] == PONG:
            return []
        self._is_working = True
        self._job_came_at = now
        self._ping_at = self._give_up_at = None
        return [StartWork(frames[1])]

    def finished(self, result: bytes, now: float) -> list[Action]:
        """Send the result of the job that has succeeded."""
        if result in (READY, PING):
            return self.failed(now)  # the broker would take it for the word that it is
        self._is_working = False
        if not self._is_leaving:
            self._be_idle(now)
            return [SendMessage([b"", result])]
        if not self.says_goodbye:
            return [SendMessage([b"", result]), *self._end()]
        self._give_up_at = now + self.broker_timeout_seconds
        return [SendMessage([b"", result])]

    def failed(self, now: float) -> list[Action]:
        """Disconnect because the job has failed; there is no message for that."""
        self._is_working = False
        if self._is_leaving:
            return self._end()
        self._come_back_at = max(now, self._job_came_at + self.broker_timeout_seconds)
        return [DisconnectStep()]

    def leave(self, now: float) -> list[Action]:
        """Take no more jobs; a job that runs, or is in transit, is still run."""
        if self._is_leaving:
            return []
        self._is_leaving = True
        self._ping_at = None
        if self._come_back_at is not None or not (self.says_goodbye or self._is_working):
            return self._end()
        if not self._is_working:
            self._give_up_at = now + self.broker_timeout_seconds
        return [SendMessage(GOODBYE)] if self.says_goodbye else []

    def advance(self, now: float) -> list[Action]:
        """The actions that are due at this time."""
        if self._come_back_at is not None and now >= self._come_back_at:
            return self.start(now)
        if self._give_up_at is not None and now >= self._give_up_at:
            return self._end() if self._is_leaving else self.start(now)
        if self._ping_at is not None and now >= self._ping_at:
            self._ping_at = now + self.ping_seconds
            return [SendMessage([b"", PING])]
        return []

    def _be_idle(self, now: float) -> None:
        """Become idle after a job: the timers start anew, because nothing was read meanwhile and the result is a sign
        of life."""
        self._ping_at = now + self.ping_seconds
        self._on_message(now)

    def _on_message(self, now: float) -> None:
        self._give_up_at = now + self.n_timeouts * self.broker_timeout_seconds

    def _end(self) -> list[Action]:
        self.is_over = True
        self._ping_at = self._give_up_at = self._come_back_at = None
        return []
