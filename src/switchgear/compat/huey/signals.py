"""The names of Huey's signals that workers send."""

from __future__ import annotations

from typing import Final

__all__ = ["SIGNAL_CANCELED", "SIGNAL_COMPLETE", "SIGNAL_ERROR", "SIGNAL_EXECUTING"]

SIGNAL_CANCELED: Final = "canceled"
SIGNAL_COMPLETE: Final = "complete"
SIGNAL_ERROR: Final = "error"
SIGNAL_EXECUTING: Final = "executing"
