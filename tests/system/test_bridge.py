"""The bridge between real processes, each of which is killed in the middle of the work.

Every job ends, and what ran twice was in somebody's hands when he died.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.redis_server import running_redis
from tests.support.waiting import eventually
from tests.system.bridge_stage import (
    Runs,
    all_end,
    bridged,
    gearman_worker,
    gearmonkey_worker,
    noted,
    outputs,
    payloads,
    queue_jobs,
    statuses,
    submit_all,
)
from tests.system.talk import unfinished

pytestmark = pytest.mark.system

JOBS = 1000
DURABLE_REDIS = ("--appendonly", "yes", "--appendfsync", "always")
LONG_SECONDS = 30.0
JOB_SECONDS = 90_000


def upper(texts: list[bytes]) -> list[str]:
    return [text.decode().upper() for text in texts]


# --- inbound ---


def test_inbound_the_server_is_killed(tmp_path: Path) -> None:
    runs = Runs()
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    texts = payloads(JOBS)
    with running_redis() as server, server.client() as client:
        ids = queue_jobs(client, "shout", texts)
        with bridged(server, store=store) as first, gearman_worker(first, "shout", runs):
            all_end(client, "shout", ids[: JOBS // 4])
            first.kill()
        before = set(runs.counts)
        written = {text for text, status in zip(texts, statuses(client, "shout", ids)) if status == "success"}
        assert len(written) < JOBS, "nothing was left to do"
        with bridged(server, store=store) as second, gearman_worker(second, "shout", runs):
            all_end(client, "shout", ids)
            eventually(lambda: not unfinished(second), "the server has nothing left")
        assert outputs(client, "shout", ids) == upper(texts)
        assert runs.repeated <= before - written
        assert client.zcard("switchgear:claimed:shout") == client.hlen("switchgear:holders:shout") == 0


def test_inbound_redis_is_killed() -> None:
    runs = Runs()
    texts = payloads(JOBS)
    with running_redis(*DURABLE_REDIS) as server, server.client() as client:
        ids = queue_jobs(client, "shout", texts)
        with bridged(server) as ours, gearman_worker(ours, "shout", runs):
            all_end(client, "shout", ids[: JOBS // 4])
            server.kill()
            server.start()
            assert len(runs) < JOBS, "nothing was left to do"
            all_end(client, "shout", ids)
        assert outputs(client, "shout", ids) == upper(texts)
        assert runs.repeated == set(), "the server was never in doubt about what it held"
        assert client.zcard("switchgear:claimed:shout") == client.hlen("switchgear:holders:shout") == 0


def test_inbound_two_servers_share_the_work_and_one_of_them_is_killed() -> None:
    runs = Runs()
    texts = payloads(JOBS)
    with running_redis() as server, server.client() as client:
        with bridged(server) as first, bridged(server) as second, gearman_worker(second, "shout", runs, 5):
            with gearman_worker(first, "shout", runs, 5):
                eventually(lambda: client.get("count:shout") == "2", "both are counted")
                ids = queue_jobs(client, "shout", texts)
                all_end(client, "shout", ids[: JOBS // 4])
                first.kill()
            before = set(runs.counts)
            all_end(client, "shout", ids)
            eventually(lambda: client.get("count:shout") == "1", "the dead one is not counted any more")
        assert min(runs.by_port[first.port], runs.by_port[second.port]) > 0
        written = {text for text, status in zip(texts, statuses(client, "shout", ids)) if status == "success"}
        assert written == set(texts)
        assert runs.repeated <= before
        # What its workers had in their hands, and results that were on their way to the Redis: one batch of each.
        assert len(runs.repeated) <= 4 * 5, "only what was under way"
        assert client.get("count:shout") == "0"


# --- outbound ---


def test_outbound_a_gearmonkey_worker_is_killed(tmp_path: Path) -> None:
    notes = tmp_path / "runs"
    with (
        running_redis() as server,
        bridged(server) as ours,
        gearmonkey_worker(server, "shout", notes) as first,
        gearmonkey_worker(server, "shout", notes),
    ):
        submit_all(ours, "shout", payloads(JOBS))
        eventually(lambda: len(noted(notes)) > JOBS // 4, "a part is done")
        first.kill()
        eventually(lambda: not unfinished(ours), "every job ends", LONG_SECONDS)
    runs = noted(notes)
    assert set(runs) == set(payloads(JOBS))
    assert sum(runs.values()) - JOBS <= 1, "only the job in its hands"


def test_outbound_the_server_is_killed(tmp_path: Path) -> None:
    notes = tmp_path / "runs"
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_redis() as server, server.client() as client, gearmonkey_worker(server, "shout", notes):
        with bridged(server, store=store) as first:
            submit_all(first, "shout", payloads(JOBS))
            eventually(lambda: len(noted(notes)) > JOBS // 4, "a part is done")
            first.kill()
        with bridged(server, store=store) as second:
            eventually(lambda: not unfinished(second), "every job ends", LONG_SECONDS)
            marks = client.keys("switchgear:pushed:*")
            assert all(client.ttl(mark) <= JOB_SECONDS for mark in marks), (
                "what the crash has left is remembered for ever"
            )
    assert noted(notes) == dict.fromkeys(payloads(JOBS), 1)


def test_outbound_redis_is_killed(tmp_path: Path) -> None:
    notes = tmp_path / "runs"
    with (
        running_redis(*DURABLE_REDIS) as server,
        bridged(server, busy=4) as ours,
        gearmonkey_worker(server, "shout", notes),
    ):
        submit_all(ours, "shout", payloads(JOBS))
        eventually(lambda: len(noted(notes)) > JOBS // 4, "a part is done")
        server.kill()
        server.start()
        eventually(lambda: not unfinished(ours), "every job ends", LONG_SECONDS)
        log = ours.output()
    runs = noted(notes)
    assert set(runs) == set(payloads(JOBS))
    assert sum(runs.values()) - JOBS <= 1, f"only the job that was being taken\n{log[-2000:]}"
