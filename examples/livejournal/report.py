"""The end: what the job log tells, and whether all was as expected."""

from __future__ import annotations

from collections.abc import Iterable

from examples.livejournal.checks import Finding
from examples.livejournal.screen import Screens
from switchgear.joblog import FunctionSummary, JobLog

__all__ = ["show_findings", "show_log"]

HEADS = ("WHAT RAN", "RUNS", "OK", "FAILED", "UNFINISHED", "MEAN", "LONGEST")


def show_log(log: JobLog, screen: Screens) -> None:
    """What ran and how long it took, what failed and why, what had to be tried again."""
    screen.say("\nThe job log:\n")
    screen.table(HEADS, map(_row, log.summary()))
    for run in log.failures():
        screen.say(f"\nfailed: {run.function} {run.key}, code {run.result_code}: {run.error}")
    for run in log.ran():
        if run.attempts > 1:
            screen.say(f"tried again: {run.function} {run.key}, {run.state} at attempt {run.attempts}")


def _row(summary: FunctionSummary) -> list[str]:
    counts = (summary.runs, summary.ok, summary.failed, summary.unfinished)
    durations = (summary.mean_seconds, summary.longest_seconds)
    return [summary.function, *map(str, counts), *("" if time is None else f"{time:.3f} s" for time in durations)]


def show_findings(findings: Iterable[Finding], screen: Screens) -> bool:
    """Each with whether it is so; returns whether all are."""
    screen.say("\nWhat came of it:\n")
    all_good = True
    for finding in findings:
        all_good &= finding.is_so
        screen.say(f"  {'ok     ' if finding.is_so else 'NOT SO '} {finding.claim}")
    return all_good
