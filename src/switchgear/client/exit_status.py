"""`describe_exit_status`: the exit status of a process as text."""

from __future__ import annotations

import signal

__all__ = ["describe_exit_status"]


def describe_exit_status(status: int) -> str:
    """`exit status 3`, or `killed by SIGKILL` for a negative status, as `subprocess` gives it."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
