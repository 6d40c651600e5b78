"""A GearMonkey worker as a process of its own, to be killed.  It notes each run in a file before it answers.

python -m tests.system.bridge_worker REDIS_URL FUNCTION FILE
"""

from __future__ import annotations

import os
import sys
import time

from switchgear.backoff import ReconnectBackoff
from switchgear.client.gearmonkey import GearMonkeyWorker, WorkerTiming

SLOW = b"slow"  # a payload that takes longer than a test


def main() -> None:
    url, function, path = sys.argv[1:]
    runs = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def work(data: bytes) -> bytes:
        os.write(runs, data + b"\n")
        if data == SLOW:
            time.sleep(60)
        return data.upper()

    timing = WorkerTiming(backoff=ReconnectBackoff(first_seconds=0.05, most_seconds=0.2))
    worker = GearMonkeyWorker(url, work, timing=timing)
    worker.accept(function)
    worker.run()


if __name__ == "__main__":
    main()
