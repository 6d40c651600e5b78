"""RQ's interface over Switchgear: `from switchgear.compat.rq import Queue, Retry, get_current_job`.

`python -m switchgear.compat.rq worker high default low` runs the jobs.  See docs/howto/compatibility.md.
"""

from __future__ import annotations

from switchgear.compat.rq.job import NoSuchJobError, get_current_job
from switchgear.compat.rq.job import RqJob as Job
from switchgear.compat.rq.options import RqCallback as Callback
from switchgear.compat.rq.options import RqDependency as Dependency
from switchgear.compat.rq.options import RqRetry as Retry
from switchgear.compat.rq.queue import RqQueue as Queue
from switchgear.compat.rq.queue import job
from switchgear.compat.rq.worker import SimpleWorker, Worker

__all__ = [
    "Callback",
    "Dependency",
    "Job",
    "NoSuchJobError",
    "Queue",
    "Retry",
    "SimpleWorker",
    "Worker",
    "get_current_job",
    "job",
]
