"""Programs of the examples, run as their README says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.support.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_SECONDS = 30.0  # a worker that starts on a loaded machine


@contextmanager
def running(*command: str, example: str, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process of an example, from its directory, until the end of the block."""
    process = subprocess.Popen(command, cwd=EXAMPLES / example, env={**os.environ, **environment})
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait()


def worker_command(app: str) -> list[str]:
    """`switchgear worker`, with this interpreter."""
    return [sys.executable, "-m", "switchgear", "worker", app, "--quiet"]


def ask(method: str, url: str, data: bytes | None = None) -> Any:
    """The JSON that a page answers with."""
    with urlopen(Request(url, data, method=method), timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


def wait_for_site(url: str) -> None:
    """Until the site answers anything at all."""

    def answers() -> bool:
        try:
            with urlopen(url, timeout=PATIENCE_SECONDS):
                return True
        except HTTPError as error:
            error.close()
            return True
        except (URLError, ConnectionError):
            return False

    eventually(answers, f"{url} answers", PATIENCE_SECONDS)
