"""What is written to the ledger can be read again, whole or up to a moment."""

from __future__ import annotations

from pathlib import Path

from torture.history import History, replayed
from torture.ledger import Ledger, read_ledger


def test_a_history_can_be_replayed_up_to_a_moment(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    history = History(ledger)
    history.record("settings", 3, 0.0)
    history.record("submitting", "t1", "mail", "", -1, 0)
    history.record("acknowledged", "t1", 1, "submitter")
    moment_ns = history.now_ns
    history.record("submitting", "t2", "mail", "", -1, 0)
    history.record("acknowledged", "t2", 2, "submitter")
    ledger.flush()
    events = list(read_ledger(tmp_path / "ledger"))
    ledger.close()
    assert [job.tokens for job in replayed(events, moment_ns).owed] == [["t1"]]
    assert [job.tokens for job in replayed(events, history.now_ns).owed] == [["t1"], ["t2"]]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(b'[1, "gone"]\n[2, "go')
    assert list(read_ledger(tmp_path / "ledger")) == [(1, "gone")]
