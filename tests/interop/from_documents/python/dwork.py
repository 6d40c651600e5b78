"""A dwork worker, from the document's text: HOST PORT NAME JOBS.  Steals and completes so many tasks, and exits."""

import sys
import time

import zmq

STEAL, COMPLETE, TRANSFER, NOT_FOUND, OK, EXIT = 1, 2, 3, 5, 6, 7
host, port, jobs = sys.argv[1], sys.argv[2], int(sys.argv[4])
context = zmq.Context()
server = context.socket(zmq.REQ)
server.connect(f"tcp://{host}:{port}")
LOCATION = b"python-worker"


def varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def field(number: int, content: bytes) -> bytes:
    """A field of type string or message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """Number and value of each field."""
    found: list[tuple[int, int | bytes]] = []
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while position < len(message):
        key = number()
        value = number()
        if key & 7 == 2:
            found.append((key >> 3, message[position : position + value]))
            position += value
        else:
            found.append((key >> 3, value))
    return found


def ask(query_type: int, tasks: bytes = b"") -> tuple[int, list[bytes]]:
    """Type and tasks of the answer."""
    server.send(b"\x08" + varint(query_type) + tasks + field(6, LOCATION))
    answer = fields(server.recv())
    kind = next(value for number, value in answer if number == 1)
    assert isinstance(kind, int)
    return kind, [value for number, value in answer if number == 2 and isinstance(value, bytes)]


while jobs:
    kind, tasks = ask(STEAL)
    if kind == TRANSFER:
        kind, _ = ask(COMPLETE, b"".join(field(2, task) for task in tasks))
        assert kind == OK, kind
        jobs -= len(tasks)
    else:
        assert kind in (NOT_FOUND, EXIT), kind
        time.sleep(0.02)
ask(EXIT)
server.close()
context.term()
