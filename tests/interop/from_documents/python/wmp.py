"""A WMP worker, from docs/protocols/wmp.md: HOST PORT NAME JOBS.  Does so many jobs, in capitals, and leaves."""

import os
import sys
from typing import Any

import msgspec
import zmq

host, port, role, jobs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
context = zmq.Context()
dealer = context.socket(zmq.DEALER)
dealer.setsockopt(zmq.ROUTING_ID, b"python-" + os.urandom(8).hex().encode())
dealer.connect(f"tcp://{host}:{port}")
pause_ms = 100


def send(command: bytes, headers: dict[str, Any], *payload: bytes) -> None:
    dealer.send_multipart([b"", b"WMP1", command, msgspec.msgpack.encode(headers), *payload])


def ready() -> None:
    send(b"READY", {"roles": [role], "lease": 30, "slots": 1})


ready()
while jobs:
    if not dealer.poll(pause_ms):
        ready()  # the manager may have forgotten the last one
        pause_ms = min(2 * pause_ms, 10_000)
        continue
    pause_ms = 100
    _, version, command, packed, *payload = dealer.recv_multipart()
    assert version == b"WMP1"
    headers = msgspec.msgpack.decode(packed)
    if command == b"WAKE":
        send(b"GIVE", {"to": headers["path"], "roles": [role], "lease": 30})
    elif command == b"TAKE":
        about = {"to": headers["path"], "job": headers["job"], "manager": headers["manager"]}
        send(b"STATUS", {**about, "numerator": 1, "denominator": 2})
        send(b"DONE", about, payload[0].upper())
        jobs -= 1
        if jobs:
            ready()
    elif command == b"NO":
        ready()
dealer.close()
context.term()
