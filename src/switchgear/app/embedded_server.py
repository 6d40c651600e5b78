"""`EmbeddedServer`: the whole server in a thread of this process, with its jobs in one directory.

`EmbeddedServer` is made by the holder of the directory's lock, and releases that lock last, in whatever way it ends.
`server.json` tells others where it listens; it is valid only while the lock is held.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from switchgear.app.embedded_address_file import EmbeddedAddress
from switchgear.app.embedded_handle_prefix import handle_prefix
from switchgear.client.address import ServerAddress
from switchgear.config import Config, GearmanConfig, JobLogConfig, ListenUrl
from switchgear.errors import StorageError
from switchgear.net.service import Service
from switchgear.storage.lockfile import DatabaseLock, FileLock

__all__ = ["EmbeddedServer", "OwnerLock"]

log = logging.getLogger("switchgear")

_STORE_NAME: Final = "jobs.db"
_HOST: Final = "127.0.0.1"
# How long jobs of other processes may continue when this process ends, which has to wait for them.
_DRAIN_SECONDS: Final = 0.3
# When a process is killed the system closes its files one by one, so the store's lock may be free a little later.
_STORE_PATIENCE_SECONDS: Final = 5.0
_STORE_LOOK_SECONDS: Final = 0.005
_WATCH_SECONDS: Final = 0.5


class OwnerLock:
    """The lock on the file `owner.lock`, which the process that runs the server of a directory holds until it ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "owner.lock"
        self._lock = FileLock(directory / "owner")

    def acquire(self) -> bool:
        """Try to lock; returns whether this process has the lock now.  Raises OSError if the file cannot be made."""
        while True:
            try:
                self._lock.acquire()
            except StorageError:
                return False
            if self.is_current():
                return True
            self._lock.release()  # the directory was deleted at this very moment; the lock was on a file of the old one

    def is_current(self) -> bool:
        """Whether the locked file is still the one at that path."""
        try:
            there = os.stat(self._path)
        except OSError:
            return False
        return self._lock.is_on(there)

    def release(self) -> None:
        self._lock.release()


class EmbeddedServer:
    """One server from its start to its end."""

    def __init__(self, directory: Path, lock: OwnerLock) -> None:
        """Takes over the lock, which must have been acquired; raises OSError or StorageError."""
        self._directory = directory
        self._lock = lock
        try:
            config = _config(directory)
        except BaseException:
            lock.release()
            raise
        # Not uvloop, which may start its own threads: a child that the program forks would crash at its end because of
        # them.
        self._loop = asyncio.new_event_loop()
        self._listening: Future[ServerAddress] = Future()
        self._service = Service(config, on_listening=self._on_listening, is_guest=True, is_private=True)
        self._thread = threading.Thread(target=self._run, name="switchgear-embedded", daemon=True)

    def start(self) -> ServerAddress:
        """Start serving; returns when clients can connect.  Raises StorageError, ConfigError or OSError, and is stopped
        then."""
        try:
            self._thread.start()
        except BaseException:
            self._loop.close()
            self._lock.release()
            raise
        try:
            return self._listening.result()
        except BaseException:
            self.stop()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the server still runs."""
        return self._thread.is_alive()

    @property
    def address(self) -> ServerAddress:
        return self._listening.result()

    def stop(self, patience_seconds: float | None = None) -> None:
        """Stop serving, requeue running jobs, close the store, and release the lock for another owner."""
        with suppress(RuntimeError):  # the loop is closed: it has ended already
            self._loop.call_soon_threadsafe(self._service.request_stop, True)
        self._thread.join(patience_seconds)

    def abandon(self) -> None:
        """Close the sockets in a forked child, which has inherited them, so that the end of the parent is noticed.

        Its locks are released by themselves.  Its database must not be touched, not even closed.
        """
        if self._listening.done() and self._listening.exception() is None:
            urls = [urlsplit(address) for address in self._service.listeners.addresses]
            _close_sockets_at({(url.hostname, url.port) for url in urls})

    # --- in its thread ---

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._listening.done():
                log.exception("the embedded server has ended")
            else:
                self._listening.set_exception(error)
        finally:
            with suppress(Exception):
                self._loop.close()
            with suppress(OSError):
                if self._lock.is_current():
                    EmbeddedAddress.remove(self._directory)
            self._lock.release()
            if not self._listening.done():
                self._listening.set_exception(StorageError("the embedded server was stopped before it had started"))

    async def _serve(self) -> None:
        EmbeddedAddress.remove(self._directory)  # left by a killed process
        _wait_for_store(self._directory / _STORE_NAME)
        watching = asyncio.create_task(self._watch())
        try:
            await self._service.run()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _on_listening(self) -> None:
        address = ServerAddress.parse(self._service.listeners.addresses[0])
        EmbeddedAddress(str(address), os.getpid(), time.time(), self._service.store.url).write(self._directory)
        self._listening.set_result(address)

    async def _watch(self) -> None:
        """Stop if the directory or the lock in it is deleted, because another process could become the owner then."""
        while self._lock.is_current():  # noqa: ASYNC110 - the file system tells nobody
            await asyncio.sleep(_WATCH_SECONDS)
        if (self._directory / _STORE_NAME).exists():
            log.error("%s: its owner.lock was deleted while it was in use; another process takes over", self._directory)
        else:
            log.error("%s was deleted while it was in use; the jobs in it are lost", self._directory)
        self._service.request_stop(graceful=True)


def _config(directory: Path) -> Config:
    return Config(
        listen=(ListenUrl("gearman", _HOST, 0),),
        store=f"sqlite:{directory / _STORE_NAME}",
        drain_timeout_seconds=_DRAIN_SECONDS,
        joblog=JobLogConfig(url="off"),
        gearman=GearmanConfig(handle_prefix=handle_prefix(directory, _STORE_NAME), shutdown="never"),
    )


def _wait_for_store(path: Path) -> None:
    """Wait until the last owner has closed the store; raises StorageError if it does not."""
    deadline = time.monotonic() + _STORE_PATIENCE_SECONDS
    while True:
        locks = FileLock(path), DatabaseLock(path)
        try:
            for lock in locks:
                lock.acquire()
        except StorageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_STORE_LOOK_SECONDS)
        else:
            return
        finally:
            for lock in locks:
                lock.release()


def _close_sockets_at(endpoints: set[tuple[str | None, int | None]]) -> None:
    """Close the server's connections and listening sockets."""
    for name in os.listdir("/dev/fd"):
        descriptor = int(name)
        with suppress(OSError):  # the descriptor of the listing itself is closed by now
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as end:
                is_ours = end.family == socket.AF_INET and end.getsockname() in endpoints
            if is_ours:
                os.close(descriptor)
