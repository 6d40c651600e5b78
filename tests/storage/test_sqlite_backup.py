"""`switchgear backup`: the copy is one state of the store, whatever its server writes meanwhile."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from switchgear.errors import StorageError
from switchgear.storage import sqlite_backup
from switchgear.storage.sqlite_backup import back_up_database
from tests.cli.commands import call
from tests.support.servers import running_switchgear
from tests.support.terminal import on_terminal
from tests.support.wire import Kind, Wire


def database(path: Path, rows: int) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE pairs (a INTEGER, b INTEGER, filling BLOB)")
        db.executemany("INSERT INTO pairs VALUES (?, 0, zeroblob(4000))", [(number,) for number in range(rows)])
        db.commit()
    return path


def pairs(path: Path) -> tuple[int, int]:
    """How many rows there are, and how many different values of `b`; the database is whole."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        count, different = db.execute("SELECT count(*), count(DISTINCT b) FROM pairs").fetchone()
        return count, different


def test_the_copy_is_one_state_while_another_program_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_backup, "PAGES", 10)
    source = database(tmp_path / "jobs.db", 300)
    shown: list[tuple[int, int]] = []

    def write() -> None:
        with closing(sqlite3.connect(source, timeout=30)) as db:
            db.execute("UPDATE pairs SET b = b + 1, a = a + 1")
            db.execute("INSERT INTO pairs VALUES (-1, -1, zeroblob(100000))")
            db.commit()

    def show(done: int, total: int) -> None:
        shown.append((done, total))
        if len(shown) in (2, 5, 9):
            writer = threading.Thread(target=write)
            writer.start()
            writer.join(60)

    size = back_up_database(source, tmp_path / "copy.db", show)
    assert (tmp_path / "copy.db").stat().st_size == size
    assert pairs(tmp_path / "copy.db") == (300, 1)
    assert pairs(source)[0] == 303
    done = [each for each, _ in shown]
    assert done == sorted(done)
    assert len({total for _, total in shown}) == 1
    assert shown[-1][0] == shown[-1][1] == size
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_copied(tmp_path: Path) -> None:
    source = database(tmp_path / "jobs.db", 3)
    (tmp_path / "there.db").write_text("precious")
    (tmp_path / "text.db").write_text("no database" * 1000)
    for given, target, complaint in (
        (source, tmp_path / "there.db", "exists"),
        (tmp_path / "missing.db", tmp_path / "copy.db", "no such file"),
        (tmp_path / "text.db", tmp_path / "copy.db", "not a database"),
        (source, tmp_path / "nowhere" / "copy.db", "No such file"),
    ):
        with pytest.raises(StorageError, match=complaint):
            back_up_database(given, target, lambda done, total: None)
    assert (tmp_path / "there.db").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == []


@pytest.mark.system
def test_the_command_beside_a_running_server(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    copy = tmp_path / "copy.db"
    with running_switchgear(store=store) as server, Wire(server.address) as peer:
        peer.send(Kind.SUBMIT_JOB_BG, b"mail", b"", b"payload")
        peer.receive_packet()
        done = call(server, "backup", store, str(copy))
        assert done.exit_code == 0, done.output
        assert done.stderr.startswith("copied ")
        assert call(server, "backup", store, str(copy)).exit_code == 1
        assert "pg_dump" in call(server, "backup", "postgresql://jobs@db/jobs", str(tmp_path / "x")).stderr
        output = on_terminal(80, "backup", store, str(tmp_path / "second.db"))
        assert "copied" in output
        peer.send(Kind.SUBMIT_JOB_BG, b"mail", b"", b"later")  # the server goes on
        peer.receive_packet()
    with running_switchgear(store=f"sqlite:{copy}") as server:
        assert call(server, "functions", "--json").stdout.count('"ready": 1') == 1
