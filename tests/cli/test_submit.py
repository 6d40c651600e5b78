"""`switchgear submit`."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from switchgear.client import Client, WorkerJob
from switchgear.errors import JobFailed
from tests.cli.commands import call, call_json, running
from tests.client.background import reverse, url_of, working
from tests.support.servers import HOST, Server, free_port, running_gearmand, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


async def talk(job: WorkerJob) -> bytes:
    job.data(b"part\n")
    job.warn(b"careful\n")
    job.progress(1, 2)
    return b"end\n"


SEEN = threading.Event()


async def linger(job: WorkerJob) -> bytes:
    """Lasts until its progress was seen."""
    job.data(b"part\n")
    job.progress(1, 2)
    await asyncio.to_thread(SEEN.wait, DEADLINE_SECONDS)
    return b"end\n"


async def fail(job: WorkerJob) -> bytes:
    raise JobFailed("", job.payload)


HANDLERS = {"reverse": reverse, "talk": talk, "linger": linger, "fail": fail}


@pytest.fixture(scope="module", params=["switchgear", "gearmand"])
def any_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with a worker."""
    start = running_switchgear if request.param == "switchgear" else running_gearmand
    with start() as server, working(url_of(server), HANDLERS):
        yield server


@pytest.fixture(scope="module")
def switchgear() -> Iterator[Server]:
    with running_switchgear() as server, working(url_of(server), HANDLERS):
        yield server


# --- a job that no worker can do ---


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_name_that_no_worker_knows_is_told_with_the_nearest_one(switchgear: Server, flags: list[str]) -> None:
    with running(switchgear, "submit", *flags, "revrse", "abc") as waiting:
        waiting.until("no worker that can do revrse is connected; did you mean reverse?")
        with working(url_of(switchgear), {"revrse": reverse}):
            waiting.until("cba")


def test_a_task_without_its_module_is_told_with_it(switchgear: Server) -> None:
    with (
        working(url_of(switchgear), {"module.of.tasks.shout": bytes.upper}),
        running(switchgear, "submit", "shout", "a") as it,
    ):
        it.until("no worker that can do shout is connected; did you mean module.of.tasks.shout?")


def test_without_a_similar_name_only_the_reason_is_told(switchgear: Server) -> None:
    with running(switchgear, "submit", "xyzzy", "abc") as waiting:
        assert waiting.until("no worker that can do xyzzy is connected").endswith("is connected\n")


def test_a_job_that_waits_for_another_reason_gets_no_hint(switchgear: Server) -> None:
    told = call(switchgear, "submit", "--timeout", "2.1s", "--at", "+1h", "reverse", "abc")
    assert told.exit_code == 4
    assert told.stderr == f"switchgear: job {told.stderr.split()[2]} was not done within 2.1 s\n"


# --- payload and result ---


def test_payload_as_an_argument(any_server: Server) -> None:
    result = call(any_server, "submit", "reverse", "hello")
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, b"olleh", "")


@pytest.mark.parametrize("arguments", [["reverse"], ["reverse", "-"]])
def test_payload_from_standard_input_byte_for_byte(any_server: Server, arguments: list[str]) -> None:
    payload = bytes(range(256)) * 1000
    result = call(any_server, "submit", *arguments, stdin=payload)
    assert result.stdout_bytes == payload[::-1]


def test_an_argument_may_be_any_bytes(any_server: Server) -> None:
    odd = os.fsdecode(b"\xff\xfe")
    command = [sys.executable, "-m", "switchgear", "submit", "--server", url_of(any_server), "reverse", odd]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"\xfe\xff"


def test_parts_and_warnings(any_server: Server) -> None:
    result = call(any_server, "submit", "talk", "")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "part\nend\n", "careful\n")


def test_parts_come_before_the_end(any_server: Server) -> None:
    async def never_end(job: WorkerJob) -> bytes:
        job.data(b"first\n")
        await asyncio.Event().wait()
        return b""

    with (
        working(url_of(any_server), {"streaming": never_end}),
        running(any_server, "submit", "streaming", "x") as submit,
    ):
        submit.until("first")


# --- how it ends ---


def test_a_failure(any_server: Server) -> None:
    result = call(any_server, "submit", "fail", "out of paper\nand ink")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "failed: out of paper\nswitchgear: and ink\n" in result.stderr


def test_a_failure_without_a_reason(any_server: Server) -> None:
    result = call(any_server, "submit", "fail", "")
    assert result.exit_code == 1
    assert result.stderr.endswith(" failed\n")


def test_an_end_that_no_worker_told_has_its_reason() -> None:
    with running_switchgear() as server:
        arguments = ["submit", "--expires", "+50ms", "nobody-does-this", "x"]
        result = call(server, *arguments)
        assert result.exit_code == 1
        assert result.stderr.endswith(" failed: expired\n")
        assert json.loads(call(server, *arguments, "--json").stdout)["error"] == "expired"


def test_giving_up(any_server: Server) -> None:
    result = call(any_server, "submit", "--timeout", "0.05", "nobody-does-this", "x")
    assert result.exit_code == 4
    assert "was not done within 0.05 s" in result.stderr


def test_nobody_there() -> None:
    result = call(f"gearman://{HOST}:{free_port()}", "submit", "f", "x")
    assert result.exit_code == 3
    assert "cannot connect" in result.stderr


def test_interrupted(any_server: Server) -> None:
    with (
        running(any_server, "submit", "nobody-does-this-either", "x") as submit,
        Client(url_of(any_server)) as client,
    ):
        eventually(
            lambda: any(line.startswith("nobody-does-this-either\t1") for line in client.admin("status")), "it waits"
        )
        submit.send(signal.SIGINT)
        assert submit.exit_code() == 130


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["f", "x", "y"],
        ["--priority", "urgent", "f"],
        ["--at", "tea-time", "f"],
        ["--timeout", "-1", "f"],
        ["--background", "--timeout", "5", "f"],
        ["--attempts", "-1", "f"],
        ["--crashes", "-1", "f"],
        ["--on-failure", "run", "f"],
        ["--after", "H:x:1", "--on-failure", "panic", "f"],
        ["--unique-policy", "reject", "f"],
        ["--unique-for", "5", "f"],
        ["--unique", "k", "--unique-scope", "ever", "f"],
        ["--server", "ftp://x", "f"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    result = call("gearman://localhost:1", "submit", *arguments)
    assert result.exit_code == 2
    assert "Error:" in result.stderr


def test_a_refused_job(any_server: Server) -> None:
    result = call(any_server, "submit", "--unique", "x" * 65, "reverse", "x")
    assert result.exit_code == 1
    assert "ARGUMENT_TOO_LARGE" in result.stderr


# --- in the background ---


def test_in_the_background(any_server: Server) -> None:
    result = call(any_server, "submit", "--background", "nobody-does-this", "x")
    assert result.exit_code == 0
    with Client(url_of(any_server)) as client:
        assert client.status(result.stdout.removesuffix("\n")).known


def test_unique_keys(any_server: Server) -> None:
    submit = ("submit", "--background", "nobody-does-this", "x", "--unique")
    first, second, third = (call(any_server, *submit, key).stdout for key in ("a", "a", "b"))
    assert first == second != third


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
def test_priorities(switchgear: Server, priority: str) -> None:
    handle = call(switchgear, "submit", "--background", "--priority", priority, "nobody-does-this", "x").stdout.strip()
    assert call_json(switchgear, "job", handle)["priority"] == priority


def test_later(any_server: Server) -> None:
    result = call(any_server, "submit", "--background", "--at", "+1h", "reverse", "x")
    assert result.exit_code == 0
    with Client(url_of(any_server)) as client:
        assert not client.status(result.stdout.strip()).running


# --- what needs our own server ---


def test_all_options(switchgear: Server) -> None:
    first = call(switchgear, "submit", "--background", "nobody-does-this", "x").stdout.strip()
    options = ["--attempts", "7", "--run-timeout", "5", "--expires", "+2h", "--at", "+1h", "--after", first]
    handle = call(switchgear, "submit", "--background", *options, "nobody-does-this", "x").stdout.strip()
    job = call_json(switchgear, "job", handle)
    assert (job["attempts_limit"], job["timeout"], job["predecessors"]) == (7, 5, [first])
    assert job["run_at"] == pytest.approx(time.time() + 3600, abs=60)
    assert job["expires_at"] == pytest.approx(time.time() + 7200, abs=60)


def test_what_only_a_switchgear_server_can_do(switchgear: Server) -> None:
    first = call(switchgear, "submit", "--background", "nobody-does-this", "x").stdout.strip()
    options = ["--crashes", "0", "--key", "tenant-1", "--retention", "0", "--after", first, "--on-failure", "run"]
    unique = ["--unique", "k", "--unique-scope", "queued", "--unique-for", "1h"]
    handle = call(switchgear, "submit", "--background", *options, *unique, "nobody-does-this", "x").stdout.strip()
    job = call_json(switchgear, "job", handle)
    assert (job["crash_limit"], job["key"], job["retention"], job["on_failure"]) == (0, "tenant-1", 0, ["run"])
    assert job["unique_scope"] == "queued"
    assert job["unique_until"] == pytest.approx(time.time() + 3600, abs=60)


def test_a_key_that_another_job_has(switchgear: Server) -> None:
    arguments = ["--background", "--unique", "taken", "nobody-does-this", "x"]
    first = call(switchgear, "submit", *arguments).stdout.strip()
    rejected = call(switchgear, "submit", "--unique-policy", "reject", *arguments)
    assert rejected.exit_code == 1
    assert "taken" in rejected.stderr
    second = call(switchgear, "submit", "--unique-policy", "replace", *arguments).stdout.strip()
    assert call_json(switchgear, "job", first)["state"] == "cancelled"
    assert call_json(switchgear, "job", second)["state"] == "ready"


def test_waiting_for_a_job_for_later(switchgear: Server) -> None:
    result = call(switchgear, "submit", "--at", "+50ms", "reverse", "abc")
    assert (result.exit_code, result.stdout) == (0, "cba")


def test_a_server_that_cannot_do_it_is_named() -> None:
    with running_gearmand() as server:
        result = call(server, "submit", "--attempts", "2", "f", "x")
    assert result.exit_code == 1
    assert "does not know the extension" in result.stderr


# --- for programs ---


def test_json(any_server: Server) -> None:
    assert call_json(any_server, "submit", "reverse", "abc")["result"] == "cba"
    done = call_json(any_server, "submit", "talk", "")
    assert (done["state"], done["result"], done["error"]) == ("done", "part\nend\n", None)


def test_json_of_bytes(any_server: Server) -> None:
    result = json.loads(call(any_server, "submit", "--json", "reverse", stdin=b"\0\xff").stdout)["result"]
    assert base64.b64decode(result["base64"]) == b"\xff\0"


def test_json_of_other_ends(any_server: Server) -> None:
    failed = call(any_server, "submit", "--json", "fail", "oh")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout) | {"handle": ""} == {
        "handle": "",
        "state": "failed",
        "result": None,
        "error": "oh",
    }
    late = call(any_server, "submit", "--json", "--timeout", "0.05", "nobody-does-this", "x")
    assert late.exit_code == 4
    assert json.loads(late.stdout)["state"] == "timed_out"
    assert call_json(any_server, "submit", "--background", "nobody-does-this", "x")["state"] == "submitted"


# --- on a terminal ---


def test_a_progress_bar_on_a_terminal_only(any_server: Server) -> None:
    SEEN.clear()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "switchgear", "submit", "--server", url_of(any_server), "linger", "x"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        try:
            shown = b""
            while b"50%" not in shown:
                shown += os.read(ours, 65_536)
            SEEN.set()
            shown += read_all(ours)
        finally:
            SEEN.set()
            os.close(ours)
        assert process.stdout is not None
        assert process.stdout.read() == b"part\nend\n"
    assert process.returncode == 0
    assert b"1 of 2" in shown
    assert shown.endswith(b"\r\x1b[K")  # it is removed


def read_all(descriptor: int) -> bytes:
    shown = b""
    while True:
        try:
            data = os.read(descriptor, 65_536)
        except OSError:  # how a terminal says that nobody is at the other end
            return shown
        if not data:
            return shown
        shown += data


def test_help_has_examples_and_is_honest() -> None:
    result = call("gearman://localhost:1", "submit", "--help")
    text = " ".join(result.stdout.split())
    assert "switchgear submit reverse hello" in text
    assert "the server drops it" in text
