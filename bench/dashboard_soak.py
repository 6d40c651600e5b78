"""Does a browser keep up with the task stream for long?

    python -m bench.dashboard_soak [--minutes 10] [--rate 5000] [--workers 50]

Starts a server of its own, gives it so many jobs a second, opens the task stream in a real browser and prints the heap
of the page (after a collection) and its frames a second every 15 seconds, and at the end how much the heap has grown
since the first minute.  The rate that was reached stands beside them: on a busy machine it is less.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

from tests.support.servers import HOST, free_port, running_switchgear

from bench.servers import end_on_termination

SCENARIO = Path(__file__).parents[1] / "tests" / "dashboard" / "browser" / "soak.mjs"
CAN_DO, PRE_SLEEP, NOOP, GRAB_JOB, NO_JOB, JOB_ASSIGN, WORK_COMPLETE, SET_CLIENT_ID = 1, 4, 6, 9, 10, 11, 13, 22
SUBMIT_JOB_BG = 18
TICKS_PER_SECOND = 20


def packet(kind: int, *arguments: bytes) -> bytes:
    body = b"\0".join(arguments)
    return b"\0REQ" + struct.pack(">II", kind, len(body)) + body


async def work(port: int, name: str) -> None:
    """One worker that answers at once."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(packet(SET_CLIENT_ID, name.encode()) + packet(CAN_DO, b"soak") + packet(GRAB_JOB))
    while True:
        kind, size = struct.unpack(">II", (await reader.readexactly(12))[4:])
        body = await reader.readexactly(size)
        if kind == JOB_ASSIGN:
            writer.write(packet(WORK_COMPLETE, body.split(b"\0", 1)[0], b"") + packet(GRAB_JOB))
        elif kind in (NO_JOB, NOOP):
            writer.write(packet(PRE_SLEEP if kind == NO_JOB else GRAB_JOB))


def run_workers(port: int, count: int) -> None:
    """A process with workers."""

    async def run() -> None:
        await asyncio.gather(*(work(port, f"worker-{number:03}") for number in range(count)))

    with contextlib.suppress(KeyboardInterrupt, asyncio.IncompleteReadError, ConnectionError):
        asyncio.run(run())


def run_submitter(port: int, rate: float) -> None:
    """A process that submits at a rate; what it is more than a second late with is left out."""

    async def run() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        one = packet(SUBMIT_JOB_BG, b"soak", b"", b"x" * 100)
        count = round(rate / TICKS_PER_SECOND)
        due = time.monotonic()
        while True:
            writer.write(one * count)
            for _ in range(count):
                header = await reader.readexactly(12)
                await reader.readexactly(struct.unpack(">I", header[8:])[0])
            due = max(due + 1 / TICKS_PER_SECOND, time.monotonic() - 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    with contextlib.suppress(KeyboardInterrupt, asyncio.IncompleteReadError, ConnectionError):
        asyncio.run(run())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=5000)
    parser.add_argument("--workers", type=int, default=50)
    options = parser.parse_args()
    node, chromium = shutil.which("node"), shutil.which("chromium")
    if node is None or chromium is None:
        sys.exit("node and chromium are needed: make peers")
    end_on_termination()
    url = f"http://{HOST}:{free_port()}"
    with running_switchgear("--listen", url) as server:
        processes = [
            multiprocessing.Process(target=run_workers, args=(server.port, options.workers), daemon=True),
            multiprocessing.Process(target=run_submitter, args=(server.port, options.rate), daemon=True),
        ]
        for process in processes:
            process.start()
        command = [node, str(SCENARIO), f"{url}/", str(options.minutes)]
        try:
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env={**os.environ, "CHROMIUM": chromium}
            ) as browser:
                assert browser.stdout is not None
                for line in browser.stdout:
                    tell(json.loads(line))
        finally:
            for process in processes:
                process.terminate()


def tell(reading: dict[str, float]) -> None:
    """Print a reading of the browser."""
    if "growth" in reading:
        print(
            f"heap since the first minute: {reading['growth']:+.1f} MB; least frames a second: {reading['least']:.0f}"
        )
        return
    print(
        f"{reading['seconds']:6.0f} s  heap {reading['heap']:6.1f} MB  {reading['frames']:5.1f} frames/s  "
        f"{reading['jobs']:7.0f} jobs/s",
        flush=True,
    )


if __name__ == "__main__":
    main()
