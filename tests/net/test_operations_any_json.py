"""Whatever an operator's JSON says, the answer is an answer or an error, and never a defect."""

from __future__ import annotations

from itertools import product

import pytest

from switchgear.protocols.gearman.codec import HEADER, request
from switchgear.protocols.gearman.messages import Packet
from switchgear.verbs.table import VERBS
from tests.protocols.gearman.harness import Harness

VALUES = [
    "0",
    "-1",
    "1.5",
    "1e308",
    "-1e308",
    "1e-320",
    "1e400",
    "9" * 400,
    "9" * 5000,
    "-" + "9" * 30,
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "null",
    "true",
    '""',
    '"\\ud800"',
    '"\\u0000"',
    '"\u00b2"',
    '"1_000"',
    '" 5"',
    '"nan"',
    '"' + "9" * 5000 + '"',
    "[]",
    "{}",
    "[[]]",
    '["\\ud800"]',
    "[1, 1e308]",
    "[1, 1e-320]",
    "[1e308, 1]",
    "[1, " + "9" * 400 + "]",
    "[" + "9" * 30 + ", 1]",
    "[0, 1e308]",
    "[" * 5000 + "]" * 5000,
    '{"base64": "x"}',
    '{"base64": "\u00b2"}',
    '{"cron": "* * * * *"}',
    "NaN",
    "Infinity",
    "1_000",
    "0x10",
    "--1",
]

OTHERS = {"function": '"f"', "name": '"n"', "every_seconds": "5"}


def verbs_and_arguments() -> list[tuple[str, str]]:
    found = []
    for name, verb in VERBS.items():
        names = {argument.name for argument in verb.arguments}
        found += [(name, argument) for argument in {*names, "handle", "handles", "nonsense"}]
    return sorted(found)


@pytest.mark.parametrize(("verb", "name"), verbs_and_arguments())
def test_any_value_is_answered(verb: str, name: str) -> None:
    harness = Harness(packet_bytes=100_000)
    known = {argument.name for argument in VERBS[verb].arguments}
    others = {key: word for key, word in OTHERS.items() if key in known}
    for value, with_others in product(VALUES, (False, True)):
        fields = {**(others if with_others else {}), name: value}
        text = "{" + ", ".join(f'"{key}": {word}' for key, word in fields.items()) + "}"
        talker = harness.talker("operator")
        talker.send(request(Packet.CONTROL, verb.encode(), text.encode()))
        answer = talker.take_bytes()
        kind, size = HEADER.unpack_from(answer)[1:]
        assert kind in (Packet.CONTROL_RES, Packet.ERROR), text[:100]
        assert len(answer) == HEADER.size + size
