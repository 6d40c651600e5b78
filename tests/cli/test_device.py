"""`switchgear device`."""

from __future__ import annotations

import re
import signal
import socket
import threading
from pathlib import Path

import pytest
import zmq
import zmq.auth

from switchgear.client.wmp import CurveKeys, WmpJob, WmpTiming, WmpWorker
from tests.cli.commands import call
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.support.wmp_processes import running_device, wmp_url
from tests.support.wmp_wire import RawManager

PACE = WmpTiming(retry_first_seconds=0.1, retry_most_seconds=0.2)


def echo(job: WmpJob) -> bytes:
    return job.payload


# --- wrong usage ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing option '--manager'"),
        (["--manager", "gearman://x"], "managers are at wmp://"),
        (["--manager", "x", "--manager", "wmp://x:5714"], "named twice"),
        (["--manager", "x", "--listen", "gearman://127.0.0.1:1"], "a device listens on wmp://"),
        (["--manager", "x", "--listen", "wmp://127.0.0.1:1?identity=y"], "identity is for managers"),
        (["--manager", "x", "--listen", "wmp://0.0.0.0:0"], "say so with --allow-remote, or encrypt with --key"),
        (["--manager", "x", "--listen", "wmp://0.0.0.0"], "other machines can reach wmp://0.0.0.0:5715"),
        (["--manager", "x", "--listen", "wmp://127.0.0.1:0", "--identity", "y" * 256], "1 to 255 bytes"),
        (["--manager", "x", "--message-bytes", "much"], "expected a number of bytes"),
        (["--manager", "x", "--messages-per-peer", "0"], "messages-per-peer"),
        (["--manager", "x", "--key", "/nowhere"], "switchgear: cannot read a key from /nowhere"),
        (["--manager", "x", "--server-key", "/nowhere"], "cannot read a key from /nowhere"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    result = call("", "device", *arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_an_address_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        url = f"wmp://{HOST}:{other.getsockname()[1]}"
        result = call("", "device", "--manager", "x", "--listen", url)
    assert result.exit_code == 2
    assert f"cannot listen on {url}: Address already in use" in result.output


def test_keys_have_to_fit_the_managers(tmp_path: Path) -> None:
    zmq.auth.create_certificates(tmp_path, "manager")
    key = str(tmp_path / "manager.key")
    managers = ["--manager", "x", "--manager", "y", "--manager", "z"]
    result = call("", "device", *managers, "--server-key", key, "--server-key", key)
    assert result.exit_code == 2
    assert "2 public keys for 3 managers" in result.output


def test_help_has_examples() -> None:
    text = call("", "device", "--help").stdout
    for word in ("switchgear device --manager", "USR1", "wmp://127.0.0.1:5715"):
        assert word in text
    assert "device" in call("", "--help").stdout


# --- processes ---


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told(number: signal.Signals) -> None:
    with RawManager() as manager, running_device(manager.url) as device:
        eventually(lambda: f"connected to {manager.url}" in device.output(), "it is connected")
        device.process.send_signal(number)
        assert device.wait_stopped() == 0
        assert "messages: 0 up, 0 down, 0 bad, 0 dropped, 0 undelivered, 0 returned" in device.output()


@pytest.mark.system
def test_it_stops_when_its_manager_was_never_there() -> None:
    with running_device("wmp://127.0.0.1:1") as device:
        device.process.send_signal(signal.SIGTERM)
        assert device.wait_stopped() == 0


@pytest.mark.system
def test_counts_are_told_when_asked_for() -> None:
    with RawManager() as manager, running_device(manager.url) as device, WmpWorker(wmp_url(device), {"f": echo}):
        manager.give(b"x")
        manager.hear("DONE")
        manager.hear("READY")
        device.process.send_signal(signal.SIGUSR1)
        (up,) = eventually(lambda: re.findall(r"messages: (\d+) up, 2 down", device.output()), "counts are told")
        assert int(up) >= 4


@pytest.mark.system
def test_its_name_is_the_same_when_it_is_started_again_and_no_other_has_it() -> None:
    names = []
    with RawManager() as manager:
        with running_device(manager.url) as device, WmpWorker(wmp_url(device), {"f": echo}, timing=PACE):
            names.append(manager.hear("READY").path[0])
        port = device.port
        for url in (f"{port}", "0"):
            with (
                running_device(manager.url, port=int(url)) as device,
                WmpWorker(wmp_url(device), {"f": echo}, timing=PACE, identity=url),
            ):
                path = manager.hear("READY").path
                while path[1] != url.encode():
                    path = manager.hear("READY").path
                names.append(path[0])
    assert names[0] == names[1] == f"device:{socket.gethostname()}:{port}".encode()
    assert names[2] != names[0]


@pytest.mark.system
def test_a_job_for_a_worker_that_is_gone_is_given_back() -> None:
    with RawManager() as manager, running_device(manager.url, identity="d") as device:
        with WmpWorker(wmp_url(device), {"f": echo}, timing=PACE, identity="w"):
            path = manager.hear("READY").path
            assert path == [b"d", b"w"]

        def is_given_back() -> bool:
            """The device may not have noticed yet that the worker is gone."""
            manager.say(path, "TAKE", b"x", job=b"1", role="f", manager=manager.identity)
            return not manager.hears_nothing() and manager.hear().command == "DONE"

        eventually(is_given_back, "the job is given back")
        manager.say(path, "TAKE", b"x", job=b"2", role="f", manager=manager.identity)
        done = manager.hear("DONE")
        assert (done.path, done.headers["job"], done.headers["status"]) == (path, b"2", "returned")


@pytest.mark.system
def test_results_wait_in_the_device_for_their_manager() -> None:
    with RawManager() as manager, running_device(manager.url, identity="d") as device:

        def leave(job: WmpJob) -> bytes:
            manager_is_gone.wait()
            return b"late"

        manager_is_gone = threading.Event()
        with WmpWorker(wmp_url(device), {"f": leave}, timing=PACE, identity="w"):
            manager.give()
            manager.close()
            eventually(lambda: "lost the connection" in device.output(), "the device has noticed")
            manager_is_gone.set()
            with RawManager(port=manager.port) as again:
                done = again.hear("DONE")
                assert (done.path, done.payload) == ([b"d", b"w"], b"late")


@pytest.mark.system
def test_encryption_on_both_sides(tmp_path: Path) -> None:
    clients = tmp_path / "clients"
    clients.mkdir()
    for name in ("manager", "device", "worker", "stranger"):
        zmq.auth.create_certificates(tmp_path, name)
    (tmp_path / "worker.key").rename(clients / "worker.key")
    secret = zmq.auth.load_certificate(tmp_path / "manager.key_secret")[1]
    flags = (
        *("--key", str(tmp_path / "device.key_secret"), "--curve-clients-dir", str(clients)),
        *("--server-key", str(tmp_path / "manager.key")),
    )

    def keys(name: str) -> CurveKeys:
        return CurveKeys.load(tmp_path / "device.key", tmp_path / f"{name}.key_secret")

    with (
        RawManager(secret_key=secret or b"") as manager,
        running_device(manager.url, flags=flags) as device,
        WmpWorker(wmp_url(device), {"f": echo}, identity="stranger", keys=keys("stranger"), timing=PACE),
        WmpWorker(wmp_url(device), {"f": echo}, identity="nobody", timing=PACE),
        WmpWorker(wmp_url(device), {"f": echo}, identity="worker", keys=keys("worker"), timing=PACE),
    ):
        assert manager.give(b"x")[-1] == b"worker"
        assert manager.hear("DONE").payload == b"x"
        for _ in range(5):
            assert manager.hear("READY").path[-1] == b"worker"
