"""The protocol of docs/howto/add-a-protocol.md, installed as a package of its own, on a real server and on a hub."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import switchgear
from switchgear.client import Client
from switchgear.errors import StorageError
from switchgear.protocol_registry import ENTRY_POINT_GROUP
from tests.docs.pages import DOCS, blocks_of
from tests.net.harness import HubHarness, RecordingWire, idle, in_turns, open_harness
from tests.support.waiting import DEADLINE_SECONDS

PAGE = DOCS / "howto" / "add-a-protocol.md"
HOST = "127.0.0.1"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A directory where the package of the page is installed."""
    blocks = blocks_of(PAGE)
    (code,) = [block for block in blocks if block.file_name == "line_protocol.py"]
    (settings,) = [tomllib.loads(block.text) for block in blocks if block.language == "toml"]
    project = settings["project"]
    place = tmp_path / "site-packages"
    info = place / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (place / "line_protocol.py").write_text(code.text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    entries = "".join(f"{name} = {value}\n" for name, value in project["entry-points"][ENTRY_POINT_GROUP].items())
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{entries}")
    return place


class LinePeer:
    """A connection that speaks in lines."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), DEADLINE_SECONDS)
        self._lines = self._socket.makefile("rb")

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, line: bytes) -> None:
        self.send_bytes(line + b"\n")

    def read(self) -> bytes:
        return self._lines.readline().rstrip(b"\n")

    def ask(self, line: bytes) -> bytes:
        self.send(line)
        return self.read()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class LineServer:
    """A server process that listens for the line protocol and for Gearman."""

    def __init__(self, package: Path, *options: str, line_options: str = "") -> None:
        source = Path(switchgear.__file__).parents[1]
        listen = [f"--listen=line://{HOST}:0{line_options}", f"--listen=gearman://{HOST}:0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", "serve", "--log-level=error", *listen, *options],
            env={**os.environ, "PYTHONPATH": f"{package}:{source}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ports: dict[str, int] = {}
        self._peers: list[LinePeer] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("listening on "):
                scheme, _, rest = line.split()[-1].partition("://")
                self.ports[scheme] = int(rest.partition("?")[0].rpartition(":")[2])
            if line.startswith("keeping jobs in "):
                break

    def connect(self) -> LinePeer:
        self._peers.append(LinePeer(self.ports["line"]))
        return self._peers[-1]

    def kill(self) -> None:
        for peer in self._peers:
            peer.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running(package: Path, *options: str, line_options: str = "") -> Iterator[LineServer]:
    server = LineServer(package, *options, line_options=line_options)
    try:
        yield server
    finally:
        server.kill()


@pytest.mark.system
def test_a_job_from_a_submitter_to_a_worker(package: Path, tmp_path: Path) -> None:
    with running(package, f"--store=sqlite:{tmp_path / 'jobs.db'}") as server:
        submitter, worker = server.connect(), server.connect()
        worker.send(b"WORK shout")
        assert submitter.ask(b"SUBMIT shout hello, world") == b"CREATED 1"
        assert worker.read() == b"JOB 1 hello, world"
        assert worker.ask(b"DONE 1 HELLO, WORLD") == b"OK"
        assert submitter.read() == b"RESULT 1 HELLO, WORLD"
        assert submitter.ask(b"SUBMIT shout again") == b"CREATED 2"
        assert worker.ask(b"WORK shout") == b"JOB 2 again"
        assert worker.ask(b"FAIL 2 hoarse") == b"OK"
        assert submitter.read() == b"FAILED 2 hoarse"


@pytest.mark.system
def test_an_acknowledged_job_survives_a_crash(package: Path, tmp_path: Path) -> None:
    store = f"--store=sqlite:{tmp_path / 'jobs.db'}"
    with running(package, store) as server:
        assert server.connect().ask(b"SUBMIT shout hello") == b"CREATED 1"
    with running(package, store) as server:
        assert server.connect().ask(b"WORK shout") == b"JOB 1 hello"


@pytest.mark.system
def test_a_job_of_a_worker_that_is_gone_goes_to_another(package: Path) -> None:
    with running(package, "--store=memory:") as server:
        first, second = server.connect(), server.connect()
        assert first.ask(b"SUBMIT shout hello") == b"CREATED 1"
        assert first.ask(b"WORK shout") == b"JOB 1 hello"
        second.send(b"WORK shout")
        first.close()
        assert second.read() == b"JOB 1 hello"


@pytest.mark.system
def test_a_job_of_another_protocol(package: Path) -> None:
    with running(package, "--store=memory:") as server, Client(f"gearman://{HOST}:{server.ports['gearman']}") as client:
        worker = server.connect()
        worker.send(b"WORK shout")
        submission = client.submit("shout", b"hello")
        assert worker.read() == b"JOB 1 hello"
        assert worker.ask(b"DONE 1 HELLO") == b"OK"
        assert submission.wait(DEADLINE_SECONDS) == b"HELLO"


@pytest.mark.system
def test_mistakes_have_answers(package: Path) -> None:
    options = ("--store=memory:", "--set=limits.packet_bytes=1KiB")
    with running(package, *options, line_options="?prompt=hello") as server:
        peer = server.connect()
        assert peer.ask(b"SING a song") == b"hello"
        assert peer.read() == b"ERROR the verbs are SUBMIT, WORK, DONE and FAIL"
        assert peer.ask(b"DONE 7 it") == b"ERROR you do not have that job"
        peer.send(b"WORK shout")
        assert peer.ask(b"WORK shout") == b"ERROR you have a job, or wait for one"
        peer.send_bytes(b"x" * 2000)
        assert peer.read() == b"ERROR a line of more than 1024 bytes"
        assert peer.read() == b""  # it was disconnected
        http = server.connect()
        assert http.ask(b"GET / HTTP/1.1\r").startswith(b"HTTP/1.1 ")


# --- durability, with a store that commits when a test says so ---


@pytest.fixture
def module(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(package)
    sys.modules.pop("line_protocol", None)  # another test may have imported a module of this name
    yield import_module("line_protocol")
    sys.modules.pop("line_protocol", None)


def session_at(harness: HubHarness, module: ModuleType) -> tuple[Callable[[bytes], None], RecordingWire]:
    """A function that sends a line, and what the session writes."""
    wire = RecordingWire()
    session: Any = module.LineSession(harness.hub, wire, b"", 1000)

    def send(line: bytes) -> None:
        harness.hub.begin_turn()
        session.receive(line + b"\n")

    return send, wire


def test_an_answer_waits_for_the_commit(module: ModuleType) -> None:
    @in_turns
    async def story() -> None:
        harness = await open_harness()
        send, wire = session_at(harness, module)
        send(b"SUBMIT shout hello")
        await idle()
        assert wire.writes == []
        await harness.store.succeed()
        assert wire.writes == [b"CREATED 1\n"]

    story()


def test_an_answer_is_replaced_if_the_commit_fails(module: ModuleType) -> None:
    @in_turns
    async def story() -> None:
        harness = await open_harness()
        send, wire = session_at(harness, module)
        send(b"SUBMIT shout hello")
        await idle()
        await harness.store.fail(StorageError("the disk is full"))
        (answer,) = wire.writes
        assert answer.startswith(b"ERROR ")
        assert not harness.engine.job_count()

    story()
