"""Queues of tasks, with slots of their own in one worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear import App
from switchgear.cli.worker import _queues
from tests.cli.commands import running
from tests.client.background import url_of
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

PROGRAM = """
import os, time
from switchgear import App

app = App(name="queues")

@app.task(name="mail", queue="mail")
def mail(number: int) -> int:
    return number

@app.task(name="report", queue="reports")
def report(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.01)
    return path

@app.task(name="other")
def other() -> int:
    return 1
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


def test_queues_as_they_are_written() -> None:
    assert _queues("mail=4, reports,default=1") == {"mail": 4, "reports": None, "default": 1}
    assert _queues("") == {}


def test_a_long_report_does_not_keep_mail_waiting(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queued.py").write_text(PROGRAM)
    monkeypatch.setenv("SWITCHGEAR_URL", url_of(server))
    monkeypatch.chdir(tmp_path)
    app = App(url_of(server), connect_seconds=60)

    @app.task(name="mail")
    def mail(number: int) -> int:
        return number

    @app.task(name="report")
    def report(path: str) -> str:
        return path

    @app.task(name="other")
    def other() -> int:
        return 1

    with running(server, "worker", "queued:app", "--queues", "mail=1,reports=1"):
        reports = [report.submit(str(tmp_path / f"go{number}")) for number in range(2)]
        left = other.submit()
        assert mail.submit(7).result(60) == 7
        eventually(lambda: reports[0].status().state == "running", "it runs", within_seconds=60)
        names = {each.name.split("/", 2)[-1] for each in app.workers()}
        assert names == {"mail/threads", "reports/threads"}
        assert (reports[1].status().state, left.status().state) == ("ready", "ready")
        for number in range(2):
            (tmp_path / f"go{number}").touch()
        assert [job.result(60) for job in reports] == [str(tmp_path / f"go{number}") for number in range(2)]
    app.close()
