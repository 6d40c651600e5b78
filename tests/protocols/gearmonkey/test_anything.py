"""Conversations made up by chance, and the table of commands."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.protocols.gearmonkey import general_commands, hashes, key_commands, pubsub, queues
from tests.protocols.gearmonkey.harness import MonkeyHarness
from tests.protocols.gearmonkey.transcript import SCRIPT, SHA
from tests.support.resp_wire import command

names = st.sampled_from(["f", "g", "a:b"])
ids = st.integers(1, 5)
any_key = st.one_of(
    st.builds("uid:{}".format, names),
    st.builds("count:{}".format, names),
    st.builds("job:{}:{}".format, names, ids),
    st.builds("lock:{}:{}".format, names, ids),
    st.builds("queue:{}:{}".format, names, st.sampled_from(["high", "normal", "low", "scheduled"])),
    st.sampled_from(["nonsense", ""]),
)
values = st.one_of(
    ids,
    st.sampled_from(
        ["status", "idle", "busy", "success", "error", "input", "output", "status:dividend", "status:divisor"]
    ),
    st.sampled_from(["0", "0.5", "-1", "1700000001", "f", "channel:f", "*", SHA, SCRIPT, "LOAD", "2", "3", "EXISTS"]),
)
sensible = st.one_of(
    st.builds(lambda name: ("INCR", f"uid:{name}"), names),
    st.builds(lambda name, n: ("HMSET", f"job:{name}:{n}", "status", "idle", "input", "x"), names, ids),
    st.builds(lambda name, n, prio: ("LPUSH", f"queue:{name}:{prio}", n), names, ids, st.sampled_from(["high", "low"])),
    st.builds(lambda name, n: ("ZADD", f"queue:{name}:scheduled", 1_700_000_001, n), names, ids),
    st.builds(
        lambda name, seconds: ("BRPOP", *(f"queue:{name}:{prio}" for prio in ("high", "normal", "low")), seconds),
        names,
        st.sampled_from([0, 1]),
    ),
    st.builds(lambda name, n, end: ("HSET", f"job:{name}:{n}", "status", end, "output", "y"), names, ids, values),
    st.builds(lambda name, n: ("BRPOP", f"lock:{name}:{n}", 1), names, ids),
)
verbs = st.sampled_from(sorted(name.decode() for name in MonkeyHarness().setup.verbs))
wild = st.builds(lambda verb, key, rest: (verb, key, *rest), verbs, any_key, st.lists(any_key | values, max_size=4))
sayings = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.one_of(sensible, sensible, wild, st.tuples(verbs))), max_size=40
)


def listen(said: list[tuple[str, tuple[Any, ...]]], piece_bytes: int) -> dict[str, bytes]:
    """What everybody heard."""
    harness = MonkeyHarness()
    heard = {}
    for name in "abc":
        harness.talker(name)
    for number, (name, words) in enumerate(said):
        talker = harness.talker(name)
        if talker.wire.is_closed:
            continue
        data = command(*words)
        for at in range(0, len(data), piece_bytes):
            talker.send(data[at : at + piece_bytes])
        if number % 7 == 6:
            harness.pass_time(1)
    for name, talker in harness.talkers.items():
        heard[name] = talker.wire.written
        talker.heard()  # whole replies, and nothing else
        if not talker.wire.is_closed:
            talker.session.closed()
    harness.turn()
    assert not harness.setup.sessions
    assert not harness.setup.locks.waiting
    return heard


@settings(max_examples=150, deadline=None)
@given(sayings)
def test_whatever_is_said_is_answered_in_whole_replies_however_it_is_cut(
    said: list[tuple[str, tuple[Any, ...]]],
) -> None:
    assert listen(said, 100_000) == listen(said, 3)


def test_the_modules_of_handlers_are_all_in_the_table() -> None:
    """A handler that nobody calls is a command that nobody can give."""
    harness = MonkeyHarness()
    called = set()
    for verb in harness.setup.verbs.values():
        called |= {verb.handler, *(sub.handler for sub in verb.subcommands.values())}
    for module in (general_commands, hashes, key_commands, pubsub, queues):
        for name, value in vars(module).items():
            assert not name.startswith("on_") or value in called, name
