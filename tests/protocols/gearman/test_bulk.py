"""Bulk actions over CONTROL: their answers tell only what is stored."""

from __future__ import annotations

from switchgear import App
from switchgear.testing import in_memory


def test_one_request_cancels_and_retries_very_many() -> None:
    app = App("gearman://127.0.0.1:1")

    @app.task(name="f")
    def task(number: int) -> int:
        return number

    with in_memory(app) as server:
        del server
        task.options(delay=60).submit_many(range(1500))
        tried = app.bulk("cancel", task=task, dry_run=True)
        assert (tried.matched, tried.changed, tried.refresh().is_finished) == (1500, 0, True)
        action = app.bulk("cancel", task="f")
        assert (action.matched, len(action.examples)) == (1500, 10)
        seen: list[int] = []
        action.wait(lambda progress: seen.append(progress.handled))
        assert (action.state, action.changed, seen[-1]) == ("done", 1500, 1500)
        assert app.bulk("retry", states=["cancelled"], limit=7).wait().changed == 7
