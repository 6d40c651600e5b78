"""Attackers that try to fill the server's memory, one function for each, with raw sockets only.

Each runs in a thread until it has sent all it wants to, the server closes the connection, or `over` is set.  Being
closed or refused is what an attacker deserves, so their socket errors mean nothing.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import TypeVar

from tests.support.servers import HOST

Socket = TypeVar("Socket", bound=socket.socket)

MIB = 1 << 20
ZMTP_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)


@dataclass(frozen=True)
class Ports:
    """Where each protocol is spoken."""

    gearman: int
    wmp: int
    pingpong: int
    pingpong_workers: int
    dwork: int
    gearmonkey: int
    http: int
    tls: int  # Gearman, encrypted


class Attack:
    """One attacker: which ports it knows, when to stop, and the connections that it has made."""

    def __init__(self, ports: Ports, over: Event) -> None:
        self.ports = ports
        self.over = over
        self._sockets: list[socket.socket] = []

    def connect(self, port: int) -> socket.socket:
        return self.keep(socket.create_connection((HOST, port), timeout=2))

    def keep(self, peer: Socket) -> Socket:
        """Have this connection closed at the end."""
        self._sockets.append(peer)
        return peer

    def close(self) -> None:
        for peer in self._sockets:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)  # or one that is being read from would stay open
            peer.close()

    def zeromq(self, port: int, socket_type: bytes = b"DEALER") -> socket.socket:
        """A ZeroMQ peer that has introduced itself."""
        peer = self.connect(port)
        peer.sendall(ZMTP_GREETING)
        received = b""
        while len(received) < 64:
            received += peer.recv(64 - len(received)) or b"\0" * 64
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(socket_type)) + socket_type
        peer.sendall(b"\x04" + bytes([len(ready)]) + ready)
        return peer

    def reader(self, port: int) -> socket.socket:
        """A connection on which everything that comes is read and thrown away."""
        peer = self.connect(port)
        peer.settimeout(None)
        Thread(target=_read_all, args=(peer,), daemon=True).start()
        return peer

    def send_all(self, peer: socket.socket, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            if self.over.is_set():
                return
            peer.sendall(piece)


def _read_all(peer: socket.socket) -> None:
    try:
        while peer.recv(MIB):
            pass
    except OSError:
        return


def packet(kind: int, *fields: bytes) -> bytes:
    body = b"\0".join(fields)
    return b"\0REQ" + struct.pack(">II", kind, len(body)) + body


def command(*words: bytes) -> bytes:
    """A RESP command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def frame(body: bytes, *, more: bool = False) -> bytes:
    """A ZMTP frame with a long length."""
    return bytes([0x02 | more]) + struct.pack(">Q", len(body)) + body


def unfinished_gearman_packets(attack: Attack) -> None:
    """Packets that are announced as 63 MiB and never end, on many connections."""
    peers = [attack.connect(attack.ports.gearman) for _ in range(40)]
    for peer in peers:
        peer.sendall(b"\0REQ" + struct.pack(">II", 18, 63 * MIB))
    for _ in range(60):
        for peer in peers:
            if attack.over.is_set():
                return
            try:
                peer.sendall(bytes(MIB))
            except OSError:
                continue  # the largest ones are closed, the others go on
    attack.over.wait()


def unfinished_gearmonkey_commands(attack: Attack) -> None:
    peers = [attack.connect(attack.ports.gearmonkey) for _ in range(20)]
    for peer in peers:
        peer.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (60 * MIB))
    for _ in range(58):
        for peer in peers:
            if attack.over.is_set():
                return
            try:
                peer.sendall(bytes(MIB))
            except OSError:
                continue
    attack.over.wait()


def foreground_jobs_that_nobody_runs(attack: Attack) -> None:
    peer = attack.connect(attack.ports.gearman)
    attack.send_all(peer, (packet(7, b"nobody", b"", bytes(30 * MIB)) for _ in range(60)))
    attack.over.wait()


def background_jobs_that_nobody_runs(attack: Attack) -> None:
    peer = attack.connect(attack.ports.gearman)
    attack.send_all(peer, (packet(18, b"nobody", b"", bytes(10 * MIB)) for _ in range(100)))
    attack.over.wait()


def echoes_that_are_not_read(attack: Attack) -> None:
    peers = [attack.connect(attack.ports.gearman) for _ in range(20)]
    for _ in range(5):
        for peer in peers:
            if attack.over.is_set():
                return
            try:
                peer.sendall(packet(16, bytes(8 * MIB)))
            except OSError:
                continue
    attack.over.wait()


def jobs_that_come_and_go(attack: Attack) -> None:
    """Foreground jobs whose client leaves at once."""
    for number in range(60):
        if attack.over.is_set():
            return
        with attack.connect(attack.ports.gearman) as peer:
            peer.sendall(packet(7, b"gone%d" % (number % 5), b"", bytes(4 * MIB)))


def patterns(attack: Attack) -> None:
    """Patterns that are expensive to keep and to match."""
    peer = attack.connect(attack.ports.gearmonkey)
    for number in range(0, 1000, 100):
        words = [b"[^a]" * 129 + b"%04d" % (number + index) for index in range(100)]
        attack.send_all(peer, [command(b"PSUBSCRIBE", *words)])
    attack.over.wait()


def publishing_to_many_patterns(attack: Attack) -> None:
    listener = attack.connect(attack.ports.gearmonkey)
    listener.sendall(command(b"PSUBSCRIBE", *[b"*" * (number + 1) for number in range(500)]))
    publisher = attack.connect(attack.ports.gearmonkey)
    attack.send_all(publisher, (command(b"PUBLISH", b"x", bytes(4 * MIB)) for _ in range(10)))
    attack.over.wait()


def fields_of_jobs_that_are_never_pushed(attack: Attack) -> None:
    peer = attack.connect(attack.ports.gearmonkey)
    for number in range(200):
        peer.sendall(command(b"INCR", b"uid:f"))
        attack.send_all(peer, [command(b"HMSET", b"job:f:%d" % (number + 1), b"input", bytes(4 * MIB))])
    attack.over.wait()


def endless_zeromq_message(attack: Attack) -> None:
    for port in (attack.ports.dwork, attack.ports.wmp, attack.ports.pingpong):
        try:
            peer = attack.zeromq(port)
            attack.send_all(peer, (b"\x01\x00" * 32768 for _ in range(300)))
        except OSError:
            continue


def large_zeromq_message_of_many_frames(attack: Attack) -> None:
    peer = attack.zeromq(attack.ports.wmp)
    attack.send_all(peer, (frame(bytes(8 * MIB), more=True) for _ in range(90)))
    attack.over.wait()


def silent_zeromq_connections(attack: Attack) -> None:
    for _ in range(300):
        attack.connect(attack.ports.wmp)
    attack.over.wait()


def pingpong_requests_that_nobody_runs(attack: Attack) -> None:
    peer = attack.zeromq(attack.ports.pingpong)
    attack.send_all(peer, (frame(b"", more=True) + frame(bytes(30 * MIB)) for _ in range(40)))
    attack.over.wait()


def one_large_dwork_message(attack: Attack) -> None:
    """A Create of 300,000 tasks."""
    peer = attack.zeromq(attack.ports.dwork, b"REQ")
    tasks = b"".join(_task(b"bomb%d" % number) for number in range(300_000))
    attack.send_all(peer, [frame(b"", more=True) + frame(b"\x08\x00" + tasks)])
    attack.over.wait()


def _task(name: bytes) -> bytes:
    body = b"\n" + bytes([len(name)]) + name + b"\x12\x00"
    return b"\x12" + bytes([len(body)]) + body


def names_of_functions(attack: Attack) -> None:
    peer = attack.connect(attack.ports.gearman)
    attack.send_all(peer, (packet(1, b"name%d" % number) for number in range(20_000)))
    attack.over.wait()


def schedules(attack: Attack) -> None:
    peer = attack.connect(attack.ports.gearman)
    for number in range(3000):
        words = {"name": f"s{number}", "function": "nobody", "every_seconds": 0.1}
        attack.send_all(peer, [packet(1001, b"schedule", json.dumps(words).encode())])
    attack.over.wait()


def results_in_pieces(attack: Attack) -> None:
    """A worker that sends data without end for a job whose client does not read."""
    client = attack.connect(attack.ports.gearman)
    client.sendall(packet(7, b"pieces", b"", b""))
    worker = attack.connect(attack.ports.gearman)
    worker.sendall(packet(1, b"pieces") + packet(9))
    answer = worker.recv(4096)
    while len(answer) < 12 or answer[7] != 11:  # JOB_ASSIGN
        worker.sendall(packet(9))
        answer = worker.recv(4096)
    handle = answer[12:].split(b"\0")[0]
    attack.send_all(worker, (packet(28, handle, bytes(MIB)) for _ in range(500)))
    attack.over.wait()


def http_requests(attack: Attack) -> None:
    ports = attack.ports
    for port in (ports.gearman, ports.gearmonkey, ports.wmp, ports.dwork, ports.pingpong):
        try:
            peer = attack.connect(port)
            peer.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n")
            attack.send_all(peer, (b"shutdown\n" * 1000 for _ in range(10)))
        except OSError:
            continue


def jobs_without_payloads(attack: Attack) -> None:
    """Each takes memory, though it brings no byte to be counted."""
    peer = attack.reader(attack.ports.gearman)
    attack.send_all(peer, (packet(7, b"nobody", b"", b"") * 1000 for _ in range(3000)))
    attack.over.wait()


def watched_jobs_of_the_far_future(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearman)
    peer.sendall(packet(26, b"switchgear"))
    for number in range(1000):
        options = json.dumps({"run_at": 4e9 + number, "watch": True, "name": ""}).encode()
        attack.send_all(peer, [packet(1000, b"nobody", b"", options, b"") * 200])
    attack.over.wait()


def one_job_that_is_submitted_again_and_again(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearman)
    attack.send_all(peer, (packet(7, b"nobody", b"same", b"") * 1000 for _ in range(2000)))
    attack.over.wait()


def jobs_that_wait_for_thousands(attack: Attack) -> None:
    peer = attack.connect(attack.ports.gearman)
    handles = []
    for _ in range(2000):
        peer.sendall(packet(18, b"nobody", b"", b""))
        answer = peer.recv(4096)
        handles.append(answer[12:].decode())
    options = json.dumps({"after": handles}).encode()
    attack.send_all(attack.reader(attack.ports.gearman), (packet(1000, b"g", b"", options, b"") for _ in range(2000)))
    attack.over.wait()


def assigned(worker: socket.socket, function: bytes) -> bytes:
    """The handle of a job that the worker has got."""
    worker.sendall(packet(1, function))
    while True:
        worker.sendall(packet(9))
        answer = worker.recv(65_536)
        if len(answer) > 12 and answer[7] == 11:  # JOB_ASSIGN
            return answer[12:].split(b"\0")[0]


def data_that_many_hear_of(attack: Attack) -> None:
    clients = [attack.connect(attack.ports.gearman) for _ in range(40)]
    for client in clients:
        client.sendall(packet(26, b"exceptions") + packet(7, b"fan", b"same", b""))
        client.recv(4096)
    worker = attack.connect(attack.ports.gearman)
    handle = assigned(worker, b"fan")
    attack.send_all(worker, (packet(28, handle, bytes(20 * MIB)) for _ in range(5)))
    attack.send_all(worker, [packet(25, handle, bytes(40 * MIB))])
    attack.over.wait()


def results_that_the_store_cannot_follow(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearman)
    peer.sendall(packet(18, b"quick", b"", b"") * 200)
    worker = attack.connect(attack.ports.gearman)
    worker.sendall(packet(1, b"quick"))
    while not attack.over.is_set():
        attack.send_all(worker, [packet(13, assigned(worker, b"quick"), bytes(30 * MIB))])


def a_job_that_is_handed_back_for_ever(attack: Attack) -> None:
    attack.reader(attack.ports.gearman).sendall(packet(18, b"hot", b"", b""))
    worker = attack.connect(attack.ports.gearman)
    handle = assigned(worker, b"hot")
    peer = attack.reader(attack.ports.gearman)
    worker.close()
    peer.sendall(packet(1, b"hot"))
    attack.send_all(peer, ((packet(9) + packet(1011, handle)) * 500 for _ in range(2000)))
    attack.over.wait()


def workers_that_can_do_everything(attack: Attack) -> None:
    abilities = b"".join(packet(1, b"ability%d" % number) for number in range(1000))
    for _ in range(60):
        attack.send_all(attack.reader(attack.ports.gearman), [abilities + packet(4)])
    attack.over.wait()


def schedules_with_payloads(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearman)
    for number in range(500):
        words = {"name": f"p{number}", "function": "nobody", "every_seconds": 1e6, "payload": "x" * (3 * MIB)}
        attack.send_all(peer, [packet(1001, b"schedule", json.dumps(words).encode())])
    attack.over.wait()


def unique_keys_held_for_days(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearman)
    options = json.dumps({"unique_seconds": 2_000_000, "run_at": 4e9}).encode()
    for number in range(0, 500_000, 500):
        keys = (b"held%d" % key for key in range(number, number + 500))
        attack.send_all(peer, [b"".join(packet(1000, b"nobody", key, options, b"") for key in keys)])
    attack.over.wait()


def keys_with_a_rate_of_their_own(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearman)
    peer.sendall(packet(1001, b"limit", b'{"function": "lanes", "key_rate": "1/day"}'))
    for number in range(0, 300_000, 500):
        texts = (json.dumps({"key": f"key{key}"}).encode() for key in range(number, number + 500))
        attack.send_all(peer, [b"".join(packet(1000, b"lanes", b"", text, b"") for text in texts)])
    attack.over.wait()


def steals_that_wait(attack: Attack) -> None:
    creator = attack.zeromq(attack.ports.dwork)
    creator.sendall(frame(b"", more=True) + frame(b"\x08\x00" + _task(b"first") + _task(b"second")))
    peer = attack.zeromq(attack.ports.dwork)
    envelope = b"".join(frame(b"e" * 250, more=True) for _ in range(14))
    for number in range(100_000):
        location = b"w%d" % number
        steal = b"\x08\x01" + b"\x32" + bytes([len(location)]) + location + b"\xa8\x06\xff\xff\xff\xff\x07"
        attack.send_all(peer, [envelope + frame(b"", more=True) + frame(steal)])
    attack.over.wait()


def pingpong_requests_in_long_envelopes(attack: Attack) -> None:
    peer = attack.zeromq(attack.ports.pingpong)
    request = b"".join(frame(b"e" * 250, more=True) for _ in range(14)) + frame(b"", more=True) + frame(b"x")
    attack.send_all(peer, (request * 10 for _ in range(50_000)))
    attack.over.wait()


def words_of_one_command(attack: Attack) -> None:
    """Words that are short on the wire and long in memory."""
    for _ in range(300):
        peer = attack.connect(attack.ports.gearmonkey)
        peer.sendall(b"*65536\r\n")
        attack.send_all(peer, (b"$3\r\nabc\r\n" * 10_000 for _ in range(6)))
    attack.over.wait()


def _many_functions(attack: Attack) -> None:
    peer = attack.connect(attack.ports.gearman)
    for start in range(0, 3000, 500):
        peer.sendall(b"".join(b"create function many%d\n" % number for number in range(start, start + 500)))
        answers = b""
        while answers.count(b"\n") < 500:
            answers += peer.recv(65_536)


def status_by_unique_key_of_many_functions(attack: Attack) -> None:
    _many_functions(attack)
    attack.send_all(attack.reader(attack.ports.gearman), (packet(41, b"nobody") * 500 for _ in range(200)))
    attack.over.wait()


def long_text_answers(attack: Attack) -> None:
    _many_functions(attack)
    for _ in range(10):
        peer = attack.reader(attack.ports.gearman)
        attack.send_all(peer, [b"status\n" * 300 + b"prioritystatus\n" * 100 + b"workers\n" * 100])
    attack.over.wait()


def functions_until_there_is_no_room_for_more(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearman)
    attack.send_all(peer, (packet(7, b"room%d" % number, b"key", b"") for number in range(20_000)))
    attack.over.wait()


def one_byte_short_of_a_packet(attack: Attack) -> None:
    for _ in range(300):
        attack.connect(attack.ports.gearman).sendall(packet(18, b"short", b"", bytes(60_000))[:-1])
    attack.over.wait()


def connections_that_come_and_go(attack: Attack) -> None:
    while not attack.over.is_set():
        for port in (attack.ports.gearman, attack.ports.gearmonkey, attack.ports.dwork):
            for peer in [socket.create_connection((HOST, port), timeout=2) for _ in range(50)]:
                peer.close()


def results_that_are_not_read(attack: Attack) -> None:
    for client in [attack.connect(attack.ports.gearman) for _ in range(50)]:
        client.sendall(packet(7, b"unread", b"", b"") * 5)
    worker = attack.connect(attack.ports.gearman)
    for _ in range(250):
        attack.send_all(worker, [packet(13, assigned(worker, b"unread"), bytes(MIB))])
    attack.over.wait()


def typed_commands(attack: Attack) -> None:
    """RESP without arrays, and arrays in arrays."""
    peer = attack.reader(attack.ports.gearmonkey)
    attack.send_all(peer, (b"PING\r\n" * 20_000 for _ in range(100)))
    while not attack.over.is_set():
        attack.reader(attack.ports.gearmonkey).sendall(b"*1\r\n" * 20_000)


def subscriptions_that_change(attack: Attack) -> None:
    peers = [attack.reader(attack.ports.gearmonkey) for _ in range(20)]
    change = command(b"SUBSCRIBE", *[b"channel%d" % number for number in range(1000)]) + command(b"UNSUBSCRIBE")
    for _ in range(100):
        for peer in peers:
            attack.send_all(peer, [change])
    attack.over.wait()


def long_transactions(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearmonkey)
    transaction = command(b"MULTI") + command(b"INCR", b"uid:f") * 9000 + command(b"EXEC")
    attack.send_all(peer, (transaction for _ in range(50)))
    attack.over.wait()


def zeromq_pings(attack: Attack) -> None:
    for port in (attack.ports.wmp, attack.ports.dwork):
        attack.send_all(attack.zeromq(port), (b"\x04\x0b\x04PING\0\0ctxt" * 20_000 for _ in range(50)))
    attack.over.wait()


def json_of_very_many_values(attack: Attack) -> None:
    peer = attack.reader(attack.ports.gearman)
    for text in (b'{"a":[' + b"[]," * 1_000_000 + b"1]}", b"[" * 100_000, b'{"after":["' + b'x","' * 800_000 + b'"]}'):
        attack.send_all(peer, [packet(1001, b"jobs", text), packet(1000, b"f", b"", text, b"")])
    attack.over.wait()


def operators_that_ask_without_end(attack: Attack) -> None:
    verbs = {"cancel": {"function": "none"}, "jobs": {"limit": 1000}, "functions": {}, "retry": {"function": "none"}}
    asked = b"".join(packet(1001, verb.encode(), json.dumps(words).encode()) for verb, words in verbs.items())
    for peer in [attack.reader(attack.ports.gearman) for _ in range(20)]:
        attack.send_all(peer, (asked * 5 for _ in range(50)))
    attack.over.wait()


ATTACKS: tuple[Callable[[Attack], None], ...] = (
    unfinished_gearman_packets,
    unfinished_gearmonkey_commands,
    foreground_jobs_that_nobody_runs,
    background_jobs_that_nobody_runs,
    echoes_that_are_not_read,
    jobs_that_come_and_go,
    patterns,
    publishing_to_many_patterns,
    fields_of_jobs_that_are_never_pushed,
    endless_zeromq_message,
    large_zeromq_message_of_many_frames,
    silent_zeromq_connections,
    pingpong_requests_that_nobody_runs,
    one_large_dwork_message,
    names_of_functions,
    schedules,
    results_in_pieces,
    http_requests,
    jobs_without_payloads,
    watched_jobs_of_the_far_future,
    one_job_that_is_submitted_again_and_again,
    jobs_that_wait_for_thousands,
    data_that_many_hear_of,
    results_that_the_store_cannot_follow,
    a_job_that_is_handed_back_for_ever,
    workers_that_can_do_everything,
    schedules_with_payloads,
    unique_keys_held_for_days,
    keys_with_a_rate_of_their_own,
    steals_that_wait,
    pingpong_requests_in_long_envelopes,
    words_of_one_command,
    status_by_unique_key_of_many_functions,
    long_text_answers,
    functions_until_there_is_no_room_for_more,
    one_byte_short_of_a_packet,
    connections_that_come_and_go,
    results_that_are_not_read,
    typed_commands,
    subscriptions_that_change,
    long_transactions,
    zeromq_pings,
    json_of_very_many_values,
    operators_that_ask_without_end,
)
