"""A worker: handlers for functions, offered to any number of servers at once."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Final

from switchgear.client.address import DEFAULT_URL, Locator, ServerAddress
from switchgear.client.worker_connection import (
    Handler,
    HandlerTable,
    ReconnectBackoff,
    Slots,
    WorkerConnection,
    WorkerObserver,
)

__all__ = ["DEFAULT_DRAIN_SECONDS", "Worker"]

DEFAULT_DRAIN_SECONDS: Final = 30.0


class Worker:
    """Runs jobs of the given functions, `slots` of them at once, from one server or several.

    A server that cannot be reached is tried again and again, after pauses that grow to half a minute; meanwhile the
    others are served.  After the connection is lost the functions are announced anew, and handlers of jobs that
    came over it are cancelled, because the server gives those jobs to somebody else.
    """

    def __init__(
        self,
        urls: str | Iterable[str | Locator] = DEFAULT_URL,
        functions: Mapping[str, Handler] | None = None,
        slots: int = 1,
        *,
        jobs_total: int = 0,
        name: str = "",
        observer: WorkerObserver | None = None,
        backoff: ReconnectBackoff | None = None,
    ) -> None:
        """`jobs_total` is how many jobs to run before stopping, 0 for no end; `name` is what the server shows.

        In place of a URL there may be a `Locator`, for a server that moves; it is asked at once, and again before each
        attempt to connect.
        """
        given = [urls] if isinstance(urls, str) else urls
        servers = [ServerAddress.parse(server) if isinstance(server, str) else server for server in given]
        if not servers or not functions or slots < 1:
            raise ValueError("a worker needs a server, a function and a slot")
        self._duties = HandlerTable(
            handlers={function.encode(errors="surrogateescape"): handler for function, handler in functions.items()},
            name=(name or f"{socket.gethostname()}/{os.getpid()}").encode(),
            slots=Slots(slots, jobs_total),
            observer=observer or WorkerObserver(),
            backoff=backoff or ReconnectBackoff(),
            on_finished=self._stop_after_last,
        )
        self._links = [WorkerConnection(server, self._duties) for server in dict.fromkeys(servers)]
        self._stopping = asyncio.Event()
        self._giving_up = asyncio.Event()  # the time to finish is over

    async def run(self) -> None:
        """Work until `stop` is called and the running jobs are finished or given up.  To be called once."""
        links = [asyncio.create_task(link.run()) for link in self._links]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopping, *links}, return_when=asyncio.FIRST_COMPLETED)
            if not self._stopping.is_set():
                for link in links:
                    if link.done():
                        link.result()  # a link ends by itself only through a defect: tell
            await self._finish_jobs()
        finally:
            for task in (stopping, *links):
                task.cancel()
            await asyncio.gather(stopping, *links, return_exceptions=True)

    def stop(self, drain_seconds: float = DEFAULT_DRAIN_SECONDS) -> None:
        """Take no more jobs; `run` returns when those that run have ended, or after `drain_seconds`.

        What still runs then is cancelled, and the server has it run again.  Another call may shorten the time.  To be
        called where the worker's event loop runs.
        """
        self._stopping.set()
        for link in self._links:
            link.stop_asking()
        asyncio.get_running_loop().call_later(drain_seconds, self._giving_up.set)

    def _stop_after_last(self) -> None:
        if self._duties.slots.all_finished:
            self.stop()

    async def _finish_jobs(self) -> None:
        giving_up = asyncio.create_task(self._giving_up.wait())
        try:
            while not giving_up.done():
                unfinished = [task for link in self._links for task in link.unfinished()]
                if not unfinished:
                    await asyncio.gather(*(link.settle() for link in self._links))
                    return
                await asyncio.wait({giving_up, *unfinished}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            giving_up.cancel()
