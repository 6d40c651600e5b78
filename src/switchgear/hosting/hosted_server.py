"""`HostedServer`: the whole server in a thread of this program, for blocking and for asyncio code.

The program's own signals, output and event loop are left alone: the server has an event loop in a thread of its own, so
a program that computes, or blocks its own loop, does not keep workers waiting.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, Unpack, cast

from switchgear.client.gearman.pending_requests import PendingSubmission, RoutedRequest
from switchgear.client.gearman.submit_request import ExtendedOptions, SubmitRequest, requested
from switchgear.config import Config, ListenUrl
from switchgear.config.loading import config_of
from switchgear.errors import ConfigError, ServerUnreachable
from switchgear.hosting.hosted_job import HostedJob, shared_future
from switchgear.hosting.local_connection import LocalConnection
from switchgear.net.service import Service
from switchgear.protocols.session_factory import TcpSessionFactory

__all__ = ["DEFAULT_DRAIN_SECONDS", "HostedServer"]

log = logging.getLogger("switchgear")

DEFAULT_DRAIN_SECONDS: Final = 5.0
_GEARMAN: Final = ListenUrl("gearman", "127.0.0.1", 0)  # what the program itself speaks; nothing listens there


class HostedServer:
    """A server with a listener of one protocol, and others if wanted.

    `with` and `async with` start it and stop it; `start` and `stop` do the same for programs of another shape.  Its
    methods may be called from any thread.
    """

    scheme: str = ""  # of the address, when none is given

    def __init__(
        self,
        address: str = "",
        *,
        store: str | Path = "",
        other_addresses: Iterable[str] = (),
        allow_remote: bool = False,
        drain_seconds: float = DEFAULT_DRAIN_SECONDS,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`address` is where workers connect, as for `switchgear serve --listen`; port 0 is one that is free.

        Jobs are in memory, unless `store` is the path of a file.  `other_addresses` are of any protocols: their clients
        can submit jobs, and their workers run them.  `allow_remote` permits addresses that other machines can reach.
        `drain_seconds` is how long running jobs may take to finish when the server is stopped.  `settings` are any
        others, by their names in docs/howto/configure.md.  Raises ConfigError.
        """
        self._config = self._read_config(address, store, other_addresses, allow_remote, drain_seconds, settings or {})
        self._has_store = bool(store)
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._service: Service
        self._connection: LocalConnection
        self._thread: threading.Thread | None = None
        self._listening: Future[tuple[str, ...]] = Future()
        self._ended: Future[None] = Future()

    def _read_config(
        self,
        address: str,
        store: str | Path,
        other_addresses: Iterable[str],
        allow_remote: bool,
        drain_seconds: float,
        settings: Mapping[str, object],
    ) -> Config:
        if isinstance(other_addresses, str):
            raise TypeError("other_addresses is a list of addresses, not one text")
        address = address or f"{self.scheme}://127.0.0.1"
        given = {
            "listen": [address, *other_addresses],
            "store": _store_url(store),
            "allow_remote": allow_remote,
            "drain_timeout_seconds": drain_seconds,
        }
        if clash := sorted(given.keys() & settings.keys()):
            raise ConfigError(f"settings: {clash[0]} is given by an argument of its own")
        config = config_of({"joblog.url": "off", "gearman.shutdown": "never", **settings, **given})
        if self.scheme and config.listen[0].scheme != self.scheme:
            raise ConfigError(f"the address of a {type(self).__name__} is at {self.scheme}://, not {address}")
        return config

    # --- life ---

    def start(self) -> None:
        """Start to serve; returns when workers can connect.  Raises ConfigError or StorageError."""
        self._start()
        try:
            self._listening.result()
        except BaseException:
            self._request_stop(0.0)
            raise

    def stop(self, drain_seconds: float | None = None) -> None:
        """Stop: running jobs may finish within `drain_seconds`, and return to their queues then.

        Jobs that have not ended by then fail here with ServerUnreachable; those in a store are there for the next
        server.  Does nothing if the server does not run.
        """
        self._request_stop(drain_seconds)
        if self._thread is not None:
            self._ended.result()
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(None if error is None else 0.0)

    async def __aenter__(self) -> Self:
        self._start()
        try:
            await asyncio.wrap_future(shared_future(self._listening))
        except asyncio.CancelledError:
            self._request_stop(0.0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._request_stop(None if error is None else 0.0)
        await asyncio.shield(asyncio.wrap_future(self._ended))

    @property
    def address(self) -> str:
        """Where workers connect, with the port that was chosen for port 0.  The server must have been started."""
        return self.addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of the server, and the other addresses."""
        if not self._listening.done():
            raise RuntimeError("the server has no address before it is started")
        return self._listening.result()

    # --- jobs ---

    def submit_job(
        self,
        function: str | bytes,
        payload: bytes = b"",
        *,
        unique: str | bytes = b"",
        priority: str = "normal",
        at: float | None = None,
        expires: float | None = None,
        timeout: float = 0.0,
        attempts_limit: int | None = None,
        after: Iterable[HostedJob | str] = (),
        name: str = "",
        **extended: Unpack[ExtendedOptions],
    ) -> HostedJob:
        """Submit a job of any function.  It does not wait: the job's `result`, or `await`, does.

        The options are those of `Client.submit`; `after` has jobs of this server, or their handles.
        """
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"a payload is bytes, not {type(payload).__name__}")
        predecessors: list[HostedJob | str] = [after] if isinstance(after, str | HostedJob) else list(after)
        request = requested(
            function,
            bytes(payload),
            unique=unique,
            priority=priority,
            background=False,
            at=at,
            expires=expires,
            timeout=timeout,
            attempts_limit=attempts_limit,
            after=(),
            name=name,
            extended=extended,
        )
        if self._has_store:
            request.durable = None  # it is stored, and its end is told
        job = HostedJob(self, request.function.decode(errors="replace"))
        self._call(lambda: self._submit(request, predecessors, job), job.fail)
        return job

    def _submit(self, request: SubmitRequest, predecessors: list[HostedJob | str], job: HostedJob) -> None:
        """In the server's thread: submit a job, once those that it waits for have handles."""
        for predecessor in predecessors:
            if isinstance(predecessor, HostedJob) and not predecessor.accepted.done():
                predecessor.accepted.add_done_callback(
                    lambda _: self._call(lambda: self._submit(request, predecessors, job), job.fail)
                )
                return
        try:
            handles = [each.handle() if isinstance(each, HostedJob) else each for each in predecessors]
        except Exception as error:
            job.fail(error)
            return
        if handles:
            request.options["after"] = handles
        submission = PendingSubmission([request], [job.subscriber])
        submission.future.add_done_callback(job.on_submitted)
        self._connection.request(submission)

    def send(self, request: RoutedRequest) -> None:
        """Send a request of the program itself to the server."""
        self._call(lambda: self._connection.request(request), request.fail)

    def _call(self, action: Callable[[], None], fail: Callable[[Exception], None]) -> None:
        """Do this in the server's thread; where there is none, `fail` is called with the reason."""
        loop = self._loop
        if loop is None:
            was_started = self._thread is not None
            fail(ServerUnreachable(f"the server {'was stopped' if was_started else 'is not started yet'}"))
            return
        try:
            loop.call_soon_threadsafe(self._act, action, fail)
        except RuntimeError:  # the loop is closed
            fail(ServerUnreachable("the server was stopped"))

    def _act(self, action: Callable[[], None], fail: Callable[[Exception], None]) -> None:
        try:
            action()
        except Exception as error:
            log.exception("internal error in a server of this program")
            fail(error)

    # --- the thread ---

    def _start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("a server is started once; make another one")
        self._thread = threading.Thread(target=self._run, name=f"switchgear-{self.scheme or 'server'}", daemon=True)
        self._thread.start()

    def _request_stop(self, drain_seconds: float | None) -> None:
        def stop() -> None:
            service = self._service
            if drain_seconds is not None:
                service.config = replace(service.config, drain_timeout_seconds=drain_seconds)
            service.request_stop(graceful=drain_seconds is None or drain_seconds > 0)

        self._call(stop, lambda error: None)

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._listening.done():
                self._listening.set_exception(error)
            else:
                log.exception("a server of this program has ended")
        finally:
            self._loop = None
            with suppress(Exception):
                loop.run_until_complete(loop.shutdown_default_executor())
                loop.close()
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self._service = Service(self._config, on_listening=self._on_listening, is_guest=True)
        self._service.on_stopping = self._on_stopping
        self._loop = asyncio.get_running_loop()
        await self._service.run()

    def _on_listening(self) -> None:
        listeners = self._service.listeners
        factory = cast(TcpSessionFactory, listeners.factory(_GEARMAN.scheme))
        self._connection = LocalConnection(self._service.hub, factory.sessions_at(_GEARMAN).default)
        self._listening.set_result(tuple(listeners.addresses))

    def _on_stopping(self) -> None:
        """Called when the server stops and has sent everything that it can send."""
        self._connection.disconnect()

    @property
    def _url(self) -> ListenUrl:
        """The first address, as it was given."""
        return self._config.listen[0]


def _store_url(store: str | Path) -> str:
    text = str(store)
    if not text:
        return "memory:"
    return text if text.startswith(("sqlite:", "memory:")) else f"sqlite:{text}"
