"""A program that forks while it has a job log open, and goes on to use it in both processes: URL."""

from __future__ import annotations

import os
import sys

from switchgear.joblog import JobLog


def main(url: str) -> None:
    log = JobLog.open(url)
    log.register_start_task("before")
    child = os.fork()
    for number in range(20):
        with log.task("child" if child == 0 else "parent", key=str(number)):
            pass
    if child == 0:
        log.close()
        return
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    log.register_task_result("before")
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
