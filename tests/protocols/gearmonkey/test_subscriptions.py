"""Subscriptions: what they make the server hold, how much work publishing can be, and who is told how much."""

from __future__ import annotations

import tracemalloc
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.engine.engine import EngineSettings
from switchgear.protocols.gearmonkey import pubsub, session, subscriptions
from switchgear.protocols.gearmonkey.patterns import Pattern
from tests.protocols.gearmonkey.harness import TRIO, FakeTransport, MonkeyHarness, pop, push
from tests.support.resp_wire import Error, Push

LONG = b"y" * 5000  # a message that is not copied


class Subscriber(FakeTransport):
    """A peer that takes what it is sent only when told to, and remembers in which pieces it came."""

    def __init__(self, harness: MonkeyHarness) -> None:
        super().__init__(harness)
        self.pieces: list[bytes] = []
        self.pending_bytes = 0
        self.given_up_with = 0

    @property
    def unsent_bytes(self) -> int:
        return self.pending_bytes

    def write(self, out: list[bytes]) -> None:
        self.pieces += out
        super().write(out)

    def give_up_on_slow_reader(self, waiting_bytes: int) -> None:
        self.given_up_with = waiting_bytes


def subscriber(harness: MonkeyHarness, name: str) -> Subscriber:
    wire = Subscriber(harness)
    talker = harness.talker(name)
    talker.wire = talker.session.transport = wire
    return wire


def held(harness: MonkeyHarness) -> int:
    return harness.engine.memory.subscription_bytes


# --- patterns ---


def test_one_command_has_no_more_wildcards_than_can_be_read_in_one_turn() -> None:
    harness = MonkeyHarness(packet_bytes=100_000)
    patterns = [b"?" * 50 + b"%03d" % number for number in range(subscriptions.MOST_SPECIAL // 50)]
    assert len(harness.tell("peer", ("PSUBSCRIBE", *patterns))) == len(patterns)
    refused = Error(b"ERR patterns with more than 15000 special bytes at once")
    assert harness.ask("peer", "PSUBSCRIBE", *patterns, "?") == refused
    assert harness.talker("peer").session.patterns.keys() == set(patterns)


def test_a_pattern_takes_memory_in_proportion_to_its_bytes() -> None:
    texts = [b"[^a]" * 129 + b"%04d" % number for number in range(1000)]
    tracemalloc.start()
    patterns = [Pattern(text) for text in texts]
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes < 10 * sum(map(len, texts))
    assert taken_bytes < 1.5 * sum(pattern.memory_bytes + 200 for pattern in patterns)


@pytest.mark.parametrize("text", [b"*" * 500, b"*a" * 250, b"?" * 500, b"[ab]" * 125, b"a" * 500, b"[\0-\xff]" * 80])
def test_what_a_pattern_is_said_to_take_is_what_it_takes(text: bytes) -> None:
    tracemalloc.start()
    patterns = [Pattern(text) for _ in range(100)]
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes / 100 < 1.5 * (patterns[0].memory_bytes + 200)


def reference(pattern: bytes, text: bytes) -> bool:
    """What a pattern means, as simply as it can be said."""

    @cache
    def fits(at: int, position: int) -> bool:
        if at >= len(pattern):
            return position == len(text)
        if pattern[at : at + 1] == b"*":
            return fits(at + 1, position) or (position < len(text) and fits(at, position + 1))
        if position == len(text):
            return False
        if pattern[at : at + 1] == b"?":
            return fits(at + 1, position + 1)
        if pattern[at : at + 1] == b"[":
            is_in, after = within(at + 1, text[position])
            return is_in and fits(after, position + 1)
        if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
            at += 1
        return pattern[at] == text[position] and fits(at + 1, position + 1)

    def within(at: int, byte: int) -> tuple[bool, int]:
        is_negated = pattern[at : at + 1] == b"^"
        at += is_negated
        is_in = False
        while at < len(pattern) and pattern[at : at + 1] != b"]":
            if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
                at += 1
                is_in |= pattern[at] == byte
            elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
                is_in |= min(pattern[at], pattern[at + 2]) <= byte <= max(pattern[at], pattern[at + 2])
                at += 2
            else:
                is_in |= pattern[at] == byte
            at += 1
        return is_in != is_negated, at + 1

    return fits(0, 0)


WORDS = st.sampled_from(
    [b"a", b"b", b"c", b"*", b"**", b"?", b"[ab]", b"[^a]", b"[", b"]", b"^", b"-", b"\\", b"[a-c]"]
)


@given(st.lists(WORDS, max_size=12).map(b"".join), st.lists(st.sampled_from(b"abc]-"), max_size=8).map(bytes))
def test_a_pattern_means_what_redis_has_it_mean(pattern: bytes, text: bytes) -> None:
    assert Pattern(pattern).matches(text) == reference(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (b"*", b""),
        (b"channel:*", b"channel:"),
        (b"a***", b"a"),
        (b"\\**", b"*"),
        (b"a", None),
        (b"a*b", None),
        (b"?*", None),
    ],
)
def test_most_patterns_only_say_what_a_name_begins_with(pattern: bytes, prefix: bytes | None) -> None:
    assert Pattern(pattern).prefix == prefix


# --- what is held ---


def test_what_is_subscribed_to_counts_as_memory_until_it_is_not() -> None:
    harness = MonkeyHarness()
    harness.tell("client", ("SUBSCRIBE", "a", "b", "a"), ("PSUBSCRIBE", "c*", "*d?", "c*"))
    both = held(harness)
    assert both > 4 * 200
    harness.tell("client", ("SUBSCRIBE", "a"), ("PSUBSCRIBE", "c*"))
    assert held(harness) == both
    harness.tell("other", ("PSUBSCRIBE", "c*"))
    assert held(harness) > both
    harness.tell("other", ("PUNSUBSCRIBE", "c*", "c*", "never"), ("UNSUBSCRIBE", "never"))
    assert held(harness) == both
    harness.tell("client", ("UNSUBSCRIBE", "a"), ("PUNSUBSCRIBE", "*d?"))
    assert 0 < held(harness) < both
    harness.leave("client")
    assert held(harness) == 0
    harness.tell("other", ("SUBSCRIBE", "a"), ("PSUBSCRIBE", "c*"), ("RESET",))
    assert held(harness) == 0


@pytest.mark.parametrize("words", [("SUBSCRIBE", "b", "c"), ("PSUBSCRIBE", "b*", "*c")])
def test_a_subscription_that_finds_no_memory_is_refused_and_changes_nothing(words: tuple[str, ...]) -> None:
    harness = MonkeyHarness(settings=EngineSettings(memory_bytes=4000))
    harness.ask("client", "SUBSCRIBE", "a")
    before = held(harness)
    harness.engine.memory.job_bytes = harness.engine.memory.stored_limit_bytes - before - 500
    assert harness.ask("client", *words) == Error(b"OOM there is no memory for more subscriptions")
    assert held(harness) == before
    assert harness.ask("other", "PUBLISH", "b", "x") == 0
    harness.engine.memory.job_bytes = 0
    assert harness.ask("client", words[0], words[1])[2] == 2


def test_subscriptions_that_are_there_already_are_confirmed_as_often_as_they_are_named() -> None:
    harness = MonkeyHarness()
    replies = harness.tell("client", ("SUBSCRIBE", "a", "b", "a"), ("PSUBSCRIBE", "a"))
    assert [reply[2] for reply in replies] == [1, 2, 2, 3]


def test_patterns_of_all_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_PATTERN_SUBSCRIPTIONS", 3)
    harness = MonkeyHarness()
    harness.tell("a", ("PSUBSCRIBE", "x*", "y*"))
    assert harness.ask("b", "PSUBSCRIBE", "x*", "y*") == Error(b"OOM connections have 3 subscriptions to patterns")
    assert harness.ask("b", "PSUBSCRIBE", "x*")[2] == 1
    harness.leave("a")
    assert harness.ask("b", "PSUBSCRIBE", "y*")[2] == 2


def test_the_work_of_comparing_is_bounded_for_a_connection_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Pattern(b"*[ab][cd]*").steps(72)
    monkeypatch.setattr(subscriptions, "MOST_STEPS_OF_CONNECTION", steps)
    monkeypatch.setattr(subscriptions, "MOST_STEPS", 2 * steps)
    harness = MonkeyHarness()
    of_connection = Error(b"OOM comparing names with the patterns of this connection would take too long")
    assert harness.ask("a", "PSUBSCRIBE", "*[ab][cd]*", "x?") == of_connection
    harness.tell("a", ("PSUBSCRIBE", "*[ab][cd]*", "*", "channel:*"))
    harness.tell("b", ("PSUBSCRIBE", "*[ab][ce]*"))
    of_all = Error(b"OOM comparing names with the patterns of all connections would take too long")
    assert harness.ask("c", "PSUBSCRIBE", "x?") == of_all
    assert harness.ask("c", "PSUBSCRIBE", "*[ab][cd]*")[2] == 1, "others have it already"
    harness.leave("b")
    assert harness.ask("d", "PSUBSCRIBE", "x?")[2] == 1


def test_one_command_does_not_make_the_server_parse_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_SPECIAL", 10)
    harness = MonkeyHarness()
    assert harness.ask("a", "PSUBSCRIBE", "????????", "????") == Error(
        b"ERR patterns with more than 10 special bytes at once"
    )
    assert len(harness.tell("a", ("PSUBSCRIBE", "*" * 70, "????"))) == 2, "stars in a row are one"
    many = [b"%d" % number for number in range(1001)]
    for word in ("SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"):
        assert harness.ask("a", word, *many) == Error(b"ERR more than 1000 channels or patterns at once")
        assert harness.ask("a", word, "x" * 73) == Error(b"ERR name of a channel over 72 bytes")


# --- who is told ---


def test_who_is_told_follows_every_change_of_subscriptions() -> None:
    harness = MonkeyHarness()

    def told() -> int:
        count: int = harness.ask("publisher", "PUBLISH", "channel:f", "x")
        assert count == sum(len(harness.heard(name)) for name in ("a", "b"))
        return count

    changes: list[tuple[str, tuple[str, ...], int]] = [
        ("a", ("PSUBSCRIBE", "channel:*"), 1),
        ("b", ("PSUBSCRIBE", "channel:*", "*:f"), 3),
        ("a", ("PSUBSCRIBE", "*:g", "*:?"), 4),
        ("b", ("SUBSCRIBE", "channel:f"), 5),
        ("a", ("PUNSUBSCRIBE", "channel:*"), 4),
        ("a", ("PUNSUBSCRIBE", "*:?"), 3),
        ("a", ("PSUBSCRIBE", "*:?"), 4),
        ("b", ("PUNSUBSCRIBE",), 2),
        ("b", ("UNSUBSCRIBE",), 1),
        ("a", ("PUNSUBSCRIBE",), 0),
    ]
    for name, words, count in changes:
        harness.tell(name, words)
        assert told() == told() == count, words


def test_many_names_are_published_to_and_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MonkeyHarness()
    harness.tell("a", ("PSUBSCRIBE", "*7?", "b*"))
    for number in range(1000):
        assert harness.ask("publisher", "PUBLISH", f"b{number}", "x") == 1 + (number // 10 % 10 == 7 and number > 9)
        harness.heard("a")
    assert len(harness.setup.channels._known) <= subscriptions.MOST_KNOWN_NAMES
    harness.leave("a")
    assert not harness.setup.channels._known


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("message", [b"short", LONG])
def test_a_message_comes_once_for_each_pattern(version: int, message: bytes) -> None:
    harness = MonkeyHarness()
    harness.ask("a", "HELLO", version)
    harness.tell("a", ("SUBSCRIBE", "x"), ("PSUBSCRIBE", "*", "**", "?"))
    assert harness.ask("publisher", "PUBLISH", "x", message) == 4
    expected = [[b"message", b"x", message], *([b"pmessage", text, b"x", message] for text in (b"*", b"**", b"?"))]
    assert harness.heard("a") == (expected if version == 2 else [Push(words) for words in expected])


def test_all_subscribers_share_one_copy_of_a_long_message() -> None:
    harness = MonkeyHarness(output_bytes=10_000_000)
    wires = [subscriber(harness, name) for name in "abc"]
    for name in "abc":
        harness.tell(name, ("SUBSCRIBE", "x"), ("PSUBSCRIBE", *("*" * (count + 1) for count in range(60))))
    assert harness.ask("publisher", "PUBLISH", "x", LONG) == 3 * 61
    copies = {id(piece) for wire in wires for piece in wire.pieces if len(piece) >= len(LONG)}
    assert len(copies) == 1


def test_a_subscriber_is_hung_up_on_before_more_is_written_than_may_wait_for_it() -> None:
    harness = MonkeyHarness(output_bytes=100_000)
    wire = subscriber(harness, "hoarder")
    innocent = subscriber(harness, "innocent")
    harness.tell("hoarder", ("PSUBSCRIBE", *("*" * (count + 1) for count in range(60))))
    harness.tell("innocent", ("SUBSCRIBE", "x"))
    wire.pieces.clear()
    assert harness.ask("publisher", "PUBLISH", "x", LONG) == 61
    assert wire.given_up_with > 60 * len(LONG)
    assert not wire.pieces
    assert not innocent.given_up_with
    assert harness.heard("innocent")[-1] == [b"message", b"x", LONG]
    assert harness.talker("hoarder").session.closing


def test_what_a_subscriber_has_not_read_counts() -> None:
    harness = MonkeyHarness(output_bytes=100_000)
    wire = subscriber(harness, "a")
    harness.tell("a", ("SUBSCRIBE", "x"))
    wire.pending_bytes = 94_000
    harness.ask("publisher", "PUBLISH", "x", LONG)
    assert not wire.given_up_with
    wire.pending_bytes = 96_000
    harness.ask("publisher", "PUBLISH", "x", LONG)
    assert wire.given_up_with > 100_000


def test_many_messages_of_one_turn_count_together() -> None:
    harness = MonkeyHarness(output_bytes=50_000, packet_bytes=1_000_000)
    wire = subscriber(harness, "a")
    harness.tell("a", ("SUBSCRIBE", "x"))
    harness.tell("publisher", *[("PUBLISH", "x", LONG)] * 9)
    assert not wire.given_up_with
    harness.tell("publisher", *[("PUBLISH", "x", LONG)] * 10)
    assert wire.given_up_with


def test_messages_that_wait_for_the_store_count() -> None:
    harness = MonkeyHarness(keeps=True, output_bytes=20_000, packet_bytes=1_000_000)
    harness.tell("client", ("INCR", "uid:f"), ("HMSET", "job:f:1", "status", "idle", "input", "x"))
    harness.tell("client", ("LPUSH", "queue:f:normal", "1"))
    harness.keep()
    harness.tell("worker", ("BRPOP", *TRIO, 1))
    harness.keep()  # the start of the job
    assert harness.heard("worker") == [[b"queue:f:normal", b"1"]]
    wire = subscriber(harness, "a")
    harness.tell("a", ("SUBSCRIBE", "x"))
    harness.tell("worker", ("HMSET", "job:f:1", "status", "success"), ("PUBLISH", "x", LONG), ("PUBLISH", "x", LONG))
    harness.tell("worker", ("PUBLISH", "x", LONG))
    assert not wire.given_up_with
    harness.tell("worker", ("PUBLISH", "x", LONG))
    assert wire.given_up_with


# --- how long it takes ---


def test_publishing_much_lets_others_be_served_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_STEPS_AT_ONCE", 100)
    harness = MonkeyHarness()
    harness.tell("a", ("SUBSCRIBE", "x"))
    harness.peers_read = False
    answers = harness.tell("publisher", *[("PUBLISH", "x", "y")] * 10)
    assert 0 < len(answers) < 10
    harness.peers_read = True
    harness.soon(harness.talker("publisher").session.go_on)
    harness.turn()
    assert len(answers) + len(harness.heard("publisher")) == 10


def test_a_transaction_cannot_publish_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pubsub, "MOST_STEPS_OF_TRANSACTION", 100)
    harness = MonkeyHarness()
    harness.tell("a", ("SUBSCRIBE", "x"))
    replies = harness.tell("publisher", ("MULTI",), *[("PUBLISH", "x", "y")] * 10, ("EXEC",))[-1]
    assert replies[0] == 1
    assert replies[-1] == Error(b"ERR the transaction publishes too much, to too many")
    assert harness.ask("publisher", "PUBLISH", "x", "y") == 1


def test_jobs_are_told_of_without_comparing_names_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    matches = Pattern.matches

    def counted(self: Any, text: bytes) -> bool:
        compared.append(text)
        return matches(self, text)

    monkeypatch.setattr(Pattern, "matches", counted)
    harness = MonkeyHarness()
    harness.tell("a", ("PSUBSCRIBE", "*:f", "*:?"))
    for _ in range(5):
        push(harness)
        pop(harness)
        harness.leave("worker")
    assert len(compared) <= 2
