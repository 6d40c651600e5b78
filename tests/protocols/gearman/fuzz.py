"""Attack a server with nonsense, and see that it stays a server.

    python -m tests.protocols.gearman.fuzz --seconds 30 --seed 1

One attack is some strangers who send made-up conversations, damaged: bytes exchanged, left out, doubled, lengths that
lie, wrong magic in the middle, in pieces of any size.  What must hold, whatever they send:

- no exception comes out of a session;
- no session holds more than its limits allow;
- whoever the server hung up on is heard no more;
- the engine's tables agree with each other;
- somebody who sends a job through the server in between notices nothing.

A failing seed prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from random import Random

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.gearman.messages import Packet as Ours
from switchgear.testing import check_engine
from tests.protocols.gearman.conversations import CONTROLS, FUNCTIONS, LINES, NUMBERS, OPTIONS, PAYLOADS, UNIQUES
from tests.protocols.gearman.harness import Harness, Talker
from tests.support.wire import RES, Kind, Message, Packet, request

PACKET_BYTES = 2_000
LINE_BYTES = 200
# Far from the handle of the undisturbed: no damage turns one into the other.
FIRST_ID = 5_000_000_000
STRANGERS = ("eve", "mal", "zed")
# Argument lists by packet; None is a handle.
SHAPES: dict[int, tuple[tuple[bytes, ...] | None, ...]] = {
    Kind.CAN_DO: (FUNCTIONS,),
    Kind.CANT_DO: (FUNCTIONS,),
    Kind.RESET_ABILITIES: (),
    Kind.PRE_SLEEP: (),
    Kind.SUBMIT_JOB: (FUNCTIONS, UNIQUES, PAYLOADS),
    Kind.SUBMIT_JOB_BG: (FUNCTIONS, UNIQUES, PAYLOADS),
    Kind.SUBMIT_JOB_HIGH: (FUNCTIONS, UNIQUES, PAYLOADS),
    Kind.SUBMIT_JOB_LOW_BG: (FUNCTIONS, UNIQUES, PAYLOADS),
    Kind.SUBMIT_JOB_EPOCH: (FUNCTIONS, UNIQUES, NUMBERS, PAYLOADS),
    Kind.SUBMIT_REDUCE_JOB: (FUNCTIONS, UNIQUES, FUNCTIONS, FUNCTIONS, PAYLOADS),
    Kind.SUBMIT_REDUCE_JOB_BACKGROUND: (FUNCTIONS, UNIQUES, FUNCTIONS, FUNCTIONS, PAYLOADS),
    Kind.GRAB_JOB: (),
    Kind.GRAB_JOB_UNIQ: (),
    Kind.GRAB_JOB_ALL: (),
    Kind.WORK_STATUS: (None, NUMBERS, NUMBERS),
    Kind.WORK_COMPLETE: (None, PAYLOADS),
    Kind.WORK_FAIL: (None,),
    Kind.WORK_EXCEPTION: (None, PAYLOADS),
    Kind.WORK_DATA: (None, PAYLOADS),
    Kind.WORK_WARNING: (None, PAYLOADS),
    Kind.GET_STATUS: (None,),
    Kind.GET_STATUS_UNIQUE: (UNIQUES,),
    Kind.ECHO_REQ: (PAYLOADS,),
    Kind.OPTION_REQ: ((b"exceptions", b"switchgear", b"packet_bytes", b"other"),),
    Kind.SET_CLIENT_ID: (PAYLOADS,),
    Kind.CAN_DO_TIMEOUT: (FUNCTIONS, NUMBERS),
    Ours.SUBMIT_JOB_OPTIONS: (FUNCTIONS, UNIQUES, OPTIONS, PAYLOADS),
    Ours.WATCH: (None,),
    Ours.WORK_PROGRESS: (None, NUMBERS, NUMBERS, PAYLOADS),
    Ours.CREDIT: (NUMBERS, NUMBERS),
    Ours.RETRY_LATER: (None, NUMBERS, NUMBERS, PAYLOADS),
    Ours.HAND_BACK: (None,),
}
USUAL = (Kind.CAN_DO, Kind.SUBMIT_JOB, Kind.SUBMIT_JOB_BG, Kind.GRAB_JOB, Kind.WORK_COMPLETE, Kind.PRE_SLEEP)


def attack(seed: int) -> None:
    """One attack; raises whatever a defect raises."""
    random = Random(seed)
    settings = EngineSettings(functions=30, jobs=200, attempts=random.choice((1, 3)))
    limits = {"packet_bytes": PACKET_BYTES, "line_bytes": LINE_BYTES}
    harness = Harness(keeps=random.random() < 0.5, settings=settings, **limits)
    undisturbed = Undisturbed(harness)
    for _ in range(random.randint(1, 12)):
        who = random.choice(STRANGERS)
        for piece in pieces(random, damaged(random, b"".join(said(random) for _ in range(random.randint(1, 8))))):
            strike(harness.talker(who), piece)
        if random.random() < 0.3:
            harness.pass_time(random.choice((0.001, 0.5, 1.0, 3.0, 100.0)))
        if random.random() < 0.1 and who in harness.talkers:
            harness.talkers[who].leave()
        check_engine(harness.engine)
    undisturbed.finish()
    for name in STRANGERS:
        if name in harness.talkers:
            harness.talkers[name].leave()
    check_engine(harness.engine)
    assert len(harness.setup.sessions) == 1, "sessions of those who left are still listed"


def strike(talker: Talker, piece: bytes) -> None:
    """Send one piece, and look at what that made of the session."""
    session = talker.session
    if talker.wire.is_closed:
        talker.harness.talkers.pop(talker.name)
        return
    talker.send(piece)
    assert session.buffered_bytes <= max(PACKET_BYTES + 12, LINE_BYTES), "holds more than it may"
    assert session.out == [], "output is left over"
    assert session.closing == talker.wire.is_closed
    assert (session in talker.harness.setup.sessions) != session.closing


class Undisturbed:
    """A client that waits for a job while the others rage, and a worker that has it."""

    def __init__(self, harness: Harness) -> None:
        self.peer = harness.talker("undisturbed")
        self.peer.send(request(Kind.CAN_DO, b"undisturbed"), request(Kind.SUBMIT_JOB, b"undisturbed", b"", b"x"))
        self.peer.send(request(Kind.GRAB_JOB))
        self.expect(Packet(Kind.JOB_CREATED, b"H:t:1"), Packet(Kind.JOB_ASSIGN, b"H:t:1\0undisturbed\0x"))
        harness.engine.next_job_id = FIRST_ID

    def finish(self) -> None:
        self.peer.send(request(Kind.WORK_COMPLETE, b"H:t:1", b"done"), request(Kind.ECHO_REQ, b"end"))
        self.expect(Packet(Kind.WORK_COMPLETE, b"H:t:1\0done"), Packet(Kind.ECHO_RES, b"end"))

    def expect(self, *messages: Message) -> None:
        heard = self.peer.heard()
        assert heard == list(messages), f"the undisturbed heard {heard}"


# --- what strangers say ---


def said(random: Random) -> bytes:
    """One message, well formed."""
    dice = random.random()
    if dice < 0.08:
        return random.choice(LINES).replace(b"H:t:1", handle(random))
    if dice < 0.16:
        verb, arguments = random.choice(CONTROLS)
        return request(1001, verb, arguments.replace(b"H:t:1", handle(random)).replace(b"H:t:2", handle(random)))
    kind = random.choice(USUAL) if dice < 0.5 else random.choice(list(SHAPES))
    arguments_of = SHAPES[kind]
    words = [handle(random) if choices is None else random.choice(choices) for choices in arguments_of]
    body = b"\0".join(words).replace(b"H:t:1", handle(random)).replace(b"H:t:2", handle(random))
    return request(kind, body)


def handle(random: Random) -> bytes:
    return b"H:t:%d" % (FIRST_ID + random.randint(0, 12))


def damaged(random: Random, data: bytes) -> bytes:
    """The same, not so well formed; sometimes left as it is, so that there is something to damage later."""
    for _ in range(random.choice((0, 0, 1, 1, 2, 5))):
        data = random.choice(DAMAGES)(random, data)
    return data


def exchange(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.randbytes(random.randint(1, 4)) + data[place + random.randint(0, 4) :]


def leave_out(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + data[place + random.randint(1, 20) :]


def double(random: Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    end = random.randint(start, len(data))
    return data[:end] + data[start:end] * random.choice((1, 2, 30)) + data[end:]


def lie_about_a_length(random: Random, data: bytes) -> bytes:
    place = data.find(b"\0REQ", random.randrange(len(data) + 1))
    if place < 0 or place + 12 > len(data):
        return data
    size = random.choice((0, 1, 5, PACKET_BYTES, PACKET_BYTES + 1, 2**31, 2**32 - 1, random.randint(0, 100)))
    return data[: place + 8] + size.to_bytes(4, "big") + data[place + 12 :]


def lie_about_a_type(random: Random, data: bytes) -> bytes:
    place = data.find(b"\0REQ", random.randrange(len(data) + 1))
    if place < 0:
        return data
    kind = random.choice((0, 5, 8, 43, 1003, 2**31, 2**32 - 1, random.randint(1, 42)))
    return data[: place + 4] + kind.to_bytes(4, "big") + data[place + 8 :]


def turn_around(random: Random, data: bytes) -> bytes:
    return data.replace(b"\0REQ", random.choice((RES, b"\0XXX", b"REQ\0")), 1)


def nonsense(random: Random, data: bytes) -> bytes:
    return data + random.randbytes(random.choice((1, 12, 300)))


DAMAGES = (exchange, leave_out, double, lie_about_a_length, lie_about_a_type, turn_around, nonsense)


def pieces(random: Random, data: bytes) -> Iterator[bytes]:
    most = random.choice((1, 7, 50, 10_000))
    position = 0
    while position < len(data):
        size = random.randint(1, most)
        yield data[position : position + size]
        position += size


# --- running it for longer ---


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack Gearman sessions with damaged conversations.")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long; 0: only the one seed")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the next ones follow")
    arguments = parser.parse_args()
    logging.getLogger("switchgear").setLevel(logging.CRITICAL)
    end = time.monotonic() + arguments.seconds
    seed = arguments.seed
    while True:
        try:
            attack(seed)
        except BaseException:
            print(f"failed; again: python -m tests.protocols.gearman.fuzz --seconds 0 --seed {seed}", file=sys.stderr)
            raise
        seed += 1
        if time.monotonic() >= end:
            break
    print(f"{seed - arguments.seed} attacks withstood, seeds {arguments.seed} to {seed - 1}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
