"""Targets: decoders of streams.  However a stream is cut into pieces, the same messages come out of it.

Each decoder is held against a second reader of the same framing, which is written down here in the plainest way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from functools import partial
from random import Random
from typing import Any, Final, Protocol
from zlib import crc32

from tests.support.resp_wire import split_reply

from fuzz.grammar import DRAFT_PACKETS, GEARMAN_PACKETS, NUL_FIELDS, RESP_COMMANDS, RESP_WORDS
from fuzz.target import Defect, Target, must
from switchgear.errors import PeerError
from switchgear.protocols.gearman import codec as gearman
from switchgear.protocols.gearman.messages import BEFORE_PAYLOAD
from switchgear.protocols.gearman_draft import codec as draft
from switchgear.protocols.gearman_draft.messages import (
    Assignment,
    Completion,
    ErrorReport,
    JobRequest,
    Packet,
    Progress,
    Result,
    join_names,
    split_names,
)
from switchgear.protocols.gearmonkey import resp

__all__ = ["STREAM_CODECS", "decoded", "pieces"]

PACKET_BYTES: Final = 300
LINE_BYTES: Final = 60
LEAST_LONG_BYTES: Final = 5  # messages of so many bytes are collected like those of many megabytes
LONGEST_BYTES: Final = 1200  # of an input; some packets of the largest size


class Decoder(Protocol):
    """What the decoders have in common."""

    @property
    def failure(self) -> PeerError | None:
        """What ended the stream."""

    @property
    def buffered_bytes(self) -> int:
        """What is held of an unfinished message."""

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are complete now."""


# Lengths of the pieces that an input is cut into: single bytes, or any length up to some limit.
LONGEST_PIECES: Final = (1, 2, 5, 12, 40, 40, 255, 255)
MOST_SIZES: Final = 1024
SIZES: Final = [
    [1 + byte % longest for byte in Random(longest).randbytes(MOST_SIZES)] for longest in LONGEST_PIECES
]  # from a table, because to seed a generator for each input takes as long as to read the input


def pieces(data: bytes) -> list[bytes]:
    """The data in pieces, which are others for other data: bytes one by one, or of any length."""
    checksum = crc32(data)
    sizes = SIZES[checksum % len(SIZES)]
    place = checksum >> 8
    found: list[bytes] = []
    position, end = 0, len(data)
    while position < end:
        stop = position + sizes[place % MOST_SIZES]
        place += 1
        found.append(data[position:stop])
        position = stop
    return found


def decoded(
    make: Callable[[], Decoder], data: bytes, most_held: int, cut: list[bytes] | None = None
) -> tuple[list[Any], str]:
    """The messages of a stream and the code of the error that ended it, if one did; however it is cut."""
    whole = make()
    messages = whole.feed(data)
    failure = whole.failure
    must(failure is None or failure.framing_lost, "a decoder that goes on after an error")
    split = make()
    found: list[Any] = []
    for piece in pieces(data) if cut is None else cut:
        found += split.feed(piece)
        if split.buffered_bytes > most_held:
            raise Defect(f"more is held than a message may have: {split.buffered_bytes}")
        if split.failure is not None:
            break
    must(found == messages, "in pieces, other messages come out", messages, found)
    must(str(split.failure) == str(failure), "in pieces, another error comes out", failure, split.failure)
    if failure is not None:
        must(whole.feed(b"\0REQ\0\0\0\x10\0\0\0\0") == [], "something is understood after the framing was lost")
    return messages, failure.code if failure is not None else ""


# --- Gearman ---


def gearman_reference(data: bytes, magic: bytes) -> tuple[list[tuple[int, bytes]], str]:
    """The same, read step by step."""
    messages: list[tuple[int, bytes]] = []
    while data:
        if data[0]:
            line, end, rest = data.partition(b"\n")
            if len(line) >= LINE_BYTES:
                return messages, "LINE_TOO_LONG"
            if not end:
                break
            messages.append((gearman.TEXT, line.removesuffix(b"\r")))
            data = rest
            continue
        if not any(known.startswith(data[:4]) for known in (b"\0REQ", b"\0RES")):
            return messages, "INVALID_MAGIC"
        if len(data) < 12:
            break
        kind, size = struct.unpack(">II", data[4:12])
        if size > PACKET_BYTES:
            return messages, "ARGUMENT_TOO_LARGE"
        if len(data) < 12 + size:
            break
        is_ours = data[:4] == magic
        messages.append((kind, data[12 : 12 + size]) if is_ours else (gearman.FOREIGN_MAGIC, b""))
        data = data[12 + size :]
    return messages, ""


class LongGearmanDecoder:
    """A decoder for which most packets are long, and which puts them together again."""

    def __init__(self, magic: int) -> None:
        payloads = BEFORE_PAYLOAD if magic == gearman.REQUEST else None
        self._decoder = gearman.GearmanDecoder(magic, PACKET_BYTES, LINE_BYTES, payloads)
        self._decoder.long_bytes = LEAST_LONG_BYTES
        self._start = b""

    @property
    def failure(self) -> PeerError | None:
        return self._decoder.failure

    @property
    def buffered_bytes(self) -> int:
        return self._decoder.buffered_bytes

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        messages: list[tuple[int, bytes]] = []
        for kind, body in self._decoder.feed(data):
            if kind == gearman.LONG_START:
                must(not body or body.endswith(b"\0"), "an argument without an end")
                self._start = body
            elif kind <= gearman.LONG:
                number = gearman.LONG - kind
                must(self._start.count(b"\0") == BEFORE_PAYLOAD[number], "another number of arguments", self._start)
                messages.append((number, self._start + body))
            else:
                messages.append((kind, body))
        return messages


SIDES: Final = ((gearman.REQUEST, b"\0REQ"), (gearman.RESPONSE, b"\0RES"))


def run_gearman(data: bytes) -> Hashable:
    kinds: list[Hashable] = []
    cut = pieces(data)
    for magic, start in SIDES:
        make = partial(gearman.GearmanDecoder, magic, PACKET_BYTES, LINE_BYTES)
        found = decoded(make, data, PACKET_BYTES + 12, cut)
        must(found == gearman_reference(data, start), "the reference reads something else", found)
        long = decoded(partial(LongGearmanDecoder, magic), data, PACKET_BYTES + 12, cut)
        must(found == long, "long packets are read as something else", found, long)
        messages, code = found
        kinds.append((tuple(kind if kind < 64 else 64 for kind, _ in messages[:4]), len(messages) > 4, code))
        encode = gearman.request if magic == gearman.REQUEST else gearman.response
        packets = [message for message in messages if message[0] >= 0]
        again = gearman.GearmanDecoder(magic, PACKET_BYTES).feed(b"".join(encode(kind, body) for kind, body in packets))
        must(again == packets, "packets do not survive being written and read")
    return tuple(kinds)


# --- the draft ---

BODIES: Final[dict[int, Callable[[bytes], Any]]] = {
    Packet.JOB_CREATE_REQ: JobRequest.unpack,
    Packet.JOB_ASSIGN_RES: Assignment.unpack,
    Packet.JOB_STATUS_ANNOUNCE: Progress.unpack,
    Packet.JOB_STATUS_RES: Progress.unpack,
    Packet.JOB_COMPLETE_ANNOUNCE: Result.unpack,
    Packet.JOB_COMPLETE_RES: Completion.unpack,
    Packet.ERROR: ErrorReport.unpack,
}


def long_draft_decoder() -> draft.DraftDecoder:
    """A decoder for which most packets are long."""
    decoder = draft.DraftDecoder(PACKET_BYTES)
    decoder.long_bytes = LEAST_LONG_BYTES
    return decoder


def run_draft(data: bytes) -> Hashable:
    cut = pieces(data)
    messages, code = decoded(partial(draft.DraftDecoder, PACKET_BYTES), data, PACKET_BYTES + 9, cut)
    long = decoded(long_draft_decoder, data, PACKET_BYTES + 9, cut)
    must(long == (messages, code), "long packets are read as something else", messages, long)
    kinds: list[Hashable] = []
    for kind, body in messages:
        kinds.append((kind if kind < 16 else 16, draft_body(kind, body)))
    again = draft.DraftDecoder(PACKET_BYTES).feed(b"".join(draft.packet(kind, body) for kind, body in messages))
    must(again == messages, "packets do not survive being written and read")
    return tuple(kinds[:4]), code


def draft_body(kind: int, body: bytes) -> str:
    """Read a body, and see that it is written and read again as the same; returns the code of the error, if any."""
    try:
        if kind == Packet.WORKER_CONNECT:
            names = split_names(body, 20)
            must(len(set(names)) == len(names), "a name is there twice")
            must(not names or split_names(join_names(names), 20) == names, "names do not survive", names)
            return f"{len(names) > 1}"
        unpack = BODIES.get(kind)
        if unpack is None:
            return ""
        value = unpack(body)
        must(unpack(value.pack()) == value or isinstance(value, ErrorReport), "a body does not survive", value)
    except PeerError as error:
        must(not error.framing_lost, "a bad body loses the framing")
        return error.code
    return "read"


# --- RESP ---


def long_resp_decoder() -> resp.RespDecoder:
    """A decoder for which most words are long."""
    decoder = resp.RespDecoder(PACKET_BYTES)
    decoder.long_bytes = LEAST_LONG_BYTES
    return decoder


def run_resp(data: bytes) -> Hashable:
    """Commands as the server reads them."""
    cut = pieces(data)
    commands, code = decoded(
        partial(resp.RespDecoder, PACKET_BYTES), data, PACKET_BYTES + resp.MOST_LINE_BYTES + 2, cut
    )
    long = decoded(long_resp_decoder, data, PACKET_BYTES + resp.MOST_LINE_BYTES + 2, cut)
    must(long == (commands, code), "long words are read as something else", commands, long)
    must(all(commands), "a command without a word")
    written = b"".join(resp.array([resp.bulk(word) for word in command]) for command in commands)
    fits = all(sum(map(len, command)) <= PACKET_BYTES for command in commands)
    if fits:
        must(resp.RespDecoder(PACKET_BYTES).feed(written) == commands, "commands do not survive being written and read")
    kinds = tuple((command[0][:1], min(len(command), 4)) for command in commands[:2])
    return kinds, code


def run_resp_line(data: bytes) -> Hashable:
    """A line as somebody types it."""
    try:
        words = resp.split_line(data)
    except PeerError as error:
        return str(error)
    quoted = b" ".join(b'"%b"' % b"".join(b"\\x%02x" % byte for byte in word) for word in words)
    must(resp.split_line(quoted) == words, "words do not survive being quoted", words)
    must(sum(map(len, words)) <= len(data), "more comes out than went in")
    return len(words), b'"' in data, b"'" in data, b"\\" in data


def run_resp_reply(data: bytes) -> Hashable:
    """Replies as the server writes them: whatever is in them, a client finds where they end."""
    words = data.split(b"\0")
    kinds = []
    for version in (2, 3):
        text = words[0].decode("utf-8", "replace")
        replies = [
            resp.bulk(words[0]),
            resp.error(text or "ERR"),
            resp.integer(len(data)),
            resp.null(version),
            resp.null_array(version),
            resp.array([resp.bulk(word) for word in words]),
            resp.mapping(version, [(word, resp.bulk(word)) for word in dict.fromkeys(words)]),
            resp.push(version, [resp.bulk(word) for word in words]),
            resp.verbatim(version, words[-1]),
        ]
        for reply in replies:
            found = split_reply(reply + resp.OK)
            must(found is not None and found[1] == len(reply), "a reply has another end", reply)
        read = split_reply(replies[5])
        must(read is not None and read[0] == words, "an array is read as something else", words)
        kinds.append(len(words))
    return tuple(kinds)


GEARMAN_WORDS: Final = (b"\0REQ", b"\0RES", b"\n", b"\r\n", b"status\n", b"workers\n", b"version\n", b"\0\0\0\x07")
RESP_TOKENS: Final = (b"*1\r\n", b"$-1\r\n", b"*-1\r\n", b"$0\r\n\r\n", b"\r\n", b'"', b"'", b"\\x41", b"$", b"*")

STREAM_CODECS: Final = (
    Target(
        "gearman-codec",
        run_gearman,
        ("protocols.gearman.codec", "protocols.framing"),
        (GEARMAN_PACKETS, NUL_FIELDS),
        GEARMAN_WORDS,
        LONGEST_BYTES,
    ),
    Target(
        "draft-codec",
        run_draft,
        ("protocols.gearman_draft.codec", "protocols.gearman_draft.messages", "protocols.framing"),
        (DRAFT_PACKETS, NUL_FIELDS),
        (b"\0JOB", b"\0", b"\0\0\0\0\x01"),
        LONGEST_BYTES,
    ),
    Target(
        "resp-codec", run_resp, ("protocols.gearmonkey.resp",), (RESP_COMMANDS, RESP_WORDS), RESP_TOKENS, LONGEST_BYTES
    ),
    Target(
        "resp-line", run_resp_line, ("protocols.gearmonkey.resp",), (), (b'"', b"'", b"\\", b"\\x", b"\\n", b" "), 300
    ),
    Target("resp-reply", run_resp_reply, ("protocols.gearmonkey.resp",), (), (b"\0", b"\r\n"), 300),
)
