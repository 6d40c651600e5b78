"""Logging set-up for worker processes."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["LEVELS", "set_up_logging"]

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_LINE_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"


def set_up_logging(level: str) -> None:
    """Log to standard error from this level on, unless the app has configured logging itself.

    To be called after the app was imported, because its own configuration of logging has precedence.
    """
    if logging.getLogger().hasHandlers():
        return
    logging.basicConfig(level=level.upper(), format=_LINE_FORMAT, datefmt=_TIME_FORMAT)
    if level.lower() == "info":  # an embedded server logs its own connections, which do not concern the tasks
        logging.getLogger("switchgear").setLevel(logging.WARNING)
