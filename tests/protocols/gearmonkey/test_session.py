"""Connections: who speaks, channels, transactions, framing, and what is bounded."""

from __future__ import annotations

import pytest

from switchgear.protocols.gearmonkey import hashes, session, subscriptions
from tests.protocols.gearmonkey.harness import NAME_BYTES, PACKET_BYTES, TRIO, MonkeyHarness, Word, pop, push
from tests.support.resp_wire import OK, QUEUED, Error, NullArray, Push, Simple, Verbatim, command

PONG = Simple(b"PONG")


# --- who it is, and who asks ---


@pytest.mark.parametrize("version", [2, 3])
def test_it_says_what_it_is(version: int) -> None:
    about = MonkeyHarness().ask("client", "HELLO", version)
    if version == 2:
        about = dict(zip(about[::2], about[1::2], strict=True))
    expected = {b"server": b"switchgear", b"version": b"test", b"proto": version, b"id": 1, b"mode": b"standalone"}
    assert about == {**expected, b"role": b"master", b"modules": []}


def test_hello_without_a_version_keeps_it() -> None:
    harness = MonkeyHarness()
    assert isinstance(harness.ask("client", "HELLO"), list)
    harness.ask("client", "HELLO", 3, "SETNAME", "ada")
    assert harness.ask("client", "HELLO")[b"proto"] == 3
    assert harness.ask("client", "CLIENT", "GETNAME") == b"ada"


def test_a_hello_that_is_refused_changes_nothing() -> None:
    harness = MonkeyHarness()
    for options in (("AUTH", "ada", "secret"), ("SETNAME",), ("SETNAME", "a b"), ("AUTH", "default")):
        assert isinstance(harness.ask("client", "HELLO", 3, *options), Error)
    assert harness.ask("client", "GET", "count:f") is None
    assert harness.talker("client").session.version == 2
    harness.ask("client", "HELLO", 3, "AUTH", "default", "anything")
    assert harness.talker("client").session.version == 3


def test_connections_are_numbered() -> None:
    harness = MonkeyHarness()
    assert [harness.ask(name, "CLIENT", "ID") for name in "abca"] == [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (("COMMAND", "DOCS"), []),
        (("CONFIG", "GET", "*"), []),
        (("CLIENT", "SETINFO", "lib-name", "mine"), OK),
        (("CLIENT", "SETINFO", "LIB-VER", "1"), OK),
        (("CLIENT", "SETINFO", "nonsense", "1"), Error(b"ERR Unrecognized option 'nonsense'")),
        (("CLIENT", "NO-TOUCH", "on"), OK),
        (("CLIENT", "NO-EVICT", "perhaps"), Error(b"ERR syntax error")),
        (("AUTH", "a", "b", "c"), Error(b"ERR syntax error")),
        (("CONFIG", "SET", "a", "b"), Error(b"ERR unknown subcommand 'SET'. Try CONFIG HELP.")),
        (("info", "nonsense"), b""),
        (("INFO", "server"), b"# Server\r\nserver_name:switchgear\r\nswitchgear_version:test\r\n"),
    ],
)
def test_small_talk(words: tuple[str, ...], reply: object) -> None:
    assert MonkeyHarness().ask("client", *words) == reply


def test_what_redis_py_asks_every_server_is_no_mistake() -> None:
    harness = MonkeyHarness()
    no = Error(b"ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.")
    assert harness.ask("client", "CLIENT", "MAINT_NOTIFICATIONS", "ON") == no
    assert harness.bad_input == []


def test_the_number_of_commands_is_that_of_the_table() -> None:
    harness = MonkeyHarness()
    assert harness.ask("client", "COMMAND", "COUNT") == len(harness.ask("client", "COMMAND", "LIST"))
    assert harness.ask("client", "COMMAND", "COUNT") == len(harness.ask("client", "COMMAND"))
    not_commands = {b"HOST:", b"POST"}
    assert {name.upper() for name in harness.ask("client", "COMMAND", "LIST")} == set(
        harness.setup.verbs
    ) - not_commands


def test_info_tells_what_goes_on() -> None:
    harness = MonkeyHarness()
    push(harness)
    harness.ask("client", "INCR", "uid:f")
    harness.tell("worker", ("BRPOP", "lock:f:1", 0))
    harness.ask("client", "HELLO", 3)
    info = harness.ask("client", "INFO")
    assert isinstance(info, Verbatim)
    lines = info.text.decode().splitlines()
    assert [line for line in lines if line.startswith("#")] == ["# Server", "# Clients", "# Persistence", "# Jobs"]
    facts = dict(line.split(":") for line in lines if ":" in line)
    assert (facts["connected_clients"], facts["blocked_clients"], facts["loading"]) == ("2", "1", "0")
    assert (facts["functions"], facts["unfinished_jobs"], facts["drafts"]) == ("1", "1", "1")


def test_a_worker_is_known_by_its_name() -> None:
    harness = MonkeyHarness()
    harness.ask("worker", "CLIENT", "SETNAME", "resizer")
    push(harness)
    pop(harness)
    (worker,) = harness.engine.workers.values()
    assert (worker.protocol, worker.name) == ("gearmonkey", b"resizer")
    harness.ask("worker", "CLIENT", "SETNAME", "other")
    assert worker.name == b"other"


def test_a_line_may_be_typed() -> None:
    harness = MonkeyHarness()
    talker = harness.talker("client")
    talker.send(b'ECHO "hello you"\r\nincr uid:f\n\r\nPING\r\n')
    assert talker.heard() == [b"hello you", 1, PONG]


def test_what_a_web_page_makes_a_browser_send_is_not_obeyed() -> None:
    harness = MonkeyHarness()
    talker = harness.talker("browser")
    talker.send(b"POST / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\n\r\nINCR count:f\r\n")
    assert talker.heard() == []
    assert talker.wire.is_closed
    assert harness.ask("client", "GET", "count:f") is None
    assert harness.bad_input == [("HTTP", "this is HTTP")]


# --- subscribers ---


def test_a_subscriber_of_resp2_may_do_little_else() -> None:
    harness = MonkeyHarness()
    assert harness.ask("client", "SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
    assert harness.ask("client", "PING") == [b"pong", b""]
    assert harness.ask("client", "PING", "x") == [b"pong", b"x"]
    allowed = b"only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    assert harness.ask("client", "GET", "count:f") == Error(b"ERR Can't execute 'get': " + allowed)
    assert harness.ask("client", "UNSUBSCRIBE") == [b"unsubscribe", b"a", 0]
    assert harness.ask("client", "GET", "count:f") is None


def test_a_subscriber_of_resp3_may_do_anything() -> None:
    harness = MonkeyHarness()
    harness.ask("client", "HELLO", 3)
    assert harness.ask("client", "SUBSCRIBE", "a") == Push([b"subscribe", b"a", 1])
    assert harness.ask("client", "PING") == PONG
    assert harness.tell("client", ("PUBLISH", "a", "to myself")) == [Push([b"message", b"a", b"to myself"]), 1]
    assert harness.tell("client", ("BRPOP", *TRIO, 0)) == []
    harness.ask("other", "PUBLISH", "a", "while it waits")
    assert harness.heard("client") == [Push([b"message", b"a", b"while it waits"])]


def test_reset_ends_everything_that_was_begun() -> None:
    harness = MonkeyHarness()
    harness.ask("client", "HELLO", 3, "SETNAME", "ada")
    harness.tell("client", ("SUBSCRIBE", "a"), ("PSUBSCRIBE", "b*"), ("MULTI",))
    assert harness.ask("client", "RESET") == Simple(b"RESET")
    assert harness.ask("client", "CLIENT", "GETNAME") is None
    assert harness.ask("client", "EXEC") == Error(b"ERR EXEC without MULTI")
    assert harness.ask("other", "PUBLISH", "a", "x") == harness.ask("other", "PUBLISH", "bb", "x") == 0
    assert not harness.engine.global_subscribers


def test_a_channel_is_heard_once_for_each_subscription_that_fits() -> None:
    harness = MonkeyHarness()
    harness.tell("client", ("SUBSCRIBE", "channel:f"), ("PSUBSCRIBE", "channel:*", "*:f"))
    assert harness.ask("other", "PUBLISH", "channel:f", "x") == 3
    assert [message[0] for message in harness.heard("client")] == [b"message", b"pmessage", b"pmessage"]


def test_subscriptions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_SUBSCRIPTIONS", 3)
    harness = MonkeyHarness()
    harness.tell("client", ("SUBSCRIBE", "a", "b"), ("PSUBSCRIBE", "c"))
    assert harness.ask("client", "SUBSCRIBE", "d") == Error(b"ERR a connection may have 3 subscriptions")
    long_name = b"c" * (NAME_BYTES + 9)
    for words in (("SUBSCRIBE", long_name), ("PUBLISH", long_name, "x")):
        assert harness.ask("other", *words) == Error(b"ERR name of a channel over 72 bytes")


# --- transactions ---


def test_messages_do_not_come_in_the_middle_of_the_replies_of_a_transaction() -> None:
    harness = MonkeyHarness()
    harness.ask("client", "HELLO", 3)
    harness.ask("client", "SUBSCRIBE", "a")
    replies = harness.tell("client", ("MULTI",), ("PUBLISH", "a", "x"), ("PING",), ("EXEC",))
    assert replies == [OK, QUEUED, QUEUED, [1, PONG], Push([b"message", b"a", b"x"])]


def test_subscriptions_are_not_changed_in_a_transaction() -> None:
    harness = MonkeyHarness()
    harness.ask("client", "MULTI")
    for name in ("SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"):
        reply = harness.ask("client", name, "a")
        assert reply == Error(b"ERR subscriptions cannot be changed in a transaction")
    assert harness.ask("client", "EXEC").text.startswith(b"EXECABORT")


def test_an_error_in_a_transaction_stops_nothing() -> None:
    harness = MonkeyHarness()
    harness.tell("client", ("MULTI",), ("GET", "nonsense"), ("INCR", "count:f"))
    error, count = harness.ask("client", "EXEC")
    assert isinstance(error, Error)
    assert count == 1
    assert harness.tell("client", ("MULTI",), ("EXEC",)) == [OK, []]


def test_a_transaction_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_QUEUED", 2)
    harness = MonkeyHarness()
    replies = harness.tell("client", ("MULTI",), ("PING",), ("PING",), ("PING",), ("EXEC",))
    assert [type(reply) for reply in replies] == [Simple, Simple, Simple, Error, Error]
    big = "x" * (PACKET_BYTES // 2)
    replies = harness.tell("client", ("MULTI",), ("ECHO", big), ("ECHO", big), ("DISCARD",))
    assert replies == [OK, QUEUED, Error(b"ERR the transaction is too long"), OK]
    assert harness.talker("client").session.buffered_bytes == 0


def test_words_of_a_transaction_count_even_if_they_are_empty() -> None:
    harness = MonkeyHarness()
    words = ("HMGET", "job:f:1", *[""] * 100)
    assert harness.tell("client", ("MULTI",), words) == [OK, QUEUED]
    held_bytes = harness.talker("client").session.buffered_bytes
    assert held_bytes > PACKET_BYTES // 2
    assert harness.ask("client", *words) == Error(b"ERR the transaction is too long")
    assert harness.talker("client").session.buffered_bytes == held_bytes


def test_the_replies_of_a_transaction_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_ANSWER_BYTES", 5000)
    harness = MonkeyHarness()
    data = "x" * 5000
    harness.tell("client", ("MULTI",), ("ECHO", data), ("PING",))
    reply = harness.ask("client", "EXEC")
    assert reply == [data.encode(), Error(b"ERR the answers before this one have 5000 bytes already")]


# --- framing, length, order ---


def test_a_thousand_commands_in_one_piece_are_answered_in_order() -> None:
    harness = MonkeyHarness()
    assert harness.tell("client", *[("ECHO", number) for number in range(1000)]) == [b"%d" % n for n in range(1000)]


def test_what_cannot_be_understood_is_answered_and_hung_up_on() -> None:
    harness = MonkeyHarness()
    talker = harness.talker("client")
    talker.send(command("PING") + b"*x\r\n" + command("PING"))
    assert talker.heard() == [PONG, Error(b"ERR Protocol error: invalid multibulk length")]
    assert talker.wire.is_closed
    assert [code for code, _ in harness.bad_input] == ["ERR"]
    talker.session.receive(command("PING"))
    assert talker.heard() == []


def test_what_cannot_be_understood_behind_a_command_that_waits_is_told_in_its_turn() -> None:
    harness = MonkeyHarness()
    talker = harness.talker("client")
    talker.send(command("BRPOP", *TRIO, 1) + b"*x\r\n")
    assert talker.heard() == []
    harness.pass_time(1)
    assert talker.heard() == [NullArray(), Error(b"ERR Protocol error: invalid multibulk length")]
    assert talker.wire.is_closed


def test_mistakes_are_counted() -> None:
    harness = MonkeyHarness()
    harness.tell("client", ("NONSENSE", "a\nb"), ("GET",), ("GET", "x"), ("EVALSHA", "0" * 40, 0), ("HELLO", 9))
    assert [code for code, _ in harness.bad_input] == ["ERR"] * 3  # a library may try a script or a version
    assert "\n" not in harness.bad_input[0][1]


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ((b"X" * 200,), b"ERR unknown command '" + b"X" * 128 + b"', with args beginning with: "),
        (
            ("X", b"a" * 100, b"b" * 100, "c"),
            b"ERR unknown command 'X', with args beginning with: '" + b"a" * 100 + b"' '" + b"b" * 25 + b"' ",
        ),
        ((b"a\r\nb", b"\xff"), "ERR unknown command 'a??b', with args beginning with: '\ufffd' ".encode()),
    ],
)
def test_an_unknown_command_is_repeated_in_part(words: tuple[Word, ...], reply: bytes) -> None:
    assert MonkeyHarness().ask("client", *words) == Error(reply)


def test_a_long_name_is_refused() -> None:
    harness = MonkeyHarness()
    name = "f" * NAME_BYTES
    assert harness.ask("client", "INCR", f"uid:{name}") == 1
    assert harness.ask("client", "INCR", f"uid:{name}f") == Error(b"ERR function name over 64 bytes")
    assert harness.ask("client", "BRPOP", f"queue:{name}f:high", 1) == Error(b"ERR function name over 64 bytes")


@pytest.mark.parametrize("words", [("EXISTS",), ("DEL",), ("BRPOP",)])
def test_keys_that_cost_a_look_into_the_store_are_bounded(words: tuple[str]) -> None:
    harness = MonkeyHarness()
    keys = [f"lock:f:{number}" for number in range(1, 102)]
    end = (1,) if words == ("BRPOP",) else ()
    assert harness.ask("client", *words, *keys, *end) == Error(b"ERR more than 100 keys at once")


def test_long_answers_are_given_as_fast_as_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LONG_BYTES", 15_000)
    harness = MonkeyHarness()
    harness.peers_read = False
    job_id = push(harness, "x" * 8000)
    talker = harness.talker("client")
    asked = command("HGET", f"job:f:{job_id}", "input") * 6 + command("PING")
    talker.send(asked)
    assert [len(reply) for reply in talker.heard()] == [8000] * 2
    assert talker.session.deferred
    talker.stop_sending()
    talker.session.go_on()
    harness.turn()
    assert [len(reply) for reply in talker.heard()] == [8000] * 2
    assert not talker.wire.is_closed
    harness.peers_read = True
    talker.session.go_on()
    harness.turn()
    assert talker.heard()[-1] == PONG
    assert talker.wire.is_closed


@pytest.mark.parametrize("is_pushed", [False, True])
def test_one_field_is_not_asked_for_any_number_of_times_at_once(
    monkeypatch: pytest.MonkeyPatch, is_pushed: bool
) -> None:
    monkeypatch.setattr(hashes, "MOST_ANSWER_BYTES", 20_000)
    harness = MonkeyHarness()
    job_id = harness.ask("client", "INCR", "uid:f")
    harness.ask("client", "HSET", f"job:f:{job_id}", "input", "x" * 8000)
    if is_pushed:
        harness.ask("client", "LPUSH", "queue:f:low", job_id)
    assert len(harness.ask("client", "HMGET", f"job:f:{job_id}", "input", "input")) == 2
    reply = harness.ask("client", "HMGET", f"job:f:{job_id}", "input", "input", "input")
    assert reply == Error(b"ERR the answer would have more than 20000 bytes")
