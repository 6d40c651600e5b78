"""The processes that the example starts, and ends: the job server, the workers, the web nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Self

from examples.livejournal.site import Site, WebNode
from examples.livejournal.world import ROOT, joblog_url

__all__ = ["Crew", "DidNotStart", "JobServer", "WebNodes"]

STOP_SECONDS = 5.0
# A node that ends at once would otherwise be started without end.
MOST_STARTS = 10


class DidNotStart(Exception):
    """A process ended before it was of use."""


async def _run_module(log: Path, *argv: str, says_something: bool = False, fds: tuple[int, ...] = ()) -> Process:
    """`python -m` with these words; what it prints goes into the log, or to us."""
    # Settings of a server that somebody uses must not become those of ours.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHGEAR_")}
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *argv),
            stdin=DEVNULL,
            stdout=PIPE if says_something else file,
            stderr=file,
            cwd=ROOT,
            env=environment,
            pass_fds=fds,
        )


async def _stop(process: Process) -> None:
    """End it: politely, and if that does not help otherwise."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class JobServer:
    """`switchgear serve` on a free port of loopback, with its store and its job log in the folder."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.url = ""

    async def __aenter__(self) -> Self:
        kept = ("--store", f"sqlite:{self._place / 'jobs.db'}", "--joblog", joblog_url(self._place))
        argv = ("switchgear", "serve", "--listen", "gearman://127.0.0.1:0", *kept)
        self._process = await _run_module(self._place / "server.log", *argv, says_something=True)
        try:
            self.url = await self._address()
        except BaseException:
            await _stop(self._process)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await _stop(self._process)

    async def _address(self) -> str:
        """Where it listens, which it says when it has started."""
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode():
            if line.startswith("listening on "):
                return line.removeprefix("listening on ").strip()
        raise DidNotStart(f"the job server did not start: {(self._place / 'server.log').read_text()}")

    async def finish(self) -> None:
        """Let it do all jobs that there are, and end; then its log is complete."""
        self._process.send_signal(signal.SIGUSR1)
        await self._process.wait()


class Crew:
    """The workers."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*map(_stop, self._processes))

    async def start_worker(self, *names: str, gets_stuck: bool = False) -> Process:
        """Start a worker for the jobs of these names."""
        flags = ["--gets-stuck"] if gets_stuck else []
        argv = ("examples.livejournal.worker", *flags, str(self._place), *names)
        process = await _run_module(self._place / "workers.log", *argv)
        self._processes.append(process)
        return process


class WebNodes:
    """Watches over the web nodes: one that ends is started again, and the site is told the new process.

    The sockets are ours and stay open, so that nobody is refused meanwhile.
    """

    def __init__(self, place: Path, site: Site, *names: str) -> None:
        self.starts = dict.fromkeys(names, 0)
        self._place = place
        self._site = site
        self._sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
        self._running: dict[str, Process] = {}

    async def __aenter__(self) -> Self:
        for name in self._sockets:
            await self._start(name)
        self._watchers = [asyncio.create_task(self._watch(name)) for name in self._sockets]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        await asyncio.gather(*map(_stop, self._running.values()))
        for listener in self._sockets.values():
            listener.close()

    async def _watch(self, name: str) -> None:
        while self.starts[name] < MOST_STARTS:
            await self._running[name].wait()
            await self._start(name)

    async def _start(self, name: str) -> None:
        listener = self._sockets[name]
        argv = ("examples.livejournal.outside.node", name, str(listener.fileno()))
        process = await _run_module(self._place / "nodes.log", *argv, fds=(listener.fileno(),))
        self._running[name] = process
        self.starts[name] += 1
        self._site.note_web_node(WebNode(name, f"http://127.0.0.1:{listener.getsockname()[1]}/", process.pid))
