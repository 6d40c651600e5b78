"""How `switchgear cancel` shows the progress of a bulk action, and aborts it."""

from __future__ import annotations

from typing import Any

import pytest

from switchgear.cli import bulk_progress
from switchgear.cli.bulk_progress import change_in_bulk
from switchgear.cli.progress import ProgressBar


class SlowServer:
    """Has handled 10 jobs more at each look; the second look is interrupted if `interrupted`."""

    def __init__(self, matched: int, *, interrupted: bool = False) -> None:
        self.matched = matched
        self.interrupted = interrupted
        self.asked: list[str] = []

    def control(self, verb: str, **arguments: Any) -> Any:
        self.asked.append(verb)
        looks = self.asked.count("bulk_actions")
        if looks == 2 and self.interrupted and verb == "bulk_actions":
            raise KeyboardInterrupt
        handled = min(self.matched, 10 * looks)
        state = "running" if handled < self.matched else "done"
        progress = {"id": "b-1", "state": state, "matched": self.matched, "handled": handled, "changed": handled}
        return [progress] if verb == "bulk_actions" else progress


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_progress, "PAUSE_SECONDS", 0)


def test_progress_is_shown_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[int, int]] = []
    monkeypatch.setattr(ProgressBar, "show", lambda bar, done, total: shown.append((done, total)))
    server: Any = SlowServer(25)
    assert change_in_bulk(server, "cancel", {"function": "f"}, None, "cancelled") == 25
    assert shown == [(10, 25), (20, 25), (25, 25)]
    assert capsys.readouterr().err == ""


def test_an_interrupt_aborts_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    server: Any = SlowServer(100, interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        change_in_bulk(server, "cancel", {"function": "f"}, None, "cancelled")
    assert server.asked[-1] == "abort_bulk"
    assert capsys.readouterr().err.endswith("aborted: 20 of 100 cancelled\n")
