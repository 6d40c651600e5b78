"""Conversations of several peers with one server, made up by chance: for tests that must hold for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from hypothesis import strategies as st

from switchgear.testing.invariants import check_engine
from tests.protocols.gearman.conversations import NAMES, Said
from tests.protocols.gearman.conversations import messages as modern_messages
from tests.protocols.gearman_draft.harness import MixedHarness
from tests.support.draft_wire import ASK, GOODBYE, MAGIC, SLEEP, Kind, complete, create, numbers, packet

functions = st.sampled_from((b"f", b"g", b"h"))
keys = st.sampled_from((b"", b"", b"key", b"other", b"k" * 64, b"k" * 65))
data = st.sampled_from((b"", b"x", b"with\0NUL", b"long " * 40))
figures = st.sampled_from((0, 1, 7, 100, 2**32 - 1))
handles = st.integers(0, 6).map(lambda number: b"H:t:%d" % number)

packets = st.one_of(
    st.builds(create, functions, data, st.integers(0, 2), keys, st.integers(0, 255)),
    st.builds(create, functions, data, st.just(0)),
    st.builds(lambda names: packet(Kind.worker_connect, b"\0".join(names)), st.lists(functions, max_size=3)),
    st.sampled_from((ASK, ASK, ASK, SLEEP)),
    st.builds(complete, st.integers(0, 3), data),
    st.builds(complete, st.just(0), data),
    st.builds(lambda *values: packet(Kind.job_status_announce, numbers(*values)), figures, figures, figures),
    st.builds(packet, st.sampled_from((Kind.job_status_req, Kind.job_complete_req)), handles),
    st.builds(packet, st.integers(0, 255), st.binary(max_size=20)),
    st.sampled_from([packet(kind) for kind in Kind if kind != Kind.worker_disconnect]),
)
# Seldom: messages after which nothing more is heard.
endings = st.sampled_from((b"\0JOX", b"status\n", MAGIC + b"\4\xff\xff\xff\xff", GOODBYE))

draft_words = st.integers(0, 60).flatmap(lambda dice: endings if dice == 0 else packets)
# The first speaks the draft, the second the modern protocol, the third what it likes.
sayings: st.SearchStrategy[Said] = st.one_of(
    st.tuples(st.just(NAMES[0]), draft_words),
    st.tuples(st.just(NAMES[0]), draft_words),
    st.tuples(st.just(NAMES[1]), modern_messages),
    st.tuples(st.just(NAMES[2]), draft_words | modern_messages),
    st.tuples(st.just(NAMES[2]), draft_words),
)


def cut(conversation: list[Said], random: Random) -> Iterator[tuple[str, list[bytes]]]:
    """The same conversation in other pieces.  Whoever says something may have begun with what it says next.

    Not if that is in the other dialect: its first bytes are enough to be hung up on, and others would notice.
    """
    streams = dict.fromkeys(NAMES, b"")
    ends: list[tuple[str, int]] = []
    for who, words in conversation:
        streams[who] += words
        ends.append((who, len(streams[who])))
    position = dict.fromkeys(NAMES, 0)
    for index, (who, end) in enumerate(ends):
        following = [words for other, words in conversation[index + 1 :] if other == who][:1]
        ahead = [len(words) - 1 for words in following if is_draft(words) == is_draft(streams[who])]
        stop = max(position[who], end + random.randint(0, sum(ahead)))
        pieces = []
        while position[who] < stop:
            upto = random.randint(position[who] + 1, stop)
            pieces.append(streams[who][position[who] : upto])
            position[who] = upto
        yield who, pieces


def is_draft(words: bytes) -> bool:
    return words[:3] == MAGIC[:3]


def listen(said: Iterable[tuple[str, list[bytes]]]) -> dict[str, tuple[bytes, bool]]:
    """What everybody heard, and whether the server hung up."""
    harness = MixedHarness()
    for name in NAMES:
        harness.talker(name)
    for who, pieces in said:
        for piece in pieces:
            if not harness.talkers[who].wire.is_closed:
                harness.talkers[who].send(piece)
    check_engine(harness.engine)
    return {name: (talker.wire.written, talker.wire.is_closed) for name, talker in harness.talkers.items()}
