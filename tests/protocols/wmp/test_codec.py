"""Frames, and what may be in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.errors import PeerError
from switchgear.protocols.wmp import codec
from switchgear.protocols.wmp.codec import DONE, FRAMES, GIVE, READY, TAKE, VERSION, decode, encode

pack = msgspec.msgpack.encode
EMPTY = pack({})


def of(headers: Any, command: bytes = READY) -> list[bytes]:
    """Frames with these headers, whatever they are."""
    encoded = headers if isinstance(headers, bytes) else pack(headers)
    return [b"", VERSION, command, encoded] + ([b""] if FRAMES.get(command) == 5 else [])


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


BAD = {
    "no frames": ([], "BAD_FRAMES"),
    "too few frames": ([b"", VERSION, READY], "BAD_FRAMES"),
    "too many frames": ([b"", VERSION, TAKE, EMPTY, b"", b""], "BAD_FRAMES"),
    "no delimiter": ([b"x", VERSION, READY, EMPTY], "BAD_FRAMES"),
    "delimiter forgotten": ([VERSION, READY, EMPTY, b""], "BAD_FRAMES"),
    "another version": ([b"", b"WMP2", READY, EMPTY], "BAD_VERSION"),
    "another protocol": ([b"", b"MDPW01", READY, EMPTY], "BAD_VERSION"),
    "no version": ([b"", b"", READY, EMPTY], "BAD_VERSION"),
    "unknown command": ([b"", VERSION, b"HELLO", EMPTY], "UNKNOWN_COMMAND"),
    "command in small letters": ([b"", VERSION, b"ready", EMPTY], "UNKNOWN_COMMAND"),
    "no command": ([b"", VERSION, b"", EMPTY], "UNKNOWN_COMMAND"),
    "READY with payload": ([b"", VERSION, READY, EMPTY, b""], "BAD_FRAMES"),
    "TAKE without payload": ([b"", VERSION, TAKE, EMPTY], "BAD_FRAMES"),
    "DONE without payload": ([b"", VERSION, DONE, EMPTY], "BAD_FRAMES"),
    "headers empty": (of(b""), "BAD_HEADER"),
    "headers no msgpack": (of(b"\xc1"), "BAD_HEADER"),
    "headers cut off": (of(pack({"roles": ["echo"]})[:-1]), "BAD_HEADER"),
    "something behind the headers": (of(EMPTY + EMPTY), "BAD_HEADER"),
    "headers an array": (of([]), "BAD_HEADER"),
    "headers nil": (of(None), "BAD_HEADER"),
    "a key that is a number": (of({1: 2}), "BAD_HEADER"),
    "a key that is bin": (of({b"a": 2}), "BAD_HEADER"),
    "a key that is no UTF-8": (of(b"\x81\xa1\xff\x01"), "BAD_HEADER"),
    "text that is no UTF-8": (of(b"\x81\xa1a\xa1\xff"), "BAD_HEADER"),
    "a map that announces 4 billion": (of(b"\xdf\xff\xff\xff\xff"), "BAD_HEADER"),
    "an array that announces 4 billion": (of(b"\x81\xa1a\xdd\xff\xff\xff\xff"), "BAD_HEADER"),
    "bin that announces 4 GB": (of(b"\x81\xa1a\xc6\xff\xff\xff\xff"), "BAD_HEADER"),
    "an extension type": (of(b"\x81\xa1a\xc7\x01\x05\xff"), "BAD_HEADER"),
    "a time stamp": (of(b"\x81\xa1a\xd6\xff\x00\x00\x00\x01"), "BAD_HEADER"),
    "a time stamp further in": (of(b"\x81\xa1a\x91\xd6\xff\x00\x00\x00\x01"), "BAD_HEADER"),
    "a number as key further in": (of({"a": {"b": {1: 2}}}), "BAD_HEADER"),
    "an array as key further in": (of(b"\x81\xa1a\x81\x91\x01\x02"), "BAD_HEADER"),
    "a map as key further in": (of(b"\x81\xa1a\x81\x81\x01\x02\x03"), "BAD_HEADER"),
    "too deep": (of({"a": nested(9)}), "BAD_HEADER"),
    "far too deep": (of(b"\x81\xa1a" + b"\x91" * 60_000 + b"\x01"), "BAD_HEADER"),
    "too large": (of({"a": b"x" * 64 * 1024}), "TOO_LARGE"),
    "path is text": (of({"path": "w1"}), "BAD_HEADER"),
    "path is bin": (of({"path": b"w1"}), "BAD_HEADER"),
    "path is a map": (of({"path": {"a": 1}}), "BAD_HEADER"),
    "path of text": (of({"path": ["w1"]}), "BAD_HEADER"),
    "path of arrays": (of({"path": [[b"w1"]]}), "BAD_HEADER"),
    "path with an empty element": (of({"path": [b"w1", b""]}), "BAD_HEADER"),
    "path with a long element": (of({"path": [b"x" * 256]}), "BAD_HEADER"),
    "path with nil": (of({"path": [None]}), "BAD_HEADER"),
    "path too long": (of({"path": [b"x"] * 17}), "TOO_FAR"),
    "to is a number": (of({"to": 0}, GIVE), "BAD_HEADER"),
    "to of text": (of({"to": ["m1"]}, GIVE), "BAD_HEADER"),
    "to too long": (of({"to": [b"x"] * 17}, GIVE), "TOO_FAR"),
}


@pytest.mark.parametrize(("frames", "code"), BAD.values(), ids=BAD)
def test_what_is_no_message(frames: list[bytes], code: str) -> None:
    with pytest.raises(PeerError) as caught:
        decode(frames)
    assert caught.value.code == code
    assert len(str(caught.value)) < 200  # it goes to the log


GOOD = {
    "no headers": ({}, {}),
    "a path of sixteen": ({"path": [b"x"] * 16}, {"path": [b"x"] * 16}),
    "elements of 255 bytes": ({"to": [b"x" * 255]}, {"to": [b"x" * 255]}),
    "no way": ({"to": [], "path": []}, {"to": [], "path": []}),
    "nil is as good as absent": ({"to": None, "path": None, "roles": None, "a": 1}, {"a": 1}),
    "nil further in is something": ({"a": [None]}, {"a": [None]}),
    "what a policy may want": ({"gpu": {"memory": [16, 2.5, True, b"x"]}}, {"gpu": {"memory": [16, 2.5, True, b"x"]}}),
    "eight deep": ({"a": nested(8)}, {"a": nested(8)}),
}


@pytest.mark.parametrize(("headers", "understood"), GOOD.values(), ids=GOOD)
def test_what_is_a_message(headers: dict[str, Any], understood: dict[str, Any]) -> None:
    assert decode(of(headers)) == (READY, understood, None)


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    assert decode(of(b"\x82\xa1a\x01\xa1a\x02"))[1] == {"a": 2}


def test_nobody_encodes_what_nobody_would_take() -> None:
    with pytest.raises(ValueError, match="at most 65536"):
        encode(READY, {"a": b"x" * 65_536})
    with pytest.raises(ValueError, match="READY has no payload"):
        encode(READY, {}, b"")
    assert encode(DONE, {}) == [b"", VERSION, DONE, EMPTY, b""]


Reader = Callable[[dict[str, Any]], Any]

READ: list[tuple[Reader, dict[str, Any], Any]] = [
    (codec.roles_of, {}, None),
    (codec.roles_of, {"roles": ["b", b"a", "b", "ü"]}, (b"b", b"a", b"\xc3\xbc")),
    (codec.role_of, {}, None),
    (codec.role_of, {"role": "a"}, b"a"),
    (codec.role_of, {"role": b"\xff"}, b"\xff"),
    (codec.job_of, {"job": b"1"}, b"1"),
    (codec.manager_of, {}, None),
    (codec.manager_of, {"manager": b"m"}, b"m"),
    (codec.lease_of, {}, None),
    (codec.lease_of, {"lease": 3}, 3.0),
    (codec.lease_of, {"lease": 0.5}, 0.5),
    (codec.slots_of, {}, None),
    (codec.slots_of, {"slots": 4}, 4),
    (codec.status_of, {}, "done"),
    (codec.status_of, {"status": "returned"}, "returned"),
    (codec.code_of, {}, 1),
    (codec.code_of, {"code": 255}, 255),
    (codec.error_of, {}, None),
    (codec.error_of, {"error": "é"}, b"\xc3\xa9"),
    (codec.error_of, {"error": b"\xff"}, b"\xff"),
    (codec.progress_of, {}, (None, None, None)),
    (codec.progress_of, {"numerator": 0, "time_left": 5}, (0, None, 5)),
]


@pytest.mark.parametrize(("reader", "headers", "expected"), READ)
def test_headers_are_read(reader: Reader, headers: dict[str, Any], expected: Any) -> None:
    assert reader(headers) == expected


MISREAD: list[tuple[Reader, str, list[Any]]] = [
    (codec.roles_of, "roles", ["echo", b"echo", [], {}, [1], [""], ["a", None], [["a"]], ["x" * 513], ["a"] * 1001, 1]),
    (codec.role_of, "role", ["", 1, [b"a"], "x" * 513]),
    (codec.job_of, "job", [b"", "1", 1, b"x" * 256, [b"1"]]),
    (codec.manager_of, "manager", [b"", "m", 1, b"x" * 256]),
    (codec.lease_of, "lease", [0, -1, "3", True, float("nan"), float("inf"), 2**64, [1]]),
    (codec.slots_of, "slots", [0, -1, 1.5, "1", True, 2**63]),
    (codec.status_of, "status", ["", "DONE", b"done", 1, ["done"], {}]),
    (codec.code_of, "code", [0, 256, -1, 1.0, "1", True]),
    (codec.error_of, "error", [1, ["a"], {}, True]),
    (codec.progress_of, "numerator", [-1, 0.5, "1", True, 2**63]),
    (codec.progress_of, "denominator", [-1, "x", [1]]),
    (codec.progress_of, "time_left", [-1, 0.5, {}]),
]


@pytest.mark.parametrize(
    ("reader", "key", "value"), [(reader, key, value) for reader, key, values in MISREAD for value in values]
)
def test_headers_that_are_not_what_they_should_be(reader: Reader, key: str, value: Any) -> None:
    with pytest.raises(PeerError, match=key) as caught:
        reader({key: value})
    assert caught.value.code == "BAD_HEADER"


def test_a_job_has_a_reference() -> None:
    with pytest.raises(PeerError):
        codec.job_of({})


plain = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8
)
routes = st.lists(st.binary(min_size=1, max_size=255), max_size=16)


@given(
    command=st.sampled_from(sorted(FRAMES)),
    headers=st.dictionaries(st.text(), values, max_size=5),
    path=routes,
    to=routes,
    payload=st.binary(),
)
def test_what_is_encoded_is_decoded(
    command: bytes, headers: dict[str, Any], path: list[bytes], to: list[bytes], payload: bytes
) -> None:
    headers |= {"path": path, "to": to}
    has_payload = FRAMES[command] == 5
    decoded = decode(encode(command, headers, payload if has_payload else None))
    expected = {key: value for key, value in headers.items() if value is not None}
    assert decoded == (command, expected, payload if has_payload else None)


@given(st.lists(st.binary(max_size=40), max_size=6) | st.binary().map(of))
def test_anything_else_is_a_peer_error(frames: list[bytes]) -> None:
    try:
        command, headers, payload = decode(frames)
    except PeerError:
        return
    assert command in FRAMES
    assert all(isinstance(key, str) for key in headers)
    assert (payload is not None) == (FRAMES[command] == 5)
