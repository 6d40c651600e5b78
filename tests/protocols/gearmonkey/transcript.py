"""Conversations with a Redis, or with what takes its place, as text.

    == a title
    server keeps                          promises wait for `keep`
    client > INCR uid:FN                  a command; words with blanks in them are in quotes
    client < :@1                          the reply to it, to the byte

FN stands for a function of this conversation's own, @1 for the first id that it is given, and so on.  Replies:

Where two servers differ, there are two replies, `<here` and `<redis`.

    :1  +OK  -ERR what is wrong  word  "a word"  ="for people"  nil  nil*  [ a list ]  { a table }  >[ a push ]

where `nil*` stands in place of a list, in RESP2 tables and pushes are lists, and a blank at the end of an error is
written `\\s`.  Beside that somebody may `wait` (hear nothing yet), `leave`, or be `hung up on`; time passes with `later
SECONDS`; the store does what it is told with `keep` and `lose`; and somebody who speaks another protocol, called
`other`, `submits`, `takes`, `completes`, `fails` and `cancels` jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from switchgear.errors import Refused
from switchgear.model import NORMAL, Delivery
from switchgear.testing import RecordingPeer
from tests.protocols.gearmonkey.harness import MonkeyHarness
from tests.support.resp_wire import command

FOLDER = Path(__file__).parent / "transcripts"
MANNERS = ("whole", "byte by byte")
WORD = re.compile(r'=?"(?:[^"\\]|\\.)*"|\S+')

SCRIPT = (
    "local item = redis.call('ZRANGEBYSCORE', KEYS[1], 0, ARGV[1], 'LIMIT', 0, 1); if (#item > 0) then "
    "redis.call('ZREM', KEYS[1], item[1]); return { KEYS[1],  item[1] }; end"
)
SHA = "5231827cd49b540660ef44969b38cc858f157824"


@dataclass(frozen=True)
class Step:
    """Somebody does something."""

    line: str
    who: str
    verb: str
    rest: str = ""


@dataclass(frozen=True)
class Names:
    """What the placeholders of a conversation stand for."""

    function: str = "f"
    first_id: int = 1

    def fill_in(self, text: str) -> str:
        text = re.sub(r"@(\d+)", lambda match: str(self.first_id + int(match[1]) - 1), text)
        text = re.sub(r"\bFN\b", self.function, text)
        return re.sub(r"\bSHA\b", SHA, text).replace("SCRIPT-TEXT", f'"{SCRIPT}"')


@dataclass
class Transcript:
    title: str
    steps: list[Step] = field(default_factory=list)
    keeps: bool = False

    def __str__(self) -> str:
        return self.title


def load(name: str) -> list[Transcript]:
    """The conversations of one file."""
    return list(parse((FOLDER / f"{name}.txt").read_text()))


def parse(text: str) -> Iterator[Transcript]:
    for part in text.split("\n== ")[1:]:
        title, *lines = part.splitlines()
        transcript = Transcript(title.strip())
        for line in (line.strip() for line in lines):
            if line == "server keeps":
                transcript.keeps = True
            elif line and not line.startswith("#"):
                who, _, rest = line.partition(" ")
                verb, _, rest = rest.partition(" ")
                transcript.steps.append(Step(line, who, verb, rest))
        yield transcript


def words_in(text: str) -> list[bytes]:
    return [unquoted(word) for word in WORD.findall(text)]


def unquoted(word: str) -> bytes:
    if word.startswith('"'):
        word = word[1:-1].encode().decode("unicode_escape")
        return word.encode("latin-1")
    return word.encode()


# --- replies ---


def reply_bytes(text: str, version: int) -> bytes:
    """What is to be heard, as bytes."""
    if text.startswith("-"):
        return text.replace("\\s", " ").encode() + b"\r\n"
    words = WORD.findall(text)
    data = _next(words, version)
    assert not words, f"more than one reply in {text!r}"
    return data


def _next(words: list[str], version: int) -> bytes:
    word = words.pop(0)
    if word in ("[", "{", ">["):
        items = []
        while words[0] not in ("]", "}"):
            items.append(_next(words, version))
        words.pop(0)
        kind, count = "*", len(items)
        if version == 3 and word == "{":
            kind, count = "%", count // 2
        elif version == 3 and word == ">[":
            kind = ">"
        return f"{kind}{count}\r\n".encode() + b"".join(items)
    if word in ("nil", "nil*"):
        return b"_\r\n" if version == 3 else b"*-1\r\n" if word == "nil*" else b"$-1\r\n"
    if word[0] in ":+" or re.fullmatch(r"\*\d+", word):
        return word.encode() + b"\r\n"
    if word.startswith('="'):
        data = unquoted(word[1:])
        return b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data) if version == 3 else b"$%d\r\n%b\r\n" % (len(data), data)
    data = unquoted(word)
    return b"$%d\r\n%b\r\n" % (len(data), data)


# --- playing against a harness ---


def play(transcript: Transcript, manner: str, version: int) -> MonkeyHarness:
    """Play it against a new harness; raises AssertionError where it is not as written."""
    player = Player(transcript, manner, version)
    for step in transcript.steps:
        try:
            player.take(step)
        except AssertionError as error:
            raise AssertionError(f"{transcript.title} ({manner}, RESP{version}): {step.line}\n{error}") from error
    for name, talker in player.harness.talkers.items():
        assert not talker.wire.written, f"{transcript.title}: {name} also heard {talker.wire.written!r}"
    return player.harness


class Player:
    """Somebody who plays all roles."""

    def __init__(self, transcript: Transcript, manner: str, version: int) -> None:
        self.harness = MonkeyHarness(keeps=transcript.keeps)
        self.names = Names()
        self.manner = manner
        self.version = version
        self.other = RecordingPeer()
        self.worker = self.harness.engine.add_worker(self.other, "other")

    def take(self, step: Step) -> None:
        rest = self.names.fill_in(step.rest)
        if step.who == "other":
            self._other(step.verb, rest.split())
        elif step.who == "later":
            self.harness.pass_time(float(step.verb))
        elif step.who == "keep":
            self.harness.keep()
        elif step.who == "lose":
            self.harness.fail_to_keep(Refused("storage", "storage failed: no room"))
        else:
            self._talk(step.who, step.verb, rest)

    def _talk(self, who: str, verb: str, rest: str) -> None:
        if who not in self.harness.talkers and self.version == 3:
            self.harness.ask(who, "HELLO", 3)
        talker = self.harness.talker(who)
        if verb == ">":
            data = command(*words_in(rest))
            pieces = [data] if self.manner == "whole" else [bytes([byte]) for byte in data]
            for piece in pieces:
                talker.send(piece)
        elif verb in ("<", "<here"):
            expected = reply_bytes(rest, self.version)
            heard = talker.wire.written
            assert heard.startswith(expected), f"heard {heard!r}\nand not {expected!r}"
            talker.wire.written = heard[len(expected) :]
        elif verb == "waits":
            assert not talker.wire.written, f"heard {talker.wire.written!r}"
        elif verb == "leaves":
            self.harness.leave(who)
        elif verb != "<redis":
            assert f"{verb} {rest}" == "is hung up on", f"what is {verb}?"
            assert talker.wire.is_closed

    def _other(self, verb: str, words: list[str]) -> None:
        engine = self.harness.engine
        engine.advance(self.harness.clock.now_us())
        if verb == "submits":
            engine.submit(words[0].encode(), b"", words[1].encode(), NORMAL, Delivery.HANDLE)
        elif verb == "can":
            engine.can_do(self.worker, engine.function_named(words[0].encode()))
        elif verb == "takes":
            job = engine.take(self.worker)
            assert job is not None
            assert str(job.id) == words[0]
        elif verb == "completes":
            assert engine.complete(self.worker, int(words[0]), words[1].encode()) is not None
        elif verb == "fails":
            assert engine.fail(self.worker, int(words[0]), 1, words[1].encode()) is not None
        elif verb == "cancels":
            assert engine.cancel(engine.jobs[int(words[0])])
        else:
            raise AssertionError(f"what is {verb}?")
        self.harness.turn()
