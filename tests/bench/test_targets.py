"""Targets are judged from the rows of one run."""

from __future__ import annotations

from bench.targets import TARGETS, Verdict, judge
from switchgear.bench.results import Cell, Reading
from tests.bench.documents import cell, document


def verdict(text: str, *cells: Cell) -> Verdict:
    found = [each for each in judge(document(*cells)) if each.target.text.startswith(text)]
    assert len(found) == 1, found
    return found[0]


def gearman(peer: str, cpu_us: float, fault: str = "") -> Cell:
    return cell("gearman", "background x32", peer, Reading(10, 1.0, cpu_us, fault=fault))


BEST = "background x32: processor time per job, to gearmand at its best"


def test_a_ratio_that_is_small_enough_is_met() -> None:
    found = verdict(BEST, gearman("switchgear", 1.6), gearman("gearmand-best", 2.0))
    assert (found.word, found.found, found.wanted) == ("met", "0.8 x", "≤ 0.8 x")


def test_a_ratio_that_is_too_large_is_missed() -> None:
    found = verdict(BEST, gearman("switchgear", 1.7), gearman("gearmand-best", 2.0))
    assert found.word == "missed"


def test_without_the_other_side_there_is_no_verdict() -> None:
    assert verdict(BEST, gearman("switchgear", 1.6)).word == "not measured"
    broken = verdict(BEST, gearman("switchgear", 1.6), gearman("gearmand-best", 2.0, fault="lost a job"))
    assert broken.word == "not measured"


def test_a_rate_must_be_large_enough() -> None:
    def kept(peer: str, jobs: int) -> Cell:
        return cell("durable", "background x1", peer, Reading(jobs, 1.0, 1.0))

    text = "durable background x1, 64 clients"
    assert verdict(text, kept("switchgear-sqlite", 300), kept("gearmand-sqlite", 10)).word == "met"
    assert verdict(text, kept("switchgear-sqlite", 290), kept("gearmand-sqlite", 10)).word == "missed"


def test_tasks_are_held_against_the_best_settings_of_a_library_that_promise_the_same() -> None:
    def bulk(peer: str, rate: int) -> Cell:
        return cell("tasks", "bulk", peer, Reading(rate, 1.0))

    others = (bulk("celery", 10), bulk("celery-threads", 20), bulk("celery-no-results", 90))
    found = verdict("Python tasks in bulk, end to end: tasks a second, to Celery", bulk("switchgear", 300), *others)
    assert found.value == 15
    kept = (bulk("switchgear", 300), bulk("switchgear-asyncio", 400), bulk("switchgear-sqlite", 900))
    found = verdict("Python tasks in bulk, end to end: tasks a second, to Celery", *kept, *others)
    assert found.value == 20


def test_a_rate_is_judged_by_the_fastest_round_whatever_it_cost() -> None:
    ours = cell("tasks", "bulk", "switchgear", Reading(100, 1.0, 1.0), Reading(300, 1.0, 2.0))
    theirs = cell("tasks", "bulk", "rq-pool", Reading(20, 1.0, 2.0), Reading(10, 1.0, 1.0))
    assert verdict("Python tasks in bulk, end to end: tasks a second, to RQ", ours, theirs).value == 15


def test_a_figure_of_ours_alone_may_be_a_note() -> None:
    row = cell("memory", "jobs that wait", "switchgear", Reading(1, 1.0, notes={"bytes per queued job": 480.0}))
    found = verdict("memory of a queued job, memory:", row)
    assert (found.word, found.found) == ("met", "480 B")


def test_no_two_targets_have_the_same_words() -> None:
    assert len({target.text for target in TARGETS}) == len(TARGETS)
