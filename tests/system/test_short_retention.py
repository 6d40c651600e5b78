"""A job that is kept for a second after its end is gone soon after that, not at the next of the rare sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchgear import App
from switchgear.app.worker.background_worker import start_background
from switchgear.errors import JobUnknown
from tests.support.servers import running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.system


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_short_retention_is_met_in_time(tmp_path: Path, kind: str) -> None:
    store = "memory:" if kind == "memory" else f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear(store=store) as server, App(f"gearman://127.0.0.1:{server.port}") as app:

        @app.task(name="short", retention=1)
        def short() -> str:
            return "done"

        @app.task(name="usual")
        def usual() -> str:
            return "done"

        def is_gone() -> bool:
            try:
                job.status()
            except JobUnknown:
                return True
            return False

        with start_background(app):
            job, kept = short.submit(), usual.submit()
            assert job.result(DEADLINE_SECONDS) == kept.result(DEADLINE_SECONDS) == "done"
            eventually(is_gone, "it is dropped", 8.0)
            assert kept.status().state == "done"
