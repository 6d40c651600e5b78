"""The audit log in each database."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchgear.joblog import audit
from switchgear.joblog.audit import AuditEntry, AuditQuery, AuditWriter
from switchgear.joblog.job_log import JobLog
from tests.support.postgres import Cluster

SECOND = 1_000_000


def entry(at: int, verb: str = "pause", outcome: str = "done", target: str = "function=mail") -> AuditEntry:
    return AuditEntry(at * SECOND, "ops", "gearman", "10.0.0.1:5", verb, target, outcome)


def check(log: JobLog) -> None:
    log.put_audit("host", [entry(at, target=f"n={at}\0é") for at in range(1, 6)])
    found = log.find_audit(AuditQuery(limit=2))
    assert [(each.at, each.target) for each in found] == [(5.0, "n=5\\x00é"), (4.0, "n=4\\x00é")]
    assert (found[0].identity, found[0].protocol, found[0].address, found[0].host) == (
        "ops",
        "gearman",
        "10.0.0.1:5",
        "host",
    )
    assert [each.at for each in log.find_audit(AuditQuery(before_id=found[-1].id))] == [3.0, 2.0, 1.0]
    assert [each.at for each in log.find_audit(AuditQuery(since=2, until=4))] == [3.0, 2.0]
    assert log.audit_drop_bound(3 * SECOND, 10) == 3 * SECOND
    assert log.audit_drop_bound(3 * SECOND, 1) == 4 * SECOND + 1
    assert log.drop_audit(3 * SECOND, 1) == 1
    assert log.drop_audit(3 * SECOND, 10) == 1
    assert [each.at for each in log.find_audit(AuditQuery())] == [5.0, 4.0, 3.0]
    assert log.ran() == []


def test_sqlite(tmp_path: Path) -> None:
    with JobLog.open(f"sqlite:{tmp_path / 'log.db'}") as log:
        check(log)


@pytest.mark.xdist_group("postgresql")
def test_postgresql(postgres: Cluster) -> None:
    with JobLog.open(postgres.new_url()) as log:
        check(log)


def test_entries_wait_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MOST_WAITING", 3)
    noted: list[int] = []
    writer = AuditWriter("host", lambda: noted.append(1))
    for at in range(5):
        writer.note(entry(at))
    assert (writer.waiting, writer.dropped, len(noted)) == (3, 2, 3)
    with JobLog.open(f"sqlite:{tmp_path / 'log.db'}") as log:
        writer.write(log)
        writer.write(log)
        assert writer.waiting == 0
        assert [each.at for each in log.find_audit(AuditQuery())] == [2.0, 1.0, 0.0]


def test_of_many_refusals_in_a_second_some_are_written() -> None:
    writer = AuditWriter("host", lambda: None)
    for _ in range(100):
        writer.note(entry(1, outcome="refused"))
    writer.note(entry(1))
    writer.note(entry(2, outcome="refused"))
    assert writer.waiting == audit.REFUSALS_PER_SECOND + 2
