"""Calling the client's commands as a user does."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from switchgear.cli.main import main
from tests.client.background import url_of
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS


def call(server: Server | str, *args: str, stdin: bytes | None = None) -> Result:
    """Run a command in this process; standard input is empty unless given."""
    url = server if isinstance(server, str) else url_of(server)
    env = {"SWITCHGEAR_SERVER": url}
    return CliRunner(env=env).invoke(main, list(args), input=stdin if stdin is not None else b"")


def call_json(server: Server, *args: str) -> Any:
    """What a command that succeeds tells programs."""
    result = call(server, *args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class Process:
    """A command in a process of its own, for signals and for output while it runs."""

    def __init__(self, server: Server | str, *args: str) -> None:
        url = server if isinstance(server, str) else url_of(server)
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "switchgear", *args],
            env={**os.environ, "SWITCHGEAR_SERVER": url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as out:
            for line in out:
                self._lines.put(line.decode())

    def until(self, text: str) -> str:
        """Waits for a line with this text; a missing one fails the test."""
        seen: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=DEADLINE_SECONDS)
            except queue.Empty:
                raise AssertionError(f"no line with {text!r} in {seen}") from None
            if text in line:
                return line
            seen.append(line)

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def exit_code(self) -> int:
        code = self._popen.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return code

    def close(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self._reader.join(DEADLINE_SECONDS)


@contextmanager
def running(server: Server | str, *args: str) -> Iterator[Process]:
    """A command that runs beside the test."""
    process = Process(server, *args)
    try:
        yield process
    finally:
        process.close()
