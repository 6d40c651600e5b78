"""One directory, several processes: exactly one of them runs the server, and another takes over when it is gone."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from switchgear.app.embedded_address_file import EmbeddedAddress
from switchgear.app.embedded_location import EmbeddedLocation
from switchgear.app.server_locations import FixedLocation, location_of
from switchgear.client import Client
from switchgear.client.address import ServerAddress
from switchgear.errors import ConfigError, ServerUnreachable
from switchgear.storage.lockfile import DatabaseLock, FileLock
from tests.app.neighbour import neighbours
from tests.support.servers import answers_version, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def place(directory: Path) -> Any:
    place = EmbeddedLocation(f"embedded:{directory}")
    yield place
    place.close()


# --- in one process ---


def test_the_first_who_asks_runs_the_server(place: EmbeddedLocation) -> None:
    address = place.address()
    assert place.is_owner
    assert answers_version(address.port)
    assert place.address() == address


def test_its_files_are_for_this_user_alone(directory: Path, place: EmbeddedLocation) -> None:
    old = os.umask(0)
    try:
        place.address()
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert "server.json" in modes
    assert {name for name, mode in modes.items() if mode & 0o077} <= {".gitignore"}


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_directory_that_everybody_can_write_to_is_refused(
    directory: Path, place: EmbeddedLocation, mode: int
) -> None:
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(ConfigError, match="chmod o-w"):
        place.address()
    assert list(directory.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_directory_of_another_user_is_refused(directory: Path, place: EmbeddedLocation) -> None:
    directory.mkdir()
    os.chown(directory, 12_345, 12_345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        place.address()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_cannot_connect(place: EmbeddedLocation) -> None:
    address = place.address()
    os.seteuid(12_345)
    try:
        stranger = socket.socket()
    finally:
        os.seteuid(0)
    with stranger:
        stranger.settimeout(10)
        stranger.connect((address.host, address.port))
        with suppress(ConnectionResetError, BrokenPipeError):
            stranger.sendall(b"version\n")
        try:
            assert stranger.recv(100) == b""
        except ConnectionResetError:
            pass
    assert answers_version(address.port)


def test_nothing_is_made_before_it_is_needed(directory: Path, place: EmbeddedLocation) -> None:
    assert not directory.exists()
    place.address()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / ".gitignore").read_text() == "*\n"


def test_a_relative_path_is_relative_to_where_the_place_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = EmbeddedLocation()
    monkeypatch.chdir("/")
    assert place.directory == tmp_path / ".switchgear"
    assert place.url == "embedded:.switchgear"


def test_the_status_tells_where_the_server_is(directory: Path, place: EmbeddedLocation) -> None:
    address = place.address()
    status = json.loads((directory / "server.json").read_text())
    assert (status["url"], status["pid"]) == (str(address), os.getpid())
    assert abs(status["started"] - time.time()) < 60


def test_two_places_of_one_directory_share_one_server(directory: Path, place: EmbeddedLocation) -> None:
    other = EmbeddedLocation(f"embedded:{directory}/../{directory.name}")
    assert other.address() == place.address()
    other.close()
    assert answers_version(place.address().port), "the first one still needs it"
    place.close()
    assert not (directory / "server.json").exists()


def test_threads_that_race_find_one_server(place: EmbeddedLocation) -> None:
    found: list[ServerAddress] = []
    threads = [threading.Thread(target=lambda: found.append(place.address())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_closed_place_may_be_used_again(directory: Path, place: EmbeddedLocation) -> None:
    with Client(str(place.address())) as client:
        handle = client.submit("f", b"x", background=True).handle
    place.close()
    assert not place.is_owner
    with Client(str(place.address())) as client:
        assert [job["handle"] for job in client.control("jobs")["jobs"]] == [handle]


def test_handles_outlive_the_name_of_the_host(place: EmbeddedLocation) -> None:
    with Client(str(place.address())) as client:
        handle = client.submit("f", b"x", background=True).handle
    assert re.fullmatch(r"H:embedded-[a-z0-9]{6}:1", handle)
    place.close()
    with Client(str(place.address())) as client:  # another owner, such as after a takeover
        prefix, _, _ = handle.rpartition(":")
        assert client.submit("f", b"x", background=True).handle.rpartition(":")[0] == prefix


def test_directories_have_handles_of_their_own(tmp_path: Path) -> None:
    def first_handle(name: str) -> str:
        place = EmbeddedLocation(f"embedded:{tmp_path / name}")
        try:
            with Client(str(place.address())) as client:
                return client.submit("f", b"x", background=True).handle
        finally:
            place.close()

    assert first_handle("one") != first_handle("other")


def test_a_directory_from_before_keeps_its_handles(directory: Path, place: EmbeddedLocation) -> None:
    place.address()
    place.close()
    (directory / "prefix").unlink()
    with Client(str(place.address())) as client:
        assert client.submit("f", b"x", background=True).handle.startswith("H:embedded:")
    assert not (directory / "prefix").exists()


def test_a_prefix_that_is_none(directory: Path, place: EmbeddedLocation) -> None:
    place.address()
    place.close()
    prefix = (directory / "prefix").read_text()
    (directory / "prefix").write_text("what?")
    with pytest.raises(ServerUnreachable, match="'what\\?' is not a prefix of handles"):
        place.address()
    (directory / "prefix").write_text(prefix)
    assert answers_version(place.address().port)  # the lock was let go of


def test_nobody_can_stop_it_from_outside(place: EmbeddedLocation) -> None:
    address = place.address()
    with socket.create_connection((address.host, address.port)) as line:
        line.sendall(b"shutdown\n")
        assert line.recv(100).startswith(b"ERR ")
    assert answers_version(address.port)


def test_it_leaves_the_log_and_the_output_of_the_program_alone(
    place: EmbeddedLocation, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    handlers = list(logging.getLogger("switchgear").handlers)
    with caplog.at_level(logging.INFO), Client(str(place.address())) as client:
        client.submit("f", b"x", background=True)
        place.close()
    assert capfd.readouterr() == ("", "")
    assert [record.message for record in caplog.records if record.levelno > logging.INFO] == []
    assert logging.getLogger("switchgear").handlers == handlers


# --- what may be wrong ---


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("embedded://queue", "a plain path is expected"),
        ("embedded:nobody\0here", "null"),
        ("gearman://here", "not of the form embedded:PATH"),
    ],
    ids=["slashes", "nul", "another scheme"],
)
def test_a_url_that_makes_no_sense(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EmbeddedLocation(url)


def test_a_url_tells_which_place_is_meant() -> None:
    assert isinstance(location_of("gearman://here:1"), FixedLocation)
    assert isinstance(location_of("embedded:here"), EmbeddedLocation)


def test_a_file_in_the_place_of_the_directory(directory: Path, place: EmbeddedLocation) -> None:
    directory.write_text("not a directory")
    with pytest.raises(ConfigError, match="queue cannot be used: File exists"):
        place.address()


def test_a_directory_that_may_not_be_written(place: EmbeddedLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(self: FileLock) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(FileLock, "acquire", forbid)  # whoever runs the tests may write everywhere
    with pytest.raises(ConfigError, match="queue cannot be used: Permission denied"):
        place.address()


def test_a_full_disk_is_said_and_the_next_attempt_may_work(
    directory: Path, place: EmbeddedLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: EmbeddedAddress, directory: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedAddress, "write", fail)
        with pytest.raises(ServerUnreachable, match="queue cannot be used: No space left on device"):
            place.address()
        assert not place.is_owner
    assert answers_version(place.address().port)


def test_a_store_that_another_server_uses(
    directory: Path, place: EmbeddedLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear.app.embedded_server._STORE_PATIENCE_SECONDS", 0.0)
    directory.mkdir()
    lock = FileLock(directory / "jobs.db")
    lock.acquire()
    try:
        with pytest.raises(ServerUnreachable, match=rf"jobs\.db is in use by process {os.getpid()}"):
            place.address()
    finally:
        lock.release()
    assert answers_version(place.address().port)


def test_a_directory_that_is_deleted_is_begun_anew(
    directory: Path, place: EmbeddedLocation, caplog: pytest.LogCaptureFixture
) -> None:
    before = place.address()
    shutil.rmtree(directory)
    eventually(lambda: place.address() != before, "another server")
    assert answers_version(place.address().port)
    assert "was deleted while it was in use" in caplog.text
    assert directory.is_dir()


def test_a_lock_that_is_deleted_makes_no_second_server(
    directory: Path, place: EmbeddedLocation, caplog: pytest.LogCaptureFixture
) -> None:
    before = place.address()
    (directory / "owner.lock").unlink()
    eventually(lambda: place.address() != before, "another server")
    assert answers_version(place.address().port)
    assert "its owner.lock was deleted while it was in use; another process takes over" in caplog.text


def test_a_store_whose_last_owner_has_not_let_go_of_the_database(
    directory: Path, place: EmbeddedLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear.app.embedded_server._STORE_PATIENCE_SECONDS", 0.0)
    directory.mkdir()
    lock = DatabaseLock(directory / "jobs.db")
    lock.acquire()
    try:
        with pytest.raises(ServerUnreachable, match=r"jobs\.db is in use by"):
            place.address()
    finally:
        lock.release()
    assert answers_version(place.address().port)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1}'])
def test_a_status_that_is_no_status_is_written_anew(directory: Path, place: EmbeddedLocation, text: str) -> None:
    directory.mkdir()
    (directory / "server.json").write_text(text)
    assert answers_version(place.address().port)


# --- several processes ---


def test_of_eight_processes_that_start_at_once_one_is_the_owner(directory: Path) -> None:
    with neighbours(directory, 8) as processes:
        for process in processes:
            process.tell("address")
        addresses = {process.answer() for process in processes}
        assert len(addresses) == 1
        assert [process.is_owner for process in processes].count(True) == 1


def test_a_second_process_finds_the_server_of_the_first(directory: Path, place: EmbeddedLocation) -> None:
    with neighbours(directory, 1) as (other,):
        handle = other.ask("submit", "f")
        other.ask("close")
        mine = place.address()
        assert other.ask("address") == str(mine)
        assert not other.is_owner
    with Client(str(mine)) as client:
        assert client.control("jobs")["jobs"][0]["handle"] == handle


def test_an_owner_that_leaves_hands_over(directory: Path) -> None:
    with neighbours(directory, 2) as (first, second):
        before = first.ask("address")
        assert second.ask("address") == before
        second.ask("submit", "f")
        assert first.leave() == ""
        assert second.ask("address") != before
        assert second.is_owner
        assert second.ask("count") == [1]
        assert second.leave() == ""
    assert not (directory / "server.json").exists()


def test_an_owner_that_is_killed_is_replaced_at_once(directory: Path) -> None:
    with neighbours(directory, 2) as (first, second):
        first.ask("address")
        second.ask("address")
        handles = [second.ask("submit", "f") for _ in range(5)]
        assert len(set(handles)) == 5
        first.kill()
        started = time.monotonic()
        second.ask("address")
        assert time.monotonic() - started < 1.0
        assert second.ask("count") == [5]


def test_a_leftover_status_is_not_believed(directory: Path, place: EmbeddedLocation) -> None:
    """The owner is alive, but what the file tells is of another one."""
    with neighbours(directory, 1) as (owner,):
        address = owner.ask("address")
        true_status = EmbeddedAddress.read(directory)
        assert true_status is not None
        leftovers = [
            EmbeddedAddress(
                f"gearman://127.0.0.1:{free_port()}", true_status.pid, 0.0, true_status.store
            ),  # nobody is there
            EmbeddedAddress(address, true_status.pid + 1, 0.0, true_status.store),  # another process is
            EmbeddedAddress(address, true_status.pid, 0.0, "sqlite:/elsewhere/jobs.db"),  # with other jobs
        ]
        for leftover in leftovers:
            with pytest.raises(ServerUnreachable):
                leftover.confirmed_address()
        leftovers[1].write(directory)
        found: list[ServerAddress] = []
        looking = threading.Thread(target=lambda: found.append(place.address()))
        looking.start()
        true_status.write(directory)
        looking.join()
        assert [str(one) for one in found] == [address]


def test_a_stranger_on_the_port_is_not_taken_for_the_server(directory: Path, place: EmbeddedLocation) -> None:
    """A web server, say, to which the port of an owner was given that was killed."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]

        def answer() -> None:
            line, _ = stranger.accept()
            with line:
                line.recv(100)
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(ServerUnreachable):
            EmbeddedAddress(f"gearman://127.0.0.1:{port}", 1, 0.0, "sqlite:jobs.db").confirmed_address()
        answering.join()


# --- forks ---


def test_a_forked_child_is_not_the_owner_and_does_not_keep_the_lock(directory: Path, place: EmbeddedLocation) -> None:
    address = place.address()
    with socket.create_connection((address.host, address.port)) as line:
        line.sendall(b"version\n")
        assert line.recv(100)
        said, says = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover - in another process
            try:
                found = place.address()
                os.write(says, f"{place.is_owner} {found}\n".encode())
                os.close(says)
                time.sleep(60)
            finally:
                os._exit(0)
        os.close(says)
        try:
            with os.fdopen(said) as pipe:
                assert pipe.readline() == f"False {address}\n"
            place.close()
            assert line.recv(100) == b"", "the child must not keep the connection open"
            with neighbours(directory, 1) as (other,):
                other.ask("address")
                assert other.is_owner
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
