"""GearMonkey jobs in a real Redis, for workers of other protocols that only poll, written from the documents' bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from tests.support.redis_server import RedisServer, running_redis
from tests.support.servers import Server
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wire import Wire
from tests.system.bridge_stage import all_end, bridged, queue_jobs

pytestmark = pytest.mark.system

# QueryMsg, as the document has it: type Steal, or Complete with one task; and the location of this worker.
LOCATION = b"\x32\x04node"
STEAL = b"\x08\x01" + LOCATION
NOT_FOUND, EXIT = b"\x08\x05", b"\x08\x07"


def complete(name: bytes) -> bytes:
    task = b"\x0a%c%b\x12\x01o" % (len(name), name)
    return b"\x08\x02\x12%c%b" % (len(task), task) + LOCATION


@contextmanager
def stage() -> Iterator[tuple[RedisServer, Server, str]]:
    """A Redis, a server of ours with a bridge to it, and the address of its dwork listener."""
    listener = ("--listen", "dwork://127.0.0.1:0")
    with running_redis() as redis_server, bridged(redis_server, *listener) as server:
        found = re.search(r"dwork://(127\.0\.0\.1:\d+)", server.output())
        assert found is not None
        yield redis_server, server, f"tcp://{found[1]}"


@contextmanager
def req_socket(address: str) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.REQ) as requests:
        requests.linger = 0
        requests.rcvtimeo = round(DEADLINE_SECONDS * 1000)
        requests.connect(address)
        yield requests


def asked(requests: zmq.Socket[bytes], query: bytes) -> bytes:
    requests.send(query)
    return requests.recv()


def status_line(server: Server) -> bytes:
    with Wire(server.address) as operator:
        return next((line for line in operator.ask("status") if line.startswith(b"dwork\t")), b"")


def test_a_worker_that_polls_with_plain_steals_gets_jobs_out_of_redis() -> None:
    with stage() as (redis_server, server, address), redis_server.client() as client, req_socket(address) as requests:
        assert asked(requests, STEAL) == EXIT
        # Roll calls see it: that of a GearMonkey client, and that of an operator.
        eventually(lambda: client.get("count:dwork") == "1", "the worker is counted in Redis")
        assert status_line(server) == b"dwork\t0\t0\t1\n"
        [job_id] = queue_jobs(client, "dwork", [b"resize 1"])

        def is_stolen() -> bool:
            answer = asked(requests, STEAL)
            assert answer in (EXIT, NOT_FOUND) or b"\x0a\x08resize 1" in answer
            return b"resize 1" in answer

        eventually(is_stolen, "a Steal gets the job")
        assert asked(requests, complete(b"resize 1")) == b"\x08\x06"
        all_end(client, "dwork", [job_id])
        assert client.hget(f"job:dwork:{job_id}", "status") == "success"


def test_a_polling_worker_that_is_gone_is_not_counted_and_jobs_stay_in_redis() -> None:
    with stage() as (redis_server, server, address), redis_server.client() as client:
        with req_socket(address) as requests:
            assert asked(requests, STEAL) == EXIT
            eventually(lambda: client.get("count:dwork") == "1", "the worker is counted in Redis")
        eventually(lambda: status_line(server) == b"dwork\t0\t0\t0\n", "it counts no more", within_seconds=30)
        eventually(lambda: client.get("count:dwork") == "0", "nor in Redis", within_seconds=30)
        queue_jobs(client, "dwork", [b"resize 1"])
        # Its GearMonkey worker gets it: the bridge does not claim it for anybody.
        popped = client.brpop(["queue:dwork:normal"], timeout=5)
        assert popped == ("queue:dwork:normal", "1")
