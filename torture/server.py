"""Server processes: started, killed, stopped and continued, and asked what they have."""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from torture.history import Listed
from torture.peers.gearman import CONTROL, CONTROL_RES, request
from torture.peers.load import HANDLE_PREFIX, HOST, Ports

UNFINISHED = ["waiting", "scheduled", "ready", "running"]
ROOT = Path(__file__).parent.parent  # from where `python -m` finds the modules of this package
# How often longer things may take, on a machine with very much other work.
PATIENCE = float(os.environ.get("TORTURE_PATIENCE", "1"))
START_SECONDS = 60.0 * PATIENCE
ASK_SECONDS = 20.0
MOVING_SECONDS = 0.05
WAIT_STEP_SECONDS = 0.1
# Below those that the system gives to connections, or one of ours could take the port of a server that is down, and
# above those of the other tests.
FIRST_PORT, LAST_PORT = 26_000, 32_700
_given: deque[int] = deque(maxlen=1_000)  # the last ones


class DidNotStart(Exception):
    """The server ended, or did not answer, when it was started."""


def free_ports(chance: random.Random) -> Ports:
    """Ports that nobody listens on at this moment."""
    return Ports(*(free_port(chance) for _ in fields(Ports)))


def free_port(chance: random.Random) -> int:
    """A port that nobody listens on at this moment, and that no other server of this run was given lately."""
    while True:
        port = chance.randrange(FIRST_PORT, LAST_PORT)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            _given.append(port)
            return port


def serve_arguments(ports: Ports, store: str, settings: Mapping[str, object], *others: str) -> list[str]:
    """The arguments of `switchgear` that start a server."""
    listen = [
        f"gearman://{HOST}:{ports.gearman}",
        f"wmp://{HOST}:{ports.wmp}",
        f"pingpong://{HOST}:{ports.pingpong}?workers={ports.pingpong_workers}&function=pingpong",
        f"dwork://{HOST}:{ports.dwork}",
        f"gearmonkey://{HOST}:{ports.gearmonkey}",
        f"http://{HOST}:{ports.http}",
    ]
    arguments = ["serve", "--store", store, "--drain-timeout", "0.05s", *others]
    for url in listen:
        arguments += ["--listen", url]
    for name, value in {"gearman.handle_prefix": HANDLE_PREFIX, **settings}.items():
        arguments += ["--set", f"{name}={value}"]
    return arguments


class ServerProcess:
    """One life of a server."""

    def __init__(self, pid: int, ports: Ports, log: Path) -> None:
        self.pid = pid
        self.ports = ports
        self.log = log
        self.started_at = time.monotonic()
        self._pidfd = os.pidfd_open(pid)
        self._is_closed = False

    def signal(self, number: int) -> None:
        try:
            if not self._is_closed:
                signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            pass

    def kill(self) -> None:
        """Without a goodbye."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """In order."""
        self.signal(signal.SIGTERM)
        if not self.wait(20):
            self.kill()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def is_running(self) -> bool:
        return not self._is_closed and not readable(self._pidfd, 0)

    def wait(self, seconds: float = ASK_SECONDS) -> bool:
        """Whether it has ended within that time.  Somebody else may close this object meanwhile, as a supervisor does,
        and then the number of its descriptor may be something else's."""
        until = time.monotonic() + seconds
        while self.is_running():
            left = until - time.monotonic()
            if left <= 0:
                return False
            with suppress(OSError):
                readable(self._pidfd, min(left, WAIT_STEP_SECONDS))
        return True

    def close(self) -> None:
        """Make sure that it is gone."""
        if self._is_closed:
            return
        if self.is_running():
            self.kill()
        self._is_closed = True
        os.close(self._pidfd)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def resident_bytes(self) -> int:
        """How much of the machine's memory it has."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    async def answers(self) -> float:
        """Wait until it does; returns how many seconds after its start that was."""
        while time.monotonic() - self.started_at < START_SECONDS:
            if not self.is_running():
                raise DidNotStart(f"it ended at once:\n{self.output()}")
            try:
                reader, writer = await asyncio.open_connection(HOST, self.ports.gearman)
            except OSError:
                await asyncio.sleep(0.002)
                continue
            try:
                writer.write(b"version\n")
                if (await reader.readline()).startswith(b"OK"):
                    return time.monotonic() - self.started_at
            except OSError:
                pass
            finally:
                writer.close()
        raise DidNotStart(f"it did not answer within {START_SECONDS:g} s:\n{self.output()}")


def readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read within this time; `select` knows only the first 1,024 descriptors."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class ServerStarter:
    """Starts servers, as a user would: `python -m switchgear serve`."""

    def __init__(self, module: Sequence[str] = ("switchgear",)) -> None:
        """`module` is what is run, such as one that breaks the server on purpose, with its own arguments."""
        self._module = module
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(
        self, ports: Ports, log: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> ServerProcess:
        command = [sys.executable, "-m", *self._module, *arguments]
        with log.open("ab") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=ROOT,
            )
        self._reap()
        self._children[child.pid] = child
        return ServerProcess(child.pid, ports, log)

    def _reap(self) -> None:
        self._children = {pid: child for pid, child in self._children.items() if child.poll() is None}

    def close(self) -> None:
        for child in self._children.values():
            child.kill()
            child.wait()


class ForkingStarter(ServerStarter):
    """Starts servers by forking a process that has the program in memory already: several times as fast."""

    def __init__(self) -> None:
        self._others = ServerStarter()  # with an environment of their own, which a fork cannot have
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "torture.fork_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )

    def start(
        self, ports: Ports, log: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> ServerProcess:
        if environment:
            return self._others.start(ports, log, arguments, environment)
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps({"log": str(log), "arguments": list(arguments)}).encode() + b"\n")
        self._parent.stdin.flush()
        return ServerProcess(int(self._parent.stdout.readline()), ports, log)

    def close(self) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._others.close()


class Operator:
    """Asks a server about its jobs, over a blocking connection."""

    def __init__(self, ports: Ports) -> None:
        self._socket = socket.create_connection((HOST, ports.gearman), timeout=ASK_SECONDS)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, verb: str, **arguments: object) -> dict[str, object]:
        """The answer; raises LookupError if the server says no."""
        answer, _ = self._ask(verb, arguments)
        return answer

    def hears_everything(self) -> bool:
        """Whether a list of jobs has those of all nodes."""
        return not self._ask("jobs", {"limit": 1})[1]

    def _ask(self, verb: str, arguments: Mapping[str, object]) -> tuple[dict[str, object], bytes]:
        """The answer, and what is missing in it."""
        self._socket.sendall(request(CONTROL, verb.encode(), json.dumps(arguments).encode()))
        header = self._file.read(12)
        if len(header) < 12:
            raise ConnectionError("the server has hung up")
        body = self._file.read(int.from_bytes(header[8:], "big"))
        if int.from_bytes(header[4:8], "big") != CONTROL_RES:
            raise LookupError(body.replace(b"\0", b": ").decode("utf-8", "replace"))
        text, _, missing = body.partition(b"\0")
        answer: dict[str, object] = json.loads(text)
        return answer, missing

    def unfinished(self, states: Sequence[str] = UNFINISHED) -> list[Listed]:
        """All jobs that are in one of these states."""
        rows: list[Listed] = []
        before: object = 0
        while before is not None:
            answer, missing = self._ask("jobs", {"states": list(states), "limit": 1000, "before_id": before})
            if missing:  # functions move between nodes: again from the beginning
                rows, before = [], 0
                time.sleep(MOVING_SECONDS)
                continue
            jobs = answer["jobs"]
            assert isinstance(jobs, list)
            for job in jobs:
                if job["delivery"] != "wait":
                    name = (job["name"] or "").partition(" ")[0]
                    rows.append(Listed(job["id"], job["function"], job["unique"] or "", name))
            before = answer["next_before_id"]
        return rows

    def job(self, number: int, name: str, unique: str, function: str) -> dict[str, object]:
        """What the server knows of one job, finished or not; raises LookupError."""
        if number:
            return self.ask("job", handle=str(number))
        selection = {"unique": unique} if unique else {"name": name}
        jobs = self.ask("jobs", function=function, limit=1, **selection)["jobs"]
        assert isinstance(jobs, list)
        if not jobs:
            raise LookupError("there is no such job")
        found: dict[str, object] = jobs[0]
        return found
