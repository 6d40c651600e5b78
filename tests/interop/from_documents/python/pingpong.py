"""A PingPongWorker, from the document's text: HOST PORT NAME JOBS.  Does so many jobs, in capitals, and leaves."""

import sys
import time

import zmq

BROKER_TIMEOUT_SECONDS, N_TIMEOUTS = 1.0, 3
host, port, jobs = sys.argv[1], sys.argv[2], int(sys.argv[4])
context = zmq.Context()


def connect() -> "zmq.Socket[bytes]":
    frontend = context.socket(zmq.DEALER)
    frontend.connect(f"tcp://{host}:{port}")
    frontend.send_multipart([b"", b"READY"])
    return frontend


frontend = connect()
heard_at = time.monotonic()
while jobs:
    if frontend.poll(int(BROKER_TIMEOUT_SECONDS * 1000)):
        _, message = frontend.recv_multipart()
        if message != b"PONG":
            frontend.send_multipart([b"", message.upper()])
            jobs -= 1
        heard_at = time.monotonic()
    elif time.monotonic() - heard_at > N_TIMEOUTS * BROKER_TIMEOUT_SECONDS:
        frontend.close(0)
        frontend = connect()
        heard_at = time.monotonic()
    else:
        frontend.send_multipart([b"", b"PING"])
frontend.close()
context.term()
