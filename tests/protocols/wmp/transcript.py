"""Conversations with a WMP manager as text.  Each line is a step:

    manager timeout=10 paths=2 wakeups=0    first lines only: how this manager is set up
    submit echo hi                          a job of function echo with payload hi; jobs are numbered from 1
    w1 > READY roles=echo,shout lease=30    a worker says something
    d2/d1/w1 > GIVE                         the same, through two devices; d2 is the manager's neighbour
    w1 > DONE job=1 : result                a payload stands behind the colon
    w1 < TAKE job=1 role=echo : hi          the worker hears this next, with these headers at least
    w1 <                                    the worker has heard everything that was said to it
    bad NOT_YOUR_JOB                        the manager has complained of this
    pass 10                                 seconds go by
    cancel 1, gone w1, back w1              somebody cancels a job; messages to a neighbour cannot be delivered, or can
    job 1 is done : result                  what has become of a job; also with code= and error= and attempts=

`job=1` stands for the last reference that was given for job 1, `job=1#1` for the first one.  At the end everything that
was said must have been heard, and everything complained of must have been expected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.wmp.codec import CANCEL, TAKE
from tests.protocols.wmp.harness import MANAGER, WmpHarness

__all__ = ["Transcript", "load", "play"]

FOLDER = Path(__file__).parent / "transcripts"


@dataclass
class Transcript:
    title: str
    settings: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.title


def load(name: str) -> list[Transcript]:
    """The conversations of one file."""
    transcripts = []
    for part in (FOLDER / f"{name}.txt").read_text().split("\n== ")[1:]:
        title, *lines = part.splitlines()
        transcript = Transcript(title.strip())
        for line in filter(None, (line.partition("#  ")[0].strip() for line in lines)):
            if line.startswith("manager "):
                transcript.settings.update(word.split("=") for word in line.split()[1:])  # type: ignore[misc]
            elif not line.startswith("#"):
                transcript.lines.append(line)
        transcripts.append(transcript)
    return transcripts


def play(transcript: Transcript) -> WmpHarness:
    player = Player(transcript.settings)
    for line in transcript.lines:
        try:
            player.perform(line)
        except AssertionError as error:
            raise AssertionError(f"in the line `{line}`: {error}") from error
    assert player.harness.unheard() == []
    assert player.harness.bad_input == []
    return player.harness


class Player:
    def __init__(self, settings: dict[str, str]) -> None:
        self.harness = WmpHarness(
            timeout=float(settings.get("timeout", 600)),
            paths=int(settings.get("paths", 100)),
            settings=EngineSettings(
                wakeups=int(settings.get("wakeups", 1)), functions=int(settings.get("functions", 100))
            ),
        )

    def perform(self, line: str) -> None:
        head, colon, payload = line.partition(" : ")
        words = head.removesuffix(" :").split()
        if len(words) > 1 and words[1] in ("<", ">"):
            named = dict(word.split("=", 1) for word in words[3:])
            act = self.hears if words[1] == "<" else self.says
            act(words[0], words[2] if len(words) > 2 else "", named, payload.encode() if colon else None)
        else:
            getattr(self, f"on_{words[0]}")(*words[1:], **({"payload": payload} if colon else {}))

    def says(self, who: str, command: str, named: dict[str, str], payload: bytes | None) -> None:
        headers = {key: self.value(key, text) for key, text in named.items()}
        if command == "DONE" and payload is None:
            payload = b""
        self.harness.worker(who).say(command.encode(), payload, **headers)

    def hears(self, who: str, command: str, named: dict[str, str], payload: bytes | None) -> None:
        heard = self.harness.worker(who).hear()
        if not command:
            assert heard is None, heard
            return
        assert heard is not None, "nothing was heard"
        heard_command, headers, heard_payload = heard
        assert heard_command == command.encode(), heard
        expected = {key: self.value(key, text) for key, text in named.items()}
        if heard_command in (TAKE, CANCEL):
            expected.setdefault("manager", MANAGER)
        assert {key: headers.get(key) for key in expected} == expected
        if payload is not None:
            assert heard_payload == payload

    def value(self, key: str, text: str) -> Any:
        if key == "roles":
            return text.split(",")
        if key in ("to", "path"):
            return [part.encode() for part in text.split("/") if part]
        if key == "manager":
            return text.encode()
        if key == "job":
            number, _, time = text.partition("#")
            given = self.harness.references.get(int(number)) if number.isdigit() else None
            return given[int(time or 0) - 1] if given else text.encode()
        if text.replace(".", "", 1).isdigit():
            return float(text) if "." in text else int(text)
        return text

    # --- everything that is not said or heard ---

    def on_submit(self, function: str, payload: str = "") -> None:
        self.harness.submit(function, payload.encode())

    def on_bad(self, *codes: str) -> None:
        heard = self.harness.take_bad_input()
        assert heard == list(codes), heard

    def on_pass(self, seconds: str) -> None:
        self.harness.pass_time(float(seconds))

    def on_cancel(self, number: str) -> None:
        self.harness.cancel(self.harness.job(int(number)))

    def on_gone(self, who: str) -> None:
        self.harness.router.socket.gone.add(who.encode())

    def on_back(self, who: str) -> None:
        self.harness.router.socket.gone.discard(who.encode())

    def on_job(self, number: str, _is: str, state: str, *named: str, payload: str | None = None) -> None:
        job = self.harness.job(int(number))
        assert job.state.name.lower() == state, job
        for key, text in (word.split("=", 1) for word in named):
            attribute = {"code": "result_code", "time_left": "time_left_s"}.get(key, key)
            value = getattr(job, attribute)
            assert (value.decode() if isinstance(value, bytes) else str(value)) == text, value
        if payload is not None:
            assert job.result == payload.encode(), job.result
