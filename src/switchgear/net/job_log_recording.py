"""Starts the recorder, which writes every change of a job in the hub to the job log."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from switchgear.config import Config
from switchgear.joblog.database import Server
from switchgear.joblog.job_log import JobLog
from switchgear.joblog.recorder import Recorder
from switchgear.net.hub import Hub

__all__ = ["start_recorder"]


def start_recorder(config: Config, hub: Hub, handle_prefix: str) -> Recorder | None:
    """Start to record every job, if the configuration has a job log; raises ConfigError or StorageError."""
    if not config.joblog_url:
        return None
    loop = asyncio.get_running_loop()

    def tell(name: str, fields: Mapping[str, object]) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(partial(hub.telemetry.emit, name, **fields))

    recorder = Recorder(
        JobLog.later(config.joblog_url),
        Server(handle_prefix, socket.gethostname(), str(os.getpid())),
        tell,
        keep_seconds=config.joblog.keep_seconds,
        keep_count=config.joblog.keep_count,
    )
    recorder.start()
    hub.report_changes(recorder.note)
    hub.on_audit = recorder.audit.note
    return recorder
