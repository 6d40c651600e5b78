"""The tables and charts of docs/benchmarks.md, made from the results of one run.

The page is written by people; between `<!-- begin: NAME -->` and `<!-- end: NAME -->` stands what is made here.
So it is with the few lines about speed in the README.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import targets
from switchgear.bench.chart import Bar, Block, bar_chart
from switchgear.bench.results import figure_of
from switchgear.bench.table import HEADS, Head, figure, markdown, rows_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
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
    Section("http", "HTTP beside Gearman", ("cpu_us",), "gearman"),
    Section("api", "Kinds of workers", ("jobs_per_second", "cpu_us")),
    Section("losses", "When a worker dies", ("p50_us",)),
    Section("memory", "Memory", ("bytes per queued job",)),
)
SUMMARY = "speed"  # in the README
# What the README says of the targets whose words match; from the least to the greatest.
SAID = (
    (
        "processor time per job, six shapes of Gearman work in memory: {} times that of gearmand at its best setting",
        r"[^,]*: processor time per job, to gearmand at its best",
    ),
    (
        "processor time per job, the same six shapes: {} times that of gearmand as shipped",
        r"[^,]*: processor time per job, to gearmand as shipped",
    ),
    ("durable submissions of 64 clients: {} times as many a second as with gearmand's SQLite queue", r"durable .*"),
    (
        "Python tasks that do nothing, end to end: {} times as many a second as with Celery, RQ, Dramatiq and Huey",
        r"Python tasks .*",
    ),
    ("memory of a job that waits: {} bytes with `memory:`", r"memory of a queued job, memory:"),
    ("memory of a job that waits: {} bytes with `sqlite:`", r"memory of a queued job, sqlite:"),
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


def write_summary(document: dict[str, Any], readme: Path = README) -> None:
    """Put the outcome of a run into the README."""
    text = replaced(readme.read_text(encoding="utf-8"), {SUMMARY: summary(document)})
    readme.write_text(text, encoding="utf-8")


def summary(document: dict[str, Any]) -> str:
    """A run in a few lines; what was not measured is left out."""
    verdicts = targets.judge(document)
    about = document["machine"]
    said = []
    for text, pattern in SAID:
        matching = [verdict for verdict in verdicts if re.fullmatch(pattern, verdict.target.text)]
        values = sorted(verdict.value for verdict in matching if verdict.value is not None)
        if values:
            said.append("- " + text.format(_range(values[0], values[-1])))
    how = ", ".join(f"{name} {about[name]}" for name in ("switchgear", "python", "processor") if name in about)
    return "\n".join([f"From one run of `make bench` ({how}):", "", *said])


def _range(least: float, most: float) -> str:
    """Both ends with two digits that count; one figure when they are the same."""
    first, last = (f"{value:.2g}" if value < 10 else f"{value:,.0f}" for value in (least, most))
    return first if first == last else f"{first}–{last}"


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
    parts.append(settings_list(rows))
    full = markdown([Head(head.title.lower(), head.right) for head in HEADS], rows_of({"rows": list(rows)}))
    parts.append(f"<details><summary>All figures</summary>\n\n{full}\n\n</details>")
    return "\n\n".join(parts)


def settings_list(rows: Sequence[Row]) -> str:
    """How each peer was started; where it was not always the same, for which workloads."""
    workloads: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        workloads.setdefault((row["peer"], row["settings"]), []).append(row["workload"])
    peers = [peer for peer, _ in workloads]
    return "\n".join(
        f"- {peer} ({'; '.join(names)}): {how}" if peers.count(peer) > 1 else f"- {peer}: {how}"
        for (peer, how), names in workloads.items()
    )


def pivot(section: Section, measure: str, rows: Sequence[Row]) -> str:
    """Workloads down, peers across; ours with the ratio to the reference in brackets."""
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    at = {(row["workload"], row["peer"]): row for row in rows}
    lines = []
    for workload in dict.fromkeys(
        row["workload"] for row in rows if row["fault"] or figure_of(row, measure) is not None
    ):
        reference = _at(at, workload, section.reference, measure)
        lines.append([workload, *(_cell(at, workload, peer, measure, reference) for peer in peers)])
    return markdown([Head("workload"), *(Head(peer, True) for peer in peers)], lines)


def lone_times(section: Section, rows: Sequence[Row]) -> str:
    """How long one waits who is alone."""
    found = [row for row in rows if row["workload"] == section.lone]
    heads = [Head(section.lone), Head("p50, µs", True), Head("p99, µs", True)]
    return markdown(
        heads, [[row["peer"], *(figure(figure_of(row, part)) for part in ("p50_us", "p99_us"))] for row in found]
    )


def _at(at: dict[tuple[str, str], Row], workload: str, peer: str, measure: str) -> float | None:
    row = at.get((workload, peer))
    return None if row is None else figure_of(row, measure)


def _cell(at: dict[tuple[str, str], Row], workload: str, peer: str, measure: str, reference: float | None) -> str:
    row = at.get((workload, peer))
    if row is None:
        return ""
    if row["fault"]:
        return "FAILED"
    value = figure_of(row, measure)
    text = figure(value)
    if value is not None and reference and peer.startswith("switchgear"):
        text += f" ({figure(value / reference)}x)"
    return text


def chart_of(section: Section, rows: Sequence[Row]) -> str:
    measure = section.measures[0]
    blocks = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        bars = [
            Bar(row["peer"], figure_of(row, measure), "FAILED" if row["fault"] else figure(figure_of(row, measure)))
            for row in rows
            if row["workload"] == workload and (row["fault"] or figure_of(row, measure) is not None)
        ]
        if bars:
            blocks.append(Block(workload, tuple(bars)))
    better = "more is better" if measure == "jobs_per_second" else "less is better"
    return bar_chart(section.title, f"{MEASURES[measure]}; {better}", blocks)
