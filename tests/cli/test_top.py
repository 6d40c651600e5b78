"""`switchgear top`: its screen, its keys, and a real server on a real terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import click
import pytest

from switchgear.access.access_file import AccessEntry, AccessList, write_access_file
from switchgear.access.tokens import digest_of
from switchgear.cli.tables import shown_width
from switchgear.cli.top.braille import braille_line
from switchgear.cli.top.screen import KeyCommand, Screen
from switchgear.cli.top.terminal import KeyReader
from switchgear.cli.top.views import VIEWS, count_text
from switchgear.verbs.access import Role
from tests.cli.commands import call
from tests.client.background import url_of
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.terminal import Terminal, on_terminal
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire

LONG = "a-name-of-two-hundred-characters-" + "x" * 167


def overview(**changes: Any) -> dict[str, Any]:
    figures = {
        "at": 1000.0,
        "version": "1.0",
        "uptime_seconds": 60.0,
        "draining": False,
        "jobs": {"total": 9, "ready": 900_000_000, "running": 2, "waiting": 1, "scheduled": 0},
        "rates": {"over_seconds": 10.0, "submitted": 1.5, "done": None, "failed": 0.0},
        "oldest_ready": {"seconds": 3.0, "function": "mail"},
        "drain_seconds": 7.0,
        "functions": 3,
        "workers": {"total": 4, "busy": 1, "by_protocol": {}},
        "store": {"error": ""},
        "alarms": [],
    }
    return figures | changes


def function(name: str, **changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("ready", "running", "waiting_or_scheduled", "workers", "done", "failed"), 0)
    return {"name": name, **counts, "paused": False, "oldest_ready_seconds": None} | changes


def screen_with(functions: Sequence[dict[str, Any]], **changes: Any) -> Screen:
    screen = Screen("gearman://127.0.0.1:4730")
    screen.show(overview(**changes), functions, 1000.0)
    return screen


def names(screen: Screen) -> list[str]:
    return [entry.key for entry in screen.shown_entries()]


def text_of_lines(screen: Screen, width: int = 80, height: int = 24) -> str:
    return click.unstyle("\n".join(screen.lines(width, height)))


class TestBraille:
    def test_the_highest_value_has_all_dots_and_zero_has_none(self) -> None:
        assert braille_line([0, 4, 1, 2], 2) == "⢸⣠"

    def test_the_latest_values_are_to_the_right_and_what_is_missing_is_blank(self) -> None:
        assert braille_line([4], 3) == "⠀⠀⢸"
        assert braille_line([9] * 10, 2) == "⣿⣿"

    def test_nothing(self) -> None:
        assert braille_line([], 0) == ""
        assert braille_line([0, 0], 1) == "⠀"


@pytest.mark.parametrize("width", range(60, 130, 3))
def test_no_number_of_the_head_is_cut(width: int) -> None:
    jobs = {"total": 9, "ready": 123_400, "running": 56_700, "waiting": 89_100, "scheduled": 23_400}
    workers = {"total": 78_900, "busy": 12_345, "by_protocol": {}}
    screen = Screen("gearman://127.0.0.1:4730")
    screen.show(overview(jobs=jobs, functions=45_600, workers=workers), [], 1000.0)
    title, counts = text_of_lines(screen, width).split("\n")[:2]
    whole = [
        "ready 123.4k",
        "running 56.7k",
        "waiting 89.1k",
        "scheduled 23.4k",
        "workers 12.3k/78.9k",
        "functions 45.6k",
    ]
    shown = counts.removesuffix("  …").split("  ")
    assert shown == whole[: len(shown)]
    assert (len(shown) < len(whole)) == counts.endswith("  …")
    assert "serving" in title
    assert title.removesuffix("  …").split("  ")[-1] in ("serving", "up 60 s", "1.0")


def test_a_rate_that_is_not_known_yet_is_no_zero() -> None:
    screen = screen_with([function("mail"), function("idle", done_per_second=0.0)])
    rows = [line.split() for line in text_of_lines(screen, 120).split("\n")]
    assert next(row for row in rows if row[:1] == ["mail"])[5] == "-"
    assert next(row for row in rows if row[:1] == ["idle"])[5] == "0"


def worker(**changes: Any) -> dict[str, Any]:
    about = {"id": 1, "name": "w", "protocol": "gearman", "address": "127.0.0.1:1", "running_count": 0}
    return {**about, "connected_at": 990.0, "functions": ["mail"]} | changes


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_workers_of_several_nodes_are_told_apart(width: int) -> None:
    screen = Screen("gearman://127.0.0.1:4730", VIEWS[1])
    screen.show(overview(), [worker(), worker(name=LONG)], 1000.0)
    assert "NODE" not in text_of_lines(screen, width)
    for _ in VIEWS[1].columns:
        screen.press(">")
        assert re.search(r"[A-Z]v", text_of_lines(screen, width)), "it is sorted by a column that is not shown"
    nodes = [worker(node="ada"), worker(node="bob", name=LONG, running_count=123_456_789)]
    screen.show(overview(), nodes, 1000.0)
    text = text_of_lines(screen, width)
    assert "123456789" in text
    assert "NODE" in text
    assert "ada" in text or "no room for" in text
    assert all(len(line) <= width for line in text.split("\n"))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.2"), (9999, "9999"), (12_345, "12.3k"), (1_500_000, "1.5M"), (9.1e9, "9.1G")],
)
def test_counts_are_short(value: float, text: str) -> None:
    assert count_text(value) == text


class TestScreen:
    @pytest.mark.parametrize("width", [20, 60, 80, 120, 200])
    @pytest.mark.parametrize("height", [5, 24])
    def test_no_line_is_too_long_and_there_are_as_many_as_the_screen_has(self, width: int, height: int) -> None:
        functions = [function(LONG, ready=900_000_000), function("日本" * 60), function("c", paused=True)]
        screen = screen_with(functions, alarms=[{"level": "critical", "text": "x" * 300}] * 9)
        for key in ("", "?", "?", "/", "escape", "p", "n", "enter"):
            screen.press(key)
            lines = screen.lines(width, height)
            assert len(lines) == height
            if width >= 60:
                assert max(len(click.unstyle(line)) for line in lines) <= width

    @pytest.mark.parametrize("height", [8, 10, 16])
    def test_a_low_screen_with_alarms_shows_rows_and_questions(self, height: int) -> None:
        alarms = [{"level": "warning", "text": f"alarm {number}"} for number in range(5)]
        screen = screen_with([function(f"f{number}", ready=number) for number in range(9)], alarms=alarms)
        text = text_of_lines(screen, 60, height)
        assert "FUNCTION" in text
        assert "f8" in text
        assert "alarm 0" in text or height < 10
        screen.press("p")
        assert "y/n: Stop handing out the jobs of f8?" in text_of_lines(screen, 60, height)
        screen.press("n")
        screen.press("?")
        assert "enter          everything" in text_of_lines(screen, 60, height)

    def test_a_number_is_never_cut(self) -> None:
        assert "900.0M" in text_of_lines(screen_with([function("mail", ready=900_000_000)]), 60)

    @pytest.mark.parametrize("width", [60, 80, 121])
    def test_characters_that_take_two_columns_or_none(self, width: int) -> None:
        shown = screen_with([function("日本語の仕事" * 30, ready=7), function("e\u0301" * 90), function("👩‍🚀")])
        shown.press("down")
        for line in shown.lines(width, 24):
            assert shown_width(click.unstyle(line)) <= width
        assert shown_width(click.unstyle(next(each for each in shown.lines(width, 24) if "\x1b[7m" in each))) == width

    def test_printed_once_it_has_all_rows_and_no_keys(self) -> None:
        lines = screen_with([function(f"f{number}") for number in range(100)]).all_lines(80)
        assert sum("f99" in line for line in lines) == 1
        assert not any("quit" in line or line == "" for line in lines)

    def test_before_the_first_answer(self) -> None:
        assert "gearman://127.0.0.1:4730" in text_of_lines(Screen("gearman://127.0.0.1:4730"))

    def test_the_most_is_first_and_the_order_can_be_changed(self) -> None:
        screen = screen_with([function("a", ready=1, running=9), function("b", ready=3), function("c", ready=2)])
        assert names(screen) == ["b", "c", "a"]
        screen.press(">")
        assert names(screen)[0] == "a"
        screen.press("<")
        screen.press("i")
        assert names(screen) == ["a", "c", "b"]
        screen.press("<")
        assert names(screen) == ["a", "b", "c"]

    def test_a_filter_is_typed(self) -> None:
        screen = screen_with([function("mail"), function("resize")])
        for key in ("/", "M", "q", "backspace", "a", "enter"):
            assert screen.press(key) is None
        assert names(screen) == ["mail"]
        assert "filter: Ma" in text_of_lines(screen)
        screen.press("escape")
        assert len(names(screen)) == 2

    def test_the_selection_stays_with_its_row_and_scrolls(self) -> None:
        functions = [function(f"f{number:03}", ready=number) for number in range(100)]
        screen = screen_with(functions)
        screen.lines(80, 24)
        for _ in range(3):
            screen.press("down")
        assert screen.selected == "f096"
        screen.show(overview(), [function("new", ready=500), *functions], 1001.0)
        assert "f096" in text_of_lines(screen)
        screen.press("end")
        assert screen.selected == "f000"
        assert "f000" in text_of_lines(screen)
        screen.press("down")
        assert screen.selected == "f000"

    def test_pausing_asks_first(self) -> None:
        screen = screen_with([function("mail", ready=1)])
        assert screen.press("p") is None
        assert "y/n: Stop handing out the jobs of mail?" in text_of_lines(screen)
        assert screen.press("x") is None
        assert "Nothing was done." in text_of_lines(screen)
        screen.press("p")
        assert screen.press("y") == KeyCommand("pause", "mail")
        screen.show(overview(), [function("mail", ready=1, paused=True)], 1001.0)
        screen.press("p")
        assert screen.press("y") == KeyCommand("resume", "mail")

    def test_keys_without_anything_to_do_it_to(self) -> None:
        screen = screen_with([])
        for key in ("p", "c", "r", "enter", "up", "down", "home", "end", "page-down", "x", "é"):
            assert screen.press(key) is None
        assert screen.asking is None
        assert "0 of 0" in text_of_lines(screen)

    def test_other_lists_have_letters(self) -> None:
        screen = screen_with([function("mail")])
        for view in VIEWS[1:]:
            screen.press(view.letter)
            assert screen.view is view
            assert view.title in text_of_lines(screen)

    def test_what_a_peer_has_chosen_cannot_move_the_cursor(self) -> None:
        screen = screen_with([function("a\x1b[2Jb\n")], alarms=[{"level": "warning", "text": "x\x1b[2J"}])
        assert "\x1b[2J" not in "".join(screen.lines(80, 24))

    def test_details_are_scrolled(self) -> None:
        screen = screen_with([function("mail")])
        screen.show_details({f"field{number}": number for number in range(100)}, [{"text": "why"}])
        assert "why" in text_of_lines(screen)
        screen.press("page-down")
        assert "why" not in text_of_lines(screen)
        for _ in range(20):
            screen.press("page-down")
        assert "field99" in text_of_lines(screen)
        screen.press("escape")
        assert "mail" in text_of_lines(screen)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1b[5~x", ["page-up", "x"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[99;5R/", ["/"]),
        ("é".encode(), ["é"]),
        (b"\r\x7f\x03", ["enter", "backspace", "ctrl-c"]),
    ],
)
def test_keys_of_a_terminal(data: bytes, keys: list[str]) -> None:
    ours, theirs = os.pipe()
    try:
        os.write(theirs, data)
        assert KeyReader(ours).keys(1) == keys
        assert KeyReader(ours).keys(0) == []
        os.close(theirs)
        with pytest.raises(EOFError):
            KeyReader(ours).keys(1)
    finally:
        os.close(ours)


@pytest.mark.system
class TestRealServer:
    def test_once_for_programs(self, server: Server) -> None:
        answer = json.loads(call(server, "top", "--once", "--json").stdout)
        assert answer["overview"]["jobs"]["ready"] == 2
        assert [each["name"] for each in answer["functions"]] == ["mail"]
        assert (answer["workers"], answer["running"], answer["dead"]) == ([], [], [])

    def test_once_for_people(self, server: Server) -> None:
        result = call(server, "top", "--once")
        assert result.exit_code == 0
        assert "mail" in result.stdout

    @pytest.mark.parametrize(("arguments", "complaint"), [(["--json"], "--once"), ([], "terminal")])
    def test_wrong_usage(self, server: Server, arguments: list[str], complaint: str) -> None:
        result = call(server, "top", *arguments)
        assert result.exit_code == 2
        assert complaint in result.output

    def test_a_server_that_is_not_there(self) -> None:
        assert call("gearman://127.0.0.1:1", "top", "--once").exit_code == 3

    def test_a_function_is_paused_on_a_terminal(self, server: Server) -> None:
        with Terminal(80, "top", "--server", url_of(server), "--interval", "0.1") as terminal:
            terminal.until("mail")
            terminal.press("p")
            terminal.until("y/n: ")
            terminal.press("y")
            terminal.until("paused")
            assert json.loads(call(server, "functions", "--json").stdout)[0]["paused"]
            terminal.press("q")
            assert terminal.exit_code() == 0

    def test_a_server_that_goes_away_is_told(self) -> None:
        with (
            running_switchgear() as server,
            Terminal(80, "top", "--server", url_of(server), "--interval", "0.1") as terminal,
        ):
            terminal.until("serving")
            server.kill()
            terminal.until("refused")
            terminal.press("q")
            assert terminal.exit_code() == 0

    def test_a_terminal_gets_another_size(self, server: Server) -> None:
        with Terminal(120, "top", "--server", url_of(server), "--interval", "0.1") as terminal:
            terminal.until("WAITING")
            terminal.resize(60)
            terminal.until("no room for")
            terminal.press("q")
            assert terminal.exit_code() == 0

    def test_the_terminal_is_given_back_when_a_signal_comes(self, server: Server) -> None:
        with Terminal(80, "top", "--server", url_of(server), "--interval", "0.1") as terminal:
            terminal.until("mail")
            assert not terminal.echoes()
            terminal.send_signal(signal.SIGTSTP)
            terminal.until("\x1b[?1049l")
            eventually(terminal.echoes, "the shell has its terminal")
            eventually(terminal.is_stopped, "the command sleeps, so that SIGCONT wakes it")
            terminal.send_signal(signal.SIGCONT)
            terminal.until("\x1b[?1049h")
            terminal.until("mail")
            terminal.send_signal(signal.SIGTERM)
            assert terminal.exit_code() == 128 + signal.SIGTERM
            assert terminal.output.endswith("\x1b[?25h\x1b[?1049l")
            assert terminal.echoes()

    def test_without_colours(self, server: Server) -> None:
        with Terminal(
            80, "top", "--server", url_of(server), "--interval", "0.1", variables={"NO_COLOR": "1"}
        ) as terminal:
            terminal.until("mail")
            terminal.press("q")
            assert terminal.exit_code() == 0
            assert "\x1b[7m" in terminal.output  # the selected row
            assert not re.search(r"\x1b\[[39]\d", terminal.output)

    def test_a_terminal_that_cannot_move_its_cursor(self, server: Server) -> None:
        with Terminal(80, "top", "--server", url_of(server), variables={"TERM": "dumb"}) as terminal:
            assert terminal.exit_code() == 2
            assert "--once" in terminal.output


@pytest.mark.system
@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_tables_without_colours(server: Server, variables: dict[str, str]) -> None:
    assert "\x1b[" in on_terminal(80, "functions", "--server", url_of(server))
    output = on_terminal(80, "functions", "--server", url_of(server), variables=variables)
    assert "mail" in output
    assert "\x1b" not in output


@pytest.mark.system
def test_an_encoding_without_these_characters(server: Server) -> None:
    with Wire(server.address) as peer:
        peer.send(Kind.SUBMIT_JOB_BG, "仕事".encode(), b"", b"")
        peer.receive_packet()
    for arguments in (("functions",), ("top", "--once")):
        command = [sys.executable, "-m", "switchgear", *arguments, "--server", url_of(server)]
        done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"})
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"??" in done.stdout


@pytest.mark.system
def test_a_reader_that_closes_the_pipe(server: Server) -> None:
    command = [sys.executable, "-m", "switchgear", "top", "--once", "--server", url_of(server)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.fixture
def server() -> Any:
    with running_switchgear() as running, Wire(running.address) as peer:
        for _ in range(2):
            peer.send(Kind.SUBMIT_JOB_BG, b"mail", b"", b"")
            peer.receive_packet()
        eventually(lambda: "mail" in call(running, "functions", "--json").stdout, "the jobs are there")
        yield running


def token_of(name: str) -> str:
    return f"swg_{name}-0123456789abcdef0123456789abcdef"


@pytest.mark.system
class TestAnIdentityOfSomeFunctions:
    """The overview concerns every function, and is refused."""

    @pytest.fixture(scope="class")
    @classmethod
    def secured(cls, tmp_path_factory: pytest.TempPathFactory) -> Any:
        access = tmp_path_factory.mktemp("access") / "access.toml"
        entries = [
            AccessEntry(name, frozenset({role}), functions, (f"sha256:{digest_of(token_of(name).encode()).hex()}",))
            for name, role, functions in (
                ("reader", Role.READ, ("mail*",)),
                ("worker", Role.WORK, ()),
                ("submitter", Role.SUBMIT, ()),
            )
        ]
        write_access_file(access, AccessList(identities={each.name: each for each in entries}))
        url = f"gearman://{HOST}:{free_port()}"
        with running_switchgear("--access-file", str(access), "--listen", url, options="?access=open"):
            with pytest.MonkeyPatch.context() as environment:
                environment.setenv("SWITCHGEAR_TOKEN", token_of("submitter"))
                for function in ("mail", "mail", "resize"):
                    call(url, "submit", function, "x", "--background")
            yield url

    def test_it_sees_what_it_may_see(self, secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWITCHGEAR_TOKEN", token_of("reader"))
        done = call(secured, "top", "--once")
        assert done.exit_code == 0, done.output
        assert "ready 2  running 0  waiting 0  workers 0/0  functions 1" in done.output
        assert "! mail: 2 jobs wait, and no worker is registered" in done.output
        assert "! not all: overview concerns every function, and reader may use only mail*" in done.output
        assert "resize" not in done.output
        everything = json.loads(call(secured, "top", "--once", "--json").stdout)
        assert everything["overview"]["jobs"] == {"ready": 2, "running": 0, "waiting": 0}
        assert [function["name"] for function in everything["functions"]] == ["mail"]

    def test_one_that_may_see_nothing_is_told_so(self, secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWITCHGEAR_TOKEN", token_of("worker"))
        done = call(secured, "top", "--once")
        assert done.exit_code == 1
        assert "overview needs the role" in done.output
