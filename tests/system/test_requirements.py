"""Requirements at a real server: workers say what they have, by every protocol that can, and listeners for them."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest
import zmq

from switchgear.client import Client
from switchgear.client.pingpong import PingPongWorker
from switchgear.client.wmp import WmpWorker
from tests.cli.commands import call, call_json, running
from tests.client.background import url_of
from tests.support.servers import HOST, free_port, running_switchgear
from tests.support.threads import working_beside
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Kind, request

pytestmark = pytest.mark.system


def test_a_worker_that_runs_commands_has_resources_and_its_jobs_use_them(tmp_path: Path) -> None:
    """Four slots and 64G: two jobs of 48G never run at once, and a job of 16G runs beside one of them."""
    command = f"cat > /dev/null; echo begin >> {tmp_path}/log; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    with (
        running_switchgear() as server,
        Client(url_of(server)) as client,
        running(server, "worker", "render", "--exec", command, "--jobs", "4", "--resources", "memory=64G") as worker,
    ):
        worker.until("connected")
        options = ("submit", "--background", "--requires")
        handles = [call(server, *options, "memory=48G", "render", "x").stdout.strip() for _ in range(2)]
        small = call(server, *options, "memory=16000000000", "render", "x").stdout.strip()
        too_large = call(server, *options, "memory=1T,gpu", "render", "x").stdout.strip()

        def states() -> list[str]:
            return [client.control("job", handle=handle)["state"] for handle in (*handles, small, too_large)]

        eventually(lambda: states() == ["running", "ready", "running", "ready"], "one of 48G and the small one run")
        (shown,) = client.control("workers")
        assert (shown["resources"], shown["resources_free"]) == ({"memory": 64 * 10**9}, {"memory": 0})
        assert "memory=64G(0 free)" in call(server, "workers").stdout
        assert "memory=48G" in call(server, "jobs").stdout
        (reason,) = call_json(server, "explain", handles[1])["reasons"]
        assert reason["word"] == "resources_in_use"
        (reason,) = call_json(server, "explain", too_large)["reasons"]
        assert reason["word"] == "missing_tag"
        assert reason["data"]["short"] == [{"resource": "memory", "required": 10**12, "most": 64 * 10**9}]
        assert "has 1T of 'memory' (the most is 64G)" in call(server, "explain", too_large).stdout
        refused = call(server, *options, "memory=-1", "render", "x")
        assert refused.exit_code != 0
        assert "requires is a list of tags and amounts: '-1' is no amount" in refused.output
        (tmp_path / "go").touch()
        eventually(lambda: states() == ["done", "done", "done", "ready"], "all that fit are done")


def test_a_gearman_worker_that_is_only_bytes() -> None:
    with running_switchgear() as server, Client(url_of(server)) as client:
        for _ in range(3):
            client.submit("f", b"large", background=True, requires="memory=64G")
        client.submit("f", b"small", background=True, requires="memory=1G")
        with socket.create_connection((HOST, server.port), DEADLINE_SECONDS) as worker:
            worker.sendall(request(Kind.CAN_DO, b"f") + b"\0REQ" + (1013).to_bytes(4, "big") + (9).to_bytes(4, "big"))
            worker.sendall(b"memory=4G" + request(Kind.GRAB_JOB))
            answer = b""
            while not answer.endswith(b"\0f\0small"):
                more = worker.recv(4096)
                assert more, answer
                answer += more
            assert answer.startswith(b"\0RES" + int(Kind.JOB_ASSIGN).to_bytes(4, "big"))


def test_workers_of_other_protocols_have_what_their_listener_says_or_say_it_themselves() -> None:
    workers, wmp = free_port(), free_port()
    listen = (
        *("--listen", f"pingpong://{HOST}:{free_port()}?workers={workers}&function=mirror&resources=memory=8G,cores=2"),
        *("--listen", f"wmp://{HOST}:{wmp}?tags=large&resources=memory=1G"),
    )
    with running_switchgear(*listen) as server, Client(url_of(server)) as client:
        pingpong = PingPongWorker(lambda payload: payload[::-1], f"pingpong://{HOST}:{workers}")
        with working_beside(pingpong):
            waits = client.submit("mirror", b"xyz", background=True, requires="memory=9G")
            assert client.submit("mirror", b"abc", requires="memory=8G,cores=2").wait(DEADLINE_SECONDS) == b"cba"
            assert client.control("job", handle=waits.handle)["state"] == "ready"
        headers = {"resources": {"memory": "64G"}, "tags": ["gpu"]}
        with WmpWorker(f"wmp://{HOST}:{wmp}", {"turn": lambda job: job.payload[::-1]}, headers=headers):
            submission = client.submit("turn", b"abc", requires=["large", "gpu", "memory=64G"])
            assert submission.wait(DEADLINE_SECONDS) == b"cba"


def test_a_wmp_worker_written_from_the_page_alone() -> None:
    """A 64-GB job that nobody fits does not keep this worker from the 1-GB job behind it, at WAKE and at GIVE."""
    wmp = free_port()
    with running_switchgear("--listen", f"wmp://{HOST}:{wmp}") as server, Client(url_of(server)) as client:
        context = zmq.Context()
        worker = context.socket(zmq.DEALER)
        worker.setsockopt(zmq.LINGER, 0)
        worker.setsockopt(zmq.ROUTING_ID, b"w1")
        worker.setsockopt(zmq.RCVTIMEO, int(DEADLINE_SECONDS * 1000))
        worker.connect(f"tcp://{HOST}:{wmp}")
        try:

            def say(command: bytes, **headers: object) -> None:
                worker.send_multipart([b"", b"WMP1", command, msgspec.msgpack.encode(headers)])

            say(b"READY", roles=["echo"], resources={"memory": "4G"})
            eventually(lambda: len(client.control("workers")) == 1, "it is registered")
            for _ in range(5):
                client.submit("echo", b"large", background=True, requires="memory=64G")
            client.submit("echo", b"small", background=True, requires="memory=1G")
            assert worker.recv_multipart()[2] == b"WAKE"
            say(b"GIVE", roles=["echo"])
            take = worker.recv_multipart()
            assert (take[2], take[4]) == (b"TAKE", b"small")
            say(b"GIVE", roles=["echo"])
            assert worker.recv_multipart()[2] == b"NO"
        finally:
            worker.close()
            context.term()


def test_a_job_that_waits_keeps_what_it_requires_over_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    with running_switchgear(store=store) as server:
        options = ("submit", "--background", "--requires", "memory=8G,cores=0.5")
        handle = call(server, *options, "mirror", "abc").stdout.strip()
    with (
        running_switchgear(store=store) as server,
        Client(url_of(server)) as client,
        running(server, "worker", "mirror", "--exec", "rev", "--resources", "memory=4G,cores=8") as small,
    ):
        small.until("connected")
        assert client.submit("mirror", b"xyz").wait(DEADLINE_SECONDS) == b"zyx"
        shown = client.control("job", handle=handle)
        assert (shown["state"], shown["requires"]) == ("ready", ["cores=0.5", "memory=8G"])
        with running(server, "worker", "mirror", "--exec", "rev", "--resources", "memory=8G,cores=8") as large:
            large.until("connected")
            eventually(lambda: client.control("job", handle=handle)["state"] == "done", "it runs")


@pytest.mark.parametrize(
    "arguments",
    [
        ("worker", "f", "--exec", "true", "--resources", "memory"),
        ("worker", "f", "--exec", "true", "--resources", "memory=lots"),
        ("serve", "--listen", "wmp://127.0.0.1:0?resources=gpu"),
    ],
    ids=lambda arguments: arguments[-1],
)
def test_what_is_no_resource_is_refused_with_a_clear_error(arguments: tuple[str, ...]) -> None:
    done = call("gearman://127.0.0.1:9", *arguments)  # where nobody listens: nothing is asked of a server
    assert done.exit_code in (1, 2)
    assert "resource" in done.output or "amount" in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
