"""What the processes of the takeover tests run.  Each is started in a directory of its own test, beside a copy of this.

python shop_program.py submit     submits jobs without end, and writes down the handle of each that was taken
python shop_program.py wait       submits some jobs for later, unless an earlier one of its kind has, waits for all
                                  of them, and writes down their results
switchgear worker shop_program:app
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import count
from pathlib import Path

from switchgear import App
from switchgear.errors import ServerUnreachable

app = App("embedded:queue", run_here=False)


@app.task(crash_limit=100)
def record(number: int, seconds: float = 0.0) -> int:
    """Leave a trace."""
    time.sleep(seconds)
    _append("ran", f"{number}")
    return 2 * number


def _append(name: str, line: str) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def submit() -> None:
    for number in count():
        try:
            job = record.submit(number, 0.2 if number % 10 == 0 else 0.0)
        except ServerUnreachable:
            continue  # taken or not: nothing was promised
        _append("taken", job.handle)
        time.sleep(0.01)


def wait() -> None:
    if not Path("waiting").exists():
        handles = [record.options(delay=number).submit(1000 + number).handle for number in range(10)]
        Path("waiting.new").write_text("\n".join(handles))
        Path("waiting.new").rename("waiting")
    jobs = [record.job(handle) for handle in Path("waiting").read_text().split()]
    results = [job.result(timeout=60) for job in jobs]
    Path("results.new").write_text(json.dumps(results))
    Path("results.new").rename("results")


if __name__ == "__main__":
    {"submit": submit, "wait": wait}[sys.argv[1]]()
