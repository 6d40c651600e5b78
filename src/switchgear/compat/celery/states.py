"""The names of Celery's task states."""

from __future__ import annotations

from typing import Final

__all__ = ["FAILURE", "PENDING", "READY_STATES", "RETRY", "REVOKED", "STARTED", "SUCCESS", "UNREADY_STATES"]

PENDING: Final = "PENDING"
STARTED: Final = "STARTED"
SUCCESS: Final = "SUCCESS"
FAILURE: Final = "FAILURE"
REVOKED: Final = "REVOKED"
RETRY: Final = "RETRY"

READY_STATES: Final = frozenset({SUCCESS, FAILURE, REVOKED})
UNREADY_STATES: Final = frozenset({PENDING, STARTED, RETRY})
