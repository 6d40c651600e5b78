"""`switchgear functions`, `workers`, `jobs` and `job`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchgear.cli.output import printable, text_of
from switchgear.units import short_duration
from tests.cli.commands import call, call_json
from tests.client.background import reverse, url_of, working
from tests.support.servers import HOST, Server, free_port, running_gearmand, running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire

pytestmark = pytest.mark.system


@pytest.fixture
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


def submit(server: Server, function: str, payload: str = "x", *options: str) -> str:
    return call(server, "submit", "--background", *options, function, payload).stdout.strip()


def columns(line: str) -> list[str]:
    return line.split()


def test_functions(server: Server) -> None:
    submit(server, "resize")
    submit(server, "resize", "x", "--at", "+1h")
    assert call(server, "pause", "mail").exit_code == 0
    lines = call(server, "functions").stdout.splitlines()
    assert columns(lines[0]) == ["FUNCTION", "READY", "RUNNING", "WAITING", "WORKERS", "DONE", "FAILED", "OLDEST"]
    assert columns(lines[1]) == ["mail", *"000000", "paused"]
    assert columns(lines[2])[:7] == ["resize", *"101000"]
    named = {function["name"]: function for function in call_json(server, "functions")}
    assert named["mail"]["paused"]
    assert named["resize"]["total"] == 2


def test_sizes_are_those_of_the_bytes(server: Server) -> None:
    command = call(server, "submit", "--background", "resize", stdin=b"\xff\xfe\x00" * 10)
    assert "payload (30 bytes)" in call(server, "job", command.stdout.strip()).stdout
    assert "payload (1 byte)" in call(server, "job", submit(server, "resize")).stdout


def test_workers(server: Server) -> None:
    assert columns(call(server, "workers").stdout)[:2] == ["ID", "NAME"]
    with working(url_of(server), {"reverse": reverse, "mirror": reverse}):
        (worker,) = eventually(lambda: call_json(server, "workers"), "it is listed")
        assert worker["functions"] == ["reverse", "mirror"]
        assert worker["protocol"] == "gearman"
        assert "reverse mirror" in call(server, "workers").stdout


def test_jobs_are_listed_newest_first_and_in_pages(server: Server) -> None:
    handles = [submit(server, "resize") for _ in range(5)]
    first = call_json(server, "jobs", "--limit", "3")
    assert [job["handle"] for job in first["jobs"]] == handles[:1:-1]
    second = call_json(server, "jobs", "--before", str(first["next_before_id"]))
    assert [job["handle"] for job in second["jobs"]] == handles[1::-1]
    assert second["next_before_id"] is None
    result = call(server, "jobs", "--limit", "3")
    assert [columns(line)[0] for line in result.stdout.splitlines()] == ["HANDLE", *handles[:1:-1]]
    assert f"--before {first['next_before_id']}" in result.stderr


def test_jobs_are_filtered(server: Server) -> None:
    ready = submit(server, "resize", "x", "--unique", "key")
    scheduled = submit(server, "resize", "x", "--at", "+1h")
    other = submit(server, "mail")

    def found(*options: str) -> set[str]:
        return {job["handle"] for job in call_json(server, "jobs", *options)["jobs"]}

    assert found() == {ready, scheduled, other}
    assert found("--function", "resize") == {ready, scheduled}
    assert found("--state", "scheduled") == {scheduled}
    assert found("--state", "ready", "--state", "SCHEDULED", "--function", "resize") == {ready, scheduled}
    assert found("--unique", "key") == {ready}
    assert call(server, "jobs", "--state", "asleep").exit_code == 2
    assert call(server, "jobs", "--limit", "0").exit_code == 2


def test_dead_jobs_and_errors(server: Server) -> None:
    dead = submit(server, "f", "x", "--attempts", "1")
    failed = submit(server, "f")
    with Wire(server.address) as lost, Wire(server.address) as wire:
        for worker in (lost, wire):
            worker.send(Kind.CAN_DO, b"f")
            worker.send(Kind.GRAB_JOB)
            assert worker.receive_packet().type == Kind.JOB_ASSIGN
        wire.send(Kind.WORK_EXCEPTION, failed.encode(), b"OSError: disk full")
        lost.close()
        eventually(lambda: call_json(server, "jobs", "--dead")["jobs"], "it is dead")
    assert [job["handle"] for job in call_json(server, "jobs", "--dead")["jobs"]] == [dead]
    assert [job["handle"] for job in call_json(server, "jobs", "--error", "disk")["jobs"]] == [failed]
    assert call_json(server, "jobs", "--dead", "--error", "disk")["jobs"] == []
    assert dead in call(server, "jobs", "--dead", "--state", "failed").stdout


def test_one_job(server: Server) -> None:
    handle = submit(server, "resize", "line one\nline two", "--priority", "high", "--unique", "key")
    text = call(server, "job", handle).stdout
    for words in (handle, "resize", "ready", "high", "key", "  line one\n  line two\n", "submitted"):
        assert words in text
    job = call_json(server, "job", handle)
    assert (job["payload"], job["payload_bytes"], job["state"]) == ("line one\nline two", 17, "ready")


def test_a_finished_job_is_still_known(server: Server) -> None:
    with working(url_of(server), {"reverse": reverse}) as recorder:
        handle = submit(server, "reverse", "abc")
        recorder.until("ended")
        eventually(lambda: call_json(server, "job", handle)["state"] == "done", "the server has heard of it")
    assert call_json(server, "job", handle)["result"] == "cba"
    assert "cba" in call(server, "job", handle).stdout


def test_an_unknown_job(server: Server) -> None:
    result = call(server, "job", "H:nobody:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("switchgear: H:nobody:1: there is no such job")


def test_a_stranger_cannot_write_on_the_screen(server: Server) -> None:
    with Wire(server.address) as wire:
        wire.send(Kind.SUBMIT_JOB_BG, b"\x1b[2Jevil", b"", b"\x1b]0;title\x07")
        handle = wire.receive_packet().body.decode()
        wire.send(Kind.SUBMIT_JOB_BG, b"\xff not UTF-8", b"", b"")
        wire.receive_packet()
    for arguments in (["functions"], ["jobs"], ["job", handle]):
        assert "\x1b" not in call(server, *arguments).stdout
    assert {"base64": "/yBub3QgVVRGLTg="} in [function["name"] for function in call_json(server, "functions")]


@pytest.mark.parametrize("command", [["functions"], ["workers"], ["jobs"], ["job", "H:x:1"]])
def test_nobody_there(command: list[str]) -> None:
    assert call(f"gearman://{HOST}:{free_port()}", *command).exit_code == 3


def test_another_gearman_server_is_named() -> None:
    with running_gearmand() as server:
        result = call(server, "functions")
    assert result.exit_code == 1
    assert "does not know the extension" in result.stderr


def test_wide_tables_are_not_cut_for_pipes(server: Server) -> None:
    name = "f" * 300
    submit(server, name)
    assert name in call(server, "functions").stdout


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (59, "59 s"),
        (600, "10 min"),
        (7200, "2 h"),
        (864_000, "10.0 d"),
    ],
)
def test_durations_for_people(seconds: float | None, text: str) -> None:
    assert short_duration(seconds) == text


def test_text_for_people() -> None:
    assert text_of({"base64": "/w=="}) == "\\xff"
    assert text_of(None) == ""
    assert printable("a\x1b\nb\udcff é") == "a\\x1b\\nb\\udcff é"
