"""Scripted conversations with a Gearman server: what they are made of, and how one is held.

A conversation is data: a list of steps, each done by a *peer*, a named connection that is opened when it first
appears.  After each step everything the server has to say to that peer is read, up to a fence (see
``tests.support.wire``).  What was heard is made comparable: job handles are renamed H1, H2, ... in the order in
which they appear, and file descriptors, process ids, versions and the order of listings are evened out.

Handles are not known when a conversation is written, so steps say ``H1`` and mean the first handle heard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.support.wire import CLOSED, REQ, Line, Message, Packet, Wire, request


class Handle(NamedTuple):
    """The n-th job handle that the server mentions in this conversation."""

    number: int


H1, H2, H3, H4, H5, H6 = (Handle(number) for number in range(1, 7))

Argument = str | bytes | Handle


@dataclass(frozen=True)
class Frame:
    """One packet to be sent."""

    kind: int
    args: tuple[Argument, ...]
    magic: bytes = REQ


@dataclass(frozen=True)
class Words:
    """One text command to be sent; the words are joined by spaces."""

    words: tuple[Argument, ...]
    end: bytes = b"\n"


Saying = Frame | Words | bytes


@dataclass(frozen=True)
class Say:
    """Send all of this in one write, then read up to a fence."""

    peer: str
    sayings: tuple[Saying, ...]
    note: str = ""
    # Read until the server hangs up, without a fence: bytes that it has not read when it closes would make the
    # kernel throw away its last words.
    to_the_end: bool = False


@dataclass(frozen=True)
class Leave:
    """Close the connection, and go on when the server has noticed."""

    peer: str
    note: str = ""
    abruptly: bool = False


@dataclass(frozen=True)
class Insist:
    """Ask again and again until the answer is this one: for what only time brings about."""

    peer: str
    question: Frame
    answer: Packet
    note: str = ""


Step = Say | Leave | Insist


@dataclass(frozen=True)
class Conversation:
    name: str
    steps: tuple[Step, ...]
    # gearmand's memory is not in order afterwards: the process must not be used again.
    spoils_the_server: bool = False


def frame(kind: int, *args: Argument, magic: bytes = REQ) -> Frame:
    return Frame(kind, args, magic)


def words(*words: Argument, end: bytes = b"\n") -> Words:
    return Words(words, end)


def say(peer: str, kind: int, *args: Argument, note: str = "") -> Say:
    """One packet."""
    return Say(peer, (Frame(kind, args),), note)


def tell(peer: str, *words: Argument, end: bytes = b"\n", note: str = "") -> Say:
    """One text command."""
    return Say(peer, (Words(words, end),), note)


def pour(peer: str, *sayings: Saying, note: str = "", to_the_end: bool = False) -> Say:
    """Several things, or bytes that are nothing, in one write."""
    return Say(peer, sayings, note, to_the_end)


def hear(peer: str, note: str = "") -> Say:
    """Say nothing, and read what others have caused."""
    return Say(peer, (), note)


def leave(peer: str, *, abruptly: bool = False) -> Leave:
    """Close a connection as a program does that ends, or with a reset as a crashed machine or a firewall does."""
    return Leave(peer, abruptly=abruptly)


def insist(peer: str, kind: int, *args: Argument, answer: Packet) -> Insist:
    return Insist(peer, Frame(kind, args), answer)


def conversation(name: str, *steps: Step | Iterable[Step], spoils_the_server: bool = False) -> Conversation:
    flat: list[Step] = []
    for step in steps:
        flat.extend([step] if isinstance(step, Say | Leave | Insist) else step)
    notes = [step.note for step in flat if step.note]
    assert len(notes) == len(set(notes)), f"two steps of {name!r} have the same note"
    return Conversation(name, tuple(flat), spoils_the_server)


@dataclass(frozen=True)
class Heard:
    """What a peer heard after a step, made comparable."""

    step: Step
    messages: tuple[Message, ...]


def hold(talk: Conversation, server: Server) -> list[Heard]:
    """Have the conversation with this server, and leave it without connections."""
    with ExitStack() as connections:
        return _Holder(server, connections).play(talk)


# --- how it is held -----------------------------------------------------------------------------------------

_WATCHER_ID = b"the-watcher-of-this-conversation"
_HANDLE = re.compile(rb"H:[^\s\0:]+:\d+")


class _Holder:
    def __init__(self, server: Server, connections: ExitStack) -> None:
        self._server = server
        self._connections = connections
        self._peers: dict[str, Wire] = {}
        self._hung_up_on: set[str] = set()
        self._handles: list[bytes] = []
        self._watcher = connections.enter_context(Wire(server.address))
        self._watcher.send_bytes(request(22, _WATCHER_ID))
        eventually(lambda: self._count_connections() == 1, "connections of an earlier conversation are gone")

    def play(self, talk: Conversation) -> list[Heard]:
        heard = [Heard(step, tuple(self._take(step))) for step in talk.steps]
        for name in list(self._peers):
            self._leave(name)
        return heard

    def _take(self, step: Step) -> list[Message]:
        if isinstance(step, Leave):
            self._leave(step.peer, abruptly=step.abruptly)
            return []
        if isinstance(step, Insist):
            self._insist(step)
            return [step.answer]
        peer = self._peer(step.peer)
        data = b"".join(self._encode(saying) for saying in step.sayings)
        if data:
            peer.send_bytes(data)
        messages = peer.receive_until_closed() if step.to_the_end else peer.receive_until_fence()
        if CLOSED in messages:
            self._hung_up_on.add(step.peer)
        return self._comparable(step, messages)

    def _insist(self, step: Insist) -> None:
        peer = self._peer(step.peer)

        def is_so() -> bool:
            peer.send_bytes(self._encode(step.question))
            return [self._rename(message) for message in peer.receive_until_fence()] == [step.answer]

        eventually(is_so, f"{step.peer} hears {step.answer}")

    def _peer(self, name: str) -> Wire:
        if name not in self._peers:
            self._peers[name] = self._connections.enter_context(Wire(self._server.address))
        return self._peers[name]

    def _leave(self, name: str, *, abruptly: bool = False) -> None:
        """A close travels by itself and may be overtaken by what another peer says, so we look for it."""
        wire = self._peers.pop(name)
        if abruptly:
            wire.reset()
        else:
            wire.close()
        self._hung_up_on.discard(name)
        expected = 1 + len(self._peers.keys() - self._hung_up_on)
        eventually(lambda: self._count_connections() == expected, f"the server notices that {name} left")

    def _count_connections(self) -> int:
        return len(self._watcher.ask("workers")) - 1

    def _encode(self, saying: Saying) -> bytes:
        match saying:
            case Frame(kind, args, magic):
                return request(kind, *map(self._argument, args), magic=magic)
            case Words(words, end):
                return b" ".join(map(self._argument, words)) + end
            case bytes():
                return saying

    def _argument(self, argument: Argument) -> bytes:
        match argument:
            case Handle(number):
                return self._handles[number - 1]
            case str():
                return argument.encode()
            case bytes():
                return argument

    def _comparable(self, step: Say, messages: Sequence[Message]) -> list[Message]:
        renamed = [self._rename(message) for message in messages]
        commands = [saying for saying in step.sayings if isinstance(saying, Words)]
        if len(commands) == 1 and len(step.sayings) == 1:
            command = b" ".join(map(self._argument, commands[0].words))
            even_out = next((e for name, e in _EVEN_OUT.items() if _is_command(name, command)), None)
            if even_out is not None:
                return even_out(renamed, self._server)
        return renamed

    def _rename(self, message: Message) -> Message:
        match message:
            case Packet(kind, body):
                return Packet(kind, _HANDLE.sub(self._short_name, body))
            case Line(text):
                return Line(_HANDLE.sub(self._short_name, text))
            case _:
                return message

    def _short_name(self, match: re.Match[bytes]) -> bytes:
        handle = match.group()
        if handle not in self._handles:
            self._handles.append(handle)
        return b"H%d" % (self._handles.index(handle) + 1)


def _is_command(name: bytes, line: bytes) -> bool:
    """Words too many do not change what gearmand answers."""
    return line.lower().split()[: len(name.split())] == name.split()


EvenOut = Callable[[list[Message], Server], list[Message]]


def _sorted_listing(messages: list[Message], server: Server) -> list[Message]:
    """A listing's order is the server's own affair (gearmand's is that of its hash tables)."""
    return [*sorted(messages[:-1], key=repr), *messages[-1:]]


def _sorted_connections(messages: list[Message], server: Server) -> list[Message]:
    others = [m for m in messages if not (isinstance(m, Line) and _WATCHER_ID in m.text)]
    return _sorted_listing(_replacing(rb"^\d+ ", b"FD ")(others, server), server)


def _replacing(pattern: bytes, replacement: bytes) -> EvenOut:
    def even_out(messages: list[Message], server: Server) -> list[Message]:
        return [Line(re.sub(pattern, replacement, m.text)) if isinstance(m, Line) else m for m in messages]

    return even_out


def _with_real_pid(messages: list[Message], server: Server) -> list[Message]:
    return [Line(b"OK PID\n") if m == Line(b"OK %d\n" % server.pid) else m for m in messages]


# By the command that was sent.
_EVEN_OUT: dict[bytes, EvenOut] = {
    b"status": _sorted_listing,
    b"prioritystatus": _sorted_listing,
    b"show jobs": _sorted_listing,
    b"show unique jobs": _sorted_listing,
    b"workers": _sorted_connections,
    b"getpid": _with_real_pid,
    b"version": _replacing(rb"^OK \S+", b"OK VERSION"),
    b"verbose": _replacing(rb"^OK (FATAL|ALERT|CRITICAL|ERROR|WARNING|NOTICE|INFO|DEBUG)\b", b"OK LEVEL"),
}
