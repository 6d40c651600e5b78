"""Targets: what programs and nodes that trust each other read: envelopes of payloads, access files, links of nodes, and
the text commands at one of several nodes.

Whoever writes these is trusted more than a stranger; what is damaged or hostile is refused all the same, and with the
error that the reader's callers expect.
"""

from __future__ import annotations

import re
import tempfile
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from zlib import crc32

from fuzz.grammar import LINES, MSGPACK_MAP, NUL_FIELDS, WORDS, Part, Separated, SizedRecords
from fuzz.stream_codecs import pieces
from fuzz.target import Target, must
from switchgear.access.access_file import read_access_file, write_access_file
from switchgear.app.payloads.codec import PayloadCodec
from switchgear.app.payloads.envelope import MAGIC, Envelope, EnvelopeHeader
from switchgear.errors import ConfigError, Refused
from switchgear.net.owners.link_handshake import (
    LONGEST_FRAME,
    Accepting,
    HandshakeError,
    Opening,
    Sealing,
    first_frame,
)
from switchgear.net.owners.messages import decode_from_owner, decode_to_owner, encoded, messages_in
from switchgear.protocols.gearman.cluster_admin import ON_CLUSTER_COMMAND, answer_of_cluster

__all__ = ["DOCUMENTS", "access_seeds", "cluster_seeds", "envelope_seeds", "link_seeds"]

# --- payloads ---

MOST_PLAIN_BYTES: Final = 10_000
KEY: Final = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
COMPRESSING: Final = PayloadCodec(compress_from=1, compression="zlib", keys={"k": KEY}, most_bytes=MOST_PLAIN_BYTES)


class EnvelopeParts:
    """The header of an envelope, whose length is written anew, and the body."""

    def cut(self, data: bytes) -> list[Part]:
        start = len(MAGIC) + 4
        stop = start + int.from_bytes(data[len(MAGIC) : start], "big")
        if not data.startswith(MAGIC) or stop > len(data):
            return [Part(b"", data, True)]
        return [Part(MAGIC, data[start:stop]), Part(b"", data[stop:], True)]

    def join(self, parts: Sequence[Part]) -> bytes:
        return b"".join(
            [part.body if part.is_raw else part.head + len(part.body).to_bytes(4, "big") + part.body for part in parts]
        )


def run_envelope(data: bytes) -> Hashable:
    """A payload is read, within the limit, or refused with ValueError; what was wrapped comes out again."""
    data = MAGIC + data if data[:1] != b"\0" else data
    kind = "read"
    try:
        plain = COMPRESSING.unwrap(data, "f")
        must(plain == data or len(plain) <= MOST_PLAIN_BYTES, "more is decompressed than may be", len(plain))
        must(COMPRESSING.unwrap(COMPRESSING.wrap(plain, "f", []), "f") == plain, "a payload does not survive")
    except ValueError as error:
        kind = str(error)[:40]
        found = re.match(r"the payload has (\d+) bytes, and its header", str(error))
        must(found is None or int(found[1]) <= MOST_PLAIN_BYTES + 1, "more is decompressed than may be", kind)
    return kind


def envelope_seeds() -> list[bytes]:
    bomb = zlib.compress(bytes(100_000))
    headers = [
        (EnvelopeHeader(5), b"plain"),
        (EnvelopeHeader(100_000, compression="zlib"), bomb),
        (EnvelopeHeader(100, compression="zlib"), bomb),
        (EnvelopeHeader(3, ["H:t:1"], key="k", nonce="AAAAAAAAAAAAAAAA", function="f"), bytes(19)),
        (EnvelopeHeader(3, blob="00" * 32), b""),
        (EnvelopeHeader(3, compression="zstd"), b"\x28\xb5\x2f\xfd"),
    ]
    made = [Envelope(header, body).encode() for header, body in headers]
    return [*made, *(COMPRESSING.wrap(plain, "f", ["H:t:1"]) for plain in (b"x", b"long" * 500))]


# --- access files ---


def run_access_file(data: bytes) -> Hashable:
    """An access file is read or refused with ConfigError; what was read is written and read again as the same."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        path = Path(folder) / "access.toml"
        path.touch(0o600)
        path.write_bytes(data)
        try:
            access = read_access_file(path)
        except ConfigError as error:
            return str(error).rpartition(str(path))[2][:40]
        write_access_file(path, access)
        must(read_access_file(path) == access, "an access file does not survive", access)
        return tuple(sorted(len(entry.roles) for entry in access.identities.values()))[:4]


SHARED_MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None


def access_seeds() -> list[bytes]:
    return [
        b'[anonymous]\nroles = ["read"]\n',
        b'[identities."ops"]\nroles = ["admin", "operate"]\ntokens = ["sha256:%b"]\n' % (b"ab" * 32),
        b'[identities.w]\nroles = ["work"]\nfunctions = ["mail.*"]\ncertificates = ["CN=w", "sha256:%b"]\n'
        % (b"0" * 64),
        b"[identities.c]\nroles = [\"submit\"]\ncurve_keys = ['Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID']\n",
        b'[anonymous]\nroles = "read"\n[identities]\nx = 1\n',
        b"\xff\xfe[",
    ]


# --- links of nodes ---

OWNER_ID: Final = 7
SECRET: Final = b"the secret of the cluster"


def run_link(data: bytes) -> Hashable:
    """As bytes of a stranger they open no link; as records of a node they are messages of either direction, or refused
    with ValueError, and what is read is written, sealed and read again as the same."""
    refusal = refused_handshake([data])
    must(refusal == refused_handshake(pieces(data)), "in pieces, another error comes out", refusal)
    kinds: list[Hashable] = [refusal[:20]]
    for decode in (decode_to_owner, decode_from_owner):
        messages, failure = found_in(messages_in(data, decode))
        written = b"".join(encoded(message) for message in messages)
        again, _ = found_in(messages_in(written, decode))
        must(repr(again) == repr(messages), "messages do not survive being written and read", messages, again)
        if messages:
            check_sealed(messages, decode, crc32(data))
        kinds.append((tuple(type(message).__name__ for message in messages[:3]), failure[:20]))
    return tuple(kinds)


def refused_handshake(data: Iterable[bytes]) -> str:
    """What a stranger is refused for; empty if more is waited for."""
    accepting = Accepting(SECRET, OWNER_ID)
    held = bytearray()
    try:
        for piece in data:
            held += piece
            while (frame := first_frame(held)) is not None:
                accepting.receive(frame, b"")
                must(accepting.sealing is None, "a stranger has opened a link")
            must(len(held) <= LONGEST_FRAME + 4 + len(piece), "more is held than a handshake may have", len(held))
    except HandshakeError as error:
        return str(error)
    return ""


def found_in(messages: Iterator[Any]) -> tuple[list[Any], str]:
    """All messages, and the error that ended them."""
    found: list[Any] = []
    try:
        found.extend(messages)
    except ValueError as error:
        return found, str(error)
    return found, ""


def check_sealed(messages: list[Any], decode: Any, number: int) -> None:
    """Sealed records are read in pieces; if a byte was changed, nothing is read from there on."""
    sealed = b"".join(Sealing(b"key", b"").seal(messages))
    receiving = Sealing(b"", b"key")
    found = [message for piece in pieces(sealed) for message in receiving.feed(piece, decode)]
    must(repr(found) == repr(messages), "sealed messages are read as others", messages, found)
    changed = bytearray(sealed)
    changed[number % len(sealed)] ^= 1 << (number >> 8 & 7)
    read, _ = found_in(Sealing(b"", b"key").feed(bytes(changed), decode))
    must(not read, "messages of a record that was changed on the way", read)


def link_seeds() -> list[bytes]:
    from switchgear.net.owners import messages as made

    values: dict[str, Any] = {
        "int": 7, "bytes": b"name", "str": "text", "bool": True, "bytes | None": None,
        "list[Any] | None": [1, b"x", None], "list[Any]": [1, b"x"], "list[bytes]": [b"a", b"b"],
    }  # fmt: skip
    kinds = [kind for kind in vars(made).values() if isinstance(kind, type) and issubclass(kind, made.Message)]
    messages = [
        encoded(kind(*(values.get(str(annotation), [[1, b"x"]]) for annotation in kind.__annotations__.values())))
        for kind in kinds
        if kind is not made.Message
    ]
    hello = Opening(SECRET, 8, "node", OWNER_ID).begin()
    other = Opening(SECRET, 8, "node", OWNER_ID + 1).begin()
    ends = (b"\0\0\0\1\xc1", b"\x7f\xff\xff\xff", b"\0\0\0\x23\x91\xc4\x20" + bytes(32))
    return [*messages, hello, other, hello + ends[-1], *ends]


# --- text commands at one of several nodes ---

FUNCTION_ROW: Final = {
    "name": "f\x1b",
    "total": 2,
    "running": 1,
    "workers": 1,
    "ready": 1,
    "ready_by_priority": [0, 1, 0],
}
WORKER_ROW: Final = {
    "node": "b",
    "protocol": "gearman",
    "functions": ["f", {"base64": "/w=="}],
    "address": "::1:5",
    "name": "",
}
JOB_ROW: Final = {"handle": "H:t:1", "attempts": 1, "state": "ready", "delivery": "", "unique": {"base64": "AP8="}}
UNREACHABLE: Final = {"unreachable": ["c\nd"], "partitions_without_owner": 3}
ANSWERS: Final[dict[str, Any]] = {
    "functions": [FUNCTION_ROW],
    "workers": [WORKER_ROW, {**WORKER_ROW, "node": "a"}],
    "jobs": {"jobs": [JOB_ROW, {**JOB_ROW, "state": "running", "delivery": "wait"}], "next_before_id": 0},
}


class Everybody(list[Any]):
    """No other connections, and this one is still there."""

    def __contains__(self, session: object) -> bool:
        return True


class ClusterSession:
    """A connection at a node of several, whose operations give canned answers."""

    def __init__(self) -> None:
        self.sent = b""
        self.long_bytes = 0
        self.context = self
        self.node_name = "a"
        self.setup = SimpleNamespace(sessions=Everybody(), name_bytes=64)

    def operate_in_steps(self, verb: str, arguments: dict[str, Any], answers: list[Any]) -> Iterator[bool]:
        yield False
        words = repr(arguments)
        if "unknown" in words and verb in ("cancel", "drop_function"):
            raise LookupError("there is none")
        if "refused" in words:
            raise Refused("limit", "too many\nof them")
        if "invalid" in words:
            raise ValueError("\x1b[2J")
        answers += [ANSWERS.get(verb, True), UNREACHABLE]

    def require(self, verb: str, roles: object, name: bytes) -> None:
        """Everybody may."""

    def name_of(self, body: bytes) -> bytes:
        return body

    def count_bad_input(self, session: object, code: str, text: str) -> None:
        must(text.isprintable(), "a log line that cannot be shown", text)

    def audit(self, session: object, verb: bytes, target: str) -> None:
        must(target.isprintable(), "an entry of the audit log that cannot be shown", target)

    def send(self, data: bytes) -> None:
        self.sent += data

    def mark(self) -> None:
        """There is output."""


def run_cluster_command(data: bytes) -> Hashable:
    """Every answer is lines that can be shown, and ends; nothing but the expected errors is raised."""
    first, *words = data.split(b" ")
    command = first.lower()
    if command not in ON_CLUSTER_COMMAND:
        return ""
    session: Any = ClusterSession()
    for _ in answer_of_cluster(session, command, [word for word in words if word]):
        pass
    sent: bytes = session.sent
    must(sent.endswith(b"\n"), "an answer without an end", sent)
    must(not any(byte < 32 and byte not in b"\t\r\n" for byte in sent), "an answer that cannot be shown", sent)
    return command, sent[:12]


def cluster_seeds() -> list[bytes]:
    return [
        b"status", b"prioritystatus", b"workers", b"show jobs", b"show unique jobs", b"show x", b"cancel job H:t:1",
        b"cancel job unknown", b"cancel x", b"maxqueue f 1 2 3", b"maxqueue f", b"maxqueue invalid 1", b"maxqueue f x",
        b"create function f", b"create function refused", b"drop function f", b"drop function unknown",
    ]  # fmt: skip


LINK_MESSAGES: Final = SizedRecords(0, 4)
DOCUMENTS: Final = (
    Target(
        "payload-envelope",
        run_envelope,
        ("app.payloads.codec", "app.payloads.envelope", "app.payloads.compression", "app.payloads.encryption"),
        (EnvelopeParts(), Separated(b",")),
        (b'{"size":-1', b'"size":0', b'"compression":"zlib"', b'"key":"k"', b'"nonce":""', b'"blob":""', b"\0\0\0\x20"),
        2000,
    ),
    Target(
        "access-file",
        run_access_file,
        ("access.access_file", "toml_file"),
        (LINES,),
        (
            b"[identities.a]\n",
            b"[anonymous]\n",
            b'roles = ["work"]\n',
            b"tokens",
            b"functions",
            b'""',
            b"[[",
            b"[" * 600,  # deeper than the recursion limit of Python
            b"\\u0000",
        ),
        1000,
    ),
    Target(
        "owners-link",
        run_link,
        ("net.owners.messages", "net.owners.link_handshake"),
        (LINK_MESSAGES, MSGPACK_MAP),
        (
            b"\xc0",
            b"\xc3",
            b"\x90",
            b"\xdc\xff\xff",
            b"\xdd\xff\xff\xff\xff",
            b"\xc4\x01x",
            b"\xa1x",
            b"\xcf" + b"\xff" * 8,
        ),
        1500,
    ),
    Target(
        "cluster-commands",
        run_cluster_command,
        ("protocols.gearman.cluster_admin",),
        (WORDS, NUL_FIELDS),
        (b"unknown", b"refused", b"invalid", b"job", b"jobs", b"function", b"unique", b"-1", b"\x1b", b"\xff"),
        300,
    ),
)
