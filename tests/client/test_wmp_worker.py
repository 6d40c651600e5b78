"""The WMP worker on real sockets and threads, with managers of a few lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import zmq
import zmq.auth

from switchgear.client.wmp import (
    CurveKeys,
    GiveBack,
    ManagerAddress,
    SocketSettings,
    WmpJob,
    WmpResult,
    WmpTiming,
    WmpWorker,
    WmpWorkerObserver,
)
from switchgear.errors import ConfigError, JobFailed, PeerError
from tests.support.waiting import DEADLINE_SECONDS
from tests.support.wmp_wire import RawManager

PACE = WmpTiming(lease_seconds=0.4, lock_seconds=1.0, retry_first_seconds=30.0)


@pytest.fixture
def manager() -> Iterator[RawManager]:
    with RawManager() as manager:
        yield manager


@contextmanager
def working(manager: RawManager, function: Callable[[WmpJob], Any], **options: Any) -> Iterator[WmpWorker]:
    with WmpWorker(manager.url, {"f": function, "g": function}, timing=PACE, **options) as worker:
        yield worker
        worker.stop(0.0)


def echo(job: WmpJob) -> bytes:
    return job.payload


# --- jobs ---


def test_a_job(manager: RawManager) -> None:
    with working(manager, lambda job: f"{job.role} {job.payload!r}".encode(), identity="me") as worker:
        path = manager.give(b"x", role="g")
        assert path == [b"me"] == [worker.identity]
        done = manager.hear("DONE")
        assert (done.path, done.headers["job"], done.payload) == (path, b"1", b"g b'x'")
        assert done.headers["manager"] == manager.identity
        assert manager.hear().command == "READY"


def fail(job: WmpJob) -> bytes:
    raise ValueError("no \ud800")


def fail_with_reason(job: WmpJob) -> bytes:
    raise JobFailed("exit status 1", b"reason")


def fail_without_reason(job: WmpJob) -> bytes:
    raise JobFailed("exit status 1")


def give_back(job: WmpJob) -> bytes:
    raise GiveBack


@pytest.mark.parametrize(
    ("function", "status", "error"),
    [
        (lambda job: None, "done", b""),
        (fail, "failed", b"ValueError: no ?"),
        (fail_with_reason, "failed", b"reason"),
        (fail_without_reason, "failed", b"exit status 1"),
        (give_back, "returned", b""),
        (lambda job: "text", "failed", b"the function returned a str, not bytes"),
        (lambda job: b"x" * 1001, "failed", b"the result has 1001 bytes; at most 1000 can be sent"),
    ],
)
def test_how_functions_end(manager: RawManager, function: Callable[[WmpJob], Any], status: str, error: bytes) -> None:
    with working(manager, function, socket_settings=SocketSettings(message_bytes=1000)):
        manager.give()
        done = manager.hear("DONE")
        assert (done.headers.get("status", "done"), done.headers.get("error", b""), done.payload) == (
            status,
            error,
            b"",
        )


def test_as_many_jobs_at_once_as_there_are_slots(manager: RawManager) -> None:
    together = threading.Barrier(3)

    def meet(job: WmpJob) -> bytes:
        together.wait(DEADLINE_SECONDS)
        return job.reference

    with working(manager, meet, slots=3):
        for job in (b"1", b"2", b"3"):
            manager.give(job=job)
        assert {manager.hear("DONE").payload for _ in range(3)} == {b"1", b"2", b"3"}


def test_progress_and_signs_of_life(manager: RawManager) -> None:
    go_on = threading.Event()

    def slow(job: WmpJob) -> bytes:
        job.progress(1, 2, 30)
        go_on.wait(DEADLINE_SECONDS)
        return b""

    with working(manager, slow):
        manager.give()
        status = manager.hear("STATUS").headers
        assert (status["numerator"], status["denominator"], status["time_left"]) == (1, 2, 30)
        for _ in range(3):
            assert manager.hear("STATUS").headers.keys() == {"to", "job", "manager"}
        go_on.set()
        manager.hear("DONE")


@pytest.mark.parametrize("politely", [True, False])
def test_a_cancelled_job_stops(manager: RawManager, politely: bool) -> None:
    def until_cancelled(job: WmpJob) -> None:
        assert job.cancelled.wait(DEADLINE_SECONDS)
        if not politely:
            raise RuntimeError("interrupted")

    with working(manager, until_cancelled):
        path = manager.give()
        manager.say(path, "CANCEL", job=b"1", manager=manager.identity)
        assert manager.hear("DONE").headers["status"] == "cancelled"
        assert manager.hear("READY").path == path


def test_a_result_in_spite_of_a_cancellation(manager: RawManager) -> None:
    def ignore(job: WmpJob) -> bytes:
        assert job.cancelled.wait(DEADLINE_SECONDS)
        return b"all the same"

    with working(manager, ignore):
        path = manager.give()
        manager.say(path, "CANCEL", job=b"1", manager=manager.identity)
        done = manager.hear("DONE")
        assert ("status" in done.headers, done.payload) == (False, b"all the same")


def test_one_worker_and_several_managers() -> None:
    with (
        RawManager(b"one") as one,
        RawManager(b"two") as two,
        WmpWorker([one.url, two.url], {"f": echo}, timing=PACE) as worker,
    ):
        assert one.give(b"1") == two.give(b"2") == [worker.identity]
        assert (one.hear("DONE").payload, two.hear("DONE").payload) == (b"1", b"2")


# --- managers come and go ---


def test_a_manager_that_comes_later_hears_ready_at_once() -> None:
    with RawManager() as manager:
        port, url = manager.port, manager.url
    with WmpWorker(url, {"f": echo}, timing=PACE):  # the next READY by itself would be after 30 s
        with RawManager(port=port) as manager:
            manager.give(b"x")
            assert manager.hear("DONE").payload == b"x"
        with RawManager(port=port) as manager:
            manager.give(b"y")
            assert manager.hear("DONE").payload == b"y"


def test_a_result_waits_for_its_manager_and_the_rest_does_not() -> None:
    go_on = threading.Event()
    observer = RecordingObserver()

    def slow(job: WmpJob) -> bytes:
        go_on.wait(DEADLINE_SECONDS)
        job.progress(1, 2)
        return b"late"

    with RawManager() as manager:
        port = manager.port
        with WmpWorker(manager.url, {"f": slow}, timing=PACE, observer=observer):
            manager.give()
            manager.hear("STATUS")
            manager.close()
            observer.until("disconnected")
            go_on.set()
            observer.until("ended")
            with RawManager(port=port) as again:
                assert [again.hear().command for _ in range(2)] == ["DONE", "READY"]


class RecordingObserver(WmpWorkerObserver):
    """Keeps what it hears until somebody waits for it."""

    def __init__(self) -> None:
        self.entries: Queue[tuple[str, Any]] = Queue()

    def connected(self, manager: ManagerAddress) -> None:
        self.entries.put(("connected", manager))

    def disconnected(self, manager: ManagerAddress) -> None:
        self.entries.put(("disconnected", manager))

    def refused(self, manager: ManagerAddress, error: PeerError) -> None:
        self.entries.put(("refused", error.code))

    def job_started(self, job: WmpJob) -> None:
        self.entries.put(("started", job))

    def job_ended(self, job: WmpJob, outcome: WmpResult) -> None:
        self.entries.put(("ended", outcome))

    def until(self, event: str) -> Any:
        while True:
            name, about = self.entries.get(timeout=DEADLINE_SECONDS)
            if name == event:
                return about


def test_who_watches_hears_of_everything(manager: RawManager) -> None:
    recorded = RecordingObserver()
    with working(manager, echo, observer=recorded):
        assert str(recorded.until("connected")) == manager.url
        path = manager.give(b"x")
        assert recorded.until("started").payload == b"x"
        assert recorded.until("ended") == WmpResult(result=b"x")
        manager.say(path, "READY")
        assert recorded.until("refused") == "WRONG_WAY"


# --- the end ---


def test_stop_lets_jobs_finish(manager: RawManager) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(job: WmpJob) -> bytes:
        started.set()
        go_on.wait(DEADLINE_SECONDS)
        return b"finished"

    worker = WmpWorker(manager.url, {"f": slow}, timing=PACE)
    thread = threading.Thread(target=worker.run)
    thread.start()
    manager.give()
    assert started.wait(DEADLINE_SECONDS)
    worker.stop()
    manager.hear("STATUS")
    manager.hear("STATUS")
    assert thread.is_alive()
    go_on.set()
    assert manager.hear("DONE").payload == b"finished"
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert manager.hears_nothing()  # and no READY


def test_what_does_not_finish_in_time_is_given_back(manager: RawManager) -> None:
    started, stopped = threading.Event(), threading.Event()

    def slow(job: WmpJob) -> None:
        started.set()
        if job.cancelled.wait(DEADLINE_SECONDS):
            stopped.set()

    with WmpWorker(manager.url, {"f": slow}, timing=PACE) as worker:
        manager.give()
        assert started.wait(DEADLINE_SECONDS)
        worker.stop(0.05)
        assert manager.hear("DONE").headers["status"] == "returned"
    assert stopped.wait(DEADLINE_SECONDS)


def test_what_comes_after_stop_is_given_back(manager: RawManager) -> None:
    with WmpWorker(manager.url, {"f": echo}, timing=PACE) as worker:
        path = manager.hear("READY").path
        manager.say(path, "WAKE")
        manager.hear("GIVE")
        worker.stop()
        manager.say(path, "TAKE", b"x", job=b"1", role="f")
        assert manager.hear("DONE").headers["status"] == "returned"


def test_an_error_in_the_block_ends_the_worker_at_once(manager: RawManager) -> None:
    started = threading.Event()

    def for_ever(job: WmpJob) -> None:
        started.set()
        job.cancelled.wait(DEADLINE_SECONDS)

    def block() -> None:
        with WmpWorker(manager.url, {"f": for_ever}, timing=PACE):
            manager.give()
            assert started.wait(DEADLINE_SECONDS)
            raise KeyError("of the test")

    with pytest.raises(KeyError, match="of the test"):
        block()
    assert manager.hear("DONE").headers["status"] == "returned"


def test_a_defect_is_told_where_the_worker_was_started(manager: RawManager) -> None:
    class Broken(WmpWorkerObserver):
        def connected(self, manager: ManagerAddress) -> None:
            raise RuntimeError("of the observer")

    def block() -> None:
        with WmpWorker(manager.url, {"f": echo}, observer=Broken()) as worker:
            assert worker._thread is not None
            worker._thread.join(DEADLINE_SECONDS)

    with pytest.raises(RuntimeError, match="of the observer"):
        block()


# --- encryption ---


def test_managers_that_encrypt(tmp_path: Path) -> None:
    for name in ("one", "two", "worker"):
        zmq.auth.create_certificates(tmp_path, name)
    secrets = {name: zmq.auth.load_certificate(tmp_path / f"{name}.key_secret")[1] or b"" for name in ("one", "two")}
    with (
        RawManager(b"one", secret_key=secrets["one"]) as one,
        RawManager(b"two", secret_key=secrets["two"]) as two,
    ):
        theirs = [tmp_path / "one.key", tmp_path / "two.key"]
        for keys in (CurveKeys.load(theirs), CurveKeys.load(theirs, tmp_path / "worker.key_secret")):
            with WmpWorker([one.url, two.url], {"f": echo}, timing=PACE, keys=keys):
                for manager in (one, two):
                    manager.give(b"x")
                    assert manager.hear("DONE").payload == b"x"


def test_a_worker_without_keys_is_not_heard(tmp_path: Path) -> None:
    zmq.auth.create_certificates(tmp_path, "one")
    secret = zmq.auth.load_certificate(tmp_path / "one.key_secret")[1]
    with RawManager(secret_key=secret or b"") as manager, WmpWorker(manager.url, {"f": echo}):
        assert manager.hears_nothing(0.3)


def test_keys_have_to_fit_the_managers() -> None:
    key, _ = zmq.curve_keypair()
    with pytest.raises(ConfigError, match="2 public keys for 3 managers"):
        WmpWorker(["a", "b", "c"], {"f": echo}, keys=CurveKeys.of([key, key]))


# --- addresses and other arguments ---


@pytest.mark.parametrize(
    ("text", "endpoint", "shown"),
    [
        ("wmp://jobs.example:1", "tcp://jobs.example:1", "wmp://jobs.example:1"),
        ("tcp://10.0.0.1:1", "tcp://10.0.0.1:1", "wmp://10.0.0.1:1"),
        ("jobs.example", "tcp://jobs.example:5714", "wmp://jobs.example:5714"),
        ("WMP://[::1]", "tcp://[::1]:5714", "wmp://[::1]:5714"),
    ],
)
def test_where_managers_are(text: str, endpoint: str, shown: str) -> None:
    address = ManagerAddress.parse(text)
    assert (address.endpoint, str(address)) == (endpoint, shown)


@pytest.mark.parametrize("text", ["", "gearman://x", "wmp://x:0", "wmp://x:65536", "wmp://x:1?a=b", "wmp://a b"])
def test_where_managers_are_not(text: str) -> None:
    with pytest.raises(ConfigError):
        ManagerAddress.parse(text)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"managers": []}, ConfigError, "no manager"),
        ({"managers": ["a", "wmp://a:5714"]}, ConfigError, "named twice"),
        ({"roles": {}}, ValueError, "needs a role"),
        ({"slots": 0}, ValueError, "slots"),
        ({"needs": {"g": 1}}, ValueError, "not one of the roles"),
        ({"needs": {"f": 2}}, ValueError, "between 1 and all 1 slots"),
        ({"identity": b"\0x"}, ValueError, "does not begin with a zero byte"),
        ({"identity": "x" * 256}, ValueError, "1 to 255 bytes"),
    ],
)
def test_what_a_worker_cannot_be(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        WmpWorker(**{"managers": "a", "roles": {"f": echo}, **options})


def test_no_two_workers_have_the_same_name() -> None:
    assert WmpWorker("a", {"f": echo}).identity != WmpWorker("a", {"f": echo}).identity
