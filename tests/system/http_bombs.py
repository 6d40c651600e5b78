"""Attackers of HTTP and TLS listeners, like those of `tests/system/bombs.py`: raw sockets, one function for each."""

from __future__ import annotations

import ctypes
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from tests.support.servers import HOST
from tests.system.bombs import MIB, Attack, assigned, packet

JOB_START = b'{"function":"nobody","payload":"'


def request(method: str, target: str, body: bytes = b"", headers: str = "") -> bytes:
    """A whole request."""
    head = f"{method} {target} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def answer(peer: socket.socket) -> bytes:
    """The body of the next answer, whose length is given."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += peer.recv(65_536) or b"\r\n\r\n"
    head, _, body = received.partition(b"\r\n\r\n")
    length = next((int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: ")), 0)
    while len(body) < length:
        body += peer.recv(65_536) or bytes(length)
    return body


def submitted(attack: Attack, function: str, payload: bytes = b"") -> str:
    """The handle of a new job."""
    peer = attack.connect(attack.ports.http)
    while not attack.over.is_set():
        peer.sendall(request("POST", f"/v1/functions/{function}/jobs", payload))
        found = json.loads(answer(peer))
        if "handle" in found:
            return str(found["handle"])
        attack.over.wait(0.1)  # other attackers have filled the memory
    raise ConnectionAbortedError("the attack is over")


def long_json_payloads(attack: Attack) -> None:
    for text in (b"x", b"\\u0041", b"\\n", "é".encode()):
        body = JOB_START + text * (30 * MIB // len(text)) + b'"}'
        attack.send_all(attack.reader(attack.ports.http), [request("POST", "/v1/jobs", body)] * 3)


def long_base64_payloads(attack: Attack) -> None:
    body = b'{"function":"nobody","payload":{"base64":"' + b"QUFB" * (8 * MIB) + b'"}}'
    for _ in range(5):
        attack.send_all(attack.reader(attack.ports.http), [request("POST", "/v1/jobs", body)])


def long_arguments(attack: Attack) -> None:
    body = b'{"function":"nobody","args":[' + b"1," * (15 * MIB) + b"1]}"
    for _ in range(5):
        attack.send_all(attack.reader(attack.ports.http), [request("POST", "/v1/jobs", body)])


def json_with_very_many_fields(attack: Attack) -> None:
    fields = b",".join(b'"f%d":[{}]' % number for number in range(300_000))
    for target in ("/v1/jobs", "/v1/bulk", "/v1/jobs/wait", "/v1/workers", "/v1/jobs/handles", "/v1/verbs/jobs"):
        attack.send_all(attack.reader(attack.ports.http), [request("POST", target, b"{" + fields + b"}")] * 3)
        attack.send_all(attack.reader(attack.ports.http), [request("POST", target, b"[" * 3_000_000)] * 3)


def lines_of_batches(attack: Attack) -> None:
    lines = b"".join(b'{"function":"nobody","name":"n%d"}\n' % number for number in range(9_999))
    for target in ("/v1/jobs/batch", "/v1/jobs/batch?atomic=1"):
        attack.send_all(attack.reader(attack.ports.http), [request("POST", target, lines)] * 5)
    line = JOB_START + b"x" * (40 * MIB) + b'"}\n'
    attack.send_all(attack.reader(attack.ports.http), [request("POST", "/v1/jobs/batch?atomic=1", line)] * 3)


def events_of_a_job_for_many(attack: Attack) -> None:
    """Each viewer is sent what a worker sends, as JSON."""
    handle = submitted(attack, "viewed")
    for _ in range(200):
        attack.connect(attack.ports.http).sendall(request("GET", f"/v1/jobs/{handle}/events"))
    worker = attack.connect(attack.ports.gearman)
    taken = assigned(worker, b"viewed")
    attack.send_all(worker, (packet(28, taken, bytes(20 * MIB)) for _ in range(5)))
    attack.over.wait()


def jobs_with_contents(attack: Attack) -> None:
    """Long payloads and results as JSON, again and again."""
    handle = submitted(attack, "contents", b"p" * (40 * MIB))
    binary = submitted(attack, "contents", b"\xff" * (40 * MIB))
    wanted = {"jobs": [{"handle": handle}, {"handle": binary}]}
    for each in (handle, binary):
        for target in (f"/v1/jobs/{each}?contents=1", f"/v1/jobs/{each}/payload"):
            attack.send_all(attack.reader(attack.ports.http), [request("GET", target)] * 5)
    attack.send_all(attack.reader(attack.ports.http), [request("POST", "/v1/jobs/wait", json.dumps(wanted).encode())])
    attack.over.wait()


def long_results_for_many(attack: Attack) -> None:
    """Clients that wait for the end of one job, whose result is long."""
    key = b'{"function":"ending","unique":"same"}'
    for _ in range(50):
        peer = attack.reader(attack.ports.http)
        peer.sendall(request("POST", "/v1/jobs", key, "Prefer: wait=60\r\n"))
    worker = attack.connect(attack.ports.gearman)
    attack.send_all(worker, [packet(13, assigned(worker, b"ending"), b"r" * (20 * MIB))])
    attack.over.wait()


def requests_that_wait(attack: Attack) -> None:
    for number in range(300):
        peer = attack.connect(attack.ports.http)
        peer.sendall(request("POST", f"/v1/functions/wait{number}/take?wait=600") * 900)
    attack.over.wait()


def workers_over_http(attack: Attack) -> None:
    names = [f"ability{number}" for number in range(500)]
    body = json.dumps({"functions": names}).encode()
    attack.send_all(attack.reader(attack.ports.http), (request("POST", "/v1/workers", body) for _ in range(2000)))
    attack.over.wait()


def pipelined_questions(attack: Attack) -> None:
    """Requests that are short and ask for much."""
    targets = (
        "overview",
        "series",
        "errors",
        "stream",
        "flows",
        "storage",
        "connections",
        "graph",
        "functions",
        "workers",
        "schedules",
        "server",
        "nodes",
        "jobs?limit=1000",
        "jobs?q=x",
        "bulk",
        "audit",
        "session",
    )
    for target in (*(f"/v1/{name}" for name in targets), "/metrics", "/openapi.json", "/"):
        attack.send_all(attack.reader(attack.ports.http), [request("GET", target) * 200])
    attack.over.wait()


def event_streams(attack: Attack) -> None:
    for number in range(100):
        peer = attack.connect(attack.ports.http)
        peer.sendall(request("GET", "/v1/events?topics=overview,functions,workers,stream"))
        if number % 2:
            peer.close()
    attack.over.wait()


def idempotent_submissions(attack: Attack) -> None:
    peer = attack.reader(attack.ports.http)
    for number in range(0, 500_000, 500):
        keys = range(number, number + 500)
        requests = (request("POST", "/v1/functions/n/jobs", b"", f"Idempotency-Key: k{key}\r\n") for key in keys)
        attack.send_all(peer, [b"".join(requests)])
    attack.over.wait()


def reserved_handles(attack: Attack) -> None:
    body = b'{"count": 1000000}'
    attack.send_all(
        attack.reader(attack.ports.http), (request("POST", "/v1/jobs/handles", body) * 50 for _ in range(500))
    )
    attack.over.wait()


def bulk_actions(attack: Attack) -> None:
    body = json.dumps({"action": "cancel", "filter": {"function": "none"}}).encode()
    attack.send_all(attack.reader(attack.ports.http), (request("POST", "/v1/bulk", body) * 100 for _ in range(100)))
    attack.over.wait()


def chunks_of_one_byte(attack: Attack) -> None:
    head = f"POST /v1/functions/chunks/jobs HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    for _ in range(20):
        attack.send_all(attack.connect(attack.ports.http), [head, *[b"1\r\nx\r\n" * 40_000] * 10])
    attack.over.wait()


def unfinished_bodies(attack: Attack) -> None:
    for _ in range(40):
        peer = attack.connect(attack.ports.http)
        peer.sendall(
            f"POST /v1/functions/f/jobs HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {60 * MIB}\r\n\r\n".encode()
        )
        try:
            attack.send_all(peer, [bytes(MIB)] * 30)
        except OSError:
            continue
    attack.over.wait()


def endless_heads(attack: Attack) -> None:
    for _ in range(200):
        attack.connect(attack.ports.http).sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 90)
    many = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"h%d: \x1b[2J\r\n" % number for number in range(90)) + b"\r\n"
    attack.send_all(attack.reader(attack.ports.http), (many * 20 for _ in range(500)))
    attack.over.wait()


def heads_that_differ(attack: Attack) -> None:
    """Nothing of them can be remembered."""
    peer = attack.reader(attack.ports.http)
    for number in range(0, 200_000, 200):
        requests = (
            request("GET", f"/v1/jobs/{each}?wait=0", b"", f"X: {each}\r\n") for each in range(number, number + 200)
        )
        attack.send_all(peer, [b"".join(requests)])
    attack.over.wait()


# --- TLS ---


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    stream = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        stream.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _encrypted(attack: Attack) -> ssl.SSLSocket:
    peer = socket.create_connection((HOST, attack.ports.tls), timeout=2)
    return attack.keep(_context().wrap_socket(peer))


def handshakes_that_never_end(attack: Attack) -> None:
    hello = _hello()
    while not attack.over.is_set():
        for _ in range(100):
            attack.connect(attack.ports.tls).sendall(hello)
        attack.over.wait(0.5)


def long_hellos(attack: Attack) -> None:
    """Fragments of a hello that says it has 16 MiB."""
    start = b"\x01\xff\xff\xff\x03\x03"
    for _ in range(20):
        peer = attack.connect(attack.ports.tls)
        for piece in [start, *[bytes(16_000)] * 200]:
            try:
                attack.send_all(peer, [b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece])
            except OSError:
                break


def short_records(attack: Attack) -> None:
    """Each byte is encrypted for itself."""
    peers = [_encrypted(attack) for _ in range(5)]
    while not attack.over.is_set():
        for peer in peers:
            for _ in range(2_000):
                peer.send(b"\n")


def changes_of_the_key(attack: Attack) -> None:
    """TLS 1.3 lets a peer change its key whenever it likes; 27 bytes take the server as long as a short request."""
    library = _openssl()
    if library is None:
        return
    while not attack.over.is_set():
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        stream = _context().wrap_bio(incoming, outgoing)
        peer = attack.connect(attack.ports.tls)
        while True:
            try:
                stream.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.sendall(outgoing.read())
                incoming.write(peer.recv(65_536))
        peer.sendall(outgoing.read())
        # In CPython, the object of a stream holds a pointer to that of OpenSSL, after three other fields.
        pointer = ctypes.c_void_p.from_address(id(stream._sslobj) + 3 * ctypes.sizeof(ctypes.c_void_p)).value  # type: ignore[attr-defined]
        for _ in range(20):
            for _ in range(2_000):
                library.SSL_key_update(pointer, 1)
                library.SSL_do_handshake(pointer)
            attack.send_all(peer, [outgoing.read()])


def _openssl() -> ctypes.CDLL | None:
    """The OpenSSL that Python uses; None if it is not a library of its own."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libssl" in line}
    if not paths:
        return None
    library = ctypes.CDLL(paths.pop())
    library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.SSL_do_handshake.argtypes = [ctypes.c_void_p]
    return library


def plain_text_at_the_tls_port(attack: Attack) -> None:
    while not attack.over.is_set():
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"\x00REQ" + bytes(8), b"\x1b[2J\n" * 1000, bytes(65_536)):
            attack.connect(attack.ports.tls).sendall(text)


HTTP_ATTACKS: tuple[Callable[[Attack], None], ...] = (
    long_json_payloads,
    long_base64_payloads,
    long_arguments,
    json_with_very_many_fields,
    lines_of_batches,
    events_of_a_job_for_many,
    jobs_with_contents,
    long_results_for_many,
    requests_that_wait,
    workers_over_http,
    pipelined_questions,
    event_streams,
    idempotent_submissions,
    reserved_handles,
    bulk_actions,
    chunks_of_one_byte,
    unfinished_bodies,
    endless_heads,
    heads_that_differ,
    handshakes_that_never_end,
    long_hellos,
    short_records,
    changes_of_the_key,
    plain_text_at_the_tls_port,
)
