"""Operators control running workers through the server: ping, drain, restart, resize and broadcast."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear import Middleware
from switchgear.app.worker.process_autoscaler import AutoscaleLimits
from switchgear.cli.main import main
from switchgear.errors import ServerRefused
from tests.app.worker.harness import AppWithWorker, wait_for, working
from tests.app.worker.tasks import make_app
from tests.client.background import url_of
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, request


class Listening(Middleware):
    """Notes the texts of operators."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.heard = threading.Event()

    def on_broadcast(self, text: str) -> None:
        self.texts.append(text)
        self.heard.set()
        raise RuntimeError("which is logged, and harms nothing")


def status(running: AppWithWorker) -> dict[str, Any]:
    """What the server knows of the only worker."""
    (worker,) = running.app.workers()
    return {**(worker.details["status"] or {}), "answered": worker.details["answered_control"]}


def test_a_worker_says_what_it_is_and_answers_a_ping(server: Server) -> None:
    with working(server, "add") as running:
        eventually(lambda: status(running).get("pool") == "threads", "it has said what it is")
        assert (status(running)["slots"], status(running)["stopping"], status(running)["answered"]) == (2, False, 0)
        (worker,) = running.app.workers()
        host = worker.name.split("/")[0]
        for number, pattern in enumerate(["*", worker.name, host, host[:-1] + "?", str(worker.details["id"])], 1):
            assert running.app.control_workers("ping", pattern) == [worker.name]
            eventually(lambda number=number: status(running)["answered"] == number, "it has answered")  # type: ignore[misc]
        assert running.app.control_workers("ping", "another/*") == []
        assert running.run("add", 1) == 2


def test_more_slots_run_more_jobs_at_once_and_fewer_fewer(server: Server, tmp_path: Path) -> None:
    with working(server, "hold") as running:
        jobs = [running.submit("hold", str(tmp_path)) for _ in range(4)]
        wait_for(tmp_path, "started", 2)
        running.app.control_workers("resize", slots=4)
        wait_for(tmp_path, "started", 4)
        running.app.control_workers("resize", slots=1)
        eventually(lambda: status(running)["slots"] == 1, "it has a slot")
        (tmp_path / "go").touch()
        for job in jobs:
            job.cancel()


def test_processes_are_resized_within_the_limits_that_the_worker_was_started_with(server: Server) -> None:
    with working(server, "process_id_in_process", slots=None, processes=3, autoscale=AutoscaleLimits(1, 3)) as running:
        assert len(running.app.control_workers("resize", slots=3)) == 3
        eventually(lambda: sum(not pool.executor.resting for pool in running.worker._pools) == 3, "there are three")
        running.app.control_workers("resize", slots=4)
        eventually(
            lambda: "at most 3 processes" in str([worker.details["status"] for worker in running.app.workers()]), "no"
        )


def test_a_drained_worker_ends_when_its_jobs_have(server: Server, tmp_path: Path) -> None:
    with working(server, "hold add") as running:
        job = running.submit("hold", str(tmp_path))
        wait_for(tmp_path, "started")
        running.app.control_workers("drain")
        eventually(lambda: status(running)["stopping"], "it takes no more")
        later = running.submit("add", 1)
        assert not running.worker.wait(0.0)
        (tmp_path / "go").touch()
        assert running.worker.wait(DEADLINE_SECONDS)
        assert job.result(DEADLINE_SECONDS)
        assert running.worker.end_reason == "stop"
        assert later.status().state == "ready"


def test_a_restart_is_left_to_the_owner_of_the_process(server: Server) -> None:
    with working(server, "add") as running:
        running.app.control_workers("restart")
        assert running.worker.wait(DEADLINE_SECONDS)
        assert running.worker.end_reason == "restart"


@pytest.mark.parametrize("action", ["drain", "restart"])
def test_the_command_sees_that_idle_workers_have_stopped(server: Server, action: str) -> None:
    """They may be gone before anybody has read their answer."""
    with working(server, "add") as running:
        done = CliRunner().invoke(
            main, ["control", action, "--server", url_of(server), "--wait", str(DEADLINE_SECONDS)]
        )
        assert running.worker.wait(DEADLINE_SECONDS)
    assert done.exit_code == 0, done.stdout
    assert done.stdout.split()[-1] in ("stopped", "stopping")


def test_a_broadcast_reaches_the_middleware(server: Server) -> None:
    app, listening = make_app(url_of(server)), Listening()
    app.add_middleware(listening)
    with working(server, "add", app=app) as running:
        app.control_workers("broadcast", text="new prices é")
        assert listening.heard.wait(DEADLINE_SECONDS)
        assert listening.texts == ["new prices é"]
        assert running.run("add", 1) == 2


def test_what_makes_no_sense_is_refused(server: Server) -> None:
    with working(server, "add") as running:
        for wrong in ({"action": "resize"}, {"action": "ping", "slots": 2}, {"action": "broadcast"}):
            with pytest.raises(ServerRefused, match="control_workers"):
                running.app.control("control_workers", **wrong)
        with pytest.raises(ServerRefused, match="one of ping, drain"):
            running.app.control("control_workers", action="explode")


def test_a_worker_of_another_kind_is_not_told(server: Server) -> None:
    with working(server, "add") as running, socket.create_connection(server.address) as plain:
        plain.sendall(request(Kind.SET_CLIENT_ID, b"other") + request(Kind.CAN_DO, b"f"))
        eventually(lambda: len(running.app.workers()) == 2, "both are there")
        answer = running.app.control("control_workers", action="ping", workers="other")
        assert answer["told"] == []
        assert [worker["name"] for worker in answer["not_controllable"]] == ["other"]


def test_the_command_shows_the_answers(server: Server) -> None:
    with working(server, "add") as running:
        runner = CliRunner()
        done = runner.invoke(main, ["control", "resize", "--slots", "3", "--server", url_of(server), "--json"])
        assert done.exit_code == 0, done.output
        (answer,) = json.loads(done.stdout)["answered"]
        assert answer["status"]["slots"] == 3
        assert runner.invoke(main, ["control", "ping", "nobody", "--server", url_of(server)]).exit_code == 1
        assert runner.invoke(main, ["control", "resize", "--server", url_of(server)]).exit_code == 2
        shown = runner.invoke(main, ["control", "ping", "--server", url_of(server)]).stdout
        assert running.app.workers()[0].name in shown
        assert "ok" in shown
