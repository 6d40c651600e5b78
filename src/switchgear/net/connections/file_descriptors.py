"""Limits the number of connections to the file descriptors that the system permits.

A peer that opens very many connections must not use up the descriptors that the store, the log and the next client
need. If no descriptor is left all the same, the event loop closes connections that it cannot accept, and
`check_descriptors` tells the operator.
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

# Descriptors for other purposes than connections of peers: the store and its journals, the log, bridges, listening
# sockets.
SPARE_DESCRIPTORS: Final = 64


def permitted_limits(limits: LimitsConfig, telemetry: Telemetry | None, descriptors_each: int = 1) -> LimitsConfig:
    """The limits with at most as many connections as there can be descriptors; the operator is told if that is
    fewer."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    permitted = max(soft // 2, soft - SPARE_DESCRIPTORS) // descriptors_each
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
