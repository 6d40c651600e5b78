"""File descriptors: each connection takes one, and the system permits a process only so many.

Connections are limited to what the descriptors allow, so that a stranger who opens very many does not take those that
the store, the log and the next client need.  Should there be none left all the same, event loops close what they cannot
accept; `check_descriptors` tells the operator.
"""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import replace
from typing import Final

from switchgear.config import LimitsConfig
from switchgear.telemetry import Telemetry

__all__ = ["check_descriptors", "permitted_limits"]

# Descriptors for what is not a connection of a peer: the store and its journals, the log, bridges, listening sockets.
SPARE_DESCRIPTORS: Final = 64


def permitted_limits(limits: LimitsConfig, telemetry: Telemetry | None) -> LimitsConfig:
    """The limits with no more connections than there can be descriptors; the operator is told if these are fewer."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    permitted = max(soft // 2, soft - SPARE_DESCRIPTORS)
    if limits.connections <= permitted:
        return limits
    if telemetry is not None:
        telemetry.emit("connections_clamped", wanted=limits.connections, permitted=soft, connections=permitted)
    return replace(limits, connections=permitted)


def check_descriptors(telemetry: Telemetry) -> None:
    """Tell the operator if there is no descriptor left."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            telemetry.emit("descriptors_exhausted", reason=error.strerror)
