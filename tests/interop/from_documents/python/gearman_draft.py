"""A worker of the Gearman draft of 2005, from its text: HOST PORT NAME JOBS.  Does jobs, in capitals, and leaves."""

import socket
import struct
import sys

host, port, name, jobs = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode(), int(sys.argv[4])
NOOP, CONNECT, DISCONNECT, SLEEP, ASSIGN_REQ, ASSIGN_RES, STATUS, COMPLETE = 0, 1, 2, 3, 6, 7, 8, 11
server = socket.create_connection((host, port))
stream = server.makefile("rb")


def send(packet_type: int, body: bytes = b"") -> None:
    server.sendall(struct.pack(">4sBL", b"\0JOB", packet_type, len(body)) + body)


send(CONNECT, name)
send(ASSIGN_REQ)
is_asleep = False
while jobs:
    _, packet_type, length = struct.unpack(">4sBL", stream.read(9))
    body = stream.read(length)
    if packet_type == ASSIGN_RES:
        arguments = body.split(b"\0", 1)[1]
        send(STATUS, struct.pack(">LLL", 1, 2, 3))
        send(COMPLETE, b"\0" + arguments.upper())
        jobs -= 1
        is_asleep = False
        send(ASSIGN_REQ if jobs else DISCONNECT)
    elif packet_type == NOOP:
        is_asleep = not is_asleep  # "no, sorry" to the request, or "wake up" to the sleep
        send(SLEEP if is_asleep else ASSIGN_REQ)
stream.read()  # until the server has closed the connection
