"""A server that is told to stop still takes the results of what runs, whatever protocol they come by."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from switchgear.protocols.dwork.codec import decode_reply, encode
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from tests.support.servers import HOST, free_port, running_switchgear
from tests.support.waiting import eventually

PATIENCE_MS = 20_000


@contextmanager
def sockets() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(0)


def connect(context: zmq.Context[zmq.Socket[bytes]], port: int) -> zmq.Socket[bytes]:
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.RCVTIMEO, PATIENCE_MS)
    dealer.connect(f"tcp://{HOST}:{port}")
    return dealer


def test_results_of_pingpong_and_dwork_workers_arrive_after_sigterm() -> None:
    clients, workers, tasks = free_port(), free_port(), free_port()
    listeners = [f"pingpong://{HOST}:{clients}?workers={workers}", f"dwork://{HOST}:{tasks}"]
    options = [word for url in listeners for word in ("--listen", url)]
    with running_switchgear(*options, "--drain-timeout", "60s") as server, sockets() as context:
        worker, client, dwork = connect(context, workers), connect(context, clients), connect(context, tasks)
        worker.send_multipart([b"", b"READY"])
        client.send_multipart([b"", b"job"])
        assert worker.recv_multipart() == [b"", b"job"]
        assert ask(dwork, Query(QueryType.CREATE, [Task(b"t", b"o")])).type == QueryType.OK
        assert ask(dwork, Query(QueryType.STEAL, location=b"w")).tasks[0].name == b"t"
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: "draining" in server.output(), "the server drains")
        worker.send_multipart([b"", b"result"])
        assert client.recv_multipart() == [b"", b"result"]
        assert ask(dwork, Query(QueryType.COMPLETE, [Task(b"t", b"o")], location=b"w")).type == QueryType.OK
        assert server.wait_stopped() == 0


def test_whoever_still_waits_is_told_that_the_server_stops() -> None:
    clients, workers, tasks = free_port(), free_port(), free_port()
    listeners = [f"pingpong://{HOST}:{clients}?workers={workers}", f"dwork://{HOST}:{tasks}"]
    options = [word for url in listeners for word in ("--listen", url)]
    with running_switchgear(*options) as server, sockets() as context:
        client, dwork = connect(context, clients), connect(context, tasks)
        client.send_multipart([b"", b"nobody does this"])
        dwork.send_multipart([b"", encode(Query(QueryType.STEAL, location=b"w", wait_ms=600_000))])
        assert ask(dwork, Query(QueryType.OK)).type == QueryType.OK  # so the Steal before it is waiting
        eventually(lambda: b"pingpong\t1\t" in admin_status(server.port), "the job is queued")
        server.process.send_signal(signal.SIGTERM)
        assert client.recv_multipart()[:3] == [b"", b"", b"FAILED"]
        assert decode_reply(dwork.recv_multipart()[-1]).type == QueryType.NOT_FOUND


def admin_status(port: int) -> bytes:
    with socket.create_connection((HOST, port), timeout=PATIENCE_MS / 1000) as connection:
        connection.sendall(b"status\n")
        return connection.recv(65_536)


def ask(peer: zmq.Socket[bytes], query: Query) -> Query:
    peer.send_multipart([b"", encode(query)])
    return decode_reply(peer.recv_multipart()[-1])
