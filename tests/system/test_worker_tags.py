"""Worker tags at a real server: workers that say what they have, and listeners that say it for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchgear.client import Client
from switchgear.client.pingpong import PingPongWorker
from switchgear.client.wmp import WmpWorker
from tests.cli.commands import call, call_json, running
from tests.client.background import url_of
from tests.support.servers import HOST, free_port, running_switchgear
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


def test_a_worker_that_runs_a_command_has_tags_and_a_job_requires_them() -> None:
    with (
        running_switchgear() as server,
        Client(url_of(server)) as client,
        running(server, "worker", "mirror", "--exec", "rev") as plain,
    ):
        plain.until("connected")
        handle = call(server, "submit", "--background", "--requires", "large,gpu", "mirror", "abc").stdout.strip()
        eventually(lambda: client.control("workers"), "the server has read what the worker can do")
        (reason,) = call_json(server, "explain", handle)["reasons"]
        assert (reason["word"], reason["data"]["missing"]) == ("missing_tag", ["gpu", "large"])
        assert call_json(server, "job", handle)["requires"] == ["gpu", "large"]
        assert "requires" in call(server, "job", handle).stdout
        assert client.submit("mirror", b"xyz").wait(DEADLINE_SECONDS) == b"zyx"  # and is not blocked
        with running(server, "worker", "mirror", "--exec", "rev", "--tags", "gpu,large,x") as tagged:
            tagged.until("connected")
            eventually(lambda: client.control("job", handle=handle)["state"] == "done", "it runs")
            assert client.control("job", handle=handle)["result"] == "cba"
            assert [worker["tags"] for worker in client.control("workers")] == [[], ["gpu", "large", "x"]]
            assert "gpu large x" in call(server, "workers").stdout


def test_a_job_that_waits_keeps_what_it_requires_over_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear(store=store) as server:
        handle = call(server, "submit", "--background", "--requires", "gpu", "mirror", "abc").stdout.strip()
    with (
        running_switchgear(store=store) as server,
        Client(url_of(server)) as client,
        running(server, "worker", "mirror", "--exec", "rev") as plain,
    ):
        plain.until("connected")
        assert client.submit("mirror", b"xyz").wait(DEADLINE_SECONDS) == b"zyx"
        assert client.control("job", handle=handle)["state"] == "ready"


def test_workers_of_other_protocols_have_the_tags_of_their_listener_or_say_theirs() -> None:
    workers, wmp = free_port(), free_port()
    listen = (
        *("--listen", f"pingpong://{HOST}:{free_port()}?workers={workers}&function=mirror&tags=gpu"),
        *("--listen", f"wmp://{HOST}:{wmp}?tags=large"),
    )
    with running_switchgear(*listen) as server, Client(url_of(server)) as client:
        pingpong = PingPongWorker(lambda payload: payload[::-1], f"pingpong://{HOST}:{workers}")
        with working_beside(pingpong):
            submission = client.submit("mirror", b"abc", requires="gpu")
            assert submission.wait(DEADLINE_SECONDS) == b"cba"
        with WmpWorker(f"wmp://{HOST}:{wmp}", {"turn": lambda job: job.payload[::-1]}, headers={"tags": ["gpu"]}):
            submission = client.submit("turn", b"abc", requires=["large", "gpu"])
            assert submission.wait(DEADLINE_SECONDS) == b"cba"
