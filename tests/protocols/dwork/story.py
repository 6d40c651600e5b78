"""Stories: what is asked of a dwork server and what it answers, one exchange in a line.

    create LINE, LINE ...              a line is `NAME` or `NAME after NAME ...`
    steal WORKER [N] [wait MS] [lease MS]
    complete WORKER NAME ...           or: complete WORKER NAME failed TEXT
    transfer WORKER LINE, LINE ...
    exit WORKER
    lookup NAME
    status
    seconds S                          let time pass
    restart                            the server dies, and another goes on with what the store has

A line may end in `: ANSWER`; without one the answer is OK.  Answers:

    OK | Exit                          with nothing else in it
    NotFound [NAME ...] [(WORDS)]      with these tasks, and these words in its reason
    Error (WORDS)                      with these words in its reason
    NAME ...                           a steal gets these tasks
    -                                  none yet
    A active, R ready                  of status
    STATE at WHERE                     of lookup

`WORKER hears : ANSWER` is an answer that was waited for.  What stands behind `#` is for the reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from switchgear.model import JobState
from switchgear.protocols.dwork.messages import Query, QueryType
from tests.protocols.dwork import harness as words
from tests.protocols.dwork.harness import DworkHarness

FOLDER = Path(__file__).parent / "stories"


@dataclass
class Story:
    """One of them."""

    title: str
    steps: list[tuple[str, str]] = field(default_factory=list)  # what is said, and the answer

    def __str__(self) -> str:
        return self.title


def load(name: str) -> list[Story]:
    return list(parse((FOLDER / f"{name}.txt").read_text()))


def parse(text: str) -> Iterator[Story]:
    for part in text.split("\n== ")[1:]:
        title, *lines = part.splitlines()
        story = Story(title.strip())
        for line in lines:
            said, _, answer = line.partition("#")[0].partition(":")
            if said.strip():
                story.steps.append((said.strip(), answer.strip()))
        yield story


def play(story: Story, world: DworkHarness) -> None:
    """Play it; raises AssertionError where it is not as written."""
    for said, answer in story.steps:
        try:
            perform(world, said, answer)
        except AssertionError as error:
            raise AssertionError(f"{story.title}: {said} : {answer}\n{error}") from error
    assert not world.listener.heard_by_all()


def perform(world: DworkHarness, said: str, answer: str) -> None:
    verb, _, rest = said.partition(" ")
    if verb == "seconds":
        world.harness.pass_time(float(rest))
        if world.harness.is_durable:
            world.keep()
    elif verb == "restart":
        world.restart()
    elif rest == "hears":
        check(verb, world.heard(verb.encode()), answer)
    else:
        query = query_of(verb, rest)
        peer = rest.split()[0].encode() if verb == "steal" else b"somebody"
        world.send(query, peer)
        if world.harness.is_durable:
            world.keep()
        check(verb, world.heard(peer), answer or "OK")


def query_of(verb: str, rest: str) -> Query:
    match verb:
        case "create":
            return words.create(*rest.split(","))
        case "steal":
            return steal_of(rest)
        case "complete" if " failed " in rest:
            who, name, _, text = rest.split(maxsplit=3)
            return words.fail(who, name, text)
        case "complete":
            who, *names = rest.split()
            return words.complete(who, *names)
        case "transfer":
            who, _, lines = rest.partition(" ")
            return words.transfer(who, *lines.split(","))
        case "exit":
            return words.leave(rest)
        case "lookup":
            return Query(QueryType.LOOKUP, name=rest.encode())
        case "status":
            return Query(QueryType.OK)
    raise AssertionError(f"nobody knows how to {verb}")


def steal_of(rest: str) -> Query:
    found = re.fullmatch(r"(\S+)(?: (-?\d+))?(?: wait (\d+))?(?: lease (\d+))?", rest)
    assert found, rest
    n, wait_ms, lease_ms = (int(text) if text else None for text in found.groups()[1:])
    return words.steal(found[1], n, wait_ms=wait_ms, lease_ms=lease_ms)


def check(verb: str, heard: list[Query], expected: str) -> None:
    if expected == "-":
        assert heard == []
        return
    if expected == "Exit Exit":
        assert heard == [words.EXIT, words.EXIT]
        return
    [answer] = heard
    assert in_words(verb, answer, expected) == expected, f"heard {answer!r}"


def in_words(verb: str, answer: Query, expected: str) -> str:
    """An answer as a story writes it."""
    kind = QueryType(answer.type)
    if kind is QueryType.TRANSFER:
        return " ".join(words.names(answer))
    if verb == "status":
        assert answer.name is not None
        active, ready = re.findall(rb"\d+", answer.name)
        return f"{int(active)} active, {int(ready)} ready"
    if verb == "lookup" and kind is QueryType.OK:
        [task] = answer.tasks
        return f"{JobState(task.state or 0).name.lower()} at {(answer.location or b'').decode()}"
    text = {QueryType.NOT_FOUND: "NotFound"}.get(kind, kind.name.capitalize() if kind != QueryType.OK else "OK")
    reason = (answer.reason or b"").decode()
    wanted = re.search(r"\((.*)\)", expected)
    shown = [f"({wanted[1]})"] if wanted and wanted[1] in reason else [f"({reason})"] if wanted else []
    return " ".join([text, *words.names(answer), *shown])
