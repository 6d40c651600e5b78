"""How the error of a job is told to Django."""

from __future__ import annotations

import pytest

from switchgear.app.job_execution import error_text
from switchgear.contrib.django.backend import failure


class Outer:
    class OutOfStock(Exception):
        """One with a name of several parts."""


def text_of(error: Exception) -> str:
    try:
        raise error
    except Exception as raised:
        return error_text(raised)


UNREADABLE = "ArgumentError: order: no such order\n\nThe task was not called: its arguments could not be read."


@pytest.mark.parametrize(
    ("state", "error", "path"),
    [
        ("failed", text_of(ValueError("too bad")), "builtins.ValueError"),
        ("failed", text_of(ValueError("two lines\nthat end: so")), "builtins.ValueError"),
        ("failed", text_of(Outer.OutOfStock("shoes")), f"{__name__}.Outer.OutOfStock"),
        ("failed", text_of(KeyError()), "builtins.KeyError"),
        ("failed", UNREADABLE, "switchgear.errors.ArgumentError"),
        ("failed", "worker lost", "switchgear.errors.JobLost"),
        ("failed", "timed out in attempt 1, the last one", "switchgear.errors.JobTimedOut"),
        ("failed", None, "switchgear.errors.JobLost"),
        ("cancelled", None, "switchgear.errors.JobCancelled"),
        ("expired", "", "switchgear.errors.JobExpired"),
    ],
    ids=[
        "usual",
        "several lines",
        "nested class",
        "no message",
        "unreadable",
        "lost",
        "timed out",
        "none",
        "cancelled",
        "expired",
    ],
)
def test_the_exception_is_named(state: str, error: str | None, path: str) -> None:
    assert failure({"state": state, "error": error}).exception_class_path == path
