"""The power goes, again and again: what the server acknowledged must be true after every restart.

Peers of every kind load a server, which is killed at a random moment and started again on the same file; all that
was said is written down and has to fit together (see `crash_history`).  The test was seen to fail with a server
that acknowledged before it committed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from tests.support.servers import Server, running_switchgear
from tests.system.crash_history import History
from tests.system.crash_load import ANSWERS, Load
from tests.system.talk import unfinished

pytestmark = pytest.mark.system

# Taken out of the environment: a server refuses a variable that looks like a setting of its own and is none.
CYCLES = int(os.environ.pop("SWITCHGEAR_CRASH_CYCLES", "50"))
SEED = os.environ.pop("SWITCHGEAR_CRASH_SEED", "") or str(random.SystemRandom().randrange(10**9))

# A server that is not loaded enough to reach the moment drawn for it is killed all the same.
LONGEST_LIFE_SECONDS = 0.6
MOST_ANSWERS = 2500


@pytest.mark.timeout(60 + 5 * CYCLES)
def test_what_was_acknowledged_survives_every_crash(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    history = History()
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    for _ in range(CYCLES):
        with running_switchgear(*settings(chance), store=store) as server:
            compare(server, history)
            asyncio.run(crash_under_load(server, history, chance))
        history.crashed()
    with running_switchgear(*settings(chance), store=store) as server:
        compare(server, history)
        asyncio.run(Load(server.port, history, chance, lambda answer: None).drain())
        compare(server, history)
        assert not unfinished(server), "jobs are left that no worker is given"
    assert not history.owed


def settings(chance: random.Random) -> list[str]:
    """Without an end to attempts, because a job is often lost here; and sometimes with hardly any payload in memory."""
    payload_memory = chance.choice(("256MiB", "10KiB"))
    never_dead = ["--set", "engine.attempts=0", "--drain-timeout", "0.05s"]
    return [*never_dead, "--set", f"storage.payload_memory_bytes={payload_memory}"]


async def crash_under_load(server: Server, history: History, chance: random.Random) -> None:
    """Load the server until it has given so many answers, and kill it in that moment; or, now and then, stop it."""
    in_order = chance.random() < 0.15
    last_about = chance.choice((ANSWERS, *((kind,) for kind in ANSWERS)))
    share = chance.random()  # half of the servers die young
    last_answer = history.answers + int(chance.choice((MOST_ANSWERS**share, MOST_ANSWERS * share)))

    def end() -> None:
        if in_order and not history.is_stopping:
            history.is_stopping = True
            server.process.terminate()
        elif not in_order and server.is_running():
            server.kill()

    def end_when_it_is_time(answer: str) -> None:
        if history.answers >= last_answer and answer in last_about:
            end()

    load = asyncio.create_task(Load(server.port, history, chance, end_when_it_is_time).run())
    await asyncio.wait([load], timeout=LONGEST_LIFE_SECONDS)
    end()
    await load
    assert server.wait_stopped() == (0 if in_order else -signal.SIGKILL)


def compare(server: Server, history: History) -> None:
    """Is everything there that should be, and nothing that should not?"""
    history.listed(unfinished(server))
    if history.violations:
        told = "\n\n".join(history.violations[:5])
        replay = f"SWITCHGEAR_CRASH_SEED={SEED} SWITCHGEAR_CRASH_CYCLES={CYCLES} pytest tests/system/test_crash.py"
        count = len(history.violations)
        pytest.fail(f"{count} contradictions; the first are\n{told}\n\nonce more: {replay}", pytrace=False)
