"""The files of a store are deleted, moved, replaced or overwritten under a running server.

Nothing is acknowledged that a restart would not have, and whoever looks sees why.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.servers import Server, free_port, running_switchgear
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, Packet, Wire
from tests.system.talk import (
    acknowledged,
    control,
    failing_start,
    grab,
    lines_with,
    run_all,
    submit,
    wait_for_line,
)

pytestmark = pytest.mark.system

FAILED = "submissions are refused until it works again"
RECOVERED = "storage works again"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def delete(database: Path) -> None:
    for file in database.parent.glob(database.name + "*"):
        if not file.name.endswith(".lock"):
            file.unlink()


def is_refused(answer: Packet, words: str) -> bool:
    return answer.type == Kind.ERROR and words.encode() in answer.body


def takes_jobs_again(wire: Wire, payload: bytes) -> None:
    eventually(lambda: submit(wire, b"mail", payload).type == Kind.JOB_CREATED, "a submission is taken")


# --- the database ---


def test_a_deleted_store_takes_no_job_and_hands_none_out(database: Path) -> None:
    with (
        running_switchgear(store=f"sqlite:{database}") as server,
        Wire(server.address) as client,
        Wire(server.address) as worker,
    ):
        acknowledged(client, b"mail", b"before")
        delete(database)
        for kind in (Kind.SUBMIT_JOB_BG, Kind.SUBMIT_JOB, *[Kind.SUBMIT_JOB_BG] * 50):
            assert is_refused(submit(client, b"mail", b"in vain", kind), "jobs.db is gone: it was deleted while in use")
        worker.send(Kind.CAN_DO, b"mail")
        assert grab(worker) is None
        assert "is gone: it was deleted" in control(client, "server")["storage_error"]
        assert len(lines_with(server, FAILED)) == 1
        assert not database.exists(), "nothing new was made in its place"
        server.process.terminate()
        assert server.wait_stopped() == 0
        assert len(lines_with(server, "the server stops while its store cannot be relied on")) == 1
        assert not lines_with(server, "Traceback")


def test_it_is_noticed_without_traffic(database: Path) -> None:
    with running_switchgear(store=f"sqlite:{database}") as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"before")
        delete(database)
        assert "jobs.db is gone" in wait_for_line(server, FAILED)
        assert "jobs.db is gone" in control(client, "server")["storage_error"]


def test_when_it_is_put_back_work_goes_on_and_all_that_was_acknowledged_is_there(database: Path) -> None:
    store = f"sqlite:{database}"
    with running_switchgear(store=store) as server, Wire(server.address) as client:
        expected = []
        for number in range(3):
            takes_jobs_again(client, b"before %d" % number)
            expected.append(b"before %d" % number)
            database.rename(database.with_name("elsewhere"))
            assert is_refused(submit(client, b"mail", b"in vain"), "it was moved while in use; put it back")
            database.with_name("elsewhere").rename(database)
        takes_jobs_again(client, b"after")
        assert control(client, "server")["storage_error"] == ""
        assert lines_with(server, RECOVERED)
        server.kill()
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"mail"]) == [*expected, b"after"]


def test_a_directory_that_is_moved_away_in_the_middle_of_things(tmp_path: Path) -> None:
    """Whatever was acknowledged, at whatever moment, is in the files that were moved."""
    state, moved = tmp_path / "state", tmp_path / "moved"
    state.mkdir()
    with running_switchgear(store=f"sqlite:{state / 'jobs.db'}") as server:
        taken = submit_until_refused(server, lambda: state.rename(moved))
        server.kill()
    assert len(taken) >= 100
    with running_switchgear(store=f"sqlite:{moved / 'jobs.db'}") as server:
        assert set(taken) <= set(run_all(server, [b"mail"]))


def test_a_log_that_is_deleted_in_the_middle_of_things(database: Path) -> None:
    """SQLite still has it open, and everything in it is saved before anything more is acknowledged."""
    store = f"sqlite:{database}"
    with running_switchgear(store=store) as server, Wire(server.address) as client:
        taken = submit_some(client, 200, after_half=log_of(database).unlink)
        server.kill()
    with running_switchgear(store=store) as server:
        assert set(taken) <= set(run_all(server, [b"mail"]))


def test_a_log_that_is_deleted_while_nothing_happens(database: Path) -> None:
    store = f"sqlite:{database}"
    with running_switchgear(store=store) as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"only in the log")
        log_of(database).unlink()
        assert "jobs.db-wal, the log of the store, was deleted or replaced" in wait_for_line(server, FAILED)
        wait_for_line(server, RECOVERED)
        server.kill()
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"mail"]) == [b"only in the log"]


def test_a_backup_that_is_copied_over_it(database: Path, tmp_path: Path) -> None:
    store, backup = f"sqlite:{database}", tmp_path / "backup"
    with running_switchgear(store=store) as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"in the backup")
        server.process.terminate()
        assert server.wait_stopped() == 0
    shutil.copy(database, backup)
    with running_switchgear(store=store) as server, Wire(server.address) as client:
        for number in range(300):
            acknowledged(client, b"mail", b"%d" % number)
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # until then a copy of the file is a copy of what it is
        connection.close()
        shutil.copyfile(backup, database)  # it stays the same file
        assert is_refused(submit(client, b"mail", b"in vain"), "was overwritten while in use, and not by SQLite")
        server.process.terminate()
        assert server.wait_stopped() == 0
    for name in ("jobs.db-wal", "jobs.db-shm"):  # as the message says
        database.with_name(name).unlink()
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"mail"]) == [b"in the backup"]


def submit_some(wire: Wire, count: int, after_half: Callable[[], object]) -> list[bytes]:
    taken = []
    for number in range(count):
        if number == count // 2:
            after_half()
        if submit(wire, b"mail", b"%d" % number).type == Kind.JOB_CREATED:
            taken.append(b"%d" % number)
    assert len(taken) > count // 2
    return taken


def submit_until_refused(server: Server, disturb: Callable[[], object]) -> list[bytes]:
    """What several clients were told is taken, until none is told so any more; disturbed when there are some."""
    taken: list[bytes] = []
    refused = threading.Barrier(5, timeout=DEADLINE_SECONDS)

    def submit_on(name: int) -> None:
        with Wire(server.address) as wire:
            number = 0
            while submit(wire, b"mail", b"%d/%d" % (name, number)).type == Kind.JOB_CREATED:
                taken.append(b"%d/%d" % (name, number))
                number += 1
        refused.wait()

    clients = [threading.Thread(target=submit_on, args=(name,)) for name in range(4)]
    for client in clients:
        client.start()
    eventually(lambda: len(taken) >= 100, "some jobs are taken")
    disturb()
    refused.wait()
    for client in clients:
        client.join()
    return taken


# --- a second server ---


def test_a_second_server_by_another_name_of_the_file(database: Path) -> None:
    with running_switchgear(store=f"sqlite:{database}") as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"payload")
        other = database.with_name("other.db")
        os.link(database, other)
        status, lines = failing_start(store=f"sqlite:{other}")
        assert (status, len(lines)) == (1, 1)
        assert "other.db is in use by another process, by one of its 2 names" in lines[0]
        acknowledged(client, b"mail", b"the first one does not mind")


def test_a_second_server_after_the_lock_file_was_deleted(database: Path) -> None:
    with running_switchgear(store=f"sqlite:{database}") as server, Wire(server.address) as client:
        database.with_name("jobs.db.lock").unlink()
        status, lines = failing_start(store=f"sqlite:{database}")
        assert (status, len(lines)) == (1, 1)
        assert "jobs.db is in use by another process" in lines[0]
        acknowledged(client, b"mail", b"the first one does not mind")


# --- its directory ---


def test_a_directory_that_is_missing_is_not_made(tmp_path: Path) -> None:
    status, lines = failing_start(store=f"sqlite:{tmp_path}/typo/jobs.db")
    assert (status, len(lines)) == (1, 1)
    assert f"there is no directory {tmp_path}/typo; if the path is right, make it: mkdir -p -m 700 " in lines[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "jobs.db"])
def test_the_state_directory_is_made_for_its_owner_only(tmp_path: Path, name: str) -> None:
    listener = f"gearman://127.0.0.1:{free_port()}"
    store = ["--store", f"sqlite:{tmp_path}/state/{name}"] if name else []
    command = [sys.executable, "-m", "switchgear", "serve", "--listen", listener, *store]
    environment = os.environ | {"SWITCHGEAR_STATE_DIR": str(tmp_path / "state")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = next(line for line in server.stdout if line.startswith("keeping jobs in sqlite:"))
        server.terminate()
    database = Path(line.strip().partition("sqlite:")[2])
    assert database.parent == tmp_path / "state"
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700
