"""The bytes of the protocol, beside those of the original server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from switchgear.protocols.dwork.protobuf import varint
from tests.protocols.dwork.harness import DworkHarness

TRANSCRIPT = Path(__file__).parent / "transcript.txt"
WORD = re.compile(r"'((?:[^']|'')*)'|(\S+)")


@dataclass
class Exchange:
    """A request, our answer, and the original's if that is another."""

    request: str
    answer: str = ""
    original: str = ""


def conversations() -> dict[str, list[Exchange]]:
    found: dict[str, list[Exchange]] = {}
    for part in TRANSCRIPT.read_text().split("\n== ")[1:]:
        title, *lines = part.splitlines()
        exchanges = found[title] = []
        for line in filter(None, lines):
            mark, text = line[0], re.sub(r"\s+# .*", "", line[2:])
            if mark == ">":
                exchanges.append(Exchange(text))
            elif mark == "<":
                exchanges[-1].answer = text
            else:
                assert mark == "!"
                exchanges[-1].original = text
    return found


def as_bytes(text: str, now_us: int) -> bytes:
    def of_word(word: re.Match[str]) -> bytes:
        quoted, plain = word.groups()
        if quoted is not None:
            return str(quoted).replace("''", "'").encode()
        return varint(now_us) if plain == "TIME" else bytes.fromhex(plain)

    return b"" if text == "(nothing)" else b"".join(map(of_word, WORD.finditer(text)))


CONVERSATIONS = conversations()


@pytest.mark.parametrize("title", CONVERSATIONS)
def test_conversation(title: str) -> None:
    harness = DworkHarness()
    for exchange in CONVERSATIONS[title]:
        answer = harness.ask_bytes(as_bytes(exchange.request, harness.now_us))
        if exchange.answer.endswith("..."):
            start = as_bytes(exchange.answer.removesuffix("..."), harness.now_us)
            assert answer.startswith(start + varint(100 << 3 | 2)), exchange
        else:
            assert answer == as_bytes(exchange.answer, harness.now_us), exchange
        if exchange.original not in ("", "(none)"):
            assert answer != as_bytes(exchange.original, harness.now_us), f"{exchange} is no difference"


def test_the_whole_transcript_is_there() -> None:
    exchanges = [exchange for found in CONVERSATIONS.values() for exchange in found]
    assert len(exchanges) > 50
    assert all(exchange.answer for exchange in exchanges)
    assert sum(exchange.original == "(none)" for exchange in exchanges) == 1
