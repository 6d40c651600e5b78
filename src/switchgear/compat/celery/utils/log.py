"""`get_task_logger`: a logger for tasks."""

from __future__ import annotations

import logging

__all__ = ["get_task_logger"]


def get_task_logger(name: str) -> logging.Logger:
    """The logger of this name; workers log what it is given."""
    return logging.getLogger(name)
