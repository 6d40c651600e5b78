"""The worker in bash and curl does its jobs."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.examples.sites import EXAMPLES
from tests.support.http_client import HttpClient
from tests.support.peers import require_program
from tests.support.servers import free_port, running_switchgear


@pytest.mark.system
def test_a_worker_in_ten_lines_of_bash() -> None:
    require_program("curl")
    require_program("rev")
    script = EXAMPLES / "http_worker.sh"
    assert len(script.read_text().splitlines()) <= 12  # with its first line and the comment
    url = f"http://127.0.0.1:{free_port()}"
    with running_switchgear("--listen", url):
        worker = subprocess.Popen(["bash", str(script), url], start_new_session=True)
        try:
            client = HttpClient(url)
            for text in (b"hello", b"", b"line\nline\n"):
                answer = client.call("POST", "/v1/functions/reverse/jobs", text, {"Prefer": "wait=30"})
                assert answer.status == 200, answer
                expected = subprocess.run(["rev"], input=text, capture_output=True, check=True).stdout
                assert answer.body == expected
            client.close()
        finally:
            os.killpg(worker.pid, signal.SIGTERM)
            worker.wait()
