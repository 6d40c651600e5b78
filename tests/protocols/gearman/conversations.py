"""Conversations of several peers with one server, made up by chance: for tests that must hold for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from hypothesis import strategies as st

from switchgear.protocols.gearman.messages import Packet
from tests.protocols.gearman.harness import PREFIX, Harness
from tests.support.wire import RES, Kind, request

Said = tuple[str, bytes]  # who, and one whole message

NAMES = ("ann", "bob", "cyd")
FUNCTIONS = (b"f", b"g", b"")
UNIQUES = (b"", b"", b"key", b"other", b"-", b"u" * 64, b"u" * 65)
PAYLOADS = (b"", b"x", b"with\0NUL", b"line\n", b"long " * 40)
NUMBERS = (b"0", b"1", b"007", b"1500", b"", b"ten", b"-1", b"1700000005", b"99999999999999999999999")
OPTIONS = (
    b"{}",
    b"",
    b'{"wait": true}',
    b'{"priority": "high", "timeout": 1.5}',
    b'{"after": ["H:t:1", "H:t:2"]}',
    b'{"run_at": 1700000002.5, "attempts": 1}',
    b'{"name": "mine", "expires_at": 1700000003}',
    b'{"watch": true, "crashes": 1}',
    b'{"watch": true, "after": ["H:t:1"], "on_failure": "fail"}',
    b'{"watch": true, "unique_policy": "replace", "unique_seconds": 5}',
    b'{"unique_policy": "reject", "unique_scope": "queued", "retention": 1}',
    b'{"unknown": 1}',
    b"[]",
    b"\xff",
)
CONTROLS = (
    (b"functions", b"{}"),
    (b"workers", b""),
    (b"jobs", b'{"limit": 3, "states": ["ready", "failed"]}'),
    (b"jobs", b'{"function": 5}'),
    (b"job", b'{"handle": "H:t:1"}'),
    (b"cancel", b'{"handle": "H:t:2", "cascade": true}'),
    (b"retry", b'{"handle": "H:t:1"}'),
    (b"retry", b'{"all_dead": true}'),
    (b"retry", b'{"error": "x", "states": ["failed", "cancelled"]}'),
    (b"cancel", b'{"function": "f", "states": ["ready"]}'),
    (b"pause", b'{"function": "f"}'),
    (b"resume", b'{"function": "f"}'),
    (b"nonsense", b"{}"),
    (b"job", b"{"),
)
LINES = (
    b"status\n",
    b"prioritystatus\r\n",
    b"workers\n",
    b"show jobs\n",
    b"show unique jobs\n",
    b"cancel job H:t:1\n",
    b"maxqueue f 2\n",
    b"maxqueue g 3 2 1\r\n",
    b"create function h\n",
    b"drop function h\n",
    b"version\n",
    b"\n",
    b"what is this\n",
    b"shutdown graceful\n",
)

names = st.sampled_from(NAMES)
functions = st.sampled_from(FUNCTIONS)
uniques = st.sampled_from(UNIQUES)
payloads = st.sampled_from(PAYLOADS)
numbers = st.sampled_from(NUMBERS)
credits = st.sampled_from((b"1", b"3", b"-1", b"-100", b"0", b"1000000000", b"x"))
leases = st.sampled_from((b"0", b"0", b"0", b"60000", b"-1"))
handles = st.integers(0, 6).map(lambda n: PREFIX + b"%d" % n)


def packets(kinds: Iterable[int], *arguments: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    bodies = st.tuples(*arguments)
    return st.builds(lambda kind, words: request(kind, *words), st.sampled_from(list(kinds)), bodies)


SUBMITS = (Kind.SUBMIT_JOB, Kind.SUBMIT_JOB_BG, Kind.SUBMIT_JOB_HIGH, Kind.SUBMIT_JOB_LOW_BG)
ASKING = (Kind.GRAB_JOB, Kind.GRAB_JOB_UNIQ, Kind.GRAB_JOB_ALL, Kind.PRE_SLEEP)

messages = st.one_of(
    packets(SUBMITS, functions, uniques, payloads),
    packets(ASKING),
    packets(ASKING),
    packets((Kind.CAN_DO, Kind.CAN_DO, Kind.CANT_DO), functions),
    packets((Kind.WORK_COMPLETE, Kind.WORK_DATA, Kind.WORK_WARNING, Kind.WORK_EXCEPTION), handles, payloads),
    packets((Kind.WORK_COMPLETE,), handles, payloads),
    packets((Kind.WORK_FAIL, Kind.GET_STATUS), handles),
    packets((Kind.WORK_STATUS,), handles, numbers, numbers),
    packets((Kind.CAN_DO_TIMEOUT,), functions, numbers),
    packets((Kind.SUBMIT_JOB_EPOCH,), functions, uniques, numbers, payloads),
    packets((Kind.SUBMIT_REDUCE_JOB,), functions, uniques, functions, functions, payloads),
    packets((Kind.GET_STATUS_UNIQUE, Kind.SET_CLIENT_ID), uniques),
    packets((Kind.ECHO_REQ, Kind.OPTION_REQ), st.sampled_from((b"exceptions", b"switchgear", b"x\0y"))),
    packets((Kind.OPTION_REQ,), st.just(b"packet_bytes")),
    packets((Packet.CREDIT,), credits, leases),
    packets((Packet.WATCH, Packet.HAND_BACK), handles),
    packets((Packet.WORK_PROGRESS,), handles, numbers, numbers, payloads),
    packets((Packet.RETRY_LATER,), handles, numbers, numbers, payloads),
    packets((Kind.RESET_ABILITIES, Kind.NOOP, Kind.UNUSED)),
    st.builds(lambda f, u, o, p: request(1000, f, u, o, p), functions, uniques, st.sampled_from(OPTIONS), payloads),
    st.sampled_from(CONTROLS).map(lambda words: request(1001, *words)),
    st.sampled_from(LINES),
    st.builds(lambda body: request(Kind.ECHO_REQ, body, magic=RES), payloads),
)
# Seldom: messages after which nothing more is understood.
endings = st.sampled_from((b"\0XXX????????", b"a b c d e f\n", b"\0REQ\0\0\0\x10\xff\xff\xff\xff", b"y" * 300 + b"\n"))

sayings: st.SearchStrategy[Said] = st.tuples(
    names, st.integers(0, 60).flatmap(lambda dice: endings if dice == 0 else messages)
)


def cut(conversation: list[Said], random: Random) -> Iterator[tuple[str, list[bytes]]]:
    """The same conversation in other pieces.  Whoever says something may have begun with what it says next."""
    streams = dict.fromkeys(NAMES, b"")
    ends: list[tuple[str, int]] = []
    for who, data in conversation:
        streams[who] += data
        ends.append((who, len(streams[who])))
    position = dict.fromkeys(NAMES, 0)
    for index, (who, end) in enumerate(ends):
        later = [other_end for other, other_end in ends[index + 1 :] if other == who]
        stop = max(position[who], random.randint(end, max(end, later[0] - 1)) if later else end)
        pieces = []
        while position[who] < stop:
            upto = random.randint(position[who] + 1, stop)
            pieces.append(streams[who][position[who] : upto])
            position[who] = upto
        yield who, pieces


def listen(said: Iterable[tuple[str, list[bytes]]]) -> dict[str, tuple[bytes, bool]]:
    """What everybody heard, and whether the server hung up."""
    harness = Harness()
    for name in NAMES:
        harness.talker(name)
    for who, pieces in said:
        for piece in pieces:
            if not harness.talkers[who].wire.is_closed:
                harness.talkers[who].send(piece)
    return {name: (talker.wire.written, talker.wire.is_closed) for name, talker in harness.talkers.items()}
