"""The disk is full, again and again, and then there is room.

The disk is a small one of its own where that can be mounted, and otherwise a limit on the size of the server's files,
beyond which its writes fail in the same way.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from torture.run import Run, everybody
from torture.scenarios.io_errors import recovery
from torture.server import ServerProcess

LIVES_PER_RUN = 3
FILLINGS_PER_LIFE = 3
DISK_BYTES = 96 * 1024 * 1024


class SmallDisk(Protocol):
    """Something that can be full."""

    def fill(self, server: ServerProcess) -> None:
        """There is no more room, or next to none."""

    def clear(self, server: ServerProcess) -> None:
        """There is room again."""


class MountedDisk:
    """A file system in memory, and a file on it that takes up what is left."""

    def __init__(self, directory: Path) -> None:
        self._ballast = directory / "ballast"

    def fill(self, server: ServerProcess) -> None:
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(65_536))

    def clear(self, server: ServerProcess) -> None:
        self._ballast.unlink(missing_ok=True)


class LimitedFiles:
    """The largest file of the store cannot grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def fill(self, server: ServerProcess) -> None:
        largest = max(path.stat().st_size for path in self._directory.iterdir())
        self._limit(server, largest)

    def clear(self, server: ServerProcess) -> None:
        self._limit(server, resource.RLIM_INFINITY)

    def _limit(self, server: ServerProcess, size_bytes: int) -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


@contextmanager
def small_disk(directory: Path) -> Iterator[SmallDisk]:
    """Mounted at the directory, if we may."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "torture", str(directory)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        try:
            yield MountedDisk(directory)
        finally:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)
    else:
        yield LimitedFiles(directory)


async def disk_full(run: Run) -> None:
    run.draw_settings()
    with small_disk(run.store.parent) as disk:
        for _ in range(LIVES_PER_RUN):
            if run.plan.is_over() or run.is_failed:
                break
            await one_life(run, disk)
        await run.drain()


async def one_life(run: Run, disk: SmallDisk) -> None:
    server = await run.start()
    run.compare()
    load = run.load(direct=False)
    run.history.record("faults", True)

    async def until() -> None:
        for _ in range(FILLINGS_PER_LIFE):
            await asyncio.sleep(0.3 * run.chance.random())
            disk.fill(server)
            run.tally.counts["fillings"] += 1
            await asyncio.sleep(0.5 * run.chance.random())
            if run.chance.random() < 0.2:
                server.kill()
                break
            disk.clear(server)
            await recovery(run, server)
            if run.is_failed or run.plan.is_over():
                break
        server.kill()

    try:
        await load.run(everybody(run.chance), until=until())
    finally:
        load.close()
        disk.clear(server)
    run.gone("kills")
