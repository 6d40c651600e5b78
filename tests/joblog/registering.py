"""A program that registers tasks from several threads: URL, name, threads, tasks of each.  Every third fails."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from switchgear.joblog import JobLog


def register(log: JobLog, name: str, count: int) -> None:
    for number in range(count):
        log.register_start_task(name)
        log.register_task_result(name, result=number % 3)


def main(url: str, name: str, threads: str, count: str) -> None:
    with JobLog.open(url) as log, ThreadPoolExecutor(int(threads)) as pool:
        for future in [pool.submit(register, log, name, int(count)) for _ in range(int(threads))]:
            future.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
