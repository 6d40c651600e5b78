"""`switchgear dwork`: the commands that talk to a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq.auth

from switchgear.cli.dwork import COMMANDS
from switchgear.client.dwork import DworkClient
from switchgear.client.dwork.records import Stolen
from tests.cli.dwork_calls import dwork, dwork_json
from tests.client.dwork_servers import Original, fake_server, running_dwork
from tests.support.servers import HOST, free_port

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def module_url() -> Iterator[str]:
    with running_dwork() as (_, url):
        yield url


@pytest.fixture
def url(module_url: str) -> Iterator[str]:
    """A server that has nothing to do, and is left with nothing to do."""
    yield module_url
    with DworkClient(module_url) as client:
        client.exit()
        client.exit("node7")
        while stolen := client.steal(1000):
            client.complete([task.name for task in stolen])


# --- as dquery ---


def test_what_users_of_dquery_type(url: str) -> None:
    assert dwork("create", "fetch", url=url).stdout == "created fetch\n"
    assert dwork("create", "index", "fetch", "logo", url=url).stdout == "created index, after fetch, logo\n"
    assert dwork("status", url=url).stdout == "2 not done, 1 ready\n"
    result = dwork("steal", "-q", url=url)
    assert (result.exit_code, result.stdout) == (0, "fetch\n")
    result = dwork("steal", "-q", url=url)
    assert (result.exit_code, result.stdout) == (1, "No task\n")
    result = dwork("complete", "fetch", url=url)
    assert (result.exit_code, result.output) == (0, "")
    head, row = dwork("steal", "-n", "5", "node7", url=url).stdout.splitlines()
    assert head.split() == ["TASK", "ORIGIN", "STOLEN"]
    assert row.startswith("index ")
    assert dwork("exit", "node7", url=url).stdout == "the tasks of node7 are ready again\n"
    result = dwork("exit", "node7", url=url)
    assert (result.exit_code, result.stderr) == (1, "switchgear: the server knows of no worker node7\n")


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_server_may_be_named_at_either_place_and_as_dquery_does(url: str, place: str) -> None:
    named = ["-s", url.replace("dwork://", "tcp://")]
    args = [*named, "status"] if place == "before" else ["status", *named]
    assert dwork(*args).stdout == "0 not done, 0 ready\n"


def test_a_file_of_tasks(url: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks"
    path.write_text('# of a comment\nlast,first,"mid,dle"\n"mid,dle",first\n\nfirst\nother,elsewhere\n')
    result = dwork("addfile", str(path), url=url)
    assert result.stdout == "created 4 tasks, and skipped 1 comment\n"
    assert f"{path}: line 6: 'other' waits for 'elsewhere', which is not in the file: unless" in result.stderr
    order = []
    while (result := dwork("steal", "-q", url=url)).exit_code == 0:
        order.append(result.stdout.rstrip("\n"))
        dwork("complete", order[-1], url=url)
    assert order == ["first", "mid,dle", "last", "other"]


def test_tasks_from_standard_input(url: str) -> None:
    assert dwork("addfile", "-", "--json", url=url, stdin=b"a\nb,a\n").stdout == '{"created": 2, "comments": 0}\n'


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a,b\nb,c\nc,a\n", "standard input: tasks wait for each other: a -> b -> c -> a"),
        (b"a\n,b\n", "standard input: line 2 has no task"),
    ],
)
def test_a_file_with_something_wrong_creates_nothing(url: str, content: bytes, complaint: str) -> None:
    result = dwork("addfile", "-", url=url, stdin=content)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert dwork("status", url=url).stdout == "0 not done, 0 ready\n"


def test_a_file_that_is_not_there(url: str) -> None:
    result = dwork("addfile", "/nowhere", url=url)
    assert result.exit_code == 2
    assert "/nowhere: No such file" in result.stderr


# --- what dquery has not ---


def test_failures_and_lookups(url: str) -> None:
    dwork("create", "a", url=url)
    lines = dwork("lookup", "a", url=url).stdout.splitlines()
    assert lines == ["task:      a", "state:     ready", "location:  none yet"]
    dwork("steal", "node7", url=url)
    lines = dwork("lookup", "a", url=url).stdout.splitlines()
    assert "location:  node7" in lines
    assert lines[-1].startswith("started:   ")
    dwork("transfer", "--host", "node7", "a", url=url)
    lines = dwork("lookup", "a", url=url).stdout.splitlines()
    assert lines == ["task:      a", "state:     ready", "location:  none yet"]
    assert (dwork_json("lookup", "a", url=url)["location"], dwork_json("lookup", "a", url=url)["started"]) == (
        None,
        None,
    )
    dwork("steal", url=url)
    assert dwork("complete", "--error", "disk full", "a", url=url).exit_code == 0
    lines = dwork("lookup", "a", url=url).stdout.splitlines()
    assert lines[1] == "state:     failed"
    assert "error:     disk full" in lines
    assert not any(line.startswith("location:") for line in lines)
    record = dwork_json("lookup", "a", url=url)
    assert (record["state"], record["error"]) == ("failed", "disk full")
    assert record["ended"] >= record["started"]
    result = dwork("lookup", "ghost", url=url)
    assert (result.exit_code, result.stderr) == (1, "switchgear: the server knows of no task ghost\n")
    assert dwork("lookup", "ghost", "--json", url=url).stdout == "null\n"
    dwork("create", "a", url=url)


def test_what_a_task_waits_for_is_named(url: str) -> None:
    for name in ("a", "b"):
        dwork("create", name, url=url)
    dwork("create", "c", "a", "b", url=url)
    assert "waits for: a, b" in dwork("lookup", "c", url=url).stdout.splitlines()
    dwork("complete", dwork("steal", "-q", url=url).stdout.strip(), url=url)
    assert dwork_json("lookup", "c", url=url)["waits_for"] == ["b"]


def test_what_is_stuck_is_not_taken_for_done(url: str) -> None:
    dwork("create", "a", url=url)
    dwork("create", "b", "a", url=url)
    dwork("create", "c", "b", url=url)
    dwork("steal", url=url)
    dwork("complete", "--error", "disk full", "a", url=url)
    result = dwork("steal", url=url)
    assert (result.exit_code, result.stderr) == (
        1,
        "switchgear: nothing can be done now: 2 tasks wait for tasks that failed\n",
    )
    assert json.loads(dwork("steal", "--json", url=url).stdout) == {"tasks": [], "all_done": False, "stuck": 2}
    assert "waits for: a (failed)" in dwork("lookup", "b", url=url).stdout.splitlines()
    with DworkClient(url) as client:
        assert client.steal() == Stolen(all_done=True, stuck=2)
    dwork("create", "a", url=url)


def test_what_the_server_does_not_have(url: str) -> None:
    dwork("create", "a", url=url)
    result = dwork("complete", "a", "ghost", url=url)
    assert (result.exit_code, result.stderr) == (1, "switchgear: ghost: the server has no such task to complete\n")
    assert dwork("status", url=url).stdout.startswith("0 not done")
    result = dwork("transfer", "ghost", "--json", url=url)
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"not_found": ["ghost"]})


def test_a_task_that_is_given_back_to_wait_for_more(url: str) -> None:
    dwork("create", "a", url=url)
    assert dwork("steal", "-q", "node7", url=url).stdout == "a\n"
    dwork("create", "b", url=url)
    assert dwork("transfer", "a", "b", url=url).exit_code == 1  # it is not ours
    assert dwork("transfer", "--host", "node7", "a", "b", url=url).exit_code == 0
    assert dwork("steal", "-q", url=url).stdout == "b\n"
    assert dwork("steal", "-q", url=url).exit_code == 1


def test_waiting_for_a_task(url: str) -> None:
    dwork("create", "held", url=url)
    dwork("steal", url=url)
    result = dwork("steal", "-q", "--wait", "0.05", url=url)
    assert (result.exit_code, result.stdout) == (4, "No task\n")
    result = dwork("steal", url=url)
    assert (result.exit_code, result.stderr) == (1, "switchgear: no task is ready\n")
    dwork("complete", "held", url=url)
    result = dwork("steal", "--wait", "0.05", url=url)
    assert (result.exit_code, result.stderr) == (1, "switchgear: nothing is left to do\n")


def test_for_programs(url: str) -> None:
    assert dwork_json("create", "a", url=url) == {"created": 1}
    assert dwork_json("status", url=url) == {"active": 1, "ready": 1, "text": "dhub: 1 active tasks, 1 ready."}
    stolen = dwork_json("steal", url=url)
    assert [task["name"] for task in stolen["tasks"]] == ["a"]
    assert not stolen["all_done"]
    assert dwork_json("complete", "a", url=url) == {"not_found": []}
    assert json.loads(dwork("steal", "--json", url=url).stdout) == {"tasks": [], "all_done": True, "stuck": 0}
    assert dwork_json("exit", url=url) == {"known": True}


def test_names_may_be_any_bytes(url: str) -> None:
    name = b"\xff caf\xc3\xa9\n\x1b[31m"
    for args in (["create", os.fsdecode(name)], ["steal", "-q"]):
        command = [sys.executable, "-m", "switchgear", "dwork", "-s", url, *args]
        result = subprocess.run(command, capture_output=True, check=True)
    assert result.stdout == name + b"\n"
    assert "\x1b" not in dwork("lookup", os.fsdecode(name), url=url).stdout


def test_with_the_original_server() -> None:
    with fake_server(Original()) as server:
        assert dwork("create", "a", url=server.url).exit_code == 0
        assert dwork("status", url=server.url).stdout == "1 not done, 1 ready\n"
        assert dwork("steal", "-q", url=server.url).stdout == "a\n"
        assert dwork("complete", "a", url=server.url).exit_code == 0
        result = dwork("lookup", "a", url=server.url)
        assert result.exit_code == 1
        assert "did not understand" in result.stderr


# --- when it goes wrong ---


@pytest.mark.parametrize(
    "args", [["create", "a"], ["status"], ["steal"], ["complete", "a"], ["exit"], ["lookup", "a"], ["graph"]]
)
def test_nobody_there(args: list[str]) -> None:
    result = dwork(*args, "--timeout", "0.1", url=f"dwork://{HOST}:{free_port()}")
    assert result.exit_code == 3
    assert "cannot connect to dwork://127.0.0.1:" in result.stderr


def test_a_refusal_has_its_reason(url: str) -> None:
    result = dwork("create", "a", "a", url=url)
    assert result.exit_code == 1
    assert "a -> a" in result.stderr
    assert "ERROR" not in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["create"],
        ["steal", "-n", "0"],
        ["steal", "-q", "-n", "2"],
        ["complete"],
        ["transfer"],
        ["status", "--timeout", "soon"],
        ["status", "-s", "http://x"],
        ["-s", "nonsense://", "status"],
        ["juggle"],
    ],
)
def test_wrong_usage(args: list[str]) -> None:
    result = dwork(*args)
    assert result.exit_code == 2
    assert "Error" in result.stderr


def test_a_key_that_cannot_be_read(tmp_path: Path) -> None:
    result = dwork("status", "--server-key", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert f"cannot read a key from {tmp_path / 'none'}: no such file" in result.stderr


def test_a_key_of_our_own_needs_the_servers(tmp_path: Path) -> None:
    zmq.auth.create_certificates(tmp_path, "me")
    result = dwork("status", "--key", str(tmp_path / "me.key_secret"))
    assert result.exit_code == 2
    assert "the server's public key is missing" in result.stderr


def test_a_server_that_encrypts(tmp_path: Path) -> None:
    zmq.auth.create_certificates(tmp_path, "server")
    config = tmp_path / "config.toml"
    config.write_text(f'[zeromq]\ncurve_key_file = "{tmp_path / "server.key_secret"}"\n')
    with running_dwork("--config", str(config)) as (_, url):
        assert dwork("status", "--server-key", str(tmp_path / "server.key"), url=url).exit_code == 0
        result = dwork("status", "--timeout", "0.3", url=url)
        assert result.exit_code == 3
        assert "if the server uses CURVE, check the keys" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = dwork(command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert "Exit codes:" in result.stdout
    assert f"Usage: main dwork {command}" in result.stdout
