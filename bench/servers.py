"""The servers that are compared: how each is started, when it is ready, and how it ends.

Every server is started for one measurement, with an empty queue, on a free port of 127.0.0.1; databases lie in a
temporary folder under bench/build, on a disk and not in memory, where a sync would cost nothing.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NoReturn

from tests.support.postgres import running_postgres

from switchgear.bench import machine
from switchgear.bench.server import environment
from switchgear.version import VERSION

HOST = "127.0.0.1"
BUILD = Path(__file__).resolve().parent / "build"
READY_SECONDS = 30.0
AGAIN_SECONDS = 600.0  # for a server that has a long queue to read first
POLL_SECONDS = 0.002
STOP_SECONDS = 120.0

GEARMAN_QUESTION = b"version\n"
BEANSTALK_QUESTION = b"list-tube-used\r\n"

PACKAGES = {"gearmand": "gearman-job-server", "beanstalkd": "beanstalkd"}


class BenchError(RuntimeError):
    """Something is missing or does not work, so that there is nothing to compare."""


@dataclass(frozen=True)
class Peer:
    """A server with some settings.  In the options PORT, FOLDER and DATABASE (the URL of a new PostgreSQL) stand for
    what differs from run to run."""

    name: str
    program: str  # switchgear, gearmand or beanstalkd
    options: str  # those that tell it from others of its kind; a person reads them too
    credits: int = 0  # its workers are pushed jobs, so many ahead, and do not grab

    @property
    def is_durable(self) -> bool:
        return "FOLDER" in self.options or "DATABASE" in self.options

    @property
    def settings(self) -> str:
        """How it was started, for a reader: version, and the whole command."""
        words = [word for word in START[self.program] if word not in (sys.executable, "-m")]
        return f"{version_of(self.program)}: {' '.join([*words, self.options])}".strip()

    def with_options(self, more: str) -> Peer:
        return Peer(self.name, self.program, f"{self.options} {more}".strip(), self.credits)

    def command(self, port: int, folder: Path) -> list[str]:
        return [
            word.replace("PORT", str(port)).replace("FOLDER", str(folder))
            for word in [*START[self.program], *self.options.split()]
        ]


START = {
    "switchgear": [
        *(sys.executable, "-m", "switchgear", "serve"),
        *("--listen", f"gearman://{HOST}:PORT", "--log-level", "error"),
    ],
    "gearmand": ["gearmand", f"--listen={HOST}", "--port=PORT", "--log-file=stderr", "--pid-file=FOLDER/pid"],
    "beanstalkd": ["beanstalkd", "-l", HOST, "-p", "PORT"],
}

SWITCHGEAR = Peer("switchgear", "switchgear", "--store memory:")
SWITCHGEAR_CREDITS = Peer("switchgear-credits", "switchgear", "--store memory:", credits=8)
SWITCHGEAR_SQLITE = Peer("switchgear-sqlite", "switchgear", "--store sqlite:FOLDER/jobs.db --sync full")
SWITCHGEAR_POSTGRESQL = Peer("switchgear-postgresql", "switchgear", "--store DATABASE")
SWITCHGEAR_SQLITE_CREDITS = Peer(
    "switchgear-sqlite-credits", "switchgear", "--store sqlite:FOLDER/jobs.db --sync full", credits=8
)
SWITCHGEAR_POSTGRESQL_CREDITS = Peer("switchgear-postgresql-credits", "switchgear", "--store DATABASE", credits=8)
SWITCHGEAR_SQLITE_NORMAL = Peer("switchgear-sqlite-normal", "switchgear", "--store sqlite:FOLDER/jobs.db --sync normal")
GEARMAND = Peer("gearmand", "gearmand", "-t 4")  # as it is shipped: four I/O threads, 991 buckets
GEARMAND_THREADS_0 = Peer("gearmand-threads-0", "gearmand", "-t 0")
GEARMAND_BEST = Peer("gearmand-best", "gearmand", "-t 0 --hashtable-buckets=200003")
GEARMAND_WAKEUP_1 = Peer("gearmand-wakeup-1", "gearmand", "-t 0 --hashtable-buckets=200003 --worker-wakeup=1")
GEARMAND_SQLITE = Peer("gearmand-sqlite", "gearmand", "-q libsqlite3 --libsqlite3-db=FOLDER/jobs.db")
BEANSTALKD = Peer("beanstalkd", "beanstalkd", "")
BEANSTALKD_BINLOG = Peer("beanstalkd-binlog", "beanstalkd", "-b FOLDER -F")
BEANSTALKD_FSYNC = Peer("beanstalkd-fsync", "beanstalkd", "-b FOLDER -f0")


# --- what is installed ---


def find(program: str) -> str:
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if path is None:
        raise BenchError(f"{program} is not installed; on Debian: scripts/install-packages {PACKAGES[program]}")
    return path


@cache
def version_of(program: str) -> str:
    if program == "switchgear":
        return f"{VERSION} ({machine.build()})"
    flag = "-v" if program == "beanstalkd" else "--version"
    answer = subprocess.run([find(program), flag], capture_output=True, text=True, check=True, timeout=10)
    words = (answer.stdout or answer.stderr).split()
    return next((word for word in words if word[0].isdigit()), "unknown version")


def require(*peers: Peer) -> None:
    """Start each once: a peer that is asked for and does not work is an error, before anything is measured."""
    for peer in dict.fromkeys(peers):
        with running(peer):
            pass


def require_connections(count: int) -> None:
    """Permit ourselves, and the servers that we start, so many open files."""
    wanted = count + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise BenchError(f"{count:,} connections need {wanted:,} open files, and {hard:,} are allowed (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# --- processes ---


def end_on_termination() -> None:
    """Let SIGTERM unwind this program as Ctrl-C does, so that servers are stopped on the way out."""

    def end(_number: int, _frame: object) -> NoReturn:
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, end)


@dataclass(frozen=True)
class Server:
    """A running server."""

    peer: Peer
    port: int
    process_ids: list[int]
    ready_seconds: float  # from the start of its process to its first answer

    def ask(self, question: bytes) -> bytes:
        answer = ask(self.port, question)
        if answer is None:
            raise BenchError(f"{self.peer.name} does not answer any more")
        return answer

    @property
    def cpu_seconds(self) -> float:
        return sum(time.clock_gettime((~each << 3) | 2) for each in self.process_ids)  # the CPU clock of a process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def ask(port: int, question: bytes) -> bytes | None:
    """The answer to a line, up to its line end; None while there is no server."""
    try:
        with socket.create_connection((HOST, port), timeout=30.0) as link:
            link.sendall(question)
            answer = b""
            while not answer.endswith(b"\n") and len(answer) < 100_000:
                piece = link.recv(4096)
                if not piece:
                    return None
                answer += piece
    except OSError:
        return None
    return answer


def session_members(leader: int) -> list[int]:
    """The processes of a session: a server and whatever it has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # gone in the meantime
        fields = text[text.rindex(")") + 2 :].split()
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.name))
    return sorted(found)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join("    " + line for line in log.read_text(errors="replace").splitlines()[-lines:])


def wait_until_ready(
    process: subprocess.Popen[bytes], peer: Peer, port: int, log: Path, within_seconds: float = READY_SECONDS
) -> None:
    question = BEANSTALK_QUESTION if peer.program == "beanstalkd" else GEARMAN_QUESTION
    limit = time.monotonic() + within_seconds
    while ask(port, question) is None:
        if process.poll() is not None:
            raise BenchError(f"{peer.name} ended at once with status {process.returncode}:\n{tail(log)}")
        if time.monotonic() > limit:
            raise BenchError(f"{peer.name} did not answer within {within_seconds:.0f} s:\n{tail(log)}")
        time.sleep(POLL_SECONDS)


def stop(process: subprocess.Popen[bytes], gently: bool) -> None:
    """End a server and everything in its session; gently, if its files are to be used again."""
    if gently:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=BUILD) as folder:
        yield Path(folder)


@contextlib.contextmanager
def running(peer: Peer, folder: Path | None = None) -> Iterator[Server]:
    """A server, in a folder of its own that goes with it, or in one that stays."""
    if "DATABASE" in peer.options:
        with running_postgres(fsync="on", shared_buffers="128MB") as cluster:
            options = peer.options.replace("DATABASE", cluster.new_url())
            with running(replace(peer, options=options), folder) as server:
                yield server
    elif folder is None:
        with temporary_folder(peer.name) as own, _started(peer, own, READY_SECONDS, gently=False) as server:
            yield server
    else:
        with _started(peer, folder, AGAIN_SECONDS, gently=True) as server:
            yield server


@contextlib.contextmanager
def _started(peer: Peer, folder: Path, within_seconds: float, gently: bool) -> Iterator[Server]:
    log = folder / "log"
    port = free_port()
    command = peer.command(port, folder)
    if peer.program != "switchgear":
        command[0] = find(command[0])
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until_ready(process, peer, port, log, within_seconds)
        ready_seconds = time.perf_counter() - began
        yield Server(peer, port, session_members(process.pid), ready_seconds)
    finally:
        stop(process, gently)
