"""`switchgear dwork run`: a file of commands."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.dwork_calls import dwork
from tests.support.waiting import DEADLINE_SECONDS, eventually

PROGRAM = [sys.executable, "-m", "switchgear", "dwork", "run"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tasks(place: Path, *lines: str) -> str:
    path = place / "tasks.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_a_file_of_commands(place: Path) -> None:
    file = tasks(place, "cat a b > c,touch a,echo b > b", "touch a", "echo b > b")
    result = dwork("run", file, "--jobs", "2")
    assert result.exit_code == 0
    assert (place / "c").read_text() == "b\n"
    assert "3 done\n" in result.stderr
    assert "critical path: " in result.stderr


def test_each_after_what_it_waits_for(place: Path) -> None:
    """A chain, backwards in the file, of commands that fail if they come too early."""
    chain = [
        f"test -e {number - 1} && touch {number},test -e {number - 2} && touch {number - 1}"
        for number in range(9, 1, -1)
    ]
    file = tasks(place, *chain, "test -e 0 && touch 1,touch 0", "touch 0")
    assert dwork("run", file, "--jobs", "4").exit_code == 0
    assert (place / "9").exists()


def test_so_many_at_once_and_not_more(place: Path) -> None:
    """Each counts the others while it runs."""
    command = "mkdir r{0}; ls -d r* | wc -l > n{0}; sleep 0.02; rmdir r{0}"
    assert dwork("run", tasks(place, *(command.format(number) for number in range(12))), "--jobs", "3").exit_code == 0
    counts = [int(path.read_text()) for path in place.glob("n*")]
    assert len(counts) == 12
    assert 2 <= max(counts) <= 3


def test_what_tasks_write_is_not_mixed(place: Path) -> None:
    command = "for i in 1 2 3 4 5; do echo {0}; sleep 0.01; done"
    result = dwork("run", tasks(place, *(command.format(name) for name in "abcd")), "--jobs", "4")
    lines = result.stdout.split()
    assert sorted(lines) == sorted("abcd" * 5)
    assert [lines[start : start + 5] for start in range(0, 20, 5)] == [[lines[start]] * 5 for start in range(0, 20, 5)]


def test_output_and_errors_go_where_they_belong_or_stay_in_order(place: Path) -> None:
    file = tasks(place, "echo 1; echo 2 >&2; echo 3")
    apart = subprocess.run([*PROGRAM, "-q", file], capture_output=True, check=True)
    assert (apart.stdout, apart.stderr) == (b"1\n3\n", b"2\n")
    together = subprocess.run([*PROGRAM, "-q", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    assert together.stdout == b"1\n2\n3\n"


# --- failures ---


def test_after_a_failure_nothing_is_started(place: Path) -> None:
    file = tasks(place, "echo 'oh no' >&2; exit 3", "touch behind,echo 'oh no' >&2; exit 3", "touch other")
    result = dwork("run", file, "--jobs", "1")
    assert result.exit_code == 1
    assert not (place / "behind").exists()
    assert not (place / "other").exists()
    assert "0 done, 1 failed, 1 not run, since a predecessor failed, 1 not started\n" in result.stderr
    assert "exit 3: oh no\n" in result.stderr


def test_keep_going(place: Path) -> None:
    file = tasks(place, "false", "touch behind,false", "touch other")
    result = dwork("run", file, "--jobs", "1", "-k")
    assert result.exit_code == 1
    assert not (place / "behind").exists()
    assert (place / "other").exists()
    assert "1 done, 1 failed, 1 not run, since a predecessor failed\n" in result.stderr


def test_what_is_left_can_be_run_later(place: Path) -> None:
    file = tasks(place, "touch a", "test -e b,touch a", '"echo last, at last",test -e b,touch a')
    assert dwork("run", file, "--left", "left.txt").exit_code == 1
    assert (place / "left.txt").read_text() == 'test -e b\n"echo last, at last",test -e b\n'
    (place / "b").touch()
    result = dwork("run", "left.txt", "--left", "left.txt")
    assert (result.exit_code, result.stdout) == (0, "last, at last\n")
    assert (place / "left.txt").read_text() == ""


# --- files with something wrong ---


def test_a_command_that_is_torn_at_its_comma_is_explained(place: Path) -> None:
    result = dwork("run", tasks(place, 'echo "a, b"'))
    assert result.exit_code == 2
    assert """line 1: 'echo "a' waits for 'b"', which is not in the file""" in result.stderr
    assert '"echo ""a, b"""' in result.stderr


@pytest.mark.parametrize(("name", "problem"), [("missing.txt", "No such file"), (".", "Is a directory")])
def test_what_is_no_file_is_wrong_usage(place: Path, name: str, problem: str) -> None:
    result = dwork("run", str(place / name))
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_slip_of_the_pen_runs_nothing(place: Path) -> None:
    file = tasks(place, "touch a", "touch b,touch A")
    result = dwork("run", file)
    assert result.exit_code == 2
    assert f"{file}: line 2: 'touch b' waits for 'touch A', which is not in the file" in result.stderr
    assert not (place / "a").exists()
    assert dwork("run", file, "--ignore-unknown").exit_code == 0
    assert (place / "b").exists()


def test_a_circle_runs_nothing(place: Path) -> None:
    result = dwork("run", tasks(place, "touch a", "b,c", "c,b"))
    assert result.exit_code == 2
    assert "b -> c -> b" in result.stderr
    assert not (place / "a").exists()


def test_an_empty_file_is_no_work() -> None:
    result = dwork("run", "-", stdin=b"# nothing\n")
    assert (result.exit_code, result.stderr) == (0, "0 done\n")


@pytest.mark.parametrize("args", [[], ["-", "--jobs", "0"], ["/nowhere/at/all"]])
def test_wrong_usage(args: list[str]) -> None:
    assert dwork("run", *args).exit_code in (1, 2)


# --- how it is told ---


def test_dry_run_writes_the_order(place: Path) -> None:
    file = tasks(place, "touch c,touch b", "touch d", "touch b,touch a", "touch a")
    result = dwork("run", "--dry-run", file)
    assert result.stdout.splitlines() == ["touch a", "touch b", "touch c", "touch d"]
    assert not (place / "a").exists()
    assert json.loads(dwork("run", "-n", file, "--json").stdout) == ["touch a", "touch b", "touch c", "touch d"]


def test_for_programs(place: Path) -> None:
    result = dwork("run", tasks(place, "echo out", "false,echo out", "touch never,false"), "--json")
    assert result.exit_code == 1
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(event["event"], event.get("task")) for event in events] == [
        ("started", "echo out"),
        ("done", "echo out"),
        ("started", "false"),
        ("failed", "false"),
        ("summary", None),
    ]
    summary = events[-1]
    assert summary["failed"] == [{"task": "false", "error": "exit status 1"}]
    assert (summary["done"], summary["blocked"], summary["not_started"]) == (1, ["touch never"], [])
    assert summary["critical_path"] == ["echo out", "false"]
    assert result.stderr == "out\n"


def test_on_a_terminal_there_is_a_bar(place: Path) -> None:
    file = tasks(place, "echo out", "sleep 1,echo out")
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, file], stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm"}
    ) as run:
        os.close(follower)
        seen = b""
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # how a terminal says that nobody is left on the other side
                break
            seen += data
    os.close(leader)
    assert run.returncode == 0
    assert b"out\r\n" in seen
    assert b"1 of 2" in seen
    assert b"1 running" in seen
    assert b"2 done" in seen


def test_interrupted_it_stops_what_runs_and_says_what_is_left(place: Path) -> None:
    """The command has started another one, and both have to go."""
    file = tasks(place, "sleep 1000 & echo $! > pid; wait", "touch never,sleep 1000 & echo $! > pid; wait")
    process = subprocess.Popen([*PROGRAM, file], stderr=subprocess.PIPE, text=True)
    pid = int(eventually(lambda: (place / "pid").exists() and (place / "pid").read_text(), "it runs"))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130
    assert "0 done, 1 interrupted, 1 not started\n" in said
    eventually(lambda: not _is_alive(pid), "what the command started is gone too")


def test_a_command_that_does_not_want_to_stop_is_killed_at_the_second_signal(place: Path) -> None:
    file = tasks(place, "trap '' TERM; touch ready; while :; do sleep 0.05; done")
    process = subprocess.Popen([*PROGRAM, file], stderr=subprocess.DEVNULL)
    eventually((place / "ready").exists, "it runs")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_SECONDS) == 130
    assert time.monotonic() - began < 4  # without the second, it would have had five seconds


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
