"""Files of tasks."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.client.dwork.taskfile import fields_of, in_order, line_of, parse_tasks, read_task_file
from switchgear.errors import ConfigError, CycleRefused

# What a line says: those without quotes as dquery reads them, but for the blanks around a field.
FIELDS = [
    ("a", ["a"]),
    ("a,b", ["a", "b"]),
    ("a,b,c", ["a", "b", "c"]),
    (" a , b\t,c ", ["a", "b", "c"]),
    ("run --all x;y|z", ["run --all x;y|z"]),
    ("a,", ["a", ""]),
    ("a,,b", ["a", "", "b"]),
    (",a", ["", "a"]),
    # quoted
    ('"a"', ["a"]),
    ('"a,b"', ["a,b"]),
    ('"a,b",c', ["a,b", "c"]),
    ('a,"b,c",d', ["a", "b,c", "d"]),
    ('a, "b,c" ,d', ["a", "b,c", "d"]),
    ('"say ""x, y"""', ['say "x, y"']),
    ('" a "', [" a "]),
    ('"#a"', ["#a"]),
    ('""', [""]),
    ('"a",', ["a", ""]),
    # quotes that mean nothing
    ('echo "x"', ['echo "x"']),
    ('echo "x,y"', ['echo "x', 'y"']),
    ('"my prog" arg,b', ['"my prog" arg', "b"]),
    ('"a" "b"', ['"a" "b"']),
    ('"a,b', ['"a', "b"]),
    ('a,"', ["a", '"']),
]


@pytest.mark.parametrize(("line", "fields"), FIELDS)
def test_the_fields_of_a_line(line: str, fields: list[str]) -> None:
    assert fields_of(line) == fields


def test_blank_lines_and_comments_are_skipped() -> None:
    file = parse_tasks(["\n", "# a comment, with a comma\n", "a\n", "   \t\n", "  # more\n", "b,a\r\n"])
    assert file.tasks == {"a": [], "b": ["a"]}
    assert file.comments == 2


def test_empty_predecessors_are_nothing_and_several_lines_add_up() -> None:
    file = parse_tasks(["a,,x,", "a,y,x", "a,z,z"])
    assert file.tasks == {"a": ["x", "y", "z"]}
    assert file.lines == {"a": 1}


def test_a_line_without_a_task_is_named() -> None:
    with pytest.raises(ConfigError, match="line 3 has no task"):
        parse_tasks(["a", "", ",b"])
    with pytest.raises(ConfigError, match="line 1 has a NUL"):
        parse_tasks(["a\0b"])


def test_what_is_not_in_the_file() -> None:
    file = parse_tasks(["a,b", "b", "", "c,a,nope,d", "d"])
    assert [str(each) for each in file.unknown_predecessors()] == [
        "line 4: 'c' waits for 'nope', which is not in the file"
    ]


@pytest.mark.parametrize(
    ("line", "is_torn"), [('echo "a, b"', True), ("echo 'a, b'", True), ("echo a, b", False), ('echo "a",b', False)]
)
def test_a_command_that_was_torn_at_a_comma_within_its_quotes(line: str, is_torn: bool) -> None:
    (unknown,) = parse_tasks([line]).unknown_predecessors()
    assert unknown.is_torn is is_torn


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "tasks"
    path.write_bytes(b"\xff\xfe,caf\xc3\xa9\n")
    ((name, predecessors),) = read_task_file(path).tasks.items()
    assert name.encode(errors="surrogateescape") == b"\xff\xfe"
    assert predecessors == ["café"]
    path.write_bytes(b"a\n,b\n")
    with pytest.raises(ConfigError, match=r"tasks: line 2 "):
        read_task_file(path)


names = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@settings(deadline=None)
@given(st.lists(names, min_size=1))
def test_a_line_that_is_written_says_what_was_meant(fields: list[str]) -> None:
    line = line_of(fields[0], fields[1:])
    assert fields_of(line) == fields
    assert list(parse_tasks([line]).tasks) == fields[:1]


# --- order ---


@pytest.mark.parametrize(
    ("tasks", "order"),
    [
        ({}, []),
        ({"a": [], "b": ["a"], "c": ["b"]}, ["a", "b", "c"]),
        ({"c": ["b"], "b": ["a"], "a": [], "d": []}, ["a", "b", "c", "d"]),
        ({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}, ["a", "b", "c", "d"]),
        ({"a": ["elsewhere"], "b": []}, ["a", "b"]),
    ],
)
def test_each_after_those_that_it_waits_for_and_otherwise_as_given(
    tasks: dict[str, list[str]], order: list[str]
) -> None:
    assert in_order(tasks) == order


@pytest.mark.parametrize(
    ("tasks", "path"),
    [
        ({"a": ["a"]}, ["a", "a"]),
        ({"x": [], "a": ["x", "b"], "b": ["c"], "c": ["a"]}, ["a", "b", "c", "a"]),
        ({"x": ["a"], "a": ["b"], "b": ["a"]}, ["a", "b", "a"]),
    ],
)
def test_a_circle_is_named(tasks: dict[str, list[str]], path: list[str]) -> None:
    with pytest.raises(CycleRefused) as caught:
        in_order(tasks)
    assert caught.value.path == path


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 20)), max_size=20))
def test_any_graph_is_ordered_or_has_a_circle(edges: list[set[int]]) -> None:
    tasks = {str(number): [str(other) for other in sorted(after)] for number, after in enumerate(edges)}
    try:
        order = in_order(tasks)
    except CycleRefused as refused:
        path = refused.path
        assert path[0] == path[-1]
        assert all(other in tasks[name] for name, other in itertools.pairwise(path))
    else:
        place = {name: number for number, name in enumerate(order)}
        assert sorted(order) == sorted(tasks)
        assert all(place[other] < place[name] for name in tasks for other in tasks[name] if other in tasks)


def test_a_long_chain_backwards_is_no_trouble() -> None:
    lines = [f"task {number},task {number - 1}\n" for number in range(100_000, 0, -1)]
    began = time.process_time()
    order = in_order(parse_tasks(lines).tasks)
    assert order[0] == "task 1"
    assert time.process_time() - began < 5
