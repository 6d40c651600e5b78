"""Sets up logging in the process of a worker and in its child processes."""

from __future__ import annotations

import logging
import sys
from typing import Final

from switchgear.log_format import log_formatter

__all__ = ["LEVELS", "set_up_logging"]

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_LINE_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_PLAIN_FORMAT: Final = "%(name)s: %(message)s"


def set_up_logging(level: str, log_format: str = "text") -> None:
    """Log to standard error from this level on, unless the app has configured logging itself.

    To be called after the app was imported, because its own configuration of logging has precedence.
    """
    if logging.getLogger().hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatter(log_format, sys.stderr, _LINE_FORMAT, _PLAIN_FORMAT, _TIME_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level.lower() == "info":  # an embedded server logs its own connections, which do not concern the tasks
        logging.getLogger("switchgear").setLevel(logging.WARNING)
