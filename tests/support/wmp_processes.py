"""Servers that are WMP managers, and devices, as processes of their own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers import HOST, Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

__all__ = ["running_device", "running_manager", "wmp_url"]


@contextmanager
def running_manager(identity: str, *args: str, port: int = 0, store: str = "memory:") -> Iterator[Server]:
    """A server that speaks Gearman with those who submit, and WMP with workers."""
    listener = f"wmp://{HOST}:{port}?identity={identity}"
    with running_switchgear("--listen", listener, *args, store=store) as server:
        yield server


@contextmanager
def running_device(*managers: str, port: int = 0, identity: str = "", flags: tuple[str, ...] = ()) -> Iterator[Server]:
    """``switchgear device``; its port is that for workers."""
    command = [sys.executable, "-m", "switchgear", "device", "--listen", f"wmp://{HOST}:{port}", *flags]
    for manager in managers:
        command += ["--manager", manager]
    if identity:
        command += ["--identity", identity]
    with tempfile.TemporaryDirectory(prefix="device-") as place:
        log = Path(place) / "output"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            eventually(
                lambda: "listening on" in log.read_text() or process.poll() is not None,
                f"{' '.join(command)} listens or ends",
            )
            assert process.poll() is None, log.read_text()
            yield Server(tuple(command), _port(log.read_text()), process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wmp_url(server: Server) -> str:
    """Where workers find a manager or a device."""
    return f"wmp://{HOST}:{_port(server.output())}"


def _port(output: str) -> int:
    match = re.search(r"listening on wmp://[^:]*:([0-9]+)", output)
    assert match is not None, output
    return int(match[1])
