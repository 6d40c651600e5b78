"""A process that uses a directory, and does what it is told, one line at a time.

Run as a module it is that process: each line on its input is a word and its arguments, each answer one line of JSON.
`Neighbour` is the same seen from a test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from switchgear.app.embedded_location import EmbeddedLocation
from switchgear.client import Client

ROOT = Path(__file__).parents[2]


class Neighbour:
    """One such process."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-m", "tests.app.neighbour", str(directory)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def tell(self, *words: object) -> None:
        """Ask for something, and do not wait for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"the process has ended: {self.process.stderr.read()}")
        return json.loads(line)

    def ask(self, *words: object) -> Any:
        self.tell(*words)
        return self.answer()

    @property
    def is_owner(self) -> bool:
        return bool(self.ask("is_owner"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self) -> str:
        """Let it end as programs do; returns what it had to complain of."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.read()
        complaints = self.process.stderr.read()
        assert self.process.wait() == 0, complaints
        return complaints

    def close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def neighbours(directory: Path, count: int) -> Iterator[list[Neighbour]]:
    """So many processes that use this directory, none of which has done anything yet."""
    all_of_them = [Neighbour(directory) for _ in range(count)]
    try:
        yield all_of_them
    finally:
        for neighbour in all_of_them:
            neighbour.kill()
            neighbour.close_pipes()


def main(directory: str) -> None:
    place = EmbeddedLocation(f"embedded:{directory}")
    for line in sys.stdin:
        word, *arguments = line.split()
        print(json.dumps(_do(place, word, arguments)), flush=True)


def _do(place: EmbeddedLocation, word: str, arguments: list[str]) -> Any:
    match word:
        case "address":
            return str(place.address())
        case "is_owner":
            return place.is_owner
        case "close":
            place.close()
            return True
        case "submit":
            with Client(str(place.address())) as client:
                payload = arguments[1].encode() if len(arguments) > 1 else b"x"
                return client.submit(arguments[0], payload, background=True).handle
        case "count":
            with Client(str(place.address())) as client:
                return [function["total"] for function in client.control("functions")]
    raise ValueError(word)


if __name__ == "__main__":
    main(sys.argv[1])
