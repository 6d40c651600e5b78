"""The store fails: nothing is acknowledged that is not kept, everybody is told, and all goes on when there is room."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import pytest

from tests.support.servers import running_switchgear
from tests.support.waiting import eventually
from tests.support.wire import Kind, NothingArrivedError, Packet, Wire, request
from tests.system.full_disk import no_room
from tests.system.talk import (
    MIB,
    Deaf,
    acknowledged,
    control,
    failing_start,
    grab,
    lines_with,
    resident_bytes,
    run_all,
    submit,
    unfinished,
    wait_for_line,
)

pytestmark = pytest.mark.system

FAILED = "submissions are refused until it works again"
RECOVERED = "storage works again"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def is_refused_for_storage(answer: Packet) -> bool:
    return answer.type == Kind.ERROR and answer.body.startswith(b"QUEUE_ERROR\0storage failed: ")


def wait_until_it_takes_jobs(wire: Wire, function: bytes, payload: bytes) -> None:
    """Submit until it is acknowledged."""

    def is_taken() -> bool:
        answer = submit(wire, function, payload)
        assert answer.type == Kind.JOB_CREATED or is_refused_for_storage(answer)
        return answer.type == Kind.JOB_CREATED

    eventually(is_taken, "a submission is taken")


# --- no room ---


def test_without_room_submissions_are_refused_and_everything_else_is_answered(database: Path) -> None:
    with running_switchgear(store=f"sqlite:{database}") as server, Wire(server.address) as client:
        before = acknowledged(client, b"mail", b"before")
        with no_room(server.pid, database):
            for number in range(50):  # all on their way before the first answer
                client.send(Kind.SUBMIT_JOB_BG, b"mail", b"", b"in flight %d" % number)
            assert all(is_refused_for_storage(client.receive_packet()) for _ in range(50))
            assert is_refused_for_storage(submit(client, b"mail", b"in vain", Kind.SUBMIT_JOB))
            for _ in range(1000):  # in the course of which it looks more than once whether there is room
                assert is_refused_for_storage(submit(client, b"mail", b"in vain"))
            client.send(Kind.GET_STATUS, before)
            assert client.receive() == Packet(Kind.STATUS_RES, before + b"\x001\x000\x000\x000")
            assert client.ask("status") == [b"mail\t1\t0\t0\n", b".\n"]
            client.expect_nothing()  # by way of an echo
            assert "cannot be written" in control(client, "server")["storage_error"]
            with Wire(server.address) as newcomer:
                newcomer.send(Kind.CAN_DO, b"mail")
                assert grab(newcomer) is None
        wait_for_line(server, RECOVERED)
        assert control(client, "server")["storage_error"] == ""
        assert len(lines_with(server, FAILED)) == 1
        assert len(lines_with(server, RECOVERED)) == 1
        assert not lines_with(server, "Traceback")


def test_what_was_acknowledged_before_and_after_is_kept_and_nothing_else(database: Path) -> None:
    store = f"sqlite:{database}"
    with running_switchgear(store=store) as server, Wire(server.address) as client:
        for number in range(30):
            acknowledged(client, b"mail", b"before %d" % number)
        for round_number in range(3):
            with no_room(server.pid, database):
                assert is_refused_for_storage(submit(client, b"mail", b"in vain"))
            wait_until_it_takes_jobs(client, b"mail", b"after %d" % round_number)
        server.kill()
    with running_switchgear(store=store) as server:
        expected = [b"before %d" % number for number in range(30)] + [b"after %d" % number for number in range(3)]
        assert run_all(server, [b"mail"]) == expected


def test_workers_that_fell_asleep_without_room_are_woken_when_there_is_some(database: Path) -> None:
    with running_switchgear(store=f"sqlite:{database}") as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"before")
        with Wire(server.address) as worker:
            with no_room(server.pid, database):
                assert is_refused_for_storage(submit(client, b"mail", b"in vain"))
                worker.send(Kind.CAN_DO, b"mail")
                assert grab(worker) is None
                worker.send(Kind.PRE_SLEEP)
                worker.expect_nothing()
            assert worker.receive_packet() == Packet(Kind.NOOP, b"")
            job = grab(worker)
            assert job is not None
            assert job[1] == b"before"


def test_a_completion_without_room_is_acknowledged_once_it_is_kept(database: Path) -> None:
    store = f"sqlite:{database}"
    with (
        running_switchgear(store=store) as server,
        Wire(server.address) as client,
        Wire(server.address) as worker,
        Wire(server.address) as waiting_client,
    ):
        acknowledged(client, b"mail", b"payload")
        waiting = acknowledged(waiting_client, b"urgent", b"payload", Kind.SUBMIT_JOB)
        worker.send(Kind.CAN_DO, b"mail")
        worker.send(Kind.CAN_DO, b"urgent")
        jobs = [grab(worker), grab(worker)]
        worker.expect_nothing()
        with no_room(server.pid, database):
            assert is_refused_for_storage(submit(client, b"mail", b"in vain"))
            results = [request(Kind.WORK_COMPLETE, job[0], b"result") for job in jobs if job is not None]
            # In one piece: once one of its answers has to wait for the store, the server reads no more of it.
            worker.send_bytes(b"".join(results) + request(Kind.ECHO_REQ, b"is it kept?"))
            # Nobody relies on a job that somebody waits for, so its result may go.
            assert waiting_client.receive_packet() == Packet(Kind.WORK_COMPLETE, waiting + b"\0result")
            client.expect_nothing()
            with pytest.raises(NothingArrivedError):  # the server has read the echo long since
                worker.receive(0.1)
        assert worker.receive_packet() == Packet(Kind.ECHO_RES, b"is it kept?")
        server.kill()
    with running_switchgear(store=store) as server:
        assert unfinished(server) == []


def test_answers_that_wait_for_room_do_not_pile_up(database: Path) -> None:
    store = f"sqlite:{database}"
    with running_switchgear(store=store) as server, Wire(server.address) as client, Deaf(server) as worker:
        handle = acknowledged(client, b"mail", b"payload")
        worker.send(request(Kind.CAN_DO, b"mail") + request(Kind.GRAB_JOB))
        eventually(lambda: client.ask("status")[0] == b"mail\t1\t1\t1\n", "the worker has the job")
        before = resident_bytes(server)
        with no_room(server.pid, database):
            assert is_refused_for_storage(submit(client, b"mail", b"in vain"))
            worker.send(request(Kind.WORK_COMPLETE, handle, b""))
            echoes = range(100)
            assert not all(worker.send(request(Kind.ECHO_REQ, b"x" * 1_000_000)) for _ in echoes)
            client.expect_nothing()
            assert resident_bytes(server) - before < 30 * MIB
        eventually(lambda: client.ask("status")[0] == b"mail\t0\t0\t1\n", "the job is done")


def test_a_server_that_is_killed_without_room_has_what_it_had(database: Path) -> None:
    store = f"sqlite:{database}"
    with (
        running_switchgear(store=store) as server,
        Wire(server.address) as client,
        Wire(server.address) as worker,
    ):
        acknowledged(client, b"mail", b"waits")
        acknowledged(client, b"report", b"runs")
        worker.send(Kind.CAN_DO, b"report")
        job = grab(worker)
        assert job is not None
        with no_room(server.pid, database):
            assert is_refused_for_storage(submit(client, b"mail", b"in vain"))
            worker.send(Kind.WORK_COMPLETE, job[0], b"lost, and not acknowledged")
            server.kill()
    with running_switchgear(store=store) as server:
        assert sorted(run_all(server, [b"mail", b"report"])) == [b"runs", b"waits"]


def test_a_server_stops_in_order_without_room(database: Path) -> None:
    store = f"sqlite:{database}"
    with running_switchgear(store=store) as server, Wire(server.address) as client:
        acknowledged(client, b"mail", b"waits")
        with no_room(server.pid, database):
            assert is_refused_for_storage(submit(client, b"mail", b"in vain"))
            server.process.terminate()
            assert server.wait_stopped() == 0
            assert not lines_with(server, "Traceback")
    with running_switchgear(store=store) as server:
        assert run_all(server, [b"mail"]) == [b"waits"]


# --- a store that cannot be used from the start ---


def assert_one_line(lines: list[str], words: str) -> None:
    assert len(lines) == 1, lines
    assert lines[0].startswith("switchgear: ")
    assert re.search(words, lines[0])


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    place = Path("/sys") if os.geteuid() == 0 else tmp_path  # root may write nearly everywhere
    tmp_path.chmod(0o500)
    status, lines = failing_start(store=f"sqlite:{place / 'jobs.db'}")
    tmp_path.chmod(0o700)
    assert status == 1
    assert_one_line(lines, r"jobs\.db cannot be opened: .*(Permission denied|not permitted)")


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    status, lines = failing_start(store=f"sqlite:{tmp_path / 'file' / 'jobs.db'}")
    assert status == 1
    assert_one_line(lines, "cannot be opened: ")


def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    status, lines = failing_start(store=f"sqlite:{tmp_path}")
    assert status == 1
    assert_one_line(lines, "cannot be opened: ")


def test_a_file_that_is_no_database(database: Path) -> None:
    database.write_bytes(b"this is a letter to my aunt, not a database. " * 200)
    status, lines = failing_start(store=f"sqlite:{database}")
    assert status == 1
    assert_one_line(lines, "cannot be used as a job database: file is not a database")


def test_the_database_of_another_program(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    status, lines = failing_start(store=f"sqlite:{database}")
    assert status == 1
    assert_one_line(lines, "is the database of another program")


def test_a_layout_from_the_future(database: Path) -> None:
    with running_switchgear(store=f"sqlite:{database}"):
        pass
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 1000")
    connection.close()
    status, lines = failing_start(store=f"sqlite:{database}")
    assert status == 1
    assert_one_line(lines, "has layout version 1000, this program knows versions up to ")


def test_a_second_server_on_the_same_file(database: Path) -> None:
    with running_switchgear(store=f"sqlite:{database}") as server:
        status, lines = failing_start(store=f"sqlite:{database}")
        assert status == 1
        assert_one_line(lines, f"is in use by process {server.pid}")
        with Wire(server.address) as client:
            acknowledged(client, b"mail", b"the first one does not mind")


@pytest.mark.parametrize("part", ["schema", "rows", "moves", "state"])
def test_a_damaged_database(database: Path, part: str) -> None:
    with running_switchgear(store=f"sqlite:{database}") as server, Wire(server.address) as client:
        for number in range(300):
            client.send(Kind.SUBMIT_JOB_BG, b"mail", b"", b"%d" % number + b"x" * 500)
        for _ in range(300):
            client.receive_packet()
        server.process.terminate()
        server.wait_stopped()
    damage(database, part)
    status, lines = failing_start(store=f"sqlite:{database}")
    assert status == 1
    assert_one_line(lines, "cannot be (read|used)")


def damage(database: Path, part: str) -> None:
    if part in ("schema", "rows"):
        data = bytearray(database.read_bytes())
        start = 100 if part == "schema" else 4096
        end = 4096 if part == "schema" else len(data)
        data[start:end] = b"\x5a" * (end - start)
        database.write_bytes(data)
        return
    connection = sqlite3.connect(database)
    if part == "moves":
        connection.execute("UPDATE jobs SET moves = x'ff00ff' WHERE id = 100")
    else:
        connection.execute("UPDATE jobs SET delivery = 77 WHERE id = 100")
    connection.commit()
    connection.close()
