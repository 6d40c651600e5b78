"""Protocols of somewhere else are recognised by their first bytes, and told so in their own words."""

from __future__ import annotations

import random
import struct

import pytest

from switchgear.net.connections.foreign_protocols import foreign_protocol, foreign_refusal, looks_like_http
from switchgear.protocols.gearman.admin import ON_COMMAND
from tests.support.wire import Kind, request

TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)
SSL2_HELLO = b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + bytes(8)

FOREIGN = {
    "a GET": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
    "a POST": (b"POST /jobs HTTP/1.1\r\n", "HTTP"),
    "a PUT": (b"PUT /x HTTP/1.0\r\n", "HTTP"),
    "lower case": (b"get / http/1.1\r\n", "HTTP"),
    "HTTP/0.9": (b"GET /\r\n", "HTTP"),
    "an unknown method": (b"FOO / HTTP/1.1\r\n", "HTTP"),
    "a method that is a command of ours": (b"status / HTTP/1.1\r\n", "HTTP"),
    "shutdown as a method": (b"SHUTDOWN graceful HTTP/1.1\r\n", "HTTP"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"),
    "CONNECT": (b"CONNECT 127.0.0.1:4730 HTTP/1.1\r\n", "HTTP"),
    "a proxy's request": (b"GET http://127.0.0.1:4730/ HTTP/1.1\r\n", "HTTP"),
    "OPTIONS": (b"OPTIONS * HTTP/1.1\r\n", "HTTP"),
    "a request line without end": (b"GET /" + b"a" * 20_000, "HTTP"),
    "RTSP": (b"DESCRIBE rtsp://x RTSP/1.0\r\n", "HTTP"),
    "TLS": (TLS_HELLO, "TLS"),
    "the first bytes of TLS": (TLS_HELLO[:3], "TLS"),
    "SSL 2": (SSL2_HELLO, "SSL 2"),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    "EHLO": (b"EHLO me\r\n", "SMTP"),
    "HELO": (b"helo me\r\n", "SMTP"),
    "RESP": (b"*1\r\n$4\r\nPING\r\n", "Redis"),
    "Redis by hand": (b"PING\r\n", "Redis"),
    "memcached": (b"get key\r\n", "memcached"),
    "memcached storing": (b"set key 0 60 5\r\nhello\r\n", "memcached"),
    "memcached statistics": (b"stats\r\n", "memcached"),
    "Gearman": (request(Kind.ECHO_REQ, b"x"), "Gearman"),
    "the draft": (b"\0JOB\1\0\0\0\0", "the Gearman draft of 2005"),
    "ZeroMQ": (b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL", "ZeroMQ"),
    "AMQP": (b"AMQP\0\0\x09\1", "AMQP"),
    "PostgreSQL": (struct.pack(">II", 8, 80877103), "PostgreSQL"),
}


@pytest.mark.parametrize(("start", "name"), FOREIGN.values(), ids=FOREIGN)
def test_what_begins_like_this_is(start: bytes, name: str) -> None:
    assert foreign_protocol(start) == name
    assert foreign_protocol(start, {name}) != name
    assert looks_like_http(start) == (name == "HTTP")


@pytest.mark.parametrize("command", ON_COMMAND, ids=bytes.decode)
@pytest.mark.parametrize("rest", [b"\n", b"\r\n", b" x\n", b" jobs\n", b" function f\n", b""])
def test_no_text_command_is_taken_for_something_else(command: bytes, rest: bytes) -> None:
    assert foreign_protocol(command + rest) is None
    assert foreign_protocol(command.upper() + rest) is None


def test_nothing_is_not_foreign_and_noise_does_no_harm() -> None:
    assert foreign_protocol(b"") is None
    chance = random.Random(1)
    for _ in range(2000):
        start = chance.randbytes(chance.randint(1, 40))
        name = foreign_protocol(start)
        assert name is None or isinstance(foreign_refusal(name, "Gearman"), bytes)


def test_the_answer_to_http_says_what_is_spoken_and_cannot_be_taken_for_a_page() -> None:
    head, _, body = foreign_refusal("HTTP", "Gearman").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Type: text/plain" in head
    assert b"Connection: close" in head
    assert b"Content-Length: %d" % len(body) in head
    assert b"This port speaks Gearman, not HTTP" in body


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("TLS", b"\x15\x03\x01\x00\x02\x02"),
        ("SSL 2", b"\x15\x03\x01\x00\x02\x02"),
        ("Redis", b"-ERR this port speaks Gearman, not Redis\r\n"),
        ("SMTP", b"554 this port speaks Gearman"),
        ("memcached", b"CLIENT_ERROR this port"),
        ("Gearman", b"\0RES"),
        ("the Gearman draft of 2005", b"\0JOB"),
        ("SSH", b"ERR FOREIGN_PROTOCOL this+port+speaks+Gearman"),
    ],
)
def test_everybody_is_told_in_a_way_that_they_understand(name: str, start: bytes) -> None:
    assert foreign_refusal(name, "Gearman").startswith(start)
