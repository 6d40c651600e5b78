"""A command on a terminal of a given size, which is a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

__all__ = ["on_terminal"]


def on_terminal(width: int, *arguments: str, height: int = 24) -> str:
    """Everything that `switchgear` with these arguments shows on a terminal of this size, until it ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    environ = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "switchgear", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environ
    )
    os.close(theirs)
    output = b""
    try:
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how Linux says that the other side has closed
                break
            if not part:
                break
            output += part
    finally:
        os.close(ours)
        process.wait()
    return output.decode().replace("\r\n", "\n")
