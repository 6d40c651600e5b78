"""A Redis of our own, on a free port and in a temporary directory; and what it was told, as MONITOR shows it."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.peers import require_program
from tests.support.servers import HOST, DidNotStartError, free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

_ATTEMPTS_TO_FIND_A_PORT = 5
_BUS_PORT_DISTANCE = 10_000  # nodes of a cluster talk to each other on a second port, this much higher
_LARGEST_PORT = 65_535


class RedisServer:
    """A redis-server that can be stopped, killed and started again, with the same port and files."""

    def __init__(self, place: Path, flags: tuple[str, ...], *, is_cluster_node: bool = False) -> None:
        self.place = place
        self.port = 0
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        for _ in range(_ATTEMPTS_TO_FIND_A_PORT):
            self.port = _port_for_cluster_node() if is_cluster_node else free_port()
            if self._try_to_start():
                return
        raise DidNotStartError(self.output())

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def client(self) -> redis.Redis:
        """A connection for the test itself: text instead of bytes, and errors as they come."""
        return redis.Redis(HOST, self.port, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def output(self) -> str:
        return (self.place / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start again after `stop` or `kill`."""
        if not self._try_to_start():
            raise DidNotStartError(self.output())

    def stop(self) -> None:
        """As an administrator does it: Redis saves what it is configured to save."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(DEADLINE_SECONDS)
            self._process = None

    def kill(self) -> None:
        """As the power cut does it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _try_to_start(self) -> bool:
        """False: another process has taken the port since we looked."""
        command = [require_program("redis-server"), "--port", str(self.port), "--bind", HOST, "--dir", str(self.place)]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--save", "", *self._flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.place
            )
        try:
            eventually(self._answers_or_is_gone, f"a Redis answers on port {self.port}, or ends")
        except BaseException:
            self.kill()
            raise
        if self._process.poll() is None:
            return True
        if "in use" not in self.output():
            raise DidNotStartError(self.output())
        return False

    def _answers_or_is_gone(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            return True
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True  # it wants a password, so it is there
        except redis.RedisError:
            return False


@contextmanager
def running_redis(*flags: str) -> Iterator[RedisServer]:
    """A Redis that keeps nothing, unless flags such as ``--appendonly yes`` say otherwise."""
    with _place() as place:
        server = RedisServer(place, flags)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def running_redis_cluster(nodes_total: int = 3, *, with_replica: bool = False) -> Iterator[list[RedisServer]]:
    """A Redis Cluster whose slots are divided evenly among its nodes; perhaps with a replica of the first, as the last
    in the list."""
    servers: list[RedisServer] = []
    with _place() as place:
        try:
            for number in range(1, nodes_total + 1 + with_replica):
                own_place = place / str(number)
                own_place.mkdir()
                flags = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
                servers.append(RedisServer(own_place, flags, is_cluster_node=True))
            _join(servers[:nodes_total])
            if with_replica:
                _add_replica(servers)
            yield servers
        finally:
            for server in servers:
                server.kill()


def _join(servers: list[RedisServer]) -> None:
    clients: list[Any] = [server.client() for server in servers]
    try:
        for number, client in enumerate(clients):
            first, end = (16384 * edge // len(clients) for edge in (number, number + 1))
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
            client.execute_command("CLUSTER MEET", HOST, servers[0].port)
        eventually(lambda: all(_is_whole(client, len(clients)) for client in clients), "the cluster is whole")
    finally:
        for client in clients:
            client.close()


def _add_replica(servers: list[RedisServer]) -> None:
    """Let the last one be a replica of the first."""
    with servers[0].client() as first, servers[-1].client() as last:
        first_client: Any = first
        last_client: Any = last
        first_id = first_client.execute_command("CLUSTER MYID")
        last_client.execute_command("CLUSTER MEET", HOST, servers[0].port)
        eventually(lambda: _is_whole(last_client, len(servers)), "the replica knows the cluster")
        last_client.execute_command("CLUSTER REPLICATE", first_id)
        eventually(lambda: last_client.info("replication")["master_link_status"] == "up", "the replica is in sync")
        eventually(lambda: first_client.info("replication")["connected_slaves"] == 1, "the first one knows it")


def _is_whole(client: Any, nodes_total: int) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return (info["cluster_state"], info["cluster_known_nodes"]) == ("ok", str(nodes_total))


def _port_for_cluster_node() -> int:
    while True:
        port = free_port()
        if port + _BUS_PORT_DISTANCE > _LARGEST_PORT:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port + _BUS_PORT_DISTANCE))
            except OSError:
                continue
        return port


@contextmanager
def _place() -> Iterator[Path]:
    require_program("redis-server")  # skips the test before anything is made
    place = Path(tempfile.mkdtemp(prefix="redis-"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


# --- what a Redis was told ---

# What libraries say on connecting is not part of a conversation, and neither is what a script does inside of Redis.
_SMALL_TALK = {"AUTH", "CLIENT", "CLUSTER", "COMMAND", "ECHO", "HELLO", "INFO", "MONITOR", "PING", "SELECT"}
_LINE = re.compile(rb"\+\d+\.\d+ \[\d+ (?P<source>[^\]]+)\] (?P<words>.*)\r\n")
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


class Overheard:
    """Every command that a Redis executed since we began to listen, as lines of text."""

    def __init__(self, server: RedisServer, in_scripts: bool = False) -> None:
        """`in_scripts`: those that scripts execute instead."""
        self._server = server
        self._in_scripts = in_scripts
        self._socket = socket.create_connection((HOST, server.port), timeout=DEADLINE_SECONDS)
        self._lines = self._socket.makefile("rb")
        self._socket.sendall(b"MONITOR\r\n")
        assert self._lines.readline() == b"+OK\r\n"
        self._heard: list[str] = []

    def commands(self) -> list[str]:
        """All until now, and nothing is missing: a word that only we know comes last."""
        fence = uuid.uuid4().hex
        with self._server.client() as client:
            client.echo(fence)
        while True:
            line = self._lines.readline()
            match = _LINE.fullmatch(line)
            assert match is not None, line
            words = [_unescaped(word).decode(errors="backslashreplace") for word in _WORD.findall(match["words"])]
            if words == ["ECHO", fence]:
                return self._heard
            if (match["source"] == b"lua") is self._in_scripts and words[0].upper() not in _SMALL_TALK:
                self._heard.append(" ".join(words))

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


@contextmanager
def overhearing(server: RedisServer, in_scripts: bool = False) -> Iterator[Overheard]:
    overheard = Overheard(server, in_scripts)
    try:
        yield overheard
    finally:
        overheard.close()


def _unescaped(word: bytes) -> bytes:
    def meant(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        return bytes([int(escape[1:], 16)]) if escape[:1] == b"x" and len(escape) == 3 else _LETTERS.get(escape, escape)

    return _ESCAPE.sub(meant, word)
