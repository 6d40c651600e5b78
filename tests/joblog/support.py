"""What the tests of the job log share: rows, jobs, and processes that write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from switchgear.joblog import JobLog
from switchgear.joblog.database import Server
from switchgear.joblog.runs import RunRow
from switchgear.model import DONE, FAILED, NORMAL, READY, RUNNING, Cause, Delivery, Function, Job, Worker
from switchgear.testing import RecordingPeer

REPOSITORY = Path(__file__).parents[2]
HERE = Server("H:here:", "here", "4711")
THERE = Server("H:there:", "there", "4712")
NOON = 1_700_000_000  # seconds
SECOND = 1_000_000  # microseconds

_numbers = count(1)


def row(number: int = 0, *, at: float = 0.0, took: float | None = 1.0, state: str = "", **fields: Any) -> RunRow:
    """What a server tells of a job that was started `at` so many seconds past noon; `took` None: it has not ended."""
    started_us = round((NOON + at) * SECOND)
    values = {
        "job": number or next(_numbers),
        "submitted_us": started_us - SECOND,
        "started_us": started_us,
        "ended_us": 0 if took is None else started_us + round(took * SECOND),
        "attempts": 1,
        "result_code": 0,
        "state": state or ("running" if took is None else "done"),
        "function": "resize",
        "unique_key": "",
        "origin": "",
        "protocol": "",
        "error": "",
        "message": "",
        "worker": "",
        "worker_host": "",
        "starts": "",
        "trace": "",
    }
    unknown = fields.keys() - values.keys()
    assert not unknown, unknown
    return tuple((values | fields).values())  # type: ignore[return-value]


def put(log: JobLog, *rows: RunRow, server: Server = HERE) -> None:
    log.put(server, rows)


class Life:
    """A job, and what happens to it, a second each."""

    def __init__(self, number: int = 0, function: bytes = b"resize", unique: bytes = b"") -> None:
        self.now_us = NOON * SECOND
        self.worker = Worker(1, RecordingPeer(), "gearman", 0)
        job_id = number or next(_numbers)
        self.job = Job(job_id, Function(function), unique, b"payload", NORMAL, Delivery.HANDLE, self.now_us)

    def _move(self, cause: Cause) -> None:
        self.now_us += SECOND
        self.job.moves = [*(self.job.moves or []), cause, self.now_us]

    def started(self) -> Life:
        self._move(Cause.TAKEN)
        self.job.state = RUNNING
        self.job.worker = self.worker
        self.job.attempts += 1
        return self

    def lost(self) -> Life:
        self._move(Cause.WORKER_LOST)
        self.job.state = READY
        self.job.worker = None
        return self

    def done(self) -> Life:
        self._move(Cause.SUCCEEDED)
        self.job.state = DONE
        self.job.worker = None
        self.job.finished_us = self.now_us
        return self

    def failed(self, error: bytes = b"no room") -> Life:
        self._move(Cause.ENDED_BADLY)
        self.job.state = FAILED
        self.job.worker = None
        self.job.finished_us = self.now_us
        self.job.result_code = 1
        self.job.error = error
        return self

    def retried(self) -> Life:
        self._move(Cause.RETRIED)
        self.job.state = READY
        self.job.attempts = self.job.finished_us = self.job.result_code = 0
        self.job.error = None
        return self


def start_script(name: str, *arguments: str) -> subprocess.Popen[str]:
    """One of the programs beside this file."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])}
    command = [sys.executable, "-m", f"tests.joblog.{name}", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end_of(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
