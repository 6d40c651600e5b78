"""The job log: a database of which jobs and tasks ran, how long they took, and how they ended.

log = JobLog.open("sqlite:joblog.db")
    with log.task("resize", key="17-3-640-480"):
        ...
    for run in log.failures(function="resize", since=time.time() - 3600):
        print(run.error)

The server writes a row for each of its jobs (`recorder.py`), workers register their own tasks through `JobLog`, and any
program may query it, whether the server runs or not. It is a log, not the store: nothing is scheduled from it, and the
last few rows may be missing after a crash.
"""

from switchgear.joblog.job_log import JobLog
from switchgear.joblog.runs import FunctionSummary, LoggedRun, RegisteredTask, RunQuery

__all__ = ["FunctionSummary", "JobLog", "LoggedRun", "RegisteredTask", "RunQuery"]
