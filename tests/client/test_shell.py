"""A shell command per job: what it is given, what it says, how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.client import ServerAddress, ShellCommand, WorkerJob
from switchgear.client.gearman.assigned_job import AssignedJob
from switchgear.client.gearman.shell_handler import ErrorLines, parse_progress
from switchgear.client.gearman.worker import RunningHandler
from switchgear.client.gearman.worker_connection import WorkerConnection
from switchgear.client.gearman.worker_protocol import WorkerIntroduction, WorkerProtocol
from switchgear.errors import JobFailed
from switchgear.protocols.gearman.codec import REQUEST, GearmanDecoder
from switchgear.protocols.gearman.messages import Packet
from tests.support.waiting import DEADLINE_SECONDS, eventually


class RecordingConnection:
    """Keeps what a job reports."""

    address = ServerAddress("nowhere")

    def __init__(self) -> None:
        self.protocol = WorkerProtocol(WorkerIntroduction("me", {}, uses_extensions=False))
        self.protocol.take_output()
        self._decoder = GearmanDecoder(REQUEST, 2**32)
        self.packets: list[tuple[Packet, bytes]] = []
        self.jobs: dict[str, Any] = {}
        self.said = asyncio.Event()

    def flush_soon(self) -> None:
        for kind, body in self._decoder.feed(self.protocol.take_output()):
            self.packets.append((Packet(kind), body.split(b"\0", 1)[1]))
        self.said.set()

    async def drain(self) -> None:
        pass

    def of(self, kind: Packet) -> list[bytes]:
        return [body for which, body in self.packets if which is kind]


def a_job(payload: bytes = b"", connection: RecordingConnection | None = None) -> WorkerJob:
    assigned = AssignedJob("H:here:1", "the function", payload, "the key")
    connection = connection or RecordingConnection()
    job = WorkerJob(cast(WorkerConnection[RunningHandler], connection), assigned)
    connection.jobs[job.handle] = SimpleNamespace(job=job)  # as a job that is being run
    return job


def run(coroutine: Coroutine[Any, Any, bytes]) -> bytes:
    async def within_time() -> bytes:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await coroutine

    return asyncio.run(within_time())


def shell(command: str, payload: bytes = b"", **options: Any) -> bytes:
    return run(ShellCommand(command, **options)(a_job(payload)))


# --- what goes in and comes out ---


def test_payload_is_stdin_and_stdout_is_the_result() -> None:
    assert shell("cat", b"\0 any \xff bytes\n") == b"\0 any \xff bytes\n"


def test_the_job_is_in_the_environment() -> None:
    said = shell('printf "%s|%s|%s" "$SWITCHGEAR_HANDLE" "$SWITCHGEAR_FUNCTION" "$SWITCHGEAR_UNIQUE"')
    assert said == b"H:here:1|the function|the key"


def test_much_in_both_directions_at_once_does_not_lock_up() -> None:
    much = os.urandom(3_000_000)
    assert shell("tee /dev/stderr", much) == much


def test_a_command_that_does_not_read_its_input() -> None:
    assert shell("echo done", b"x" * 3_000_000) == b"done\n"


def test_a_result_that_is_too_large_is_a_failure_at_once() -> None:
    with pytest.raises(JobFailed, match="larger than 1000 bytes"):
        shell("yes", result_bytes=1000)


# --- how it ends ---


def test_exit_status_and_last_words_are_the_reason() -> None:
    with pytest.raises(JobFailed, match="exit status 3") as caught:
        shell("echo out; echo one >&2; echo 'progress: 1/2' >&2; printf two >&2; exit 3")
    assert caught.value.error == b"exit status 3\none\ntwo"


def test_only_the_last_words() -> None:
    with pytest.raises(JobFailed) as caught:
        shell("seq 1 10000 >&2; exit 1")
    lines = caught.value.error.split(b"\n")
    assert lines[0] == b"exit status 1"
    assert lines[1:] == [b"%d" % number for number in range(9981, 10_001)]


def test_a_signal_is_a_failure() -> None:
    with pytest.raises(JobFailed, match="killed by SIGKILL"):
        shell("kill -KILL $$")


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(JobFailed, match="exit status 127"):
        shell("/no/such/command")


def test_the_time_is_limited() -> None:
    with pytest.raises(JobFailed, match=r"timed out after 0\.2 s") as caught:
        shell("echo started >&2; sleep 1000", timeout_seconds=0.2)
    assert b"started" in caught.value.error


def test_a_command_that_ignores_term_is_killed() -> None:
    with pytest.raises(JobFailed, match="timed out"):
        shell("trap '' TERM; sleep 1000 & wait; sleep 1000", timeout_seconds=0.2, grace_seconds=0.2)


def test_what_the_command_started_ends_with_it_at_the_time_limit(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(JobFailed, match="timed out"):
        shell(f"sh -c 'echo $$ > {pid_file}; exec sleep 1000' & wait", timeout_seconds=0.5, grace_seconds=0.1)
    eventually(lambda: not is_alive(int(pid_file.read_text())), "it is gone")


def test_what_is_left_in_the_background_with_our_pipes_is_not_waited_for(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert shell(f"sleep 1000 & echo $! > {pid_file}; echo done") == b"done\n"
    eventually(lambda: not is_alive(int(pid_file.read_text())), "it is gone")


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


# --- being stopped from outside ---


def test_a_cancelled_job_is_asked_to_end(tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    async def story() -> bytes:
        connection = RecordingConnection()
        command = ShellCommand(f"trap 'touch {asked}; exit' TERM; echo ready >&2; while :; do sleep 0.01; done")
        task = asyncio.ensure_future(command(a_job(connection=connection)))
        await connection.said.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        return b""

    run(story())
    assert asked.exists()


def test_no_more_grace_means_none_for_those_being_ended_either() -> None:
    async def story() -> bytes:
        connection = RecordingConnection()
        stubborn = "trap 'echo no >&2' TERM; echo ready >&2; while :; do sleep 0.01; done"
        command = ShellCommand(stubborn, grace_seconds=1000)
        task = asyncio.ensure_future(command(a_job(connection=connection)))
        await connection.said.wait()
        connection.said.clear()
        task.cancel()
        await connection.said.wait()
        command.kill_at_once()
        await asyncio.wait({task})
        assert task.cancelled()
        return b""

    run(story())


def test_what_is_said_after_being_asked_to_end_is_part_of_the_reason() -> None:
    with pytest.raises(JobFailed, match="timed out") as caught:
        shell("trap 'echo too bad >&2; exit' TERM; while :; do sleep 0.01; done", timeout_seconds=0.2)
    assert caught.value.error.endswith(b"too bad")


def test_a_signal_for_the_worker_does_not_reach_the_command() -> None:
    assert int(shell("ps -o pgid= -p $$")) != os.getpgid(0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# --- progress and warnings ---


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (b"progress: 3/10\n", (3, 10)),
        (b"progress: 3 / 10", (3, 10)),
        (b"progress:0/0\r\n", (0, 0)),
        (b"Progress: 30%\n", (30, 100)),
        (b"progress: 30.5 %", (305, 1000)),
        (b"progress: 30.57%", (305, 1000)),
    ],
)
def test_lines_of_progress(line: bytes, progress: tuple[int, int]) -> None:
    assert parse_progress(line) == progress


@pytest.mark.parametrize(
    "line",
    [b"", b"progress: good", b"progress: 3/", b"progress: -1/10", b"some progress: 3/10", b"progress: 3/10 files",
     b"progress: 12345678901/1"],
)  # fmt: skip
def test_other_lines(line: bytes) -> None:
    assert parse_progress(line) is None


def test_stderr_is_told_in_order() -> None:
    connection = RecordingConnection()
    script = "printf 'one\\ntwo\\nprogress: 1/3\\nthree\\nprogress: 100%%\\nfour' >&2"
    assert run(ShellCommand(script)(a_job(connection=connection))) == b""
    assert connection.packets == [
        (Packet.WORK_WARNING, b"one\ntwo\n"),
        (Packet.WORK_STATUS, b"1\x003"),
        (Packet.WORK_WARNING, b"three\n"),
        (Packet.WORK_STATUS, b"100\x00100"),
        (Packet.WORK_WARNING, b"four"),
    ]


LINES = st.lists(st.sampled_from([b"a", b"", b"progress: 1/2", b"progress: 50%", b"\xff\0", b"long " * 40]))


@given(LINES, st.lists(st.integers(1, 30)))
def test_however_stderr_is_cut_the_same_is_said(lines: list[bytes], cuts: list[int]) -> None:
    text = b"\n".join(lines)
    whole, sliced = RecordingConnectionOutsideLoop(), RecordingConnectionOutsideLoop()
    feed(ErrorLines(a_job(connection=whole)), [text])
    pieces = []
    for cut in cuts:
        pieces.append(text[:cut])
        text = text[cut:]
    feed(ErrorLines(a_job(connection=sliced)), [*pieces, text])
    assert told(sliced) == told(whole)


class RecordingConnectionOutsideLoop(RecordingConnection):
    """The same; events need no loop until they are waited for."""


def feed(errors: ErrorLines, pieces: list[bytes]) -> None:
    for piece in pieces:
        errors.feed(piece)
    errors.finish()


def told(connection: RecordingConnection) -> tuple[bytes, list[bytes]]:
    return b"".join(connection.of(Packet.WORK_WARNING)), connection.of(Packet.WORK_STATUS)


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    connection = RecordingConnection()
    errors = ErrorLines(a_job(connection=connection))
    errors.feed(b"x" * 100_000)
    assert connection.of(Packet.WORK_WARNING) == [b"x" * 100_000]
