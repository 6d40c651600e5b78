"""A script: what peers do to a server, one step after another, as an input says it.

The first byte of an input is the mode, a set of bits; then come the steps, each of a byte, a length and data.  The
lower two bits of a step's byte say which of four peers it is about, the next three what happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final, NamedTuple

from fuzz.grammar import FRAMES, STEPS, Part
from fuzz.loop import StillLoop
from fuzz.server import FuzzServer, MessagePeer, StreamPeer, caught_defects, in_loop
from fuzz.stream_codecs import pieces
from fuzz.target import must
from switchgear.protocols.dwork import long_requests
from switchgear.protocols.dwork import session as dwork_session

__all__ = [
    "HURRIED",
    "KEEPS",
    "LITTLE_MEMORY",
    "PEERS",
    "Action",
    "Heard",
    "Played",
    "Script",
    "play",
    "step",
    "written_script",
]

MOST_STEPS: Final = 60
PEERS: Final = 4

# Bits of the mode.
KEEPS: Final = 1  # the store is durable, and commits end when the script says so
LITTLE_MEMORY: Final = 2  # the memory account has a limit that a script can reach
HURRIED: Final = 4  # any request of dwork is a long one, and the next step follows while it is worked off

# What makes a request of dwork a long one, and how much of it is done in a step.
SMALL_STEPS: Final[tuple[tuple[Any, str, int], ...]] = (
    (dwork_session, "LONG_REQUEST_BYTES", 12),
    (dwork_session, "LONG_STEAL_TASKS", 1),
    (long_requests, "TASKS_PER_STEP", 1),
)

SECONDS: Final = (0.001, 0.06, 0.5, 1.0, 3.0, 6.0, 30.0, 700.0, 90_000.0)
CLOCK_STEPS: Final = (-1000.0, -1.0, 1.0, 1000.0)


class Action(IntEnum):
    """What happens in a step."""

    SEND = 0
    PASS_TIME = 1
    LEAVE = 2
    STOP_SENDING = 3
    TOGGLE_READING = 4
    COMMIT = 5
    FAIL_COMMIT = 6
    SET_CLOCK = 7


class Step(NamedTuple):
    """One of them."""

    action: Action
    peer: int
    data: bytes


class Script(NamedTuple):
    """An input, read."""

    mode: int
    steps: list[Step]

    @classmethod
    def read(cls, data: bytes) -> Script:
        parts = STEPS.cut(data[1:])[:MOST_STEPS]
        steps = [Step(Action(part.head[0] >> 2 & 7), part.head[0] & 3, part.body) for part in parts]
        return cls(data[0] if data else 0, steps)

    @property
    def is_the_same_in_pieces(self) -> bool:
        """Whether it makes no difference in which pieces peers send.  It may when a commit ends between two of them, or
        when they do not read, because then the server stops reading at another place."""
        return not self.mode and all(step.action is not Action.TOGGLE_READING for step in self.steps)


def step(action: Action, peer: int, data: bytes = b"") -> bytes:
    """A step, written; for seeds."""
    return STEPS.join([Part(bytes([action << 2 | peer]), data)])


def written_script(steps: Iterable[bytes], mode: int = 0) -> bytes:
    return bytes([mode]) + b"".join(steps)


@contextmanager
def small_steps(is_wanted: bool) -> Iterator[None]:
    """Within this, short requests take several steps."""
    before = [(module, name, getattr(module, name)) for module, name, _ in SMALL_STEPS]
    for module, name, value in SMALL_STEPS if is_wanted else ():
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


Heard = list[Any]
"""By peer: what it heard on each of its connections, or each message."""


class Played(NamedTuple):
    """What came of a script."""

    heard: Heard
    counts: dict[str, int]  # of events
    has_been_due: bool  # something happened by itself behind a piece of a stream, and not when time passed
    has_hung_up: bool  # the server has closed a connection because of what a peer has sent
    jobs: int  # how many were submitted, about
    functions: set[bytes]  # for which there were jobs after some step
    schedules: int


def play(script: Script, places: tuple[str, ...], *, in_pieces: bool) -> Played:
    """Play a script; raises what shows a defect."""

    async def run(loop: StillLoop) -> Played:
        server = FuzzServer(
            loop,
            keeps=bool(script.mode & KEEPS),
            has_little_memory=bool(script.mode & LITTLE_MEMORY),
            is_hurried=bool(script.mode & HURRIED),
        )
        await server.open()
        peers = [server.peer(place, number) for number, place in enumerate(places)]
        for each in script.steps:
            await _take(server, peers[each.peer], each, in_pieces)
            raise_first()
            server.check()
        heard = [peer.everything_heard() for peer in peers]
        jobs = server.engine.next_job_id - 1
        schedules = len(server.engine.schedules)
        for peer in peers:
            if isinstance(peer, StreamPeer):
                await peer.leave()
        raise_first()
        await server.check_end()
        counts = dict(server.telemetry.counts)
        must(not counts.get("internal_error"), "a defect was caught", counts)
        return Played(heard, counts, server.has_been_due, server.has_hung_up, jobs, server.functions, schedules)

    with caught_defects() as raise_first, small_steps(bool(script.mode & HURRIED)):
        result: Played = in_loop(run)
        raise_first()
        return result


async def _take(server: FuzzServer, peer: StreamPeer | MessagePeer, step: Step, in_pieces: bool) -> None:
    data = step.data
    match step.action:
        case Action.SEND if isinstance(peer, StreamPeer):
            await peer.send(list(pieces(data)) if in_pieces else [data] if data else [])
        case Action.SEND:
            await peer.send([[part.body for part in FRAMES.cut(data)]])  # type: ignore[list-item]
        case Action.PASS_TIME:
            await server.pass_time(SECONDS[(data[0] if data else 0) % len(SECONDS)])
        case Action.LEAVE:
            await peer.leave()
        case Action.STOP_SENDING:
            await peer.stop_sending()
        case Action.TOGGLE_READING:
            await peer.toggle_reading()
        case Action.COMMIT | Action.FAIL_COMMIT:
            await server.end_commit(well=step.action is Action.COMMIT)
        case Action.SET_CLOCK:
            await server.set_clock(CLOCK_STEPS[(data[0] if data else 0) % len(CLOCK_STEPS)])
