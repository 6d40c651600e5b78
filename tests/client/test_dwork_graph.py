"""Graphs of tasks: what is told of them, where they are put on a page, and what is drawn."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.client.dwork.drawing import dot_of, short, svg_of
from switchgear.client.dwork.graph_analysis import GraphTask, TaskGraph
from switchgear.client.dwork.layout import lay_out
from switchgear.client.dwork.records import TaskRecord
from switchgear.client.dwork.taskfile import parse_tasks

SVG = "{http://www.w3.org/2000/svg}"

#        fetch 3 s ─┬─ unpack 1 s ── index (fails, 2 s) ── publish ── tell
#                   └─ check 4 s ─── sign (running, 1 s)      │
#        logo 5 s ────────────────────────────────────────────┘
TASKS = [
    GraphTask(1, "fetch", "done", (), 3.0),
    GraphTask(2, "unpack", "done", (1,), 1.0),
    GraphTask(3, "check", "done", (1,), 4.0),
    GraphTask(4, "index", "failed", (2,), 2.0, "disk full"),
    GraphTask(5, "sign", "running", (3,), 1.0),
    GraphTask(6, "logo", "done", (), 5.0),
    GraphTask(7, "publish", "waiting", (4, 6)),
    GraphTask(8, "tell", "waiting", (7,)),
    GraphTask(9, "later", "ready", (99,)),  # waited for one that the server has forgotten
]


@pytest.fixture
def graph() -> TaskGraph:
    return TaskGraph(TASKS)


def test_counts_tell_waiting_from_stuck(graph: TaskGraph) -> None:
    assert graph.counts() == {"done": 4, "running": 1, "ready": 1, "stuck": 2, "failed": 1}
    assert list(graph.counts()) == ["done", "running", "ready", "stuck", "failed"]


def test_the_critical_path_is_the_longest_chain_that_ran(graph: TaskGraph) -> None:
    assert [task.name for task in graph.critical_path()] == ["fetch", "check", "sign"]


def test_without_times_there_is_no_critical_path() -> None:
    assert TaskGraph.of_file(parse_tasks(["a", "b,a"])).critical_path() == []


def test_what_is_stuck_behind_a_failure(graph: TaskGraph) -> None:
    (failed,) = graph.unsuccessful()
    assert failed.error == "disk full"
    assert graph.all_behind([failed.id]) == {7, 8}


def test_a_task_that_is_done_all_the_same_is_not_stuck() -> None:
    graph = TaskGraph(
        [GraphTask(1, "a", "failed"), GraphTask(2, "b", "done", (1,)), GraphTask(3, "c", "waiting", (2,))]
    )
    assert graph.counts() == {"done": 1, "waiting": 1, "failed": 1}


def test_a_file_before_it_runs() -> None:
    graph = TaskGraph.of_file(parse_tasks(["b,a", "a", "c,unknown"]))
    assert graph.counts() == {"ready": 2, "waiting": 1}
    assert [graph.tasks[task_id].name for task_id in graph.order] == ["a", "c", "b"]


def test_a_server_that_has_a_circle_is_shown_too() -> None:
    graph = TaskGraph(
        [GraphTask(1, "a", "waiting", (2,)), GraphTask(2, "b", "waiting", (1,)), GraphTask(3, "c", "ready")]
    )
    assert graph.order == [3, 1, 2]
    assert "a" in svg_of(graph)


def test_records_of_a_server() -> None:
    record = TaskRecord("a", 1, "running", "", None, (), started_us=2_000_000, ended_us=0)
    done = TaskRecord("b", 2, "done", "", None, (1,), started_us=1_000_000, ended_us=4_000_000)
    fresh = TaskRecord("c", 3, "ready", "", None, (), started_us=1_000_000, ended_us=0)  # it was given back
    graph = TaskGraph.of_records([record, done, fresh], now_us=5_000_000)
    assert [task.seconds for task in graph.tasks.values()] == [3.0, 3.0, 0.0]


# --- layout ---

graphs = st.integers(0, 40).flatmap(
    lambda size: st.tuples(
        *(
            st.sets(st.integers(1, number - 1), max_size=3) if number > 1 else st.just(set())
            for number in range(1, size + 1)
        )
    )
)


@settings(deadline=None)
@given(graphs)
def test_every_task_is_right_of_what_it_waits_for_and_nothing_overlaps(edges: tuple[set[int], ...]) -> None:
    before = {number: sorted(after) for number, after in enumerate(edges, 1)}
    layout = lay_out(list(before), before)
    for task, others in before.items():
        assert all(layout.column_of[other] < layout.column_of[task] for other in others)
        for other in others:
            way = layout.edges[other, task]
            columns = [layout.column_of[place] for place in way]
            assert columns == list(range(columns[0], columns[-1] + 1))
    for column in layout.columns:
        rows = [layout.rows[place] for place in column if place > 0]
        assert all(lower - upper >= 0.999 for upper, lower in itertools.pairwise(rows))
    assert sorted(place for column in layout.columns for place in column if place > 0) == sorted(before)
    assert all(row >= 0 for row in layout.rows.values())


def test_crossings_that_can_be_avoided_are() -> None:
    """Two chains side by side, the second half of them named the other way round."""
    layout = lay_out([1, 2, 4, 3], {1: [], 2: [], 3: [1], 4: [2]})
    assert layout.columns == [[1, 2], [3, 4]]


def test_a_chain_is_straight() -> None:
    layout = lay_out([1, 2, 3, 4, 5], {1: [], 2: [1], 3: [2], 4: [1], 5: [3]})
    assert layout.rows[3] == layout.rows[5]


# --- pictures ---


def test_a_drawing_has_a_box_for_each_task_in_the_colour_of_its_state_and_a_legend(graph: TaskGraph) -> None:
    root = ET.fromstring(svg_of(graph))
    boxes = {group.findtext(f"{SVG}title"): group.find(f"{SVG}rect") for group in root.iter(f"{SVG}g")}
    assert boxes.keys() >= {"fetch\ndone, 3 s", "index\nfailed, 2 s\ndisk full", "publish\nstuck"}
    assert len(boxes) == len(TASKS)
    fills = {title: box.get("fill") for title, box in boxes.items() if box is not None}
    assert fills["fetch\ndone, 3 s"] == fills["logo\ndone, 5 s"] != fills["index\nfailed, 2 s\ndisk full"]
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts[:6] == ["done: 4", "running: 1", "ready: 1", "stuck: 2", "failed: 1", "critical path"]
    curves = [path for path in root.iter(f"{SVG}path") if path.get("fill") == "none"]
    assert len(curves) == 7
    assert sum(path.get("stroke-width") == "2" for path in curves) == 2


@settings(deadline=None)
@given(st.text())
def test_any_name_can_be_drawn(name: str) -> None:
    graph = TaskGraph([GraphTask(1, name, "failed", (), 1.0, name)])
    root = ET.fromstring(svg_of(graph).encode())
    assert any(element.text == short(name) or not name for element in root.iter(f"{SVG}text"))
    dot = dot_of(graph)
    assert dot.encode().count(b"t1 [") >= 1
    assert all(line.isprintable() for line in dot.split("\n")), "nothing in it would control a terminal"
    assert len(dot.split("\n")) == len(dot_of(TaskGraph([GraphTask(1, "x", "failed", (), 1.0, "x")])).split("\n"))


def test_an_empty_graph_can_be_drawn() -> None:
    assert ET.fromstring(svg_of(TaskGraph([]))).tag == f"{SVG}svg"


def test_dot() -> None:
    graph = TaskGraph([GraphTask(1, 'say "a\\b"', "done", (), 1.0), GraphTask(2, "x" * 50, "ready", (1,))])
    dot = dot_of(graph)
    assert r'label="say \"a\\b\""' in dot
    assert f'label="{"x" * 29}…"' in dot
    assert "t1 -> t2;" in dot
