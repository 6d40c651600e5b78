"""The client, against real servers; the other side is a worker on a raw socket that does as it is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

import switchgear.client
from switchgear.client import Client, GearmanConnection, JobStatus, Submission, Update, UpdateKind
from switchgear.client.gearman.error_codes import UNKNOWN_EXTENSION
from switchgear.errors import ClientError, JobFailed, ServerRefused, ServerUnreachable
from switchgear.protocols.gearman.job_options import JobOptions
from tests.client.background import url_of
from tests.support.servers import HOST, Server, free_port, running_gearmand, running_switchgear
from tests.support.wire import Kind, Packet, Wire

pytestmark = pytest.mark.system


class HandWorker:
    """Takes jobs when told to, and says what it is told to say."""

    def __init__(self, server: Server, function: str) -> None:
        self.wire = Wire(server.address)
        self.wire.send(Kind.CAN_DO, function.encode())

    def grab(self) -> tuple[bytes, bytes]:
        """Handle and payload."""
        self.wire.send(Kind.GRAB_JOB)
        packet = self.wire.receive_packet()
        assert packet.type == Kind.JOB_ASSIGN, packet
        handle, _, payload = packet.body.split(b"\0", 2)
        return handle, payload

    def has_nothing_to_do(self) -> bool:
        self.wire.send(Kind.GRAB_JOB)
        return self.wire.receive() == Packet(Kind.NO_JOB, b"")


@pytest.fixture
def client(any_server: Server) -> Iterator[Client]:
    with Client(url_of(any_server)) as client:
        yield client


@pytest.fixture
def worker(any_server: Server, function: str) -> Iterator[HandWorker]:
    worker = HandWorker(any_server, function)
    yield worker
    worker.wire.close()


@pytest.fixture
def extended(switchgear: Server) -> Iterator[Client]:
    with Client(url_of(switchgear)) as client:
        yield client


# --- waiting for a job ---


def test_the_result_comes_back(client: Client, worker: HandWorker, function: str) -> None:
    submission = client.submit(function, b"\0pay\xffload")
    handle, payload = worker.grab()
    assert (handle.decode(), payload) == (submission.handle, b"\0pay\xffload")
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"re\0sult")
    assert submission.wait() == b"re\0sult"
    assert submission.wait() == b"re\0sult"  # asking again is no mistake


def test_everything_on_the_way_is_told_in_order(client: Client, worker: HandWorker, function: str) -> None:
    submission = client.submit(function)
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_DATA, handle, b"one ")
    worker.wire.send(Kind.WORK_WARNING, handle, b"hot")
    worker.wire.send(Kind.WORK_STATUS, handle, b"3", b"10")
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"two")
    assert list(submission.updates()) == [
        Update(UpdateKind.DATA, b"one "),
        Update(UpdateKind.WARNING, b"hot"),
        Update(UpdateKind.STATUS, b"", 3, 10),
        Update(UpdateKind.COMPLETE, b"two"),
    ]
    assert list(submission.updates()) == []


def test_the_whole_result_has_its_parts(client: Client, worker: HandWorker, function: str) -> None:
    submission = client.submit(function)
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_DATA, handle, b"one ")
    with pytest.raises(TimeoutError):
        submission.wait(0.2)
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"two")
    assert submission.wait() == b"one two"


def test_a_failure_without_a_reason(client: Client, worker: HandWorker, function: str) -> None:
    submission = client.submit(function)
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_FAIL, handle)
    with pytest.raises(JobFailed) as caught:
        submission.wait()
    assert caught.value.error == b""


def test_a_failure_with_a_reason(client: Client, worker: HandWorker, function: str) -> None:
    submission = client.submit(function)
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_EXCEPTION, handle, b"out of paper")
    with pytest.raises(JobFailed, match="out of paper") as caught:
        submission.wait()
    assert caught.value.error == b"out of paper"


def test_giving_up_in_time(client: Client, worker: HandWorker, function: str) -> None:
    submission = client.submit(function)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        submission.wait(0.05)
    assert time.monotonic() - started < 5
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"late")
    assert submission.wait() == b"late"


def test_several_jobs_finish_in_any_order(client: Client, worker: HandWorker, function: str) -> None:
    submissions = [client.submit(function, b"%d" % number) for number in range(5)]
    jobs = [worker.grab() for _ in submissions]
    for handle, payload in reversed(jobs):
        worker.wire.send(Kind.WORK_COMPLETE, handle, payload * 2)
    assert [submission.wait() for submission in submissions] == [b"00", b"11", b"22", b"33", b"44"]


def test_two_submissions_of_one_job_both_hear_all(client: Client, worker: HandWorker, function: str) -> None:
    first = client.submit(function, unique="key")
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_DATA, handle, b"early ")
    assert next(first.updates()).data == b"early "
    second = client.submit(function, unique="key")
    assert second.handle == first.handle
    worker.wire.send(Kind.WORK_DATA, handle, b"data ")
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"end")
    assert [first.wait(), second.wait()] == [b"data end"] * 2


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
@pytest.mark.parametrize("background", [False, True])
def test_every_kind_of_plain_submission(
    client: Client, worker: HandWorker, function: str, priority: str, background: bool
) -> None:
    submission = client.submit(function, b"x", priority=priority, background=background)
    handle, payload = worker.grab()
    assert (handle.decode(), payload) == (submission.handle, b"x")
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"")


def test_priorities_are_priorities(client: Client, worker: HandWorker, function: str) -> None:
    for priority in ("low", "normal", "high"):
        client.submit(function, priority.encode(), priority=priority, background=True)
    taken = [worker.grab() for _ in range(3)]
    assert [payload for _, payload in taken] == [b"high", b"normal", b"low"]
    for handle, _ in taken:
        worker.wire.send(Kind.WORK_COMPLETE, handle, b"")


def test_nobody_waits_for_a_background_job(client: Client, function: str) -> None:
    with pytest.raises(ClientError, match="background"):
        client.submit(function, background=True).wait()


def test_a_background_job_for_later(client: Client, worker: HandWorker, function: str) -> None:
    client.submit(function, background=True, at=time.time() + 3600)
    assert worker.has_nothing_to_do()
    client.submit(function, b"late already", background=True, at=time.time() - 3600)
    handle, payload = worker.grab()
    assert payload == b"late already"
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"")


def test_names_with_nul_bytes_are_refused_here(client: Client) -> None:
    with pytest.raises(ValueError, match="NUL"):
        client.submit("a\0b")
    with pytest.raises(ValueError, match="priority"):
        client.submit("a", priority="urgent")


def test_a_refused_submission(client: Client, function: str) -> None:
    with pytest.raises(ServerRefused) as caught:
        client.submit(function, unique="x" * 65)
    assert caught.value.code == "ARGUMENT_TOO_LARGE"
    assert client.echo(b"still there") == b"still there"


# --- asking ---


def test_status(client: Client, worker: HandWorker, function: str) -> None:
    submission = client.submit(function, background=True)
    assert client.status(submission.handle) == JobStatus(known=True, running=False, numerator=0, denominator=0)
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_STATUS, handle, b"3", b"10")
    worker.wire.receive_until_fence()
    assert client.status(submission.handle) == JobStatus(known=True, running=True, numerator=3, denominator=10)
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"")
    worker.wire.receive_until_fence()
    assert not client.status(submission.handle).known


def test_answers_and_news_do_not_mix(client: Client, worker: HandWorker, function: str) -> None:
    submission = client.submit(function)
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_DATA, handle, b"a")
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"b")
    worker.wire.receive_until_fence()
    assert client.echo(b"news came first") == b"news came first"
    assert client.admin("version")
    assert submission.wait() == b"ab"


def test_the_text_protocol(client: Client, worker: HandWorker, function: str) -> None:
    worker.wire.receive_until_fence()
    (version,) = client.admin("version")
    assert version.startswith("OK ")
    assert f"{function}\t0\t0\t1" in client.admin("status")
    assert client.admin("show jobs") is not None
    with pytest.raises(ServerRefused, match="UNKNOWN_COMMAND: Unknown server command"):
        client.admin("dance")
    with pytest.raises(ServerRefused):
        client.admin("show mercy")
    with pytest.raises(ValueError, match="one line"):
        client.admin("version\nversion")


# --- extensions ---


def test_options_are_those_the_server_knows() -> None:
    names = {"wait", "priority", "run_at", "expires_at", "timeout", "attempts", "after", "name"}
    assert names <= {field.name for field in msgspec.structs.fields(JobOptions)}


def test_all_options_at_once(extended: Client, switchgear: Server, function: str) -> None:
    first = extended.submit(function, background=True)
    later = time.time() + 3600
    second = extended.submit(
        function,
        b"x",
        background=True,
        priority="high",
        at=later,
        expires=later + 60,
        timeout=5,
        attempts_limit=0,
        after=[first.handle],
        name=f"{function} name",
    )
    job = extended.control("job", handle=second.handle)
    assert job["state"] == "waiting"
    assert job["priority"] == "high"
    assert job["run_at"] == pytest.approx(later, abs=0.001)
    assert job["expires_at"] == pytest.approx(later + 60, abs=0.001)
    assert job["timeout"] == 5
    assert job["attempts_limit"] == 0
    assert job["predecessors"] == [first.handle]
    assert job["name"] == f"{function} name"


def test_waiting_for_a_job_with_options(extended: Client, switchgear: Server, function: str) -> None:
    worker = HandWorker(switchgear, function)
    submission = extended.submit(function, b"x", attempts_limit=1)
    handle, _ = worker.grab()
    worker.wire.send(Kind.WORK_COMPLETE, handle, b"y")
    assert submission.wait() == b"y"
    worker.wire.close()


def test_control_errors_are_told(extended: Client) -> None:
    with pytest.raises(ServerRefused) as caught:
        extended.control("job", handle="H:nobody:0")
    assert caught.value.code == "JOB_NOT_FOUND"
    with pytest.raises(ServerRefused) as caught:
        extended.control("jobs", limit="many")
    assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(ServerRefused) as caught:
        extended.control("dance")
    assert caught.value.code == "INVALID_ARGUMENT"
    assert extended.control("server")["pid"]


def test_a_server_without_extensions_is_told_apart_and_harms_no_wait(gearmand: Server, function: str) -> None:
    worker = HandWorker(gearmand, function)
    with Client(url_of(gearmand)) as client:
        submission = client.submit(function)
        for ask in (lambda: client.control("functions"), lambda: client.submit(function, attempts_limit=3)):
            with pytest.raises(ServerRefused, match="does not know the extension") as caught:
                ask()
            assert caught.value.code == UNKNOWN_EXTENSION
        handle, _ = worker.grab()
        worker.wire.send(Kind.WORK_COMPLETE, handle, b"unharmed")
        assert submission.wait() == b"unharmed"
    worker.wire.close()


# --- losing the server ---


def test_nobody_there() -> None:
    with Client(f"gearman://{HOST}:{free_port()}") as client, pytest.raises(ServerUnreachable, match="refused"):
        client.echo()


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(ServerUnreachable, match="cannot connect"):
        GearmanConnection("no-such-host.invalid", 4730)


@pytest.mark.parametrize("start", [running_switchgear, running_gearmand])
def test_a_lost_server_ends_every_wait(start: object, function: str) -> None:
    assert callable(start)
    with start() as server, Client(url_of(server)) as client:
        submissions = [client.submit(function) for _ in range(2)]
        server.kill()
        for submission in submissions:
            with pytest.raises(ServerUnreachable):
                submission.wait()
        with pytest.raises(ServerUnreachable):
            client.submit(function)


@pytest.fixture
def mute_server() -> Iterator[socket.socket]:
    """Lets everybody in, and says what the test says."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener


def connection_to(listener: socket.socket, timeout_seconds: float) -> GearmanConnection:
    return GearmanConnection(HOST, listener.getsockname()[1], timeout_seconds)


def test_a_server_that_does_not_answer(mute_server: socket.socket) -> None:
    url = f"gearman://{HOST}:{mute_server.getsockname()[1]}"
    with Client(url, timeout_seconds=0.05) as client, pytest.raises(ServerUnreachable, match="did not answer"):
        client.echo()


def test_a_late_answer_is_not_taken_for_the_next_one(mute_server: socket.socket) -> None:
    url = f"gearman://{HOST}:{mute_server.getsockname()[1]}"
    with Client(url, timeout_seconds=0.05) as client:
        for _ in range(2):
            with pytest.raises(ServerUnreachable, match="did not answer"):
                client.echo()
        for _ in range(2):  # a new connection each time
            mute_server.accept()[0].close()


def test_a_deadline_holds_however_slowly_bytes_come(mute_server: socket.socket) -> None:
    stop = threading.Event()

    def drip(peer: socket.socket) -> None:
        with peer:
            peer.sendall(b"\0RES\0\0\0\x11\0\0\1\0")
            while not stop.wait(0.01):
                peer.sendall(b"x")

    with connection_to(mute_server, 5) as connection:
        dripping = threading.Thread(target=drip, args=(mute_server.accept()[0],))
        dripping.start()
        with pytest.raises(TimeoutError):
            connection.receive(time.monotonic() + 0.1)
        stop.set()
        dripping.join()


def test_a_server_that_speaks_something_else(mute_server: socket.socket) -> None:
    with connection_to(mute_server, 5) as connection, mute_server.accept()[0] as peer:
        peer.sendall(b"\0XXX" + bytes(8))
        with pytest.raises(ServerUnreachable, match="does not speak Gearman"):
            connection.receive()


def test_more_than_the_buffers_hold(mute_server: socket.socket) -> None:
    much = bytes(20_000_000)
    received = []

    def read_all(peer: socket.socket) -> None:
        with peer:
            while data := peer.recv(1 << 20):
                received.append(len(data))

    connection = connection_to(mute_server, 5)
    reading = threading.Thread(target=read_all, args=(mute_server.accept()[0],))
    reading.start()
    connection.send(much)
    connection.close()
    reading.join()
    assert sum(received) == len(much)


# --- what may be imported ---


def test_public_names() -> None:
    assert switchgear.client.__all__ == sorted(switchgear.client.__all__, key=lambda name: (not name.isupper(), name))
    for name in switchgear.client.__all__:
        value = getattr(switchgear.client, name)
        if isinstance(value, type):
            assert value.__doc__, name


def test_a_submission_shows_its_handle(client: Client, function: str) -> None:
    submission = client.submit(function, background=True)
    assert isinstance(submission, Submission)
    assert submission.handle in repr(submission)
