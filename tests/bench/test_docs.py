"""The page of figures: what is made for it has its place there, and what people wrote stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import docs
from bench.__main__ import GROUPS, main
from switchgear.bench.results import Reading, write_json
from tests.bench.documents import cell, document

RUN = document(
    cell("gearman", "drain x1", "switchgear", Reading(10, 1.0, 9.0), Reading(10, 1.0, 9.9)),
    cell("gearman", "drain x1", "gearmand-best", Reading(10, 1.0, 10.0)),
    cell("gearman", "drain x32", "switchgear", Reading(0, 0.0, fault="lost a job")),
)


def test_the_page_has_a_place_for_everything_and_for_nothing_else() -> None:
    markers = docs.markers_in(docs.PAGE.read_text(encoding="utf-8"))
    expected = [(kind, name) for name in docs.NAMES for kind in ("begin", "end")]
    assert sorted(markers) == sorted(expected)
    for begin, end in zip(markers[::2], markers[1::2]):
        assert (begin[0], end[0], begin[1]) == ("begin", "end", end[1])


def test_every_group_has_a_section() -> None:
    assert {section.group for section in docs.SECTIONS} >= set(GROUPS)


def a_page(folder: Path) -> Path:
    page = folder / "benchmarks.md"
    places = "\n".join(f"<!-- begin: {name} -->\nold {name}\n<!-- end: {name} -->\n" for name in docs.NAMES)
    page.write_text(f"# Words\n\n{places}\nMore words.\n", encoding="utf-8")
    return page


def test_a_run_goes_between_the_markers(tmp_path: Path) -> None:
    page = a_page(tmp_path)
    docs.write(RUN, page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Words\n")
    assert text.endswith("More words.\n")
    assert "old gearman" not in text
    assert "old durable" in text  # not measured, so not touched
    assert "| drain x1 | 9.00 (0.90x) | 10.0 |" in text
    assert "| drain x32 | FAILED |  |" in text
    assert "- processor: one | two" in text
    assert (tmp_path / "benchmarks" / "gearman.svg").read_text(encoding="utf-8").startswith("<svg")
    docs.write(RUN, page)
    assert page.read_text(encoding="utf-8") == text


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for machine"):
        docs.replaced("# Words\n", {"machine": "x"})


def test_an_earlier_run_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "run.json", RUN)
    assert main(["--from", str(tmp_path / "run.json")]) == 1  # one of its cells failed
    shown = capsys.readouterr()
    assert "drain x1: processor time per job, to gearmand at its best" in shown.out
    assert "FAILED: gearman, drain x32, switchgear: lost a job" in shown.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--only", "gearman,nothing"], "there is no nothing; there are gearman"),
        (["--rounds", "0"], "--rounds: at least one"),
        (["--minutes", "0"], "--minutes: more than none"),
        (["--only", "gearman", "--write-docs"], "of one whole run"),
        (["--quick", "--write-docs"], "of one whole run"),
        (["--rounds", "1", "--write-docs"], "at least two"),
        (["--from", "run.json", "--only", "gearman"], "--from: measures nothing"),
        (["--only", ","], "--only: there are gearman"),
    ],
)
def test_wrong_usage_is_told(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def whole_run(readings: int = 2) -> dict[str, Any]:
    cells = [cell(group, "w", "switchgear", *[Reading(10, 1.0, 1.0)] * readings) for group in GROUPS]
    return {**document(*cells), "quick": False}


@pytest.mark.parametrize(
    ("run", "complaint"),
    [
        ({**whole_run(), "rows": RUN["rows"]}, "the run has no durable"),
        ({**whole_run(), "quick": True}, "the run was quick"),
        (whole_run(1), "one reading of each"),
    ],
)
def test_a_run_that_is_not_whole_does_not_become_the_page(
    run: dict[str, Any],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(docs, "write", None)  # calling it would be an error
    write_json(tmp_path / "run.json", run)
    assert main(["--from", str(tmp_path / "run.json"), "--write-docs"]) == 2
    assert complaint in capsys.readouterr().err


def test_a_whole_run_becomes_the_page_and_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(docs, "write", lambda run: written.append("page"))
    monkeypatch.setattr(docs, "write_summary", lambda run: written.append("summary"))
    write_json(tmp_path / "run.json", whole_run())
    assert main(["--from", str(tmp_path / "run.json"), "--write-docs"]) == 0
    assert written == ["page", "summary"]


def test_the_readme_has_a_place_for_the_summary() -> None:
    markers = docs.markers_in(docs.README.read_text(encoding="utf-8"))
    assert markers == [("begin", docs.SUMMARY), ("end", docs.SUMMARY)]


def test_the_summary_tells_ratios_from_the_least_to_the_greatest(tmp_path: Path) -> None:
    run = document(
        cell("gearman", "drain x1", "switchgear", Reading(10, 1.0, 9.0)),
        cell("gearman", "drain x1", "gearmand-best", Reading(10, 1.0, 10.0)),
        cell("gearman", "foreground x1", "switchgear", Reading(10, 1.0, 6.0)),
        cell("gearman", "foreground x1", "switchgear-credits", Reading(10, 1.0, 1.0)),
        cell("gearman", "foreground x1", "gearmand-best", Reading(10, 1.0, 10.0)),
    )
    readme = tmp_path / "README.md"
    readme.write_text("# Words\n<!-- begin: speed -->\nold\n<!-- end: speed -->\n", encoding="utf-8")
    docs.write_summary(run, readme)
    text = readme.read_text(encoding="utf-8")
    assert "0.6–0.9 times that of gearmand at its best" in text  # what is pushed is not among them
    assert "Celery" not in text  # not measured
    assert "old" not in text


def test_settings_that_differ_say_of_which_workload_they_are() -> None:
    one, two, other = (cell("g", name, peer) for name, peer in (("a", "p"), ("b", "p"), ("a", "q")))
    two.settings = "with more"
    text = docs.settings_list(document(one, two, other)["rows"])
    assert text == "- p (a): as it comes\n- p (b): with more\n- q: as it comes"


def test_results_of_something_else_are_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("[]")
    assert main(["--from", str(tmp_path / "run.json")]) == 2
    assert "has not the results of a run" in capsys.readouterr().err


def test_a_missing_file_is_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.startswith("bench: ")
