"""Finished jobs are dropped when their retention has passed."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from switchgear.config import Config
from switchgear.model import SECOND_US
from switchgear.net import retention
from switchgear.net.retention import drop_finished_jobs
from switchgear.storage.base import Spare
from tests.net.harness import ScriptedStore, in_turns, open_harness


class DroppingStore(ScriptedStore):
    """Notes what it was to drop."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped_before_us = 0

    async def drop_finished(self, before_us: int, keep_count: int, spare: Spare = frozenset, now_us: int = 0) -> int:
        self.dropped_before_us = before_us
        raise asyncio.CancelledError  # once is enough


@in_turns
async def test_jobs_grow_old_in_a_server_that_nobody_talks_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SWEEP_SECONDS", 0)
    harness = await open_harness(store=DroppingStore())
    storage = Config().storage
    harness.clock.advance(3 * 86_400)
    with pytest.raises(asyncio.CancelledError):
        await drop_finished_jobs(harness.hub, lambda: storage)
    keep_us = storage.keep_finished_seconds * SECOND_US
    assert cast(DroppingStore, harness.store).dropped_before_us == harness.clock.now_us() - keep_us
