"""Tables on screens of every width: nothing is cut, and what has no room is named."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import switchgear.cli
from switchgear.cli import (
    access,
    bench,
    control_workers,
    demo,
    dwork_steal,
    inspect_server,
    log,
    nodes,
    schedules,
    server,
)
from switchgear.cli.demo_workers import WORKERS
from switchgear.cli.tables import Column, fold, layout, shown_width, table_lines
from switchgear.client.dwork.records import Stolen, StolenTask
from switchgear.joblog import JobLog, RegisteredTask
from switchgear.joblog.audit import AuditEntry
from tests.cli.commands import call
from tests.support.servers import running_switchgear
from tests.support.terminal import on_terminal
from tests.support.waiting import eventually
from tests.support.wire import Kind, Wire

WIDTHS = (60, 80, 120, 200)
COMMANDS = Path(next(iter(switchgear.cli.__path__)))
MODULES = (access, bench, control_workers, demo, dwork_steal, inspect_server, log, nodes, schedules, server)
LARGE = "900000000"
HANDLE = "H:machine:90"
SHORT = {"STATE": "cancelled", "": "paused"}
LONG = "a-name-of-two-hundred-characters-" + "x" * 167

Table = tuple[tuple[Column, ...], list[list[str]]]  # columns and rows


def value_for(column: Column) -> str:
    """The largest value that a column may have, and a name of any length."""
    return LARGE if column.right else LONG if column.wrap else SHORT.get(column.title, HANDLE)


def plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


class TestLayout:
    def test_a_table_that_fits_is_not_changed(self) -> None:
        columns = (Column("NAME", wrap=True), Column("COUNT", right=True))
        lines, hidden = table_lines(columns, [["resize", "12"], ["x", "3"]], None, {})
        assert lines == ["NAME    COUNT", "resize     12", "x           3"]
        assert not hidden

    def test_a_text_is_folded_before_anything_is_left_out(self) -> None:
        columns = (Column("NAME", wrap=True), Column("COUNT", right=True, drop=1))
        lines, hidden = table_lines(columns, [["one two three four five", "12"]], 24, {})
        assert [plain(line) for line in lines] == ["NAME               COUNT", "one two three         12", "four five"]
        assert not hidden

    def test_the_column_with_the_greatest_number_is_left_out_first(self) -> None:
        columns = (Column("A", drop=1), Column("B", drop=2), Column("C"))
        assert layout(columns, [["x" * 10] * 3], 22).hidden == ["B"]
        assert layout(columns, [["x" * 10] * 3], 21).hidden == ["A", "B"]

    def test_a_number_that_cannot_be_left_out_makes_the_line_longer_than_the_screen(self) -> None:
        lines, hidden = table_lines((Column("N", right=True),), [["1" * 50]], 20, {})
        assert plain(lines[1]) == "1" * 50
        assert not hidden

    def test_a_column_without_title_and_values_takes_no_room(self) -> None:
        lines, _ = table_lines((Column("A"), Column(""), Column("B")), [["1", "", "2"]], None, {})
        assert lines == ["A  B", "1  2"]

    def test_wide_characters_take_two_columns(self) -> None:
        lines, _ = table_lines((Column("A"), Column("B")), [["日本", "1"]], None, {})
        assert lines == ["A     B", "日本  1"]

    def test_values_have_their_styles_and_titles_are_bold(self) -> None:
        lines, _ = table_lines((Column("S"),), [["dead"]], 80, {"dead": "bold red"})
        assert lines == ["\x1b[1mS\x1b[0m", "\x1b[31m\x1b[1mdead\x1b[0m"]

    @given(st.text("ab 日é", max_size=60), st.integers(2, 30))
    def test_folding_keeps_every_word_and_the_width(self, text: str, width: int) -> None:
        lines = fold(text, width)
        assert all(shown_width(line) <= width for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")

    @given(st.data())
    def test_nothing_is_ever_cut(self, data: st.DataObject) -> None:
        kinds = st.builds(
            Column, st.text("AB", min_size=1, max_size=9), st.booleans(), st.booleans(), st.integers(0, 3)
        )
        columns = data.draw(st.lists(kinds, min_size=1, max_size=8))
        cells = st.text("ab1 ", max_size=40).map(str.strip)
        rows = data.draw(st.lists(st.lists(cells, min_size=len(columns), max_size=len(columns)), max_size=3))
        width = data.draw(st.integers(20, 120))
        fitting = layout(columns, rows, width)
        assert len(fitting.shown) + len(fitting.hidden) == len(columns)
        for index, size in zip(fitting.shown, fitting.widths, strict=True):
            if not columns[index].wrap:
                assert all(shown_width(row[index]) <= size for row in rows)
        if any(columns[index].drop for index in fitting.shown):  # more could have been left out, so there is room
            assert sum(fitting.widths) + 2 * (len(fitting.widths) - 1) <= width


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Table]]:
    """The columns of every table of the command line, by the function that prints it, from real commands."""
    found: dict[str, Table] = {}

    def note(columns: Sequence[Column], rows: Any, *_: object) -> None:
        caller = inspect.stack()[1]
        found[f"{Path(caller.filename).stem}.{caller.function}"] = (tuple(columns), [list(row) for row in rows])

    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "print_table", note)
        folder = tmp_path_factory.mktemp("tables")
        url, access_file = f"sqlite:{folder / 'log.db'}", str(folder / "access.toml")
        with JobLog.open(url) as job_log:
            job_log.register_start_task(RegisteredTask("mail", id="a"), 1.0)
            job_log.register_task_result(RegisteredTask("mail", id="a"), 2.0)
            job_log.put_audit("host", [AuditEntry(1, "ann", "http", "127.0.0.1:1", "pause", "mail", "done")])
        with running_switchgear("--store", "memory:") as running, Wire(running.address) as peer:
            peer.send(Kind.CAN_DO, b"mail")
            peer.send(Kind.SUBMIT_JOB_BG, b"mail", b"", b"")
            peer.receive_packet()
            assert call(running, "schedule", "add", "nightly", "mail", "--every", "1h").exit_code == 0
            eventually(lambda: "mail" in call(running, "workers", "--json").stdout, "the worker is known")
            for arguments in (
                ["functions"], ["workers"], ["jobs"], ["job", "1"], ["server"], ["server", "--connections"],
                ["schedules"], ["log", "--url", url], ["log", "--url", url, "--summary"],
                ["log", "--url", url, "--audit"], ["nodes"],
                ["access", "add", "ann", "--role", "read", "--file", access_file],
                ["access", "list", "--file", access_file],
            ):  # fmt: skip
                result = call(running, *arguments)
                assert result.exit_code == 0, result.output
        dwork_steal._print_stolen(Stolen((StolenTask("task", "origin", 1),), False, 0))
        demo._print(["gearman"], list(WORKERS), {("gearman", w): demo.Trial("gearman", w) for w in WORKERS}, 1)
        told = {"told": [{"id": 1, "name": "host/7/threads"}], "not_controllable": []}
        control_workers._show(told, {("", 1): {"slots": 4}}, as_json=False)
        bench._print_results([["p"] * 10])
        yield found


def test_every_table_is_tried(tables: dict[str, Table]) -> None:
    printing = set()
    for path in COMMANDS.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print_table"
                for node in ast.walk(function)
            ):
                printing.add(f"{path.stem}.{function.name}")
    assert set(tables) == printing


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_and_large_numbers(tables: dict[str, Table], width: int) -> None:
    for name, (columns, rows) in tables.items():
        row = [
            LARGE if column.right else LONG if column.wrap else SHORT.get(column.title, HANDLE) for column in columns
        ]
        if name == "demo._print":
            row = rows[0]  # its values are the program's own
        lines, hidden = table_lines(columns, [row, row], width, {})
        shown = [plain(line) for line in lines]
        longest = max(map(len, shown))
        if name == "demo._print" and width < 80:
            continue  # a matrix: it is shown whole, or not at all
        assert longest <= width, f"{name} at {width} columns has a line of {longest}"
        numbers = [column for column in columns if column.right and column.title not in hidden]
        assert "\n".join(shown).count(LARGE) == 2 * len(numbers), f"{name} at {width} columns cuts a number"
        if name != "bench._print_results":  # it has a column of numbers more than others, and begins with a group
            assert columns[0].title not in hidden
            assert not hidden or width < 200


def test_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """The summary of a log, as a terminal of 80 columns shows it, says what is not there."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with JobLog.open(url) as job_log:
        job_log.register_start_task(RegisteredTask("a-rather-long-name-of-a-function", id="a"), 1.0)
        job_log.register_task_result(RegisteredTask("a-rather-long-name-of-a-function", id="a"), 2.0)
    output = on_terminal(80, "log", "--url", url, "--summary")
    assert "Not shown at 80 columns: " in output
    assert all(len(line) <= 80 for line in plain(output).splitlines())
    assert "P99" in output
