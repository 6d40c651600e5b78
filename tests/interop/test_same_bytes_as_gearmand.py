"""The same conversation with gearmand and with us: the same bytes, but for the differences that we want."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.conversation import Conversation, Frame, Heard, Insist, Leave, Say, Saying, Step, Words, hold
from tests.interop.conversations import CONVERSATIONS, DELIBERATE_DIFFERENCES, Difference, Place
from tests.interop.scripts.flags import WITH_FLAGS
from tests.interop.sweeping import Reused, StartServer
from tests.support.servers import running_gearmand, running_switchgear, running_switchgear_as_gearmand
from tests.support.wire import Kind

pytestmark = pytest.mark.interop

GEARMANDS_DEFAULTS = "as gearmand"
OWN_DEFAULTS_MEMORY = "memory"
OWN_DEFAULTS_SQLITE = "sqlite"
FLAVOURS = (GEARMANDS_DEFAULTS, OWN_DEFAULTS_MEMORY, OWN_DEFAULTS_SQLITE)

Transcript = list[Heard]


@pytest.fixture(scope="module")
def gearmand_says() -> Iterator[Callable[[Conversation], Transcript]]:
    """What gearmand says in a conversation; it is asked once only."""
    gearmand = Reused(running_gearmand)
    known: dict[str, Transcript] = {}

    def ask(talk: Conversation) -> Transcript:
        if talk.name not in known:
            with gearmand.clean(spoilt=talk.spoils_the_server) as server:
                known[talk.name] = hold(talk, server)
        return known[talk.name]

    yield ask
    gearmand.close()


@pytest.fixture(scope="module", params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def switchgear(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reused]:
    server = Reused(_start(flavour, tmp_path_factory))
    yield server
    server.close()


def _start(flavour: str, places: pytest.TempPathFactory) -> StartServer:
    def with_sqlite() -> Path:
        return places.mktemp("store") / "jobs.db"

    starts: dict[str, StartServer] = {
        GEARMANDS_DEFAULTS: running_switchgear_as_gearmand,
        OWN_DEFAULTS_MEMORY: running_switchgear,
        OWN_DEFAULTS_SQLITE: lambda: running_switchgear(store=f"sqlite:{with_sqlite()}"),
    }
    return starts[flavour]


@pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk.name)
def test_the_same_conversation(
    talk: Conversation, flavour: str, switchgear: Reused, gearmand_says: Callable[[Conversation], Transcript]
) -> None:
    expected = [_as_we_want_it(talk, heard, flavour) for heard in gearmand_says(talk)]

    with switchgear.clean(spoilt=talk.spoils_the_server) as server:
        ours = hold(talk, server)
        assert _readable(ours) == _readable(expected)


@pytest.mark.parametrize(("flags", "talk"), WITH_FLAGS, ids=lambda value: getattr(value, "name", None))
def test_the_same_flags(flags: tuple[str, ...], talk: Conversation) -> None:
    with running_gearmand(*flags) as gearmand, running_switchgear_as_gearmand(*flags) as ours:
        assert _readable(hold(talk, ours)) == _readable(hold(talk, gearmand))


@pytest.mark.parametrize("place", DELIBERATE_DIFFERENCES, ids=": ".join)
def test_gearmand_still_differs_as_listed(place: Place, gearmand_says: Callable[[Conversation], Transcript]) -> None:
    name, note = place
    difference = DELIBERATE_DIFFERENCES[place]
    [talk] = [talk for talk in CONVERSATIONS if talk.name == name]
    [heard] = [heard for heard in gearmand_says(talk) if heard.step.note == note]

    assert heard.messages == difference.gearmand
    assert difference.switchgear != difference.gearmand, "this is no difference"
    assert difference.reason


def test_every_packet_type_is_said_in_some_conversation() -> None:
    said = {
        saying.kind
        for talk in CONVERSATIONS
        for step in talk.steps
        if isinstance(step, Say)
        for saying in step.sayings
        if isinstance(saying, Frame)
    }
    assert said >= set(Kind)


def _as_we_want_it(talk: Conversation, heard: Heard, flavour: str) -> Heard:
    difference = DELIBERATE_DIFFERENCES.get((talk.name, heard.step.note))
    if difference is None or not _applies(difference, flavour):
        return heard
    return Heard(heard.step, difference.switchgear)


def _applies(difference: Difference, flavour: str) -> bool:
    return flavour != GEARMANDS_DEFAULTS or not difference.only_with_own_defaults


# --- transcripts for the reader of a failure ------------------------------------------------------------------


def _readable(transcript: Transcript) -> list[str]:
    return [line for heard in transcript for line in _readable_step(heard)]


def _readable_step(heard: Heard) -> Iterator[str]:
    note = f"  ({heard.step.note})" if heard.step.note else ""
    yield f"{heard.step.peer} {_readable_saying(heard.step)}{note}"
    yield from (f"    -> {_shortened(message)}" for message in heard.messages)


def _readable_saying(step: Step) -> str:
    match step:
        case Leave(abruptly=abruptly):
            return "is cut off" if abruptly else "leaves"
        case Insist():
            return f"insists on {_one_saying(step.question)}"
        case _:
            return f"says {', '.join(map(_one_saying, step.sayings[:5]))}" if step.sayings else "listens"


def _one_saying(saying: Saying) -> str:
    match saying:
        case Frame(kind, args):
            name = Kind(kind).name if kind in set(Kind) else str(kind)
            return " ".join([name, *map(_shortened, args)])
        case Words(words):
            return " ".join(map(_shortened, words))
        case bytes():
            return _shortened(saying)


def _shortened(value: object, limit: int = 200) -> str:
    text = repr(value)
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[:limit]}... ({len(text)} characters, {digest})"
