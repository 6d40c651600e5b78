"""`EmbeddedLocation`: finds the process that serves a directory, or starts the server in this process.

One owner.  The owner holds a lock in the directory (`owner.lock`), which the system frees when the process ends, in
whatever way.  The other processes read from `server.json` where the owner listens.  When the owner ends its connections
break; the next process that asks for the address takes the lock and serves the jobs in `jobs.db`, and the others find
it.  Nothing that was acknowledged is lost, because the store commits before the server answers.

Trust.  `server.json` may be stale, and another program may listen at its port.  So it is used only while the lock is
held, and only after the server at that port has said that it is this process and keeps its jobs in this directory; and
where the system tells whose process it is (net/connections/peer_user.py), it must be of the same user.  The server in
turn takes no connections of other users there.  A directory that other users own or can write to is not used.

In one process, all apps that use a directory share one `_EmbeddedDirectory`.
"""

from __future__ import annotations

import atexit
import errno
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from switchgear.app.embedded_address_file import EmbeddedAddress
from switchgear.app.server_locations import EMBEDDED_SCHEME, ServerLocation
from switchgear.backoff import ReconnectBackoff, RetryPauses, without_jitter
from switchgear.client.address import ServerAddress
from switchgear.errors import ConfigError, ServerUnreachable, SwitchgearError
from switchgear.net.process.file_ownership import check_directory, check_link

if TYPE_CHECKING:
    from switchgear.app.embedded_server import EmbeddedServer

__all__ = ["DEFAULT_DIRECTORY", "EmbeddedLocation"]

DEFAULT_DIRECTORY: Final = ".switchgear"

# How long to look for the owner.  A new one has to load what is queued before it can be found.
_PATIENCE_SECONDS: Final = 30.0
_BACKOFF: Final = ReconnectBackoff(first_seconds=0.005, most_seconds=0.05, rng=without_jitter)
# How long an exiting process waits for its server to release and store all jobs.
_STOP_SECONDS: Final = 10.0
# Errors that only the user can correct, so that retrying is useless.
_LASTING_PROBLEMS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})


class EmbeddedLocation(ServerLocation):
    """The server of a directory, in this process or in another one."""

    start_seconds = _PATIENCE_SECONDS + 5  # so that callers who wait get the reason

    def __init__(self, url: str = EMBEDDED_SCHEME + DEFAULT_DIRECTORY) -> None:
        """`url` is `embedded:PATH`, and a relative path is relative to where the program is now; raises ConfigError.

        The directory is made when it is first needed.
        """
        scheme, colon, path = url.partition(":")
        if scheme + colon != EMBEDDED_SCHEME:
            raise ConfigError(f'"{url}" is not of the form embedded:PATH')
        if path.startswith("//"):
            raise ConfigError(f'"{url}": a plain path is expected after embedded:, as in embedded:{path.lstrip("/")}')
        try:
            self._written = Path(path or DEFAULT_DIRECTORY).expanduser().absolute()
            self.directory: Path = self._written.resolve()
        except (RuntimeError, ValueError, OSError) as error:  # no such home, a NUL in the path, a loop of links
            raise ConfigError(f'"{url}": {error}') from None
        self._url = f"{EMBEDDED_SCHEME}{path or DEFAULT_DIRECTORY}"

    def address(self) -> ServerAddress:
        """The address of the server; raises ServerUnreachable, or ConfigError if the directory cannot be used."""
        check_link(self._written)
        home = _home_at(self.directory)
        home.users.add(self)
        return home.address()

    def close(self) -> None:
        """Release the server, unless another app of this process uses it."""
        home = _home_at(self.directory)
        home.users.discard(self)
        if not home.users:
            home.leave()

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_owner(self) -> bool:
        """Whether the server runs in this process."""
        return _home_at(self.directory).is_owner


class _EmbeddedDirectory:
    """One directory, shared by all apps and threads of this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.users: WeakSet[EmbeddedLocation] = WeakSet()
        self._mutex = threading.Lock()
        self._server: EmbeddedServer | None = None
        self._abandoned: EmbeddedServer | None = None  # the parent's, whose memory this process has inherited
        self._problem = ""

    @property
    def is_owner(self) -> bool:
        server = self._server
        return server is not None and server.is_alive

    def address(self) -> ServerAddress:
        """The address of the server.  If there is none, this process starts it, unless another one does so first."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pauses = RetryPauses(_BACKOFF)
        with self._mutex:
            while True:
                if _ending.is_set():
                    raise ServerUnreachable(f"{self.directory}: this process is ending")
                address = self._own_address() or self._become_owner() or self._find_owner()
                if address is not None:
                    return address
                if time.monotonic() > deadline:
                    raise ServerUnreachable(f"the server of {self.directory} cannot be reached: {self._problem}")
                time.sleep(pauses.next_seconds())

    def leave(self) -> None:
        """Stop the server, if it runs in this process."""
        with self._mutex:
            server, self._server = self._server, None
            if server is not None:
                server.stop(_STOP_SECONDS)

    def reset_after_fork(self) -> None:
        """Forget the server after a fork: the parent's threads do not run in the child."""
        self._mutex = threading.Lock()
        server, self._server = self._server, None
        if server is not None:
            server.abandon()
            self._abandoned = server

    # --- looking ---

    def _own_address(self) -> ServerAddress | None:
        if self._server is not None and not self._server.is_alive:
            self._server = None
        return None if self._server is None else self._server.address

    def _become_owner(self) -> ServerAddress | None:
        """Take the lock, if it is free, and start the server."""
        from switchgear.app.embedded_server import EmbeddedServer, OwnerLock  # most processes need no server

        lock = OwnerLock(self.directory)
        try:
            self._make_directory()
            check_directory(self.directory)
            if not lock.acquire():
                return None
            if self._abandoned is not None:
                lock.release()
                raise ServerUnreachable(
                    f"{self.directory} has no owner any more, and this process cannot be it, because it was forked from"
                    " the last one; start another process that uses it, or fork before the first job is submitted"
                )
            server = EmbeddedServer(self.directory, lock)
            address = server.start()
        except OSError as error:
            raise self._unusable(error) from error
        except RuntimeError as error:  # no threads can be started: the interpreter is ending
            raise ServerUnreachable(f"cannot start a server for {self.directory}: {error}") from error
        except (ConfigError, ServerUnreachable):
            raise
        except SwitchgearError as error:
            raise ServerUnreachable(f"cannot start a server for {self.directory}: {error}") from error
        self._server = server
        return address

    def _make_directory(self) -> None:
        if self.directory.is_dir():
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):  # a courtesy: jobs do not belong in version control
            (self.directory / ".gitignore").write_text("*\n", encoding="ascii")

    def _unusable(self, error: OSError) -> SwitchgearError:
        text = f"{self.directory} cannot be used: {error.strerror or error}"
        return ConfigError(text) if error.errno in _LASTING_PROBLEMS else ServerUnreachable(text)

    def _find_owner(self) -> ServerAddress | None:
        """The address that the owner has written, if the owner answers there."""
        try:
            status = EmbeddedAddress.read(self.directory)
            if status is not None:
                return status.confirmed_address()
            self._problem = "its owner has not said yet where it listens"
        except OSError as error:
            raise self._unusable(error) from error
        except SwitchgearError as error:
            self._problem = str(error)
        return None


_homes: dict[Path, _EmbeddedDirectory] = {}
_homes_mutex = threading.Lock()
_ending = threading.Event()


def _home_at(directory: Path) -> _EmbeddedDirectory:
    with _homes_mutex:
        return _homes.setdefault(directory, _EmbeddedDirectory(directory))


def _stop_all() -> None:
    """Stop the servers of this process when the program ends, so that others take over without a gap."""
    _ending.set()  # no server is started in this process from now on
    for home in list(_homes.values()):
        with suppress(KeyboardInterrupt):  # the program ends already, and what is stored is stored
            home.leave()


def _reset_after_fork() -> None:
    global _homes_mutex
    _homes_mutex = threading.Lock()  # another thread of the parent may have held it at that moment
    for home in _homes.values():
        home.reset_after_fork()


# Registered when the module is loaded, and so before anything that uses a location: exit handlers run in reverse order.
atexit.register(_stop_all)
os.register_at_fork(after_in_child=_reset_after_fork)
