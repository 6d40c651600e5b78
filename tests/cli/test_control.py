"""`switchgear cancel`, `retry`, `change`, `pause` and `resume`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchgear import App, Task
from tests.cli.commands import call, call_json
from tests.client.background import reverse, url_of, working
from tests.support.servers import HOST, Server, free_port, running_gearmand, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, Wire

pytestmark = pytest.mark.system


@pytest.fixture
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


def submit(server: Server, function: str, *options: str) -> str:
    return call(server, "submit", "--background", *options, function, "x").stdout.strip()


def state_of(server: Server, handle: str) -> str:
    job = call_json(server, "job", handle)
    return "dead" if job["dead"] else str(job["state"])


# --- signal ---


def test_signal(server: Server) -> None:
    handle = submit(server, "f")
    result = call(server, "signal", handle, "paid", '{"amount": 3}')
    assert (result.exit_code, result.stdout) == (0, f"{handle} was sent paid\n")
    result = call(server, "signal", handle, "paid", "again")
    assert result.exit_code == 1
    assert "had come before; the first one counts" in result.stderr
    assert call_json(server, "signal", handle, "approval", "--reject", "--by", "ann")["sent"] is True
    events = call_json(server, "jobs", "--function", "switchgear.event", "--state", "done")["jobs"]
    results = {call_json(server, "job", event["handle"])["result"] for event in events}
    assert results == {'{"amount":3}', '{"approved":false,"by":"ann","comment":""}'}
    assert call(server, "signal", "H:nobody:77", "paid").exit_code == 1
    assert call(server, "signal", handle, "a", "7", "--approve").exit_code == 2
    assert call(server, "signal", handle, "a", "--by", "ann").exit_code == 2


# --- cancel ---


def test_cancel(server: Server) -> None:
    handles = [submit(server, "f") for _ in range(3)]
    result = call(server, "cancel", *handles[:2])
    assert (result.exit_code, result.stdout) == (0, f"{handles[0]} cancelled\n{handles[1]} cancelled\n")
    assert [state_of(server, handle) for handle in handles] == ["cancelled", "cancelled", "ready"]


def test_cancel_what_depends_on_it(server: Server) -> None:
    first = submit(server, "f")
    second = submit(server, "f", "--after", first)
    third = submit(server, "f", "--after", second)
    alone = submit(server, "f")
    answer = call_json(server, "cancel", "--cascade", first, second)
    assert answer == {"cancelled": [first, second, third], "problems": []}
    assert [state_of(server, handle) for handle in (first, second, third, alone)] == ["cancelled"] * 3 + ["ready"]


def test_very_many_are_cancelled_and_retried_by_one_action_of_the_server(server: Server) -> None:
    with App(url_of(server)) as app:
        task: Task[[int], int] = app.task(name="f")(abs)
        task.submit_many(range(2500))
    result = call(server, "cancel", "--function", "f")
    assert (result.exit_code, result.stderr) == (0, "")
    *named, others = result.stdout.splitlines()
    assert (len(named), others) == (1000, "and 1500 others cancelled")
    answer = call_json(server, "retry", "--state", "cancelled", "--limit", "1200")
    assert (len(answer["retried"]), answer["others"]) == (1000, 200)
    (function,) = call_json(server, "functions")
    assert function["ready"] == 1200
    answer = call_json(server, "cancel", "--function", "f", "--limit", "1100")
    assert (len(answer["cancelled"]), answer["others"]) == (1000, 100)


def test_one_that_cannot_be_cancelled_does_not_save_the_others(server: Server) -> None:
    handle = submit(server, "f")
    result = call(server, "cancel", "H:nobody:1", handle)
    assert result.exit_code == 1
    assert result.stdout == f"{handle} cancelled\n"
    assert "H:nobody:1" in result.stderr
    again = call(server, "cancel", handle)
    assert again.exit_code == 1
    assert again.stderr == f"switchgear: {handle} is cancelled: there is nothing to cancel\n"


def test_jobs_by_their_numbers(server: Server) -> None:
    first = submit(server, "f")
    second = submit(server, "f", "--after", first)
    numbers = [handle.rpartition(":")[2] for handle in (first, second)]
    assert call_json(server, "job", numbers[0])["handle"] == first
    assert call(server, "explain", numbers[1]).stdout.startswith(f"{second} (f) is waiting")
    assert call(server, "cancel", "--cascade", *numbers).stdout == f"{first} cancelled\n{second} cancelled\n"
    assert call(server, "retry", numbers[0]).stdout == f"{first} retried\n"
    assert call(server, "job", "999999").exit_code == 1
    for command in ("job", "explain", "cancel", "retry", "change"):
        assert "or its number" in " ".join(call(server, command, "--help").stdout.split())


# --- change ---


def test_change(server: Server) -> None:
    handle = submit(server, "f", "--at", "+1h")
    result = call(server, "change", handle, "--priority", "high", "--at", "now")
    assert (result.exit_code, result.stdout) == (0, f"{handle} ready, priority high\n")
    result = call(server, "change", handle, "--at", "2040-01-31T18:00")
    assert result.stdout == f"{handle} scheduled, priority high, starts 2040-01-31 18:00:00\n"
    answer = call_json(server, "change", handle, "--priority", "low")
    assert [job["priority"] for job in answer["jobs"]] == ["low"]


def test_one_that_cannot_be_changed_does_not_stop_the_others(server: Server) -> None:
    first, second = submit(server, "f"), submit(server, "f")
    call(server, "cancel", first)
    result = call(server, "change", first, second, "--priority", "low")
    assert (result.exit_code, result.stdout) == (1, f"{second} ready, priority low\n")
    assert result.stderr == f"switchgear: {first} is cancelled: it cannot be changed\n"


@pytest.mark.parametrize("options", [(), ("--priority", "huge"), ("--at", "yesterday")])
def test_wrong_changes(server: Server, options: tuple[str, ...]) -> None:
    assert call(server, "change", "1", *options).exit_code == 2


# --- retry ---


def make_dead(server: Server, function: str) -> str:
    """A job whose only attempt is lost with its worker."""
    handle = submit(server, function, "--attempts", "1")
    with Wire(server.address) as wire:
        wire.send(Kind.CAN_DO, function.encode())
        wire.send(Kind.GRAB_JOB)
        assert wire.receive_packet().type == Kind.JOB_ASSIGN
    eventually(lambda: state_of(server, handle) == "dead", "it is dead")
    return handle


def test_retry(server: Server) -> None:
    handle = make_dead(server, "reverse")
    assert call(server, "retry", handle).stdout == f"{handle} retried\n"
    assert state_of(server, handle) == "ready"
    with working(url_of(server), {"reverse": reverse}):
        eventually(lambda: state_of(server, handle) == "done", "it is done after all")


def test_retry_all_dead_of_a_function(server: Server) -> None:
    dead = [make_dead(server, function) for function in ("resize", "resize", "mail")]
    failed = submit(server, "resize")
    with Wire(server.address) as wire:
        wire.send(Kind.CAN_DO, b"resize")
        wire.send(Kind.GRAB_JOB)
        wire.send(Kind.WORK_FAIL, wire.receive_packet().body.split(b"\0")[0])
        wire.receive_until_fence()
    assert set(call_json(server, "retry", "--all-dead", "--function", "resize")["retried"]) == set(dead[:2])
    assert [state_of(server, handle) for handle in (*dead, failed)] == ["ready", "ready", "dead", "failed"]
    assert call_json(server, "retry", "--all-dead")["retried"] == [dead[2]]
    nothing = call(server, "retry", "--all-dead")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "none retried\n")


def test_retry_those_that_match(server: Server) -> None:
    handles = [submit(server, function) for function in ("resize", "resize", "mail")]
    errors = [b"OSError: disk full", b"ValueError", b"OSError: disk full"]
    with Wire(server.address) as wire:
        for function, error in zip((b"resize", b"resize", b"mail"), errors, strict=True):
            wire.send(Kind.RESET_ABILITIES)
            wire.send(Kind.CAN_DO, function)
            wire.send(Kind.GRAB_JOB)
            wire.send(Kind.WORK_EXCEPTION, wire.receive_packet().body.split(b"\0")[0], error)
        wire.receive_until_fence()
    assert call_json(server, "retry", "--error", "disk", "--function", "resize")["retried"] == [handles[0]]
    assert call_json(server, "retry", "--dead", "--error", "disk")["retried"] == []
    assert call_json(server, "retry", "--state", "cancelled", "--function", "mail")["retried"] == []
    assert call_json(server, "retry", "--state", "failed", "--since", "1", "--limit", "1")["retried"] == [handles[2]]
    assert [state_of(server, handle) for handle in handles] == ["ready", "failed", "ready"]


def test_more_than_the_server_does_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchgear.cli.control._MOST_NAMED", 2)
    handles = [submit(server, "f") for _ in range(5)]
    answer = call_json(server, "cancel", "--function", "f", "--limit", "3")
    assert (len(answer["cancelled"]), answer["others"]) == (2, 1)
    assert len(call_json(server, "cancel", "--function", "f", "--state", "ready")["cancelled"]) == 2
    newest_first = handles[::-1]
    assert call_json(server, "retry", "--state", "cancelled", "--limit", "2")["retried"] == newest_first[:2]
    answer = call_json(server, "retry", "--state", "cancelled")
    assert (answer["retried"], answer["others"]) == (newest_first[2:4], 1)


def test_cancel_those_that_match(server: Server) -> None:
    mail = submit(server, "mail")
    ready = submit(server, "resize")
    later = submit(server, "resize", "--at", "+1h")
    result = call(server, "cancel", "--function", "resize", "--state", "ready")
    assert (result.exit_code, result.stdout) == (0, f"{ready} cancelled\n")
    nothing = call(server, "cancel", "--function", "resize", "--state", "ready")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "none cancelled\n")
    assert call_json(server, "cancel", "--state", "scheduled")["cancelled"] == [later]
    assert state_of(server, mail) == "ready"


def test_what_cannot_be_retried(server: Server) -> None:
    handle = submit(server, "f")
    result = call(server, "retry", handle, "H:nobody:1")
    assert result.exit_code == 1
    assert f"{handle}:" in result.stderr
    assert "H:nobody:1:" in result.stderr
    problems = call(server, "retry", "--json", handle)
    assert problems.exit_code == 1
    assert handle in problems.stdout


# --- pause and resume ---


def test_pause_and_resume(server: Server) -> None:
    assert call(server, "pause", "reverse", "mail").stdout == "reverse paused\nmail paused\n"
    with working(url_of(server), {"reverse": reverse}) as recorder:
        handle = submit(server, "reverse")
        assert state_of(server, handle) == "ready"
        answer = call_json(server, "resume", "reverse")
        assert answer == {"functions": [{"function": "reverse", "paused": False}], "problems": []}
        recorder.until("ended")
        eventually(lambda: state_of(server, handle) == "done", "it is done", DEADLINE_SECONDS)


def test_pausing_what_nobody_knows(server: Server) -> None:
    submit(server, "reverse")
    result = call(server, "pause", "reverse", "revrese")
    assert (result.exit_code, result.stdout) == (0, "reverse paused\nrevrese paused\n")
    assert result.stderr == "switchgear: there is no function revrese yet; it will be paused when it appears\n"
    assert call(server, "pause", "revrese").stderr == result.stderr
    assert call_json(server, "pause", "reverse", "revrese")["functions"] == [
        {"function": "reverse", "paused": True, "known": True},
        {"function": "revrese", "paused": True, "known": False},
    ]
    with working(url_of(server), {"mirror": reverse}):
        eventually(lambda: not call(server, "pause", "mirror").stderr, "its worker is known")


# --- usage ---


@pytest.mark.parametrize(
    "arguments",
    [
        ["cancel"],
        ["retry"],
        ["retry", "H:x:1", "--all-dead"],
        ["retry", "H:x:1", "--function", "f"],
        ["retry", "H:x:1", "--limit", "5"],
        ["retry", "--limit", "5"],
        ["retry", "--state", "ready"],
        ["retry", "--dead", "--state", "cancelled"],
        ["retry", "--dead", "--limit", "0"],
        ["retry", "--dead", "--since", "lately"],
        ["cancel", "H:x:1", "--function", "f"],
        ["cancel", "--cascade"],
        ["cancel", "--state", "done"],
        ["jobs", "--dead", "--state", "done"],
        ["pause"],
        ["resume"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert call("gearman://localhost:1", *arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [["cancel", "H:x:1"], ["retry", "H:x:1"], ["pause", "f"], ["resume", "f"]])
def test_nobody_there(arguments: list[str]) -> None:
    assert call(f"gearman://{HOST}:{free_port()}", *arguments).exit_code == 3


@pytest.mark.parametrize("arguments", [["cancel", "H:x:1"], ["retry", "--all-dead"], ["pause", "f"]])
def test_another_gearman_server_is_named(arguments: list[str]) -> None:
    with running_gearmand() as server:
        result = call(server, *arguments)
    assert result.exit_code == 1
    assert "does not know the extension" in result.stderr
