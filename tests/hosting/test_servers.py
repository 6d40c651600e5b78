"""Servers inside one's own program: they serve real workers over sockets, and the program submits without one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import zmq

from switchgear import (
    AlreadySubmitted,
    Client,
    DworkHub,
    GearMonkeyServer,
    GearMonkeyWorker,
    JobCancelled,
    JobFailed,
    PingPongBroker,
    PingPongWorker,
    ServerRefused,
    ServerUnreachable,
    WmpDevice,
    WmpManager,
    WmpWorker,
)
from switchgear.client.dwork import DworkClient
from switchgear.client.wmp import WmpJob
from switchgear.errors import ConfigError, StorageError
from switchgear.hosting.hosted_server import HostedServer
from tests.support.waiting import DEADLINE_SECONDS, eventually

ANY_WMP = "wmp://127.0.0.1:0"
ANY_PINGPONG = "pingpong://127.0.0.1:0?workers=0"
ANY_DWORK = "dwork://127.0.0.1:0"
ANY_GEARMONKEY = "gearmonkey://127.0.0.1:0"


def shout(job: WmpJob) -> bytes:
    if job.payload == b"bad":
        raise ValueError("no such word")
    return job.payload.upper()


# --- each protocol, with its worker ---


def test_a_manager_gives_jobs_to_wmp_workers() -> None:
    with WmpManager(ANY_WMP) as manager, WmpWorker(manager.address, {"shout": shout}):
        assert manager.submit("shout", b"hello").result(DEADLINE_SECONDS) == b"HELLO"
        with pytest.raises(JobFailed, match="no such word"):
            manager.submit("shout", b"bad").result(DEADLINE_SECONDS)


def test_a_device_stands_between_a_worker_and_two_managers() -> None:
    with (
        WmpManager(ANY_WMP) as first,
        WmpManager(ANY_WMP) as second,
        WmpDevice(ANY_WMP, [first.address, second.address]) as device,
        WmpWorker(device.address, {"shout": shout}),
    ):
        assert first.submit("shout", b"one").result(DEADLINE_SECONDS) == b"ONE"
        assert second.submit("shout", b"two").result(DEADLINE_SECONDS) == b"TWO"


def test_a_device_in_an_event_loop() -> None:
    async def play() -> bytes:
        async with (
            WmpManager(ANY_WMP) as manager,
            WmpDevice(ANY_WMP, manager.address) as device,
        ):
            with WmpWorker(device.address, {"shout": shout}):
                return await manager.submit("shout", b"through").result_async(DEADLINE_SECONDS)

    assert asyncio.run(play()) == b"THROUGH"


def test_a_broker_gives_jobs_to_pingpong_workers_and_takes_them_from_clients() -> None:
    with PingPongBroker(ANY_PINGPONG) as broker, PingPongWorker(bytes.upper, broker.workers_address):
        assert broker.submit(b"hello").result(DEADLINE_SECONDS) == b"HELLO"
        context = zmq.Context()
        client = context.socket(zmq.REQ)  # a client that shares no code with ours
        client.connect(broker.clients_address)
        client.send(b"hello from outside")
        assert client.poll(int(DEADLINE_SECONDS * 1000))
        assert client.recv() == b"HELLO FROM OUTSIDE"
        context.destroy(linger=0)


def test_a_gearmonkey_server_is_a_redis_for_its_workers() -> None:
    with GearMonkeyServer(ANY_GEARMONKEY) as server:
        worker = GearMonkeyWorker(server.address, bytes.upper)
        worker.accept("shout")
        with worker:
            assert server.submit("shout", b"hello").result(DEADLINE_SECONDS) == b"HELLO"
            host, port = server.address.removeprefix("gearmonkey://").split(":")
            client = redis.Redis(host, int(port))
            assert client.get("count:shout") == b"1"
            client.close()


def test_a_hub_gives_tasks_in_the_order_of_their_edges() -> None:
    with DworkHub(ANY_DWORK) as hub, DworkClient(hub.address, location="one") as worker:
        compile_task = hub.submit("compile")
        link = hub.submit("link", after=["compile"])
        again = hub.submit("link", after="nobody has this name")  # joined
        assert link.handle(DEADLINE_SECONDS) == again.handle(DEADLINE_SECONDS)
        assert [task.name for task in worker.steal(5)] == ["compile"]
        worker.complete("compile")
        assert compile_task.result(DEADLINE_SECONDS) == b""
        assert [task.name for task in worker.steal(5)] == ["link"]
        worker.complete("link", "no disk")
        for job in (link, again):
            with pytest.raises(JobFailed, match="no disk"):
                job.result(DEADLINE_SECONDS)
        retried = hub.submit("link")  # of dwork: what failed is tried again
        assert retried.handle(DEADLINE_SECONDS) == link.handle()
        assert [task.name for task in worker.steal(5)] == ["link"]
        worker.complete("link")
        assert retried.result(DEADLINE_SECONDS) == b""


def test_a_hub_refuses_tasks_that_wait_for_each_other() -> None:
    with DworkHub(ANY_DWORK) as hub:
        hub.submit("a")
        hub.submit("b", after="a")
        with pytest.raises(ServerRefused, match="a -> b -> a"):
            hub.submit("a", after="b").result(DEADLINE_SECONDS)
        with pytest.raises(ValueError, match="has a name"):
            hub.submit("")


# --- jobs ---


def test_jobs_wait_for_others_and_have_progress() -> None:
    def count(job: WmpJob) -> bytes:
        job.progress(3, 4)
        assert eventually(lambda: first.progress is not None, "progress")
        return job.payload

    with WmpManager(ANY_WMP) as manager:
        first = manager.submit("count", b"1")
        second = manager.submit("count", b"2", after=[first], priority="high")
        assert not second.is_done
        with WmpWorker(manager.address, {"count": count}):
            assert second.result(DEADLINE_SECONDS) == b"2"
        assert first.is_done
        assert first.progress is not None
        assert first.progress.fraction == 0.75


def test_a_job_can_be_cancelled_and_one_with_its_key_be_refused() -> None:
    with WmpManager(ANY_WMP) as manager:
        waiting = manager.submit("nobody", unique="key")
        with pytest.raises(AlreadySubmitted):
            manager.submit("nobody", unique="key", unique_policy="reject").result(DEADLINE_SECONDS)
        waiting.cancel()
        with pytest.raises(JobCancelled):
            waiting.result(DEADLINE_SECONDS)


def test_what_waits_for_a_refused_job_is_refused_as_well() -> None:
    with WmpManager(ANY_WMP) as manager:
        refused = manager.submit("f", after=["H:nowhere:1"])
        behind = manager.submit("f", after=[refused])
        for job in (refused, behind):
            with pytest.raises(ServerRefused, match="never a job"):
                job.result(DEADLINE_SECONDS)


def test_waiting_may_have_an_end() -> None:
    async def wait(manager: WmpManager) -> None:
        job = manager.submit("nobody")
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            await job.result_async(0.01)
        waiting = asyncio.ensure_future(job.result_async())
        await asyncio.sleep(0)
        waiting.cancel()  # one who waits no more does not cancel the job
        job.cancel()
        with pytest.raises(JobCancelled):
            await job

    with WmpManager(ANY_WMP) as manager:
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            manager.submit("nobody").result(0.01)
        asyncio.run(wait(manager))


def test_many_threads_submit_at_once() -> None:
    results: list[bytes] = []

    def submit(manager: WmpManager, text: bytes) -> None:
        jobs = [manager.submit("shout", text) for _ in range(50)]
        results.extend(job.result(DEADLINE_SECONDS) for job in jobs)

    with WmpManager(ANY_WMP) as manager, WmpWorker(manager.address, {"shout": shout}, slots=4):
        threads = [threading.Thread(target=submit, args=(manager, b"%d" % number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
    assert sorted(results) == sorted([b"%d" % number for number in range(4)] * 50)


# --- the same engine for all protocols ---


def test_other_addresses_are_of_any_protocol() -> None:
    with (
        WmpManager(ANY_WMP, other_addresses=["gearman://127.0.0.1:0"]) as manager,
        WmpWorker(manager.address, {"shout": shout}),
        Client(manager.addresses[1]) as client,
    ):
        assert client.submit("shout", b"from gearman").wait() == b"FROM GEARMAN"


# --- life ---


def test_jobs_in_a_store_are_there_for_the_next_server(tmp_path: Path) -> None:
    with WmpManager(ANY_WMP, store=tmp_path / "jobs.db") as manager:
        job = manager.submit("shout", b"kept")
        handle = job.handle(DEADLINE_SECONDS)
    with pytest.raises(ServerUnreachable, match="was stopped"):
        job.result()
    done = threading.Event()

    def note(job: WmpJob) -> bytes:
        done.set()
        return b""

    with WmpManager(ANY_WMP, store=tmp_path / "jobs.db", other_addresses=["gearman://127.0.0.1:0"]) as manager:
        with Client(manager.addresses[1]) as client:
            assert client.status(handle).known
        with WmpWorker(manager.address, {"shout": note}):
            assert done.wait(DEADLINE_SECONDS)


def test_a_job_that_runs_may_finish_when_the_server_stops() -> None:
    started = threading.Event()
    stopping = threading.Event()

    def slow(job: WmpJob) -> bytes:
        started.set()
        assert stopping.wait(DEADLINE_SECONDS)
        return b"finished"

    manager = WmpManager(ANY_WMP, drain_seconds=DEADLINE_SECONDS)
    manager.start()
    with WmpWorker(manager.address, {"slow": slow}):
        job = manager.submit("slow")
        assert started.wait(DEADLINE_SECONDS)
        stopper = threading.Thread(target=manager.stop)
        stopper.start()
        stopping.set()
        stopper.join(DEADLINE_SECONDS)
    assert job.result() == b"finished"


def test_a_block_that_fails_does_not_wait_for_jobs() -> None:
    started = threading.Event()
    release = threading.Event()

    def slow(job: WmpJob) -> bytes:
        started.set()
        release.wait(DEADLINE_SECONDS)
        return b""

    def fail(manager: WmpManager) -> None:
        with manager, WmpWorker(manager.address, {"slow": slow}):
            manager.submit("slow")
            assert started.wait(DEADLINE_SECONDS)
            raise KeyError

    began = time.monotonic()
    with pytest.raises(KeyError):
        fail(WmpManager(ANY_WMP, drain_seconds=60))
    assert time.monotonic() - began < 30
    release.set()


def test_before_and_after_its_life() -> None:
    manager = WmpManager(ANY_WMP)
    manager.stop()  # nothing to stop
    with pytest.raises(RuntimeError, match="before it is started"):
        _ = manager.address
    with pytest.raises(ServerUnreachable, match="is not started yet"):
        manager.submit("f").result()
    manager.start()
    manager.stop()
    manager.stop()
    with pytest.raises(ServerUnreachable, match="was stopped"):
        manager.submit("f").result()
    with pytest.raises(RuntimeError, match="started once"):
        manager.start()


def test_a_port_that_is_taken_is_told() -> None:
    with WmpManager(ANY_WMP) as manager:
        with pytest.raises(ConfigError, match="cannot listen"):
            WmpManager(manager.address).start()

        async def enter() -> None:
            async with WmpManager(manager.address):
                pass

        with pytest.raises(ConfigError, match="cannot listen"):
            asyncio.run(enter())


def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        WmpManager(ANY_WMP, store=tmp_path / "missing" / "jobs.db").start()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WmpManager("dwork://127.0.0.1"), "is at wmp://"),
        (lambda: WmpManager("127.0.0.1:80"), "SCHEME://HOST:PORT"),
        (lambda: WmpManager("wmp://0.0.0.0:0"), "other machines can reach"),
        (lambda: WmpManager(settings={"limits.jbos": 3}), "unknown setting limits.jbos"),
        (lambda: WmpManager(settings={"limits.jobs": "many"}), "limits.jobs: expected"),
        (lambda: WmpManager(settings={"store": "memory:"}), "store is given by an argument"),
        (lambda: WmpDevice("gearman://127.0.0.1:0", "wmp://127.0.0.1"), "is at wmp://"),
        (lambda: WmpDevice("wmp://0.0.0.0:0", "wmp://127.0.0.1"), "other machines can reach"),
    ],
)
def test_a_mistake_is_told_when_the_server_is_made(make: Callable[[], HostedServer], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize("payload", ["text", 5, None])
def test_a_payload_is_bytes(payload: object) -> None:
    with WmpManager(ANY_WMP) as manager, pytest.raises(TypeError, match="a payload is bytes"):
        manager.submit("f", payload)  # type: ignore[arg-type]


def test_settings_are_those_of_the_server() -> None:
    with WmpManager(ANY_WMP, settings={"limits.jobs": 1}) as manager:
        manager.submit("nobody").handle(DEADLINE_SECONDS)
        with pytest.raises(ServerRefused):
            manager.submit("nobody").result(DEADLINE_SECONDS)


def test_a_server_leaves_no_thread_behind() -> None:
    with WmpManager(ANY_WMP):
        assert any(thread.name == "switchgear-wmp" for thread in threading.enumerate())
    assert not any("switchgear-wmp" in thread.name for thread in threading.enumerate())
