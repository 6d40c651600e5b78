"""How a server is told to stop, and to read its configuration again."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers import HOST, Server, running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import CLOSED, Kind, Packet, Wire
from tests.system.talk import acknowledged, grab, lines_with, run_all, submit, unfinished, wait_for_line

pytestmark = pytest.mark.system


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'jobs.db'}"


def working(worker: Wire, function: bytes) -> bytes:
    """The handle of the job that the worker now has."""
    worker.send(Kind.CAN_DO, function)
    job = grab(worker)
    assert job is not None
    return job[0]


def is_listening(server: Server) -> bool:
    try:
        socket.create_connection((HOST, server.port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def stop(server: Server, number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal and wait until the server acts on it."""
    server.process.send_signal(number)
    wait_for_line(server, "draining")


# --- stopping ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_finish_and_refuses_the_rest(store: str, number: signal.Signals) -> None:
    with running_switchgear(store=store) as server, Wire(server.address) as client, Wire(server.address) as worker:
        running = acknowledged(client, b"mail", b"runs", Kind.SUBMIT_JOB)
        assert working(worker, b"mail") == running
        acknowledged(client, b"mail", b"waits")
        stop(server, number)
        eventually(lambda: not is_listening(server), "nobody can connect any more")
        assert submit(client, b"mail", b"too late") == Packet(Kind.ERROR, b"QUEUE_ERROR\0server is shutting down")
        assert grab(worker) is None
        assert server.is_running()
        worker.send(Kind.WORK_COMPLETE, running, b"result")
        assert client.receive() == Packet(Kind.WORK_COMPLETE, running + b"\0result")
        assert client.receive() is CLOSED
        assert worker.receive() is CLOSED
        assert server.wait_stopped() == 0
        assert lines_with(server, "stopped")
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"mail"]) == [b"waits"]


def test_a_result_that_must_be_kept_first_is_still_told(store: str) -> None:
    """The last report ends the draining; its answer waits for a commit, and the connections must wait for that."""
    for _ in range(5):
        with running_switchgear(store=store) as server, Wire(server.address) as client, Wire(server.address) as worker:
            client.send(Kind.SUBMIT_JOB_BG, b"mail", b"key", b"payload")
            client.send(Kind.SUBMIT_JOB, b"mail", b"key", b"payload")
            handle = client.receive_packet().body
            assert client.receive() == Packet(Kind.JOB_CREATED, handle)
            assert working(worker, b"mail") == handle
            stop(server)
            worker.send(Kind.WORK_COMPLETE, handle, b"result")
            worker.send(Kind.ECHO_REQ, b"is it kept?")
            assert client.receive() == Packet(Kind.WORK_COMPLETE, handle + b"\0result")
            assert worker.receive() == Packet(Kind.ECHO_RES, b"is it kept?")
            assert server.wait_stopped() == 0
    with running_switchgear(store=store) as server:
        assert unfinished(server) == []


def test_what_runs_for_too_long_is_given_back(store: str) -> None:
    """And that costs it no attempt: it has only one."""
    once = ("--drain-timeout", "0.2s", "--set", "engine.attempts=1")
    for _ in range(2):
        with running_switchgear(*once, store=store) as server, Wire(server.address) as worker:
            if not unfinished(server):
                with Wire(server.address) as client:
                    acknowledged(client, b"mail", b"slow")
            working(worker, b"mail")
            stop(server)
            assert worker.receive() is CLOSED
            assert server.wait_stopped() == 0
            assert lines_with(server, "1 jobs still run; they return to their queues")
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"mail"]) == [b"slow"]


def test_a_second_signal_stops_at_once(store: str) -> None:
    with running_switchgear(store=store) as server, Wire(server.address) as client, Wire(server.address) as worker:
        acknowledged(client, b"mail", b"slow")
        working(worker, b"mail")
        stop(server)
        assert server.is_running()
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_stopped() == 0
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"mail"]) == [b"slow"]


def test_an_idle_server_stops_at_once() -> None:
    with running_switchgear() as server, Wire(server.address) as client:
        stop(server)
        assert client.receive() is CLOSED
        assert server.wait_stopped() == 0
        assert not lines_with(server, "Traceback")


def test_a_peer_that_does_not_read_keeps_no_server_from_stopping() -> None:
    with running_switchgear() as server, socket.create_connection(server.address) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with Wire(server.address) as client:
            packet = b"\0REQ" + (16).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big") + bytes(1 << 20)
            deaf.settimeout(5)
            for _ in range(6):
                deaf.sendall(packet)
            client.expect_nothing()
        stop(server)
        assert server.wait_stopped() == 0


def test_sigusr1_serves_on_until_no_job_is_left(store: str) -> None:
    with running_switchgear(store=store) as server, Wire(server.address) as client, Wire(server.address) as worker:
        for number in range(3):
            acknowledged(client, b"mail", b"%d" % number)
        server.process.send_signal(signal.SIGUSR1)
        acknowledged(client, b"mail", b"one more")
        worker.send(Kind.CAN_DO, b"mail")
        done = 0
        while job := grab(worker):
            assert server.is_running()
            worker.send(Kind.WORK_COMPLETE, job[0], b"")
            done += 1
        assert done == 4
        assert server.wait_stopped() == 0


@pytest.mark.parametrize("command", ["shutdown", "shutdown graceful"])
def test_the_shutdown_command(store: str, command: str) -> None:
    with running_switchgear(store=store) as server, Wire(server.address) as client, Wire(server.address) as worker:
        acknowledged(client, b"mail", b"runs")
        handle = working(worker, b"mail")
        with Wire(server.address) as operator:
            assert operator.ask(command) == [b"OK\r\n"]
            if command == "shutdown graceful":
                wait_for_line(server, "draining")
                worker.send(Kind.WORK_COMPLETE, handle, b"")
                worker.send(Kind.ECHO_REQ, b"is it kept?")
                assert worker.receive() == Packet(Kind.ECHO_RES, b"is it kept?")
            assert operator.receive() is CLOSED
        assert server.wait_stopped() == 0
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"mail"]) == ([] if command == "shutdown graceful" else [b"runs"])


def test_shutdown_can_be_forbidden() -> None:
    with running_switchgear("--set", "gearman.shutdown=never") as server, Wire(server.address) as operator:
        assert operator.ask("shutdown")[0].startswith(b"ERR ")
        operator.expect_nothing()


# --- reloading ---


@contextmanager
def configured(file: Path, text: str) -> Iterator[Server]:
    file.write_text(text)
    with running_switchgear("--config", str(file)) as server:
        yield server


def reload(server: Server, words: str) -> None:
    """Tell the server to read its configuration, and wait until it says these words."""
    before = len(lines_with(server, words))
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(lines_with(server, words)) > before, f"the log says {words!r} once more")


def test_sighup_changes_limits_and_level_of_a_running_server(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    with configured(file, "[limits]\njobs = 1\n") as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"the first")
        assert submit(client, b"mail", b"the second").body == b"QUEUE_ERROR\0Job queue is full"
        file.write_text('[limits]\njobs = 2\n[log]\nlevel = "debug"\n')
        reload(server, "configuration reloaded")
        assert client.ask("verbose") == [b"OK DEBUG\n"]
        acknowledged(client, b"mail", b"the second")
        assert submit(client, b"mail", b"the third").type == Kind.ERROR
        with Wire(server.address):
            wait_for_line(server, "connection from ")


def test_a_setting_that_needs_a_restart_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    with configured(file, "") as server:
        file.write_text('[gearman]\nhandle_prefix = "J"\n')
        reload(server, "setting gearman.handle_prefix has changed; it takes effect after a restart")


def test_a_setting_that_needs_a_restart_waits_for_it_and_is_named_every_time(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    with configured(file, "") as server:
        file.write_text('[log]\nformat = "json"\n')
        for _ in range(2):
            reload(server, "setting log.format has changed; it takes effect after a restart")
        assert not lines_with(server, "{")


def test_sighup_changes_the_limit_of_functions_that_are_in_use(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    with configured(file, "[limits]\njobs_per_function = 1\n") as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"the first")
        assert submit(client, b"mail", b"the second").body == b"QUEUE_ERROR\0Job queue is full"
        file.write_text("[limits]\njobs_per_function = 2\n")
        reload(server, "configuration reloaded")
        acknowledged(client, b"mail", b"the second")


@pytest.mark.parametrize(
    "text",
    ["[limits]\njobs = -1\n", "[limits]\njbos = 2\n", "this is not TOML", '[log]\nfile = "/sys/no/such/place"\n'],
)
def test_a_broken_file_changes_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.toml"
    with configured(file, "[limits]\njobs = 1\n") as server, Wire(server.address) as client:
        file.write_text(text)
        reload(server, "configuration not reloaded: ")
        acknowledged(client, b"mail", b"the first")
        assert submit(client, b"mail", b"the second").body == b"QUEUE_ERROR\0Job queue is full"
        assert not lines_with(server, "Traceback")
        file.write_text("[limits]\njobs = 2\n")
        reload(server, "configuration reloaded")
        acknowledged(client, b"mail", b"the second")


def test_a_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    with configured(file, "") as server, Wire(server.address) as client:
        file.unlink()
        reload(server, "configuration not reloaded: ")
        client.expect_nothing()


def test_the_log_file_is_opened_anew_after_rotation(tmp_path: Path) -> None:
    log, rotated = tmp_path / "server.log", tmp_path / "server.log.1"
    with running_switchgear("--log-file", str(log)) as server, Wire(server.address) as client:
        client.send_bytes(b"version\nnonsense\n")
        eventually(lambda: "UNKNOWN_COMMAND" in log.read_text(), "the log has a line")
        log.rename(rotated)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: log.exists() and "reloaded" in log.read_text(), "the new log has a line")
        assert "reloaded" not in rotated.read_text()
        assert "UNKNOWN_COMMAND" not in log.read_text()
