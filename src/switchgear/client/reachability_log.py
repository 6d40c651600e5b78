"""Saying in the log that a server cannot be reached."""

from __future__ import annotations

import logging

from switchgear.client.zeromq_sockets import KEYS_HINT

__all__ = ["ReachabilityLog"]


class ReachabilityLog:
    """Whether a server over ZeroMQ can be reached.  The log is told when that changes, and not at every attempt.

    ZeroMQ tries again without a word, and takes a refusal of our keys for a lost connection; so the keys are pointed
    to in any case.
    """

    def __init__(self, log: logging.Logger, server: object) -> None:
        self._log = log
        self._server = server
        self._is_lost = False

    def lost(self, problem: str) -> None:
        """It cannot be reached now."""
        if not self._is_lost:
            self._is_lost = True
            self._log.warning("%s: %s; trying again and again (%s)", self._server, problem, KEYS_HINT)

    def found(self) -> None:
        """It is there."""
        if self._is_lost:
            self._is_lost = False
            self._log.warning("%s: reached again", self._server)
