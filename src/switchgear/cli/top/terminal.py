"""A terminal from which single keys are read."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

__all__ = ["KeyReader", "full_screen"]

KEYS: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page-up",
    b"\x1b[6~": "page-down",
    b"\x1b[H": "home",
    b"\x1bOH": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1bOF": "end",
    b"\x1b[4~": "end",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x03": "ctrl-c",
    b"\x1b": "escape",
}
# An escape that nothing follows within this time is the key itself, and not the beginning of a sequence.
ESCAPE_SECONDS: Final = 0.05


class KeyReader:
    """Reads keys from standard input, which is a terminal without lines and echo."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = b""
        self.was_left = False  # the screen was left meanwhile, by Ctrl-Z, and is empty

    def keys(self, seconds: float) -> list[str]:
        """The keys that were pressed, after at most so many seconds; raises EOFError if the terminal is gone."""
        if not self._pending and not self._wait(seconds):
            return []
        found: list[str] = []
        self._read()
        while self._pending:
            key = self._next()
            if key:
                found.append(key)
        return found

    def _wait(self, seconds: float) -> bool:
        return bool(select.select([self._descriptor], [], [], max(0.0, seconds))[0])

    def _read(self) -> None:
        data = os.read(self._descriptor, 1024)
        if not data:
            raise EOFError
        self._pending += data

    def _next(self) -> str:
        """The first key of what was read; empty for a sequence that means nothing here."""
        if self._pending == b"\x1b" and self._wait(ESCAPE_SECONDS):
            self._read()
        for sequence in sorted(KEYS, key=len, reverse=True):
            is_sequence = self._pending.startswith(sequence)
            if is_sequence and not (sequence == b"\x1b" and self._pending[1:2] in (b"[", b"O")):
                self._pending = self._pending[len(sequence) :]
                return KEYS[sequence]
        if self._pending[:1] == b"\x1b":  # an unknown sequence ends with a letter or a tilde
            end = next(
                (i for i, byte in enumerate(self._pending[2:], 2) if 0x40 <= byte <= 0x7E), len(self._pending) - 1
            )
            self._pending = self._pending[end + 1 :]
            return ""
        text = self._pending.decode("utf-8", "replace")
        self._pending = text[1:].encode()
        return text[0]


@contextmanager
def full_screen() -> Iterator[KeyReader]:
    """The terminal without lines, echo and cursor, with a screen of its own, which ends with the block.

    The terminal is as it was before also if a signal ends or suspends the program.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    keys = KeyReader(descriptor)

    def write(text: str) -> None:
        # By the descriptor: a signal may come while the stream is being written to.
        with suppress(OSError):
            os.write(sys.stdout.fileno(), text.encode())

    def enter() -> None:
        tty.setcbreak(descriptor)
        write("\x1b[?1049h\x1b[?25l")

    def leave() -> None:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        write("\x1b[?25h\x1b[?1049l")

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    def suspend(number: int, frame: object) -> None:
        """Ctrl-Z: the shell gets its screen back until the command goes on."""
        leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        keys.was_left = True
        enter()

    handlers = {signal.SIGTERM: end, signal.SIGHUP: end, signal.SIGTSTP: suspend}
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        enter()
        yield keys
    finally:
        leave()
        for number, handler in earlier.items():
            signal.signal(number, handler)
