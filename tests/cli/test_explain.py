"""`switchgear explain`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.commands import call, call_json
from tests.client.background import reverse, url_of, working
from tests.support.servers import Server, running_gearmand, running_switchgear

pytestmark = pytest.mark.system


@pytest.fixture
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


def submit(server: Server, function: str, *options: str) -> str:
    return call(server, "submit", "--background", *options, function, "x").stdout.strip()


def test_why_a_job_waits_for_a_worker(server: Server) -> None:
    handle = submit(server, "f")
    result = call(server, "explain", handle)
    assert (result.exit_code, result.stdout) == (
        0,
        f"{handle} (f) is ready\n  no worker that can do 'f' is connected\n",
    )


def test_several_reasons_each_on_its_line(server: Server) -> None:
    handle = submit(server, "f")
    call(server, "pause", "f")
    lines = call(server, "explain", handle).stdout.splitlines()
    assert lines[1:] == ["  the function 'f' is paused", "  no worker that can do 'f' is connected"]


def test_whom_a_job_waits_for(server: Server) -> None:
    first = submit(server, "f")
    second = submit(server, "f", "--after", first)
    call(server, "cancel", first)
    assert f"waits for {first}, which was cancelled; retry that one, or cancel this" in (
        call(server, "explain", second).stdout
    )


def test_how_a_job_ended(server: Server) -> None:
    handle = submit(server, "f")
    with working(url_of(server), {"f": reverse}):
        call(server, "submit", "f", "wait for me")
    answer = call_json(server, "explain", handle)
    assert (answer["handle"], answer["state"], answer["function"]) == (handle, "done", "f")
    (reason,) = answer["reasons"]
    assert (reason["word"], reason["data"]["cause"], reason["data"]["attempts"]) == ("done", "succeeded", 1)
    assert reason["text"].startswith("done, ")


def test_an_unknown_job(server: Server) -> None:
    result = call(server, "explain", "H:nobody:1")
    assert result.exit_code == 1
    assert "H:nobody:1: there is no such job" in result.stderr


def test_a_server_that_cannot_explain() -> None:
    with running_gearmand() as server:
        result = call(server, "explain", "H:x:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("switchgear: ")


def test_the_help_has_examples() -> None:
    result = call("gearman://127.0.0.1:1", "explain", "--help")
    assert "switchgear explain H:myhost:42" in result.stdout
