"""The links between nodes: what strangers on the network can do to them, and links that are encrypted."""

from __future__ import annotations

import hmac
import os
import secrets
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec
import psycopg
import pytest

from tests.support.certificates import Certificates, make_certificates
from tests.support.postgres import Cluster
from tests.support.servers import HOST
from tests.support.waiting import eventually
from tests.system.owner_nodes import NAMES, OwnerNode, PlainWorker, function_of, running, settled

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]

HANDSHAKE_SECONDS = 5.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = make_certificates(tmp_path_factory.mktemp("certificates"))
    for name in NAMES:
        made.make(name)
    return made


def tls_settings(certificates: Certificates, name: str, *, with_authority: bool = False) -> tuple[str, ...]:
    settings = (
        f"cluster.link_tls_cert={certificates.certificate(name)}",
        f"cluster.link_tls_key={certificates.key(name)}",
    )
    return (*settings, f"cluster.link_tls_ca={certificates.authority}") if with_authority else settings


@pytest.fixture(scope="module")
def database(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture(scope="module")
def nodes(
    database: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[OwnerNode]]:
    """Of three nodes, the first one has no certificate (yet)."""
    place = tmp_path_factory.mktemp("links")
    made = [OwnerNode(NAMES[0], database, place)]
    made += [OwnerNode(name, database, place, *tls_settings(certificates, name)) for name in NAMES[1:]]
    with running(made):
        yield made


class Seen:
    """What the database says about the cluster."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url) as connection:
            rows = connection.execute("SELECT name, id, address FROM sg_node").fetchall()
            (secret,) = connection.execute("SELECT text FROM sg_meta WHERE key = 'link_secret'").fetchone() or ("",)
        self.ids = {name: node_id for name, node_id, _ in rows}
        self.addresses = {name: address for name, _, address in rows}
        self.secret = secret.encode()

    def connect(self, name: str) -> socket.socket:
        host, _, port = self.addresses[name].removeprefix("tls://").rpartition(":")
        made = socket.create_connection((host, int(port)))
        made.settimeout(2 * HANDSHAKE_SECONDS)
        return made


def framed(*fields: object) -> bytes:
    body = msgspec.msgpack.encode(list(fields))
    return struct.pack(">I", len(body)) + body


def received_frame(peer: socket.socket) -> list[bytes]:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">I", data)[0]:
        piece = peer.recv(65_536)
        assert piece, "the connection is closed"
        data += piece
    answer: list[bytes] = msgspec.msgpack.decode(data[4:])
    return answer


def is_ended(peer: socket.socket) -> bool:
    """Whether the node closes the connection without another word."""
    try:
        return peer.recv(65_536) == b""
    except ConnectionResetError:
        return True


class RawNode:
    """A handshake in a few lines, which shares nothing with ours."""

    def __init__(self, seen: Seen, name: str, *, secret: bytes | None = None, certificate: bytes = b"") -> None:
        self.secret = seen.secret if secret is None else secret
        self.certificate = certificate
        self.hello = ["switchgear link", 1, 4711, "raw", seen.ids[name], secrets.token_bytes(32)]

    def derived(self, purpose: bytes, nonce: bytes) -> bytes:
        transcript = msgspec.msgpack.encode([self.hello[1:], nonce, self.certificate])
        return hmac.digest(self.secret, struct.pack(">I", len(purpose)) + purpose + transcript, "sha256")


# --- strangers ---


def test_the_node_that_accepts_proves_itself_and_a_stranger_does_not(nodes: list[OwnerNode], database: str) -> None:
    seen = Seen(database)
    raw = RawNode(seen, "ada")
    with seen.connect("ada") as peer:
        peer.sendall(framed(*raw.hello))
        nonce, proof = received_frame(peer)
        assert proof == raw.derived(b"accepts", nonce)
        raw.secret = b"0" * 64
        peer.sendall(framed(raw.derived(b"opens", nonce)))
        assert is_ended(peer)
    with seen.connect("ada") as peer:  # its own proof is not taken back
        peer.sendall(framed(*raw.hello))
        peer.sendall(framed(received_frame(peer)[1]))
        assert is_ended(peer)


def test_silence_and_nonsense_end_a_connection(nodes: list[OwnerNode], database: str) -> None:
    seen = Seen(database)
    begun = time.monotonic()
    with seen.connect("ada") as silent, seen.connect("bob") as silent_tls, seen.connect("ada") as halfway:
        halfway.sendall(framed(*RawNode(seen, "ada").hello))
        for name in ("ada", "bob"):
            for nonsense in (
                struct.pack(">I", 0x3FFFFFFF) + b"x" * 10_000,  # a huge frame
                b"GET / HTTP/1.1\r\n\r\n" + b"x" * 1_000_000,
                b"\xff" * 100_000,
                os.urandom(100_000),
                framed(*["switchgear link", 1, 4711, "raw", 1, b"n" * 32]),  # for another node, and not TLS
                framed("switchgear link", 99, 4711, "raw", seen.ids[name], b"n" * 32),
            ):
                with seen.connect(name) as peer, suppress(OSError):
                    peer.sendall(nonsense)
                    while peer.recv(65_536):
                        pass
        assert time.monotonic() - begun < HANDSHAKE_SECONDS
        received_frame(halfway)
        assert all(map(is_ended, (silent, silent_tls, halfway)))
    assert time.monotonic() - begun > HANDSHAKE_SECONDS - 1
    assert nodes[0].partitions() == nodes[1].partitions()


def test_plain_to_tls_and_tls_to_plain_are_refused(nodes: list[OwnerNode], database: str) -> None:
    seen = Seen(database)
    assert {name: address.startswith("tls://") for name, address in seen.addresses.items()} == {
        "ada": False,
        "bob": True,
        "cleo": True,
    }
    with seen.connect("bob") as peer:
        peer.sendall(framed(*RawNode(seen, "bob").hello))
        answer = peer.recv(65_536)
        assert answer[:1] in (b"", b"\x15")  # an alert of TLS, or nothing
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with seen.connect("ada") as peer, pytest.raises(OSError):
        context.wrap_socket(peer)


def test_a_proof_for_another_certificate_is_refused(nodes: list[OwnerNode], database: str) -> None:
    """Somebody between two nodes who has a certificate of his own passes on what they say."""
    seen = Seen(database)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for certificate in (b"", b"x" * 32):
        raw = RawNode(seen, "bob", certificate=certificate)
        with context.wrap_socket(seen.connect("bob")) as peer:
            peer.sendall(framed(*raw.hello))
            nonce, proof = received_frame(peer)
            assert proof != raw.derived(b"accepts", nonce)
            peer.sendall(framed(raw.derived(b"opens", nonce)))
            assert is_ended(peer)


class Middle:
    """Somebody on the network between nodes: passes on, records, and changes a byte when told to."""

    def __init__(self, port: int) -> None:
        self.recorded: list[bytes] = []  # of the last connection, from the node that has opened it
        self.changes = threading.Event()
        self._port = port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                opener, _ = self._listener.accept()
            except OSError:
                return
            accepter = socket.create_connection((HOST, self._port))
            self._sockets += [opener, accepter]
            self.recorded = []
            threading.Thread(target=self._pass_on, args=(opener, accepter, self.recorded), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(accepter, opener, []), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, recorded: list[bytes]) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                recorded.append(data)
                if self.changes.is_set() and len(data) > 60:
                    self.changes.clear()
                    data = data[:50] + bytes([data[50] ^ 1]) + data[51:]
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def test_somebody_between_two_nodes_can_only_cut(postgres: Cluster, tmp_path: Path) -> None:
    """The bytes of a link are recorded and repeated, and changed on their way: nothing comes of it but a new link."""
    url = postgres.new_url()
    first, second = (OwnerNode(name, url, tmp_path) for name in NAMES[:2])
    with ExitStack() as stack:
        for node in (first, second):
            stack.callback(node.end)
        first.start()
        first.wait_until_it_answers()
        seen = Seen(url)
        middle = Middle(int(seen.addresses["ada"].rpartition(":")[2]))
        stack.callback(middle.close)
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE sg_node SET address = %s WHERE name = 'ada'", [f"{HOST}:{middle.port}"])
        second.start()
        second.wait_until_it_answers()
        settled([first, second])
        function = function_of(first, 0, NAMES[:2])
        worker = stack.enter_context(PlainWorker(first, function))
        with second.client() as client:
            assert client.submit(function, b"one").wait(20) == b"ONE"
            recorded = b"".join(middle.recorded)
            middle.changes.set()
            jobs = [client.submit(function, b"%d" % number, background=True) for number in range(50)]
            assert client.submit(function, b"two" * 30).wait(30) == b"TWO" * 30
            assert not middle.changes.is_set()
        assert len({job.handle for job in jobs}) == 50
        eventually(lambda: {b"%d" % number for number in range(50)} <= set(worker.payloads), "all have run")
        assert all(worker.payloads.count(b"%d" % number) == 1 for number in range(50))
        assert "not sealed" in first.output() + second.output()
        with Seen(url).connect("ada") as peer, suppress(OSError):  # the whole link again
            peer.sendall(recorded)
            received_frame(peer)
            assert is_ended(peer)
        assert worker.payloads.count(b"one") == 1


# --- nodes ---


def works_everywhere(nodes: list[OwnerNode], text: bytes) -> None:
    """Submitter, owner and worker are at three nodes, in each order."""
    for place, owner in enumerate(nodes):
        submitter, runner = nodes[place - 1], nodes[place - 2]
        function = function_of(owner, 1)
        with PlainWorker(runner, function), submitter.client() as client:
            assert client.submit(function, text).wait(30) == text.upper()


def test_nodes_get_certificates_one_after_the_other(
    nodes: list[OwnerNode], certificates: Certificates, database: str
) -> None:
    """Links to nodes with a certificate are encrypted, and work between all of them, whoever has one."""
    works_everywhere(nodes, b"some")
    long = b"long" * 500_000
    works_everywhere(nodes, long)
    seen = Seen(database)
    with nodes[0].client() as client:
        shown = {node["name"]: node["address"] for node in client.control("nodes")}
    assert shown == seen.addresses


def test_a_node_that_is_suspended_in_a_handshake_is_connected_to_later(
    postgres: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    """With authorities: all nodes have certificates of theirs, and a node with another one gets no link."""
    url = postgres.new_url()
    lease = 20.0  # so that nobody is evicted
    nodes = [
        OwnerNode(name, url, tmp_path, *tls_settings(certificates, name, with_authority=True), lease_seconds=lease)
        for name in NAMES[:2]
    ]
    strange = make_certificates(tmp_path)
    strange.make("cleo")
    cleo = OwnerNode("cleo", url, tmp_path, *tls_settings(strange, "cleo"), lease_seconds=lease)
    function = next(name for name in (f"f{n}" for n in range(1000)) if name == function_of(nodes[0], 0, NAMES[:2]))
    with ExitStack() as stack:
        for node in (*nodes, cleo):
            stack.callback(node.end)
        nodes[0].start()
        nodes[0].wait_until_it_answers()
        nodes[0].signal(signal.SIGSTOP)
        nodes[1].start()
        nodes[1].wait_until_it_answers()
        eventually(partial(says, nodes[1], "no link to the node ada: it has proven nothing"), "the handshake ends", 30)
        nodes[0].signal(signal.SIGCONT)
        stack.enter_context(PlainWorker(nodes[0], function))
        with nodes[1].client() as client:
            assert client.submit(function, b"x").wait(30) == b"X"
        cleo.start()
        cleo.wait_until_it_answers()
        eventually(
            partial(says, nodes[0], "no link to the node cleo: its certificate is not valid"), "it is refused", 30
        )
        eventually(partial(says, cleo, "no link to the node ada: "), "it cannot connect", 30)


def says(node: OwnerNode, text: str) -> bool:
    return text in node.output()
