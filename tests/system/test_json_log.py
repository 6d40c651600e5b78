"""`--log-format json`, of servers and of workers: every line of standard error is an object with the same keys."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from switchgear.client import Client
from tests.client.background import url_of
from tests.support.servers import HOST, Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system

KEYS = {"time", "level", "logger", "event", "message", "fields"}

APP = """
import logging
import switchgear

app = switchgear.App("shop")


@app.task
def order(number):
    logging.getLogger("shop").warning("order %d", number)
    if number < 0:
        raise ValueError("negative\\nnumber")


@app.task(run_in="process")
def pack(number):
    logging.getLogger("shop").warning("pack %d", number, extra={"event": "packing", "fields": {"number": number}})
"""


def entries(text: str) -> list[dict[str, Any]]:
    """Every line, checked."""
    found = []
    for line in text.splitlines():
        entry = json.loads(line)
        assert set(entry) - {"traceback"} == KEYS, line
        assert entry["level"] in ("debug", "info", "warning", "error", "critical")
        assert entry["event"], line
        assert isinstance(entry["fields"], dict)
        assert entry["time"].endswith("Z")
        age = datetime.now(UTC) - datetime.fromisoformat(entry["time"])
        assert timedelta(minutes=-1) < age < timedelta(hours=1)
        found.append(entry)
    return found


@contextmanager
def running(*command: str, cwd: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """A command of ours, and the files with its standard output and standard error."""
    out, err = cwd / "out", cwd / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env={**os.environ, **variables},
        )
    try:
        yield process, out, err
    finally:
        process.kill()
        process.wait()


def stopped(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(2 * DEADLINE_SECONDS)


def serve_words(*more: str) -> list[str]:
    return ["serve", "--listen", f"gearman://{HOST}:0", "--store", "memory:", *more]


# --- the server ---


@pytest.mark.parametrize("level", ["info", "debug"])
def test_a_server_writes_nothing_but_json_from_its_first_line_to_its_last(tmp_path: Path, level: str) -> None:
    words = serve_words("--log-format", "json", "--log-level", level)
    with running(*words, cwd=tmp_path) as (process, out, err):
        eventually(lambda: '"listening"' in err.read_text(), "it listens")
        port = int(
            next(e for e in entries(err.read_text()) if e["event"] == "listening")["fields"]["url"].split(":")[-1]
        )
        with socket.create_connection((HOST, port), DEADLINE_SECONDS) as peer:
            peer.sendall(b"\0REQ\xff\xff\xff\xff\0\0\0\0")  # no packet has this number
            assert peer.recv(1000)
        process.send_signal(signal.SIGHUP)
        eventually(lambda: "config_reloaded" in err.read_text(), "it has read its configuration again")
        assert stopped(process) == 0
        lines = entries(err.read_text())
        assert out.read_text() == ""
    events = [line["event"] for line in lines]
    assert events[0] == "server_started"
    assert events[-1] == "server_stopped"
    assert {"listening", "config_reloaded"} <= set(events)
    assert lines[0]["level"] == "info"
    assert lines[0]["fields"]["store"] == "memory:"


def test_a_log_file_has_the_start_and_people_see_it_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(*serve_words("--log-file", str(log)), cwd=tmp_path) as (process, out, err):
        eventually(lambda: log.exists() and "listening on" in log.read_text(), "it listens")
        assert stopped(process) == 0
        assert "listening on gearman://" in out.read_text()
        assert err.read_text() == ""
        first, *_, last = log.read_text().splitlines()
    assert "INFO    switchgear" in first
    assert first.endswith("started, store memory:")
    assert last.endswith("stopped")


def test_at_a_terminal_the_start_is_told_once(tmp_path: Path) -> None:
    with running(*serve_words(), cwd=tmp_path) as (process, out, err):
        eventually(lambda: "keeping jobs in" in out.read_text(), "it listens")
        assert stopped(process) == 0
        assert "listening" not in err.read_text()


@pytest.mark.parametrize(
    ("words", "variables", "text"),
    [
        (["--log-format", "json", "--set", "limits.packet_bytes=-1"], {}, "limits.packet_bytes"),
        (["--set", "log.format=json", "--set", "engine.attempts=many"], {}, "engine.attempts"),
        (["--config", "missing.toml"], {"SWITCHGEAR_LOG_FORMAT": "json"}, "missing.toml"),
        (["--log-format", "json", "--log-file", "/nowhere/at/all"], {}, "/nowhere/at/all"),
        (["--log-format", "json", "--listen", "gearman://192.0.2.1:4730"], {}, "192.0.2.1"),
    ],
)
def test_a_wrong_configuration_is_told_in_json(
    tmp_path: Path, words: list[str], variables: dict[str, str], text: str
) -> None:
    with running("serve", "--store", "memory:", *words, cwd=tmp_path, **variables) as (process, out, err):
        assert process.wait(2 * DEADLINE_SECONDS) == 2
        (entry,) = entries(err.read_text())
        assert out.read_text() == ""
    assert (entry["event"], entry["level"]) == ("command_failed", "error")
    assert text in entry["message"]
    assert entry["fields"]["exit_code"] == 2


def test_an_address_in_use_is_told_in_json_and_in_the_log_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with closing(socket.create_server((HOST, 0))) as taken:
        address = f"gearman://{HOST}:{taken.getsockname()[1]}"
        words = ["serve", "--store", "memory:", "--listen", address, "--log-format", "json"]
        with running(*words, cwd=tmp_path) as (process, _, err):
            assert process.wait(2 * DEADLINE_SECONDS) != 0
            assert entries(err.read_text())[-1]["event"] == "command_failed"
        with running(*words, "--log-file", str(log), cwd=tmp_path) as (process, _, err):
            assert process.wait(2 * DEADLINE_SECONDS) != 0
            assert [entry["event"] for entry in entries(err.read_text())] == ["command_failed"]
    assert entries(log.read_text())[-1]["event"] == "server_failed"


# --- workers ---


@pytest.fixture
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


def test_a_worker_and_its_processes_write_the_same_lines(server: Server, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    words = ["worker", "shop:app", "--log-format", "json", "--server", url_of(server)]
    with running(*words, cwd=tmp_path) as (process, out, err):
        eventually(lambda: '"connected"' in err.read_text(), "it is connected")
        with Client(url_of(server)) as client:
            for function, argument in (("shop.order", 1), ("shop.order", -1), ("shop.pack", 2)):
                client.submit(function, json.dumps([argument]).encode(), background=True)
        eventually(
            lambda: len([e for e in entries(err.read_text()) if e["event"] in ("done", "failed", "retry")]) >= 3,
            "the jobs have ended",
        )
        assert stopped(process) == 0
        lines = entries(err.read_text())
        assert out.read_text() == ""
    by_event = {line["event"]: line for line in lines}
    assert {"serving", "connected", "started", "done", "stopping", "packing"} <= set(by_event)
    assert by_event["done"]["fields"]["function"].startswith("shop.")
    assert by_event["packing"] == {
        **by_event["packing"],
        "logger": "shop",
        "message": "pack 2",
        "fields": {"number": 2},
    }
    assert any(line["message"] == "order 1" and line["logger"] == "shop" for line in lines)


def test_a_worker_of_commands_writes_the_same_lines(server: Server, tmp_path: Path) -> None:
    words = ["worker", "f", "--exec", "exit 3", "--log-format", "json", "--server", url_of(server)]
    with running(*words, cwd=tmp_path) as (process, _, err):
        eventually(lambda: '"connected"' in err.read_text(), "it is connected")
        with Client(url_of(server)) as client:
            client.submit("f", b"", background=True)
        eventually(lambda: '"failed"' in err.read_text(), "the job has failed")
        assert stopped(process) == 0
        lines = entries(err.read_text())
    assert [line["event"] for line in lines][:3] == ["connected", "started", "failed"]
    assert lines[2]["level"] == "warning"


def test_a_worker_without_an_app_says_so_in_json(tmp_path: Path) -> None:
    with running("worker", "nowhere:app", "--log-format", "json", cwd=tmp_path) as (process, _, err):
        assert process.wait(2 * DEADLINE_SECONDS) == 2
        (entry,) = entries(err.read_text())
    assert entry["event"] == "command_failed"


# --- the journal ---


@contextmanager
def journal(*command: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A command whose output goes to a stream socket, as that of a service goes to the journal."""
    ours, theirs = socket.socketpair()
    status = os.fstat(theirs.fileno())
    ours.settimeout(2 * DEADLINE_SECONDS)
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", *command],
            stdin=subprocess.DEVNULL,
            stdout=theirs.fileno(),
            stderr=theirs.fileno(),
            cwd=cwd,
            env={**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"},
        )
        theirs.close()
        try:
            yield process, ours
        finally:
            process.kill()
            process.wait()


def rest(stream: socket.socket) -> str:
    data = b""
    while piece := stream.recv(65_536):
        data += piece
    return data.decode()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_journal_gets_priorities_and_no_times(tmp_path: Path, log_format: str) -> None:
    with journal(*serve_words("--log-format", log_format), cwd=tmp_path) as (process, stream):
        beginning = ""
        while "listening" not in beginning:
            beginning += stream.recv(65_536).decode()
        process.send_signal(signal.SIGTERM)
        lines = (beginning + rest(stream)).splitlines()
    if log_format == "json":
        assert all(line.startswith("<6>{") for line in lines)
        assert entries("\n".join(line[3:] for line in lines))
    else:
        assert lines[-1] == "<6>stopped"
        assert not any(line.startswith(("20", "<6>20")) for line in lines)
