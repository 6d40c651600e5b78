"""The examples of the specification are true."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from switchgear.protocols.wmp.codec import DONE, FRAMES, GIVE, READY, TAKE, VERSION, WAKE, decode, encode
from switchgear.protocols.wmp.device_routing import Device
from tests.protocols.wmp.harness import WmpHarness

PAGE = (Path(__file__).parents[3] / "docs/protocols/wmp.md").read_text()

Shown = dict[bytes, tuple[list[bytes], dict[str, Any]]]


def shown() -> Shown:
    """The frames of each example, and its headers as they are explained."""
    examples: Shown = {}
    block = next(block for block in PAGE.split("```\n") if block.startswith("READY   2"))
    for example in block.strip().split("\n\n"):
        frames = {0: "", 1: VERSION.hex()}
        number = 0
        explained = ""
        for line in example.splitlines():
            match = re.fullmatch(r"(?:[A-Z ]{8})(?:(\d)  |   )(.*)", line)
            assert match is not None, line
            if match[2].startswith("{"):
                explained = match[2]
                continue
            number = int(match[1] or number)
            frames[number] = frames.get(number, "") + match[2]
        message = [bytes.fromhex(frames[number]) for number in sorted(frames)]
        examples[example.split()[0].encode()] = message, ast.literal_eval(explained)
    return examples


@pytest.mark.parametrize("command", FRAMES, ids=bytes.decode)
def test_each_command_has_an_example_that_is_right(command: bytes) -> None:
    frames, explained = shown()[command]
    decoded_command, headers, payload = decode(frames)
    assert decoded_command == command
    assert headers == explained
    assert payload == {TAKE: b"hello", DONE: b"HELLO"}.get(command)
    assert encode(command, explained, payload) == frames


def test_the_example_of_a_way_is_what_devices_do() -> None:
    rows = [
        line.strip("| ").split(" | ")
        for line in PAGE.splitlines()
        if re.match(r"\| (READY|WAKE|GIVE) \| \w+ \| \w+ \|", line)
    ]
    assert rows == [[command.decode(), *hop] for command, hops in travel() for hop in hops]


def travel() -> list[tuple[bytes, list[list[str]]]]:
    """What passes between a worker, two devices and a manager."""
    d1, d2 = Device(b"d1", 2), Device(b"d2", 1)

    def told(frames: list[bytes]) -> list[str]:
        headers = decode(frames)[1]
        return [", ".join(map(readable, headers.get(key, ()))) or "-" for key in ("to", "path")]

    def readable(hop: bytes) -> str:
        return hop.hex() if hop[0] == 0 else hop.decode()

    def up(frames: list[bytes]) -> tuple[list[list[str]], list[bytes]]:
        hops = [["w", "d1", *told(frames)]]
        frames = dict(d1.from_below([b"w", *frames]))[1]
        hops.append(["d1", "d2", *told(frames)])
        frames = dict(d2.from_below([b"d1", *frames]))[0]
        hops.append(["d2", "m", *told(frames)])
        return hops, frames

    def down(receiver: bytes, frames: list[bytes]) -> tuple[list[list[str]], list[bytes]]:
        assert receiver == b"d2"
        hops = [["m", "d2", *told(frames)]]
        passed_on = d2.from_above(0, frames)
        assert passed_on is not None
        hops.append(["d2", passed_on[0].decode(), *told(passed_on[1:])])
        passed_on = d1.from_above(1, passed_on[1:])
        assert passed_on is not None
        hops.append(["d1", passed_on[0].decode(), *told(passed_on[1:])])
        return hops, passed_on[1:]

    harness = WmpHarness(identity=b"m")
    harness.submit("echo")
    ready, arrived = up(encode(READY, {"roles": ["echo"]}))
    harness.router.send(b"d2", *arrived)
    ((receiver, *frames),) = harness.router.heard_by_all()
    wake, woken = down(receiver, frames)
    give, arrived = up(encode(GIVE, {"to": decode(woken)[1]["path"]}))
    harness.router.send(b"d2", *arrived)
    ((receiver, *frames),) = harness.router.heard_by_all()
    assert frames[2] == TAKE
    assert [hop[2:] for hop in down(receiver, frames)[0]] == [hop[2:] for hop in wake]
    return [(READY, ready), (WAKE, wake), (GIVE, give)]


def test_every_header_and_every_word_of_a_mistake_is_explained() -> None:
    source = "".join(
        path.read_text() for path in (Path(__file__).parents[3] / "src/switchgear/protocols/wmp").glob("[cm]*.py")
    )
    for key in re.findall(r'headers\.get\("(\w+)"', source):
        assert f"| `{key}`" in PAGE or f", `{key}` |" in PAGE, key
    for word in re.findall(r'code="(\w+)"', source):
        assert re.search(rf"^\| .*{word}", PAGE, re.M), word
