"""The tables and charts of docs/benchmarks.md, made from the results of one run.

The page is written by people; between `<!-- begin: NAME -->` and `<!-- end: NAME -->` stands what is made here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import targets
from switchgear.bench.chart import Bar, Block, bar_chart
from switchgear.bench.table import HEADS, Head, figure, markdown, rows_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
CHARTS = "benchmarks"  # the folder beside the page

Row = dict[str, Any]

MEASURES = {
    "cpu_us": "processor time of the server per job, µs",
    "jobs_per_second": "jobs a second",
    "p50_us": "median time, µs",
    "bytes per queued job": "memory of a queued job, bytes",
}


@dataclass(frozen=True, slots=True)
class Section:
    """What is shown of a group of cells: a chart of one measure, and a table with a column for each peer."""

    group: str
    title: str
    measures: tuple[str, ...]
    reference: str = ""  # the peer to which ratios are given
    lone: str = ""  # the workload whose times are those of a request alone, not of a queue


SECTIONS = (
    Section("gearman", "Gearman jobs", ("cpu_us",), "gearmand-best", "lone round trip"),
    Section("durable", "Jobs that are kept on disk", ("jobs_per_second", "cpu_us"), "gearmand-sqlite"),
    Section("beanstalk", "Beside beanstalkd", ("cpu_us",), "beanstalkd"),
    Section("payloads", "Payloads", ("cpu_us",), "gearmand-best"),
    Section("tasks", "Python tasks that do nothing", ("jobs_per_second",), lone="round trip"),
    Section("depth", "Long queues", ("cpu_us", "bytes per queued job")),
    Section("crowds", "Crowds", ("cpu_us",)),
    Section("zeromq", "ZeroMQ workers", ("cpu_us",)),
    Section("dwork", "Tasks of a graph", ("cpu_us",)),
    Section("gearmonkey", "GearMonkey", ("cpu_us",), "redis-server"),
    Section("api", "Kinds of workers", ("jobs_per_second", "cpu_us")),
    Section("losses", "When a worker dies", ("p50_us",)),
    Section("memory", "Memory", ("bytes per queued job",)),
)
NAMES = ("machine", "targets", *(section.group for section in SECTIONS))


def write(document: dict[str, Any], page: Path = PAGE) -> None:
    """Put a run into the page, and its charts beside it."""
    texts = {"machine": machine_list(document["machine"]), "targets": target_table(document)}
    charts = page.parent / CHARTS
    charts.mkdir(exist_ok=True)
    for section in SECTIONS:
        rows = [row for row in document["rows"] if row["group"] == section.group]
        if not rows:
            continue
        (charts / f"{section.group}.svg").write_text(chart_of(section, rows), encoding="utf-8")
        texts[section.group] = section_text(section, rows)
    page.write_text(replaced(page.read_text(encoding="utf-8"), texts), encoding="utf-8")


def replaced(text: str, parts: dict[str, str]) -> str:
    """The text with what stands between the markers of these names exchanged."""
    for name, part in parts.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise ValueError(f"the page has no place for {name}: {begin} and {end}, once each")
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{part.strip()}\n{end}{tail}"
    return text


def markers_in(text: str) -> list[tuple[str, str]]:
    """All markers of a page: ("begin" or "end", name)."""
    return [(kind, name) for kind, name in re.findall(r"<!-- (begin|end): (\S+) -->", text)]


def machine_list(about: dict[str, str]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in about.items())


def target_table(document: dict[str, Any]) -> str:
    heads = [Head("target"), Head("wanted", True), Head("found", True), Head("")]
    rows = []
    for verdict in targets.judge(document):
        note = f" ({verdict.target.note})" if verdict.target.note else ""
        rows.append([verdict.target.text + note, verdict.wanted, verdict.found, verdict.word])
    return markdown(heads, rows)


def section_text(section: Section, rows: Sequence[Row]) -> str:
    parts = [f"![{section.title}]({CHARTS}/{section.group}.svg)"]
    for measure in section.measures:
        parts.append(f"{MEASURES[measure].capitalize()}:")
        parts.append(pivot(section, measure, rows))
    if section.lone:
        parts.append(lone_times(section, rows))
    settings = dict.fromkeys((row["peer"], row["settings"]) for row in rows)
    parts.append("\n".join(f"- {peer}: {how}" for peer, how in settings))
    full = markdown([Head(head.title.lower(), head.right) for head in HEADS], rows_of({"rows": list(rows)}))
    parts.append(f"<details><summary>All figures</summary>\n\n{full}\n\n</details>")
    return "\n\n".join(parts)


def value_of(row: Row, measure: str) -> float | None:
    if row["fault"] or row["best"] is None:
        return None
    value = row["best"].get(measure, row["best"]["notes"].get(measure))
    return None if value is None else float(value)


def pivot(section: Section, measure: str, rows: Sequence[Row]) -> str:
    """Workloads down, peers across; ours with the ratio to the reference in brackets."""
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    at = {(row["workload"], row["peer"]): row for row in rows}
    lines = []
    for workload in dict.fromkeys(
        row["workload"] for row in rows if row["fault"] or value_of(row, measure) is not None
    ):
        reference = _at(at, workload, section.reference, measure)
        lines.append([workload, *(_cell(at, workload, peer, measure, reference) for peer in peers)])
    return markdown([Head("workload"), *(Head(peer, True) for peer in peers)], lines)


def lone_times(section: Section, rows: Sequence[Row]) -> str:
    """How long one waits who is alone."""
    found = [row for row in rows if row["workload"] == section.lone]
    heads = [Head(section.lone), Head("p50, µs", True), Head("p99, µs", True)]
    return markdown(
        heads, [[row["peer"], *(figure(value_of(row, part)) for part in ("p50_us", "p99_us"))] for row in found]
    )


def _at(at: dict[tuple[str, str], Row], workload: str, peer: str, measure: str) -> float | None:
    row = at.get((workload, peer))
    return None if row is None else value_of(row, measure)


def _cell(at: dict[tuple[str, str], Row], workload: str, peer: str, measure: str, reference: float | None) -> str:
    row = at.get((workload, peer))
    if row is None:
        return ""
    if row["fault"]:
        return "FAILED"
    value = value_of(row, measure)
    text = figure(value)
    if value is not None and reference and peer.startswith("switchgear"):
        text += f" ({figure(value / reference)}x)"
    return text


def chart_of(section: Section, rows: Sequence[Row]) -> str:
    measure = section.measures[0]
    blocks = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        bars = [
            Bar(row["peer"], value_of(row, measure), "FAILED" if row["fault"] else figure(value_of(row, measure)))
            for row in rows
            if row["workload"] == workload and (row["fault"] or value_of(row, measure) is not None)
        ]
        if bars:
            blocks.append(Block(workload, tuple(bars)))
    better = "more is better" if measure == "jobs_per_second" else "less is better"
    return bar_chart(section.title, f"{MEASURES[measure]}; {better}", blocks)
