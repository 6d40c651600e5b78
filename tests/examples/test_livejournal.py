"""examples/livejournal: the site's jobs are created, done and logged."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from examples.livejournal.checks import Finding
from examples.livejournal.outside.smtp import SmtpSink
from examples.livejournal.report import show_findings
from examples.livejournal.screen import PlainScreen
from examples.livejournal.tasks import HANDLERS
from switchgear.joblog import JobLog

ROOT = Path(__file__).parents[2]
# The example gives up by itself before this.
PATIENCE_SECONDS = 110.0


@contextmanager
def running_example(*args: str, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """The program as people start it; whatever of it is left at the end is killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.livejournal", *args],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        with process:
            yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.system
def test_a_day_of_the_site(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    with running_example("--quick", "--keep", str(place), temporary=tmp_path) as process:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, output
    assert "NOT SO" not in output
    assert re.search(r"^resize 7-3-640-480 +async\+handle +running +\d/4, \d+ s left$", output, re.MULTILINE)
    assert re.search(r"^resize 7-3-640-480 +async\+handle +duplicate ", output, re.MULTILINE)
    assert re.search(r"^rss 23 +async\+handle +failed +ParseError", output, re.MULTILINE)
    assert re.search(r"^weblogscom 7 +throw-away +done ", output, re.MULTILINE)
    assert re.search(r"^restart_web_nodes all +sync\+wait +done ", output, re.MULTILINE)
    assert re.search(r"^rss +3 +2 +1 +0 ", output, re.MULTILINE)
    with JobLog.open(f"sqlite:{place / 'joblog.db'}", create=False) as log:
        assert {summary.function for summary in log.summary()} >= set(HANDLERS)
        assert [run.attempts for run in log.ran(function="resize")] == [2]
        assert [(run.function, run.key, run.result_code) for run in log.failures()] == [("rss", "23", 1)]


@pytest.mark.system
def test_told_to_stop_it_leaves_nothing_behind(tmp_path: Path) -> None:
    with running_example("--quick", temporary=tmp_path) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.match(r"job server at gearman://127\.0\.0\.1:(\d+)", first)
        assert found, first
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130, output
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(found[1])))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_used_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "diary").touch()
    with running_example("--keep", str(tmp_path), temporary=tmp_path) as process:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert "is not empty" in output


def test_one_claim_that_is_not_so_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_findings([Finding("water is wet", True)], PlainScreen())
    assert not show_findings([Finding("water is wet", True), Finding("stones float", False)], PlainScreen())
    assert "NOT SO  stones float" in capsys.readouterr().out


def test_the_mail_server_holds_to_its_protocol(tmp_path: Path) -> None:
    async def talk() -> tuple[bytes, list[bytes]]:
        async with SmtpSink(tmp_path / "mail") as sink:
            reader, writer = await asyncio.open_connection("127.0.0.1", sink.port)
            writer.write(b"EHLO me\r\nDATA\r\nRCPT TO:<b@example.org>\r\nHELP\r\nMAIL FROM:<a@example.org>\r\n")
            writer.write(b"RCPT TO:<b@example.org>\r\nDATA\r\nSubject: dots\r\n\r\n..\r\n...\r\n.\r\nQUIT\r\n")
            answers = await reader.read()
            writer.close()
            return answers, [letter.content for letter in sink.letters]

    answers, letters = asyncio.run(talk())
    assert [line[:3] for line in answers.splitlines()] == b"220 250 503 503 500 250 250 354 250 221".split()
    assert letters == [b"Subject: dots\r\n\r\n.\r\n..\r\n"]
    assert (tmp_path / "mail/001.eml").read_bytes() == letters[0]
