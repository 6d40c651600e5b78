"""Prepares the server process: file descriptors, user, daemon, pid file, syslog.

The order matters and is gearmand's.  Descriptors come first, since raising their limit may need root.  The user is
switched next, before any file is opened, so that store, log and pid file belong to the user that will go on writing
them; a port below 1024 is therefore out of reach together with a user.  Then the process goes into the background,
while it has no event loop and no thread.  What remains waits until the server listens: the pid file, so that a
process that is named there can be reached, and the word to the waiting parent.
"""

from __future__ import annotations

import logging
import os
import pwd
import resource
import sys
import syslog
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from switchgear.errors import ConfigError

__all__ = ["OnListening", "ProcessOptions", "raise_file_descriptors", "run_process"]

OnListening = Callable[[], None]  # called once by the server, when all listeners accept connections

_READY = b"\n"
# Descriptors besides connections: store, log, listeners, event loop, and some for what we did not think of.
SPARE_DESCRIPTORS = 64


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Options of the server process; the default changes nothing."""

    pid_file: str = ""
    user: str = ""
    daemonize: bool = False
    file_descriptors: int = 0  # 0: as many as the connections need, if the system permits
    syslog: bool = False


def run_process(options: ProcessOptions, serve: Callable[[OnListening], int]) -> int:
    """Prepare the process and serve in it; `serve` calls back once all listeners accept connections. Returns its exit
    code.

    With `daemonize` this returns in the background process only.  The calling process exits as soon as the server
    listens (0) or has given up (1); until then, the background process may still write to the terminal.
    """
    if options.file_descriptors:
        _set_file_descriptors(options.file_descriptors)
    if options.user:
        _switch_user(options.user)
    if options.pid_file:
        _check_pid_file(Path(options.pid_file))
    ready_fd = _go_into_background() if options.daemonize else None
    if options.syslog:
        _log_to_syslog()

    def on_listening() -> None:
        if options.pid_file:
            _write_pid_file(Path(options.pid_file))
        if ready_fd is not None:
            os.write(ready_fd, _READY)
            os.close(ready_fd)
            _detach_from_terminal()

    try:
        return serve(on_listening)
    finally:
        if options.pid_file:
            _remove_pid_file(Path(options.pid_file))


def raise_file_descriptors(connections: int) -> None:
    """Raise the limit of file descriptors for this many connections, as far as an ordinary user may.

    Systems start programs with a limit of 1024, for the sake of old programs, and permit far more on request.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _set_file_descriptors(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        hard = max(hard, count)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot allow {count} file descriptors: {error}; root may, or ask for fewer") from None


def _switch_user(name: str) -> None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"there is no user {name}") from None
    if entry.pw_uid == os.geteuid():
        return
    if os.geteuid() != 0:
        raise ConfigError(f"only root can switch to the user {name}")
    try:
        # Groups first: once the user is another, the right to change them is gone.
        os.initgroups(name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except OSError as error:
        raise ConfigError(f"cannot switch to the user {name}: {error.strerror}") from None


def _check_pid_file(path: Path) -> None:
    """Check early that the pid file can be written; the file itself must not exist before the server is ready."""
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK) or path.is_dir():
        raise ConfigError(f"cannot write the pid file {path}")


def _write_pid_file(path: Path) -> None:
    try:
        path.write_text(f"{os.getpid()}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the pid file {path}: {error.strerror}") from None


def _remove_pid_file(path: Path) -> None:
    """Remove the pid file, unless another process has written its own by now."""
    try:
        if path.read_text(encoding="utf-8").strip() == str(os.getpid()):
            path.unlink()
    except (OSError, ValueError):
        return  # gone, unreadable, or in a directory of another user: nothing depends on it any more


def _go_into_background() -> int:
    """Daemonize; returns the descriptor to write to when the server is ready."""
    ready_fd, tell_fd = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(tell_fd)
        os.waitpid(child, 0)
        # End of file means that the server has ended; the reason is on standard error.
        sys.exit(0 if os.read(ready_fd, 1) == _READY else 1)
    os.close(ready_fd)
    os.setsid()
    if os.fork():
        os._exit(0)  # the leader of a session could get a terminal again, its child cannot
    return tell_fd


def _detach_from_terminal() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    if nowhere > 2:
        os.close(nowhere)


class _SyslogHandler(logging.Handler):
    """Logs through the C library's syslog, which finds the system log by itself and survives its restarts."""

    def emit(self, record: logging.LogRecord) -> None:
        syslog.syslog(_syslog_priority(record.levelno), self.format(record))


def _syslog_priority(level: int) -> int:
    if level >= logging.CRITICAL:
        return syslog.LOG_CRIT
    if level >= logging.ERROR:
        return syslog.LOG_ERR
    if level >= logging.WARNING:
        return syslog.LOG_WARNING
    return syslog.LOG_INFO if level >= logging.INFO else syslog.LOG_DEBUG


def _log_to_syslog() -> None:
    syslog.openlog("switchgear", syslog.LOG_PID, syslog.LOG_DAEMON)
    logging.getLogger("switchgear").addHandler(_SyslogHandler())
