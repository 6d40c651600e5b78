"""`python -m switchgear.compat.rq worker high default low`: takes the place of `rq worker`."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from switchgear.app.worker.logging_setup import set_up_logging
from switchgear.compat.rq.worker import RqWorker

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run a worker; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m switchgear.compat.rq", description="Run the jobs of queues, as `rq worker` does."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    worker = commands.add_parser("worker", help="run jobs until stopped")
    worker.add_argument("queues", nargs="*", default=["default"], help="names of queues (default: default)")
    worker.add_argument("-u", "--url", help="the server (default: SWITCHGEAR_URL, else the directory .switchgear)")
    worker.add_argument("-b", "--burst", action="store_true", help="stop when no job is ready")
    worker.add_argument("-n", "--name", default="", help="what the server shows (default: HOST/PID)")
    worker.add_argument("--slots", type=int, default=1, help="how many jobs run at a time (default: 1)")
    worker.add_argument("--path", "-P", default=".", help="where functions are imported from (default: here)")
    given = parser.parse_args(arguments)
    sys.path.insert(0, os.path.abspath(given.path))
    set_up_logging("info", "text")
    logging.getLogger("switchgear.worker").setLevel(logging.DEBUG)  # every job has its lines, as with `rq worker`
    RqWorker(given.queues, given.url, name=given.name).work(burst=given.burst, slots=given.slots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
