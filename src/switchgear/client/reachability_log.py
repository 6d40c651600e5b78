"""`ReachabilityLog`: logs when a ZeroMQ server becomes unreachable, and when it is reached again."""

from __future__ import annotations

import logging

from switchgear.client.zeromq_sockets import KEYS_HINT

__all__ = ["ReachabilityLog"]


class ReachabilityLog:
    """Logs changes of whether a ZeroMQ server can be reached, and not every attempt.

    ZeroMQ retries silently, and reports a refusal of our keys as a lost connection; so the message mentions the keys in
    any case.
    """

    def __init__(self, log: logging.Logger, server: object) -> None:
        self._log = log
        self._server = server
        self._is_lost = False

    def lost(self, problem: str) -> None:
        """Log that the server cannot be reached, once."""
        if not self._is_lost:
            self._is_lost = True
            self._log.warning("%s: %s; retrying (%s)", self._server, problem, KEYS_HINT)

    def found(self) -> None:
        """Log that the server is reached again, if it was lost."""
        if self._is_lost:
            self._is_lost = False
            self._log.warning("%s: reached again", self._server)
