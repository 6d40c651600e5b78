"""A command on a terminal of a given size, which is a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.waiting import DEADLINE_SECONDS

__all__ = ["Terminal", "on_terminal"]


class Terminal:
    """`switchgear` with some arguments on a terminal: what it shows is read, and keys are typed."""

    def __init__(
        self, width: int, *arguments: str, height: int = 24, variables: Mapping[str, str] | None = None
    ) -> None:
        self.output = ""
        self._ours, self._theirs = pty.openpty()
        theirs = self._theirs
        self.resize(width, height)
        environ = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environ, "TERM": "xterm", **(variables or {})},
        )

    def resize(self, width: int, height: int = 24) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def send_signal(self, number: int) -> None:
        """Send the command a signal."""
        self._process.send_signal(number)

    def is_stopped(self) -> bool:
        """Whether the command is suspended by a signal."""
        status = Path(f"/proc/{self._process.pid}/stat").read_text()
        return status.rpartition(")")[2].split()[0] == "T"

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as it did before the command began."""
        return bool(termios.tcgetattr(self._theirs)[3] & termios.ECHO)

    def until(self, text: str) -> None:
        """Read until this text is shown from now on; without it the test fails."""
        seen = len(self.output)
        while text not in self.output[seen:]:
            assert self._read(), f"{text!r} was not shown: {self.output[-2000:]!r}"

    def _read(self) -> bool:
        """Read something; False at the end, or if nothing comes for long."""
        if not select.select([self._ours], [], [], DEADLINE_SECONDS)[0]:
            return False
        try:
            part = os.read(self._ours, 65536)
        except OSError:  # how Linux says that the other side has closed
            return False
        self.output += part.decode(errors="replace").replace("\r\n", "\n")
        return bool(part)

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def exit_code(self) -> int:
        """Read to the end."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            ended = self._process.poll() is not None
            if select.select([self._ours], [], [], 0 if ended else 0.05)[0]:
                self._read()
            elif ended:
                break
        return self._process.wait(DEADLINE_SECONDS)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._theirs)
        os.close(self._ours)


def on_terminal(width: int, *arguments: str, height: int = 24, variables: Mapping[str, str] | None = None) -> str:
    """Everything that `switchgear` with these arguments shows on a terminal of this size, until it ends."""
    with Terminal(width, *arguments, height=height, variables=variables) as terminal:
        terminal.exit_code()
        return terminal.output
