"""WMP peers that are not ours: written from the protocol's page, with nothing but pyzmq and msgpack."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
import zmq

from switchgear.client import Client, UpdateKind
from switchgear.client.wmp import WmpJob, WmpTiming, WmpWorker
from tests.client.background import url_of
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wmp_processes import running_device, running_manager, wmp_url
from tests.support.wmp_wire import RawManager
from tests.system.talk import events

pytestmark = pytest.mark.system


class RawWorker:
    """One DEALER socket."""

    def __init__(self, url: str, identity: bytes = b"raw worker") -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.set(zmq.ROUTING_ID, identity)
        self.socket.set(zmq.LINGER, 1000)
        self.socket.connect(url.replace("wmp://", "tcp://"))

    def __enter__(self) -> RawWorker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()
        self.context.destroy(0)

    def say(self, command: bytes, headers: dict[str, Any], *payload: bytes) -> None:
        self.socket.send_multipart([b"", b"WMP1", command, msgspec.msgpack.encode(headers), *payload])

    def hear(self, wanted: bytes) -> tuple[dict[str, Any], bytes]:
        """Headers and payload of the next message, which has this command; being called again means nothing."""
        while True:
            assert self.socket.poll(int(DEADLINE_SECONDS * 1000)), "nothing is heard"
            empty, version, command, headers, *payload = self.socket.recv_multipart()
            assert (empty, version) == (b"", b"WMP1")
            if command == wanted:
                return msgspec.msgpack.decode(headers), payload[0] if payload else b""
            assert command == b"WAKE"


@pytest.mark.parametrize("devices", [0, 2])
def test_a_worker_that_is_not_ours(devices: int) -> None:
    with ExitStack() as stack:
        manager = stack.enter_context(running_manager("m"))
        client = stack.enter_context(Client(url_of(manager)))
        url = wmp_url(manager)
        for _ in range(devices):
            url = wmp_url(stack.enter_context(running_device(url)))
        worker = stack.enter_context(RawWorker(url))
        eventually(lambda: says_ready_and_is_known(worker, client), "the manager knows the worker")
        submission = client.submit("f", b"abc")
        wake, _ = worker.hear(b"WAKE")
        assert wake["path"] == [b"\0\0"] * devices + [b"m"]
        worker.say(b"GIVE", {"to": wake["path"]})
        take, payload = worker.hear(b"TAKE")
        assert (take["role"], take["manager"], payload) == ("f", b"m", b"abc")
        about = {"to": take["path"], "job": take["job"], "manager": take["manager"]}
        worker.say(b"STATUS", {**about, "numerator": 1, "denominator": 3})
        worker.say(b"READY", {"roles": ["f"]})  # before it works, for the next
        worker.say(b"DONE", about, payload[::-1])
        updates = list(submission.updates(DEADLINE_SECONDS))
        assert [update.kind for update in updates] == [UpdateKind.STATUS, UpdateKind.COMPLETE]
        assert updates[-1].data == b"cba"
        # One that fails, and one that is refused.
        failing = client.submit("f")
        worker.say(b"GIVE", {"to": worker.hear(b"WAKE")[0]["path"]})
        take, _ = worker.hear(b"TAKE")
        about = {"to": take["path"], "job": take["job"]}
        worker.say(b"DONE", {**about, "status": "failed", "error": "no paper"}, b"")
        assert list(failing.updates(DEADLINE_SECONDS))[-1].data == b"no paper"
        worker.say(b"GIVE", {"to": take["path"]})
        assert worker.hear(b"NO")[0]["path"] == take["path"]
        assert "bad_input" not in events(manager)


def says_ready_and_is_known(worker: RawWorker, client: Client) -> bool:
    """Devices may not be connected yet, and nobody repeats READY but the worker."""
    worker.say(b"READY", {"roles": ["f"]})
    return bool(client.control("workers"))


def test_a_manager_in_the_middle_passes_on_a_job_of_another() -> None:
    """To the worker it is a manager, to the manager a worker; DONE finds its way by the manager that TAKE names."""
    managers_seen: list[bytes] = []

    def work(job: WmpJob) -> bytes:
        managers_seen.append(job.manager)
        job.progress(1, 2)
        return job.payload[::-1]

    with (
        running_manager("far") as far,
        Client(url_of(far)) as client,
        RawManager(b"middle") as below,
        RawWorker(wmp_url(far), b"middle") as above,
        WmpWorker(below.url, {"f": work}, timing=WmpTiming(lease_seconds=5.0)),
    ):
        above.say(b"READY", {"roles": ["f"], "lease": 5})
        submission = client.submit("f", b"abc")
        above.say(b"GIVE", {"to": above.hear(b"WAKE")[0]["path"]})
        take, payload = above.hear(b"TAKE")
        assert take["manager"] == b"far"
        given = {key: take[key] for key in ("role", "lease")}
        path = below.hear("READY").path
        below.say(path, "WAKE")
        below.hear("GIVE")
        below.say(path, "TAKE", payload, job=take["job"], manager=take["manager"], **given)
        heard = below.hear("STATUS", "DONE")
        while True:
            assert heard.headers["to"] == [b"middle"]
            assert heard.headers["manager"] == b"far"
            passed_on = {**heard.headers, "to": take["path"]}
            above.say(heard.command.encode(), passed_on, *([] if heard.payload is None else [heard.payload]))
            if heard.command == "DONE":
                break
            heard = below.hear("STATUS", "DONE")
        assert submission.wait(DEADLINE_SECONDS) == b"cba"
        assert managers_seen == [b"far"]


def test_strangers_at_a_device_disturb_nobody() -> None:
    with (
        running_manager("m") as manager,
        running_device(wmp_url(manager)) as device,
        Client(url_of(manager)) as client,
        WmpWorker(wmp_url(device), {"f": lambda job: job.payload}, timing=WmpTiming(retry_first_seconds=0.1)) as worker,
        RawWorker(wmp_url(device), b"stranger") as stranger,
    ):
        assert client.submit("f", b"x").wait(DEADLINE_SECONDS) == b"x"
        for _ in range(50):
            stranger.socket.send_multipart([os.urandom(8) for _ in range(5)])
            stranger.socket.send(b"")
            stranger.say(b"TAKE", {"to": [worker.identity], "path": [b"m"], "job": b"1", "role": "f"}, b"")
            stranger.say(b"GIVE", {"to": [b"\0\7", b"m"]})
            stranger.say(b"DONE", {"to": [b"\0\0", b"m"], "job": b"1.1"}, b"forged")
        assert client.submit("f", b"y").wait(DEADLINE_SECONDS) == b"y"
        eventually(lambda: events(manager)["bad_input"] == 50, "what only the manager can judge has arrived")
        assert "internal_error" not in events(manager)
        device.process.send_signal(signal.SIGUSR1)
        eventually(lambda: ", 200 bad," in device.output(), "the rest is counted by the device")
        assert device.output().count("bad message from below: ") == 1  # and is complained of now and then
