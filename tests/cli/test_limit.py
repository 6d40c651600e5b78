"""`switchgear limit`, with a real server and real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from switchgear.cli.limit import limits_text
from switchgear.cli.main import main
from tests.cli.commands import call, call_json
from tests.support.servers import Server, running_switchgear
from tests.support.wire import Kind, Wire

NOTHING = {"concurrency": 0, "rate": None, "key_concurrency": 0, "key_rate": None, "fair": False}


@pytest.fixture
def server() -> Iterator[Server]:
    with running_switchgear() as server:
        yield server


@pytest.mark.system
def test_set_show_and_remove(server: Server) -> None:
    result = call(server, "limit", "resize", "--concurrency", "4", "--rate", "10/s", "--key-rate", "100/h", "--fair")
    assert (result.exit_code, result.stdout) == (0, "resize: 4 at once, 10/s, 100/h per key, keys in turn\n")
    assert call(server, "limit", "resize").stdout == result.stdout
    assert call(server, "limit", "resize", "--rate", "none", "--no-fair").stdout == "resize: 4 at once, 100/h per key\n"
    assert call_json(server, "limit", "resize", "--concurrency", "0", "--key-rate", "0") == {
        "function": "resize",
        "policy": NOTHING,
    }
    assert call(server, "limit", "resize").stdout == "resize: no limits\n"


@pytest.mark.system
def test_functions_show_limits_where_there_are_some(server: Server) -> None:
    call(server, "submit", "--background", "resize", "x")
    assert "LIMITS" not in call(server, "functions").stdout
    call(server, "limit", "resize", "--key-concurrency", "1")
    heads, row = call(server, "functions").stdout.splitlines()
    assert heads.endswith("LIMITS")
    assert row.endswith("1 at once per key")
    (told,) = call_json(server, "functions")
    assert told["policy"] == NOTHING | {"key_concurrency": 1}


@pytest.mark.system
def test_a_limit_holds_for_workers_that_ask_and_sleep(server: Server) -> None:
    call(server, "limit", "resize", "--concurrency", "1")
    for payload in ("1", "2"):
        call(server, "submit", "--background", "resize", payload)
    with Wire(server.address) as busy, Wire(server.address) as idle:
        for worker in (busy, idle):
            worker.send(Kind.CAN_DO, b"resize")
        busy.send(Kind.GRAB_JOB)
        handle, _, first = busy.receive_packet().body.split(b"\0")
        assert first == b"1"
        idle.send(Kind.GRAB_JOB)
        assert idle.receive_packet().type == Kind.NO_JOB
        idle.send(Kind.PRE_SLEEP)
        idle.expect_nothing()
        busy.send(Kind.WORK_COMPLETE, handle, b"")
        assert idle.receive_packet().type == Kind.NOOP
        idle.send(Kind.GRAB_JOB)
        assert idle.receive_packet().body.endswith(b"\0resize\x002")


@pytest.mark.system
def test_limits_outlive_the_server(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear(store=store) as server:
        call(server, "limit", "resize", "--concurrency", "4", "--rate", "5/30s")
    with running_switchgear(store=store) as server:
        assert call(server, "limit", "resize").stdout == "resize: 4 at once, 5/30s\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--rate", "fast"], 'written like "10/s"'),
        (["--rate", "0/s"], 'written like "10/s"'),
        (["--concurrency", "-1"], "--concurrency"),
        (["--key-rate", "10"], 'written like "10/s"'),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_told_before_anybody_is_asked(options: list[str], complaint: str) -> None:
    result = CliRunner().invoke(main, ["limit", "resize", *options])
    assert result.exit_code == 2
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (None, ""),
        (NOTHING, ""),
        (NOTHING | {"concurrency": 1, "rate": [1, 60.0]}, "1 at once, 1/m"),
        (NOTHING | {"rate": [3, 0.5]}, "3/500ms"),
        (NOTHING | {"key_rate": [3, 90.0]}, "3/90s per key"),
        (NOTHING | {"rate": [1, 0.0000005]}, "1/5e-07s"),
        (NOTHING | {"rate": [1, 172_800.0], "fair": True}, "1/2d, keys in turn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_limits_in_words(policy: dict[str, object] | None, words: str) -> None:
    assert limits_text(policy) == words
