"""Three servers, of which one is killed in the middle of a run."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from contextlib import ExitStack

import pytest

from switchgear.client.draft import DraftTask, JobRecord, JobType
from tests.client.draft_faces import ASYNC_HANDLE, KINDS, SYNC_WAIT, Face, Kind, client_of, working
from tests.support.servers import Server, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS

JOBS = 45
DONE_BEFORE = 12


class Works:
    """A handler that works as fast as it can up to a certain task, and then waits for the test."""

    def __init__(self) -> None:
        self.runs: defaultdict[int, Counter[bytes]] = defaultdict(Counter)  # by server: how often what was run
        self.go_on = threading.Event()
        self.first_part_is_over = threading.Event()
        self._lock = threading.Lock()
        self._started = 0

    def __call__(self, task: DraftTask) -> bytes:
        with self._lock:
            self._started += 1
            is_late = self._started > DONE_BEFORE
        if is_late:
            self.first_part_is_over.set()
            assert self.go_on.wait(DEADLINE_SECONDS)
        with self._lock:
            self.runs[task.server.port][task.args] += 1
        return b"done " + task.args


@pytest.mark.system
@pytest.mark.parametrize("kind", KINDS)
def test_one_of_three_servers_is_killed_in_the_middle_of_a_run(kind: Kind) -> None:
    works = Works()
    with ExitStack() as harness:
        servers = [harness.enter_context(running_switchgear()) for _ in range(3)]
        client = harness.enter_context(client_of(kind, *servers))
        records = [
            client.submit("f", b"%d" % n, job_type=SYNC_WAIT if n % 3 == 0 else ASYNC_HANDLE) for n in range(JOBS)
        ]
        assert {record.server.port for record in records} == {server.port for server in servers}
        recorders = [harness.enter_context(working(kind, servers, {"f": works})) for _ in range(2)]
        harness.callback(works.go_on.set)

        assert works.first_part_is_over.wait(DEADLINE_SECONDS)
        finished = note_finished(client, records)
        assert 0 < len(finished) < JOBS
        victim = servers[1]
        victim.kill()
        works.go_on.set()
        recreated = client.recreate_unfinished()
        wait_for_all(client)

        check_recreated(victim, records, finished, recreated)
        outcomes = {record.args: record.outcome for record in [*records, *(new for _, new in recreated)]}
        assert outcomes == {b"%d" % n: (0, b"done %d" % n) for n in range(JOBS)}
        check_runs(victim, works, {old.args for old, _ in recreated}, records)
        for recorder in recorders:
            assert recorder.until("disconnected") == victim.port


def wait_for_all(client: Face) -> None:
    """Until the application has no unfinished job."""
    while client.unfinished:
        client.wait(client.unfinished[0], DEADLINE_SECONDS, poll_seconds=0.01)


def note_finished(client: Face, records: list[JobRecord]) -> set[bytes]:
    """The arguments of the jobs that the application knows to be finished."""
    for record in records:
        if record.job_type is JobType.ASYNC_HANDLE:
            client.complete(record)
    return {record.args for record in records if record.outcome is not None}


def check_recreated(
    victim: Server, records: list[JobRecord], finished: set[bytes], recreated: list[tuple[JobRecord, JobRecord]]
) -> None:
    """All that the lost server had not finished, and nothing else, was created again elsewhere."""
    lost = {record.args for record in records if record.server.port == victim.port} - finished
    # A waited-for job may have ended for the application between the look and the kill.
    late = {record.args for record in records if record.outcome is not None} - finished
    assert {old.args for old, _ in recreated} == lost - late
    assert recreated
    for old, new in recreated:
        assert (old.server.port, old.args, old.job_type) == (victim.port, new.args, new.job_type)
        assert new.server.port != victim.port


def check_runs(victim: Server, works: Works, recreated: set[bytes], records: list[JobRecord]) -> None:
    """Others' jobs ran once, at their servers; those created again once elsewhere."""
    elsewhere: Counter[bytes] = Counter()
    for port, runs in works.runs.items():
        if port != victim.port:
            elsewhere += runs
    assert set(elsewhere.values()) == {1}
    there = {record.args for record in records if record.server.port != victim.port}
    assert elsewhere.keys() == there | recreated
