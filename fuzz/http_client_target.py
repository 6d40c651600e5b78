"""Target: what a hostile server answers to a program that uses the library over HTTP.

An input is what comes on a connection.  It is read in one piece and in many; then its answers are given to the requests
of a client and a worker, whatever these have asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

from fuzz.grammar import LINES
from fuzz.http_targets import HTTP_WORDS
from fuzz.stream_codecs import pieces
from fuzz.target import Target, must
from switchgear.client.http.answers import AnswerParser, HttpAnswer
from switchgear.client.http.packet_translator import PacketTranslator
from switchgear.errors import PeerError
from switchgear.protocols.gearman.codec import RESPONSE, GearmanDecoder, request
from switchgear.protocols.gearman.messages import Packet

__all__ = ["CLIENT_ANSWERS", "HTTP_CLIENT"]

MOST_EXCHANGES: Final = 60
LARGEST_PACKET_BYTES: Final = 2**31

# What a client and a worker of the library send to their server.
REQUESTS: Final = (
    request(Packet.OPTION_REQ, b"switchgear")
    + request(Packet.SUBMIT_JOB, b"f", b"", b"x")
    + request(Packet.SUBMIT_JOB_BG, b"f", b"u", b"y")
    + request(Packet.GET_STATUS, b"H:t:1")
    + request(Packet.WATCH, b"H:t:1")
    + request(Packet.CONTROL, b"job", b'{"handle": "H:t:1"}'),
    request(Packet.OPTION_REQ, b"switchgear")
    + request(Packet.CAN_DO, b"f")
    + request(Packet.GRAB_JOB_ALL)
    + request(Packet.PRE_SLEEP),
)


def heard(data: Iterable[bytes]) -> tuple[list[HttpAnswer], bool]:
    """The answers in a stream, and whether it ended with an error."""
    parser = AnswerParser()
    found: list[HttpAnswer] = []
    try:
        for piece in data:
            found += parser.feed(piece)
    except PeerError:
        return found, True
    return [*found, *parser.end()], False


def run_http_client(data: bytes) -> Hashable:
    whole, has_failed = heard([data] if data else [])
    cut, other_failed = heard(pieces(data))
    if not (whole or cut):  # an answer counts, whatever follows it
        must(has_failed == other_failed, "an error in one piece or in many, and not in both")
    if not (has_failed or other_failed):
        must([plain(each) for each in whole] == [plain(each) for each in cut], "in pieces, something else is read")
    kinds: list[Hashable] = []
    for said in REQUESTS:
        kinds.append(converse(said, cut))
    return len(cut), tuple(each.status for each in cut[:3]), has_failed, tuple(kinds)


def plain(answer: HttpAnswer) -> tuple[Any, ...]:
    answer.obstacle()
    return answer.status, answer.words, answer.headers, answer.body, answer.problem()


def converse(said: bytes, answers: list[HttpAnswer]) -> Hashable:
    """Let a program ask, and answer its requests with these; the packets that it gets must be whole."""
    translator = PacketTranslator("http://server")
    decoder: Any = GearmanDecoder(RESPONSE, LARGEST_PACKET_BYTES, LARGEST_PACKET_BYTES)
    translator.receive(said)
    left = list(answers)
    kinds: set[int] = set()
    for _ in range(MOST_EXCHANGES):
        exchanges = translator.take_exchanges()
        kinds |= {kind for kind, _ in decoder.feed(translator.take_output())}
        must(decoder.failure is None and not decoder.buffered_bytes, "half a packet for the program")
        if not exchanges:
            break
        for exchange in exchanges:
            must(exchange.encode("\0").startswith(exchange.method.encode()), "no request", exchange.target)
            try:
                if left:
                    translator.on_answer(exchange, left.pop(0))
                elif not translator.on_failed(exchange):
                    return "over", tuple(sorted(kinds))
            except PeerError:  # the connection is lost, and its owner connects again
                return "refused", tuple(sorted(kinds))
    return "ends", tuple(sorted(kinds))


def answer(status: bytes, body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (status, kind, len(body)) + body


CREATED: Final = answer(b"201 Created", b'{"handle":"H:t:1","id":1,"joined":false}')
PROBLEM: Final = answer(
    b"429 Too Many Requests", b'{"code":"full","detail":"the server is full"}', b"application/problem+json"
)
ENDED: Final = answer(
    b"200 OK",
    b'{"jobs":[{"handle":"H:t:1","state":"done","cause":"succeeded","error":null,"result":"x","numerator":1,'
    b'"denominator":2,"message":""}]}',
)
JOB: Final = answer(b"200 OK", b'{"state":"running","numerator":1,"denominator":1' + b"0" * 30 + b"}")
REGISTERED: Final = answer(b"201 Created", b'{"id":"w-1","lease":30.0}')
POLLED: Final = answer(
    b"200 OK",
    b'{"jobs":[{"handle":"H:t:1","function":"f","attempt":1,"payload":"x","unique":""}],'
    b'"revoked":[{"handle":"H:t:1","attempt":1,"reason":"cancelled"}]}',
)
CLIENT_ANSWERS: Final = (
    b"",
    CREATED * 2 + JOB + ENDED * 3,
    PROBLEM * 6,
    REGISTERED + POLLED * 3,
    CREATED + answer(b"502 Bad Gateway", b"<html>", b"text/html") + JOB,
    answer(b"200 OK", b"[]") * 6,
    answer(b"301 Moved Permanently", b""),
    b"HTTP/1.1 100 Continue\r\n\r\n" + CREATED,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" * 4,
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nrest",
    b"\0RES\0\0\0\x08\0\0\0\0",
)

MODULES: Final = (
    "answers", "answer_queue", "packet_translator", "exchange", "followed_jobs", "polled_worker", "submissions",
)  # fmt: skip
HTTP_CLIENT: Final = (
    Target(
        "http-client",
        run_http_client,
        tuple(f"client.http.{name}" for name in MODULES),
        (LINES,),
        (*HTTP_WORDS, *CLIENT_ANSWERS[1:8], b'"jobs":[', b'"handle":"H:t:1"', b"null", b"1e400", b"[]", b"{}"),
    ),
)
