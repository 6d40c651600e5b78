"""The page about the protocol: its examples happen as they are written, and no packet is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from switchgear.protocols.gearman.job_options import JobOptions
from switchgear.protocols.gearman.messages import EXTENSIONS, Packet
from tests.protocols.gearman.harness import Harness
from tests.protocols.gearman.transcript import MANNERS, Transcript, parse, play

PAGE = (Path(__file__).parents[3] / "docs" / "protocols" / "gearman.md").read_text()
FIRST_JOB = 17


def examples() -> list[Transcript]:
    """The conversations on the page.  There, the server is called `host`, and has had sixteen jobs before."""
    found: list[Transcript] = []
    for number, text in enumerate(re.findall(r"^```\n(.*?)^```\n", PAGE, re.MULTILINE | re.DOTALL), 1):
        text = text.replace("H:host:", "H:t:")
        text = re.sub(r"^# (\d+) seconds later$", r"pass \1", text, flags=re.MULTILINE)
        text = re.sub(r"\s+# .*$", "", text, flags=re.MULTILINE)
        found += parse(f"== example {number}\n{text}")
    return found


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", examples(), ids=str)
def test_examples_are_true(transcript: Transcript, manner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Harness.__init__

    def busy_harness(harness: Harness) -> None:
        make(harness)
        harness.engine.next_job_id = FIRST_JOB

    monkeypatch.setattr(Harness, "__init__", busy_harness)
    play(transcript, manner)


def test_there_are_examples() -> None:
    assert len(examples()) == 2


@pytest.mark.parametrize("packet", sorted(EXTENSIONS), ids=lambda packet: packet.name)
def test_every_extension_packet_is_described(packet: Packet) -> None:
    assert f"| {packet} | {packet.name} |" in PAGE
    assert packet is Packet.CONTROL_RES or f"**{packet.name}" in PAGE or packet is Packet.WATCH_RES


@pytest.mark.parametrize("option", JobOptions.__struct_fields__)
def test_every_option_is_described(option: str) -> None:
    assert re.search(rf"^\| .*`{option}`.* \|", PAGE, re.MULTILINE)
