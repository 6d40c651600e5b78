"""What a device does with one message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.device_routing import Device
from tests.protocols.wmp_device.nets import command_and_headers, message

W = b"worker"
M = b"manager"
FIRST = b"\0\0"  # tokens of the managers of a device
SECOND = b"\0\1"


def device(managers: int = 2) -> Device:
    return Device(b"device", managers)


# --- from below ---


def test_ready_goes_to_all_managers() -> None:
    passed_on = device(managers=3).from_below([W, *message("READY", roles=["f"], memory_gb=64)])
    assert [number for number, _ in passed_on] == [0, 1, 2]
    for _, frames in passed_on:
        assert command_and_headers(frames) == ("READY", {"roles": ["f"], "memory_gb": 64, "path": [W]})


@pytest.mark.parametrize(
    ("command", "payload", "headers"),
    [
        ("GIVE", None, {"roles": ["f", b"\xff"], "lease": 2.5}),
        ("DONE", b"result", {"job": b"1", "status": "failed", "code": 3, "error": "no"}),
        ("STATUS", None, {"job": b"1", "numerator": 1, "denominator": 2, "unheard-of": {"of": [1, None]}}),
    ],
)
@pytest.mark.parametrize(("token", "number"), [(FIRST, 0), (SECOND, 1)])
def test_everything_else_goes_to_the_manager_that_it_names(
    command: str, payload: bytes | None, headers: dict[str, Any], token: bytes, number: int
) -> None:
    ((way, frames),) = device().from_below([W, *message(command, payload, to=[token, M], path=[b"x"], **headers)])
    assert way == number
    assert command_and_headers(frames) == (command, {**headers, "to": [M], "path": [W, b"x"]})
    assert frames[4:] == ([] if payload is None else [payload])


# --- from above ---


@pytest.mark.parametrize(
    ("command", "payload", "headers"),
    [
        ("WAKE", None, {"role": "f"}),
        ("TAKE", b"payload", {"job": b"1", "role": "f", "manager": b"another", "lease": 10}),
        ("NO", None, {}),
        ("CANCEL", None, {"job": b"1", "manager": b"another"}),
    ],
)
@pytest.mark.parametrize(("number", "token"), [(0, FIRST), (1, SECOND)])
@pytest.mark.parametrize("rest", [[], [b"next", b"last"]])
def test_what_managers_say_goes_to_whom_it_names(
    command: str, payload: bytes | None, headers: dict[str, Any], number: int, token: bytes, rest: list[bytes]
) -> None:
    down = device().from_above(number, message(command, payload, to=[W, *rest], path=[M], **headers))
    assert down is not None
    assert down[0] == W
    assert command_and_headers(down[1:]) == (command, {**headers, "to": rest, "path": [token, M]})
    assert down[5:] == ([] if payload is None else [payload])


# --- nobody there ---


def test_a_job_for_somebody_who_is_gone_is_given_back_in_his_name() -> None:
    it = device()
    down = it.from_above(1, message("TAKE", b"x", to=[W, b"next"], path=[b"t", M], job=b"7", role="f", manager=b"m"))
    assert down is not None
    answer = it.undeliverable(down)
    assert answer is not None
    assert answer[0] == 1
    assert command_and_headers(answer[1]) == (
        "DONE",
        {"to": [b"t", M], "path": [W, b"next"], "job": b"7", "manager": b"m", "status": "returned"},
    )
    assert answer[1][4] == b""
    assert (it.counts["undelivered"], it.counts["returned"]) == (1, 1)


def test_a_job_whose_manager_is_not_named_is_given_back_to_where_it_came_from() -> None:
    it = device()
    down = it.from_above(0, message("TAKE", b"x", to=[W], path=[M], job=b"7", role="f"))
    assert down is not None
    answer = it.undeliverable(down)
    assert answer is not None
    assert command_and_headers(answer[1])[1] == {"to": [M], "path": [W], "job": b"7", "status": "returned"}


@pytest.mark.parametrize("command", ["WAKE", "NO", "CANCEL"])
def test_the_rest_is_dropped_with_whom_it_is_for(command: str) -> None:
    it = device()
    down = it.from_above(0, message(command, to=[W], path=[M], job=b"7"))
    assert down is not None
    assert it.undeliverable(down) is None
    assert it.counts["undelivered"] == 1


def test_a_job_without_a_reference_cannot_be_given_back() -> None:
    it = device()
    down = it.from_above(0, message("TAKE", b"x", to=[W], path=[M]))
    assert down is not None
    assert it.undeliverable(down) is None
    assert it.counts["bad"] == 1


# --- what is not passed on ---

HOPS = [b"%d" % n for n in range(16)]


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([], "BAD_FRAMES"),
        ([b"", b"WMP1", b"READY"], "BAD_FRAMES"),
        ([b"", b"WMP2", b"READY", b"\x80"], "BAD_VERSION"),
        (message("HELLO"), "UNKNOWN_COMMAND"),
        (message("WAKE", to=[FIRST]), "WRONG_WAY"),
        (message("TAKE", b"", to=[FIRST]), "WRONG_WAY"),
        (message("DONE", to=[FIRST]), "BAD_FRAMES"),
        (message("READY", path="x"), "BAD_HEADER"),
        (message("READY", path=HOPS), "TOO_FAR"),
        (message("READY", path=[*HOPS, b"x"]), "TOO_FAR"),
        (message("READY", path=[b"x", b"device", W]), "LOOP"),
        (message("READY", much=b"x" * 65_530), "TOO_LARGE"),  # with the path it is
        (message("GIVE"), "MISROUTED"),
        (message("GIVE", to=[]), "MISROUTED"),
        (message("GIVE", to=[M]), "MISROUTED"),
        (message("GIVE", to=[b"\0\2"]), "MISROUTED"),
        (message("GIVE", to=[b"\0"]), "MISROUTED"),
        (message("GIVE", to=["text"]), "BAD_HEADER"),
        (message("GIVE", to=[FIRST, *HOPS]), "TOO_FAR"),
    ],
)
def test_what_workers_must_not_say(frames: Message, problem: str) -> None:
    it = device()
    assert it.from_below([W, *frames]) == []
    assert it.problem.startswith(problem + ": ")
    assert (it.counts["bad"], it.counts["up"]) == (1, 0)


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        (message("READY", to=[W]), "WRONG_WAY"),
        (message("GIVE", to=[W]), "WRONG_WAY"),
        (message("DONE", b"", to=[W]), "WRONG_WAY"),
        (message("WAKE"), "MISROUTED"),
        (message("WAKE", to=[], path=[M]), "MISROUTED"),
        (message("WAKE", to=[W], path=HOPS), "TOO_FAR"),
        (message("NO", b"payload", to=[W]), "BAD_FRAMES"),
    ],
)
def test_what_managers_must_not_say(frames: Message, problem: str) -> None:
    it = device()
    assert it.from_above(0, frames) is None
    assert it.problem.startswith(problem + ": ")
    assert (it.counts["bad"], it.counts["down"]) == (1, 0)


def test_what_is_passed_on_is_counted() -> None:
    it = device()
    it.from_below([W, *message("READY", roles=["f"])])
    it.from_below([W, *message("GIVE", to=[FIRST])])
    it.from_above(0, message("NO", to=[W]))
    assert it.counts == {"up": 3, "down": 1}


@pytest.mark.parametrize("managers", [0, 65_537])
def test_a_device_needs_a_manager_and_has_names_for_so_many(managers: int) -> None:
    with pytest.raises(ValueError, match="1 to 65536"):
        device(managers)


# --- strangers ---

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
routes = st.lists(st.sampled_from([W, M, FIRST, SECOND, b"device", b"", b"x" * 256]), max_size=18)
maps = st.dictionaries(st.sampled_from(["job", "manager", "role", "x"]), values).flatmap(
    lambda rest: st.fixed_dictionaries(
        {}, optional={"to": routes | values, "path": routes | values, "job": st.binary()}
    ).map(lambda ways: {**rest, **ways})
)
commands = st.sampled_from([b"READY", b"WAKE", b"GIVE", b"TAKE", b"NO", b"DONE", b"STATUS", b"CANCEL", b"?"])
nearly_right = st.tuples(commands, maps, st.none() | st.binary()).map(
    lambda parts: [b"", b"WMP1", parts[0], msgspec.msgpack.encode(parts[1]), *([] if parts[2] is None else [parts[2]])]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(), max_size=6) | nearly_right)
def test_whatever_arrives_is_passed_on_whole_or_counted(frames: Message) -> None:
    it = device()
    passed_on = it.from_below([W, *frames])
    assert bool(passed_on) != bool(it.counts["bad"])
    for _, up in passed_on:
        assert command_and_headers(up)[1]["path"][0] == W
        assert up[4:] == frames[4:]
    it = device()
    down = it.from_above(1, frames)
    assert (down is not None) != bool(it.counts["bad"])
    if down is not None:
        assert command_and_headers(down[1:])[1]["path"][0] == SECOND
        it.undeliverable(down)
