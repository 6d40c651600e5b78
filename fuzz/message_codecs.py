"""Targets: codecs of whole messages, and what routes them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec
from tests.protocols.dwork.oracle import understood, written

from fuzz.grammar import FRAMES, MSGPACK_MAP, PROTOBUF
from fuzz.target import Target, must
from switchgear.errors import PeerError
from switchgear.protocols.dwork import codec as dwork
from switchgear.protocols.dwork.messages import Query, QueryType, Task
from switchgear.protocols.dwork.protobuf import malformed
from switchgear.protocols.dwork.request_rules import check_fields, check_task, check_values, read_request
from switchgear.protocols.pingpong.messages import FAILED, failure, printable
from switchgear.protocols.wmp import codec as wmp
from switchgear.protocols.wmp.device_routing import Device

__all__ = ["MESSAGE_CODECS"]

# What the protobuf library takes and dwork does not: groups, and numbers that nobody writes so.
STRICTER: Final = ("wire type 3", "wire type 4", "more than 64 bits", "longer than it need be", "has no type")
TASK_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Task))
QUERY_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Query) if field.name != "tasks")
DIGITS: Final = re.compile("[0-9]")
LISTS: Final = ("predecessors", "successors", "log", "after")


def attempt(read: Callable[[bytes], Query], data: bytes) -> tuple[Query | None, str]:
    """What is read, or why it is not."""
    try:
        return read(data), ""
    except PeerError as error:
        must(error.code == "MALFORMED" and not error.framing_lost, "another kind of error", error)
        return None, str(error)


def plain(query: Query | None) -> Any:
    """The message as values that can be compared: whether what is empty is a list or a tuple makes no difference."""
    if query is None:
        return None
    tasks = [
        [tuple(getattr(task, name)) if name in LISTS else getattr(task, name) for name in TASK_FIELDS]
        for task in query.tasks
    ]
    return tasks, [getattr(query, name) for name in QUERY_FIELDS]


def without_digits(text: str) -> str:
    return DIGITS.sub("#", text) if text else text


def run_dwork(data: bytes) -> Hashable:
    """Requests and answers, against the protobuf library."""
    expected = understood(data)
    answer, complaint = attempt(dwork.decode_reply, data)
    if answer is None:
        is_stricter = any(words in complaint for words in STRICTER)
        must(expected is None or is_stricter, "the library takes it", complaint)
    else:
        must(plain(answer) == plain(expected), "the library reads something else", answer, expected)
        must(dwork.encode(answer) == written(answer), "the library writes something else", answer)
        must(plain(dwork.decode_reply(dwork.encode(answer))) == plain(answer), "it does not survive", answer)
    request, why = attempt(dwork.decode_request, data)
    must(request is None or plain(request) == plain(answer), "a request means something else than an answer", request)
    checked, refusal = attempt(read_request, data)
    must(checked is None or plain(checked) == plain(request), "a checked request means something else", checked)
    in_parts, other_refusal = attempt(read_in_parts, data)
    must((in_parts is None) == (checked is None), "a long request is judged otherwise", refusal, other_refusal)
    must(plain(in_parts) == plain(checked), "a long request means something else", in_parts, checked)
    kind = (request.type, len(request.tasks)) if request is not None else ()
    return without_digits(complaint), without_digits(why), without_digits(refusal), kind


def read_in_parts(data: bytes) -> Query:
    """The request as a long one is read: first its fields, then its tasks, some at a time."""
    if not data:
        raise malformed("the message is empty")
    reader = dwork.RequestReader(data)
    while reader.scan(3):
        pass
    query = reader.query
    check_fields(query, reader.fields)
    check_values(query)
    reader.rewind()
    tasks: list[Task] = []
    while found := reader.tasks(2, 40):
        tasks += found
    for task in tasks:
        check_task(query.type, task)
    query.tasks = tasks
    return query


# --- WMP ---

READERS: Final[tuple[Callable[[dict[str, Any]], Any], ...]] = (
    wmp.roles_of,
    wmp.role_of,
    wmp.job_of,
    wmp.manager_of,
    wmp.lease_of,
    wmp.slots_of,
    wmp.status_of,
    wmp.code_of,
    wmp.error_of,
    wmp.progress_of,
)


def frames_of(data: bytes) -> list[bytes]:
    return [part.body for part in FRAMES.cut(data)]


def run_wmp(data: bytes) -> Hashable:
    """Frames to headers; a message that is understood is written and read again as the same."""
    frames = frames_of(data)
    try:
        command, headers, payload = wmp.decode(frames)
    except PeerError as error:
        return error.code
    must(payload is None or payload == frames[4], "another payload")
    must(None not in headers.values(), "a header that is nil")
    kinds = [command.decode()]
    for read in READERS:
        try:
            value = read(headers)
            kinds.append("" if value is None else type(value).__name__)
        except PeerError as error:
            must(error.code == "BAD_HEADER", "another kind of error", error)
            kinds.append("bad")
    again = wmp.encode(command, headers, payload)
    if len(again[3]) <= wmp.LARGEST_HEADERS:
        same = wmp.decode(again)
        must(repr(same) == repr((command, headers, payload)), "a message does not survive", headers)
    return tuple(kinds)


def run_wmp_device(data: bytes) -> Hashable:
    """A device passes on what it understands, one hop further, and counts the rest."""
    messages = [part.body for part in FRAMES.cut(data)]
    device = Device(b"device", 3)
    kinds = []
    for number, message in enumerate(messages):
        frames = frames_of(message)
        below = device.from_below([b"w%d" % (number % 2), *frames])
        for manager, passed_on in below:
            must(0 <= manager < 3, "a manager that is not there")
            _, headers, _ = wmp.decode(passed_on)
            must(headers["path"][0] == b"w%d" % (number % 2), "the sender is not in the path")
        down = device.from_above(number % 3, frames)
        if down is not None:
            _, headers, _ = wmp.decode(down[1:])
            must(device.from_above(number % 3, frames) == down, "another way the second time")
            given_back = device.undeliverable(down)
            must(given_back is None or given_back[0] == number % 3, "a job is given back to another manager")
        kinds.append((len(below), down is not None, device.problem.partition(":")[0]))
    total = sum(count for name, count in device.counts.items() if name != "returned")
    must(total <= 10 * len(messages), "more is passed on than came in", device.counts)
    return tuple(kinds[:4])


# --- PING/PONG ---


def run_pingpong(data: bytes) -> Hashable:
    """Shown names are printable, and a failure cannot be taken for a result."""
    frames = frames_of(data)
    for frame in frames:
        shown = printable(frame)
        must(shown.isascii() and shown.decode().isprintable(), "a name that cannot be shown", frame)
    message = failure([*frames, b""], b"words")
    must(message[len(frames) + 1 :] == [b"", FAILED, b"words"], "a failure has another shape")
    return len(frames), b"" in frames


def packed(**headers: Any) -> bytes:
    return msgspec.msgpack.encode(headers)


WMP_WORDS: Final = (
    b"WMP1",
    *wmp.FRAMES,
    *(bytes([0xA0 | len(key)]) + key.encode() for key in
      ("to", "path", "roles", "role", "job", "lease", "status", "code", "error", "manager", "slots", "numerator")),
    packed(),
    packed(roles=["echo"]),
    packed(to=[b"manager-1"], job=b"1.1"),
    packed(path=[b"m"] * 16),
    packed(job=b"1", status="failed", code=3, error="e"),
    packed(lease=5e-324),
    packed(lease=1e308),
    b"\xc0",
    b"\xc4\x01w",
    b"\xc7\x03\x05abc",  # an extension type
    b"\xd6\xff\0\0\0\x01",  # a timestamp
    b"\x91" * 12,
    b"\xcb\x7f\xf8\0\0\0\0\0\0",  # not a number
)  # fmt: skip
DWORK_WORDS: Final = (
    *(b"\x08" + bytes([kind]) for kind in QueryType),
    b"\x12\x06\x0a\x01a\x12\x01b",
    b"\x0a\x01a",
    b"\x12\x01b",
    b"\x22\x03\x0a\x01c",
    b"\x2a\x03\x0a\x01c",
    b"\x32\x04\x08\x01\x10\x02",
    b"\x32\x02w1",
    b"\x1a\x01a",
    b"\x20\x03",
    b"\xa2\x06\x03bad",
    b"\xa8\x06\x05",
    b"\xb0\x06\x05",
    b"\xb8\x06\x05",
    b"\xba\x06\x02\x05\x06",
    b"\xc0\x06\x05",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x88\x00",
    b"\x0b\x0c",
)

MESSAGE_CODECS: Final = (
    Target(
        "dwork-codec",
        run_dwork,
        ("protocols.dwork.codec", "protocols.dwork.messages", "protocols.dwork.request_rules"),
        (PROTOBUF, PROTOBUF, PROTOBUF),
        DWORK_WORDS,
        1000,
    ),
    Target("wmp-codec", run_wmp, ("protocols.wmp.codec",), (FRAMES, MSGPACK_MAP), WMP_WORDS),
    Target(
        "wmp-device",
        run_wmp_device,
        ("protocols.wmp.device_routing", "protocols.wmp.codec"),
        (FRAMES, FRAMES, MSGPACK_MAP),
        WMP_WORDS,
    ),
    Target(
        "pingpong-codec", run_pingpong, ("protocols.pingpong.messages",), (FRAMES,), (b"READY", b"PING", b"PONG"), 300
    ),
)
