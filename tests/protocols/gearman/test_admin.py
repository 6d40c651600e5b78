"""Text commands: conversations, stopping the server, and the promises that answers make."""

from __future__ import annotations

import os

import pytest

from switchgear.model import HIGH, NORMAL, URGENT, Delivery
from switchgear.protocols.gearman.admin import ON_COMMAND, refusal
from switchgear.verbs.access import AccessRules
from tests.protocols.gearman.harness import Harness
from tests.protocols.gearman.transcript import FOLDER, MANNERS, Transcript, load, play
from tests.support.wire import Kind, Line, request


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("transcript", load("admin"), ids=str)
def test_conversation(transcript: Transcript, manner: str) -> None:
    play(transcript, manner)


@pytest.mark.parametrize("command", ON_COMMAND, ids=bytes.decode)
def test_every_command_has_a_conversation(command: bytes) -> None:
    text = (FOLDER / "admin.txt").read_text()
    assert f'> "{command.decode()}' in text or command == b"getpid"


def test_the_process_id() -> None:
    admin = Harness().talker("admin")
    admin.send(b"getpid\n")
    assert admin.heard() == [Line(b"OK %d\n" % os.getpid())]


def test_urgent_jobs_count_as_jobs_of_high_priority() -> None:
    harness = Harness()
    for priority in (URGENT, URGENT, HIGH, NORMAL):
        harness.engine.submit(b"f", b"", b"x", priority, Delivery.HANDLE)
    admin = harness.talker("admin")
    admin.send(b"prioritystatus\n")
    assert admin.heard() == [Line(b"f\t3\t1\t0\t0\n"), Line(b".\n")]


@pytest.mark.parametrize(
    ("command", "stops"),
    [(b"shutdown\n", [False]), (b"shutdown graceful\r\n", [True]), (b"SHUTDOWN Graceful\n", [True])],
)
def test_shutdown(command: bytes, stops: list[bool]) -> None:
    harness = Harness()
    admin = harness.talker("admin")
    admin.send(command)
    assert admin.heard() == [Line(b"OK\r\n")]
    assert harness.stops == stops


def test_shutdown_with_other_words_does_not_stop() -> None:
    harness = Harness()
    admin = harness.talker("admin")
    admin.send(b"shutdown now\n")
    assert admin.heard() == [Line(b"ERR UNKNOWN_SHUTDOWN_ARGUMENTS\r\n")]
    assert harness.stops == []


@pytest.mark.parametrize(
    ("allowed", "who"),
    [
        ("same-user", {"own user"}),
        ("loopback", {"own user", "other user"}),
        ("anywhere", {"own user", "other user", "other machine"}),
        ("never", set()),
    ],
)
def test_who_may_shut_down(allowed: str, who: set[str]) -> None:
    for peer in ("own user", "other user", "other machine"):
        harness = Harness(access=AccessRules(shutdown=allowed))
        admin = harness.talker("admin")
        admin.wire.is_loopback = peer != "other machine"
        admin.wire.is_of_servers_user = peer == "own user"
        admin.send(b"shutdown\n")
        (answer,) = admin.heard()
        if peer in who:
            assert (answer, harness.stops) == (Line(b"OK\r\n"), [False])
        else:
            assert harness.stops == []
            assert isinstance(answer, Line)
            assert answer.text.startswith(b"ERR NOT_ALLOWED shutdown+is+")
            assert b"SIGTERM" in answer.text
            assert b"gearman.shutdown" in answer.text
            assert harness.bad_input == [("admin", "NOT_ALLOWED")]


NASTY = {
    "newline": b"mail\n.\nforged\t9\t9\t9",
    "escape": b"\x1b[2Jcls",
    "carriage return": b"a\rb",
    "not UTF-8": b"a\x9b2J\xff",
    "C1": "a\x9b2J".encode(),
    "right to left": "a\u202egnp".encode(),
    "delete": b"a\x7f",
    "long": b"n\n" * 32,
}


@pytest.mark.parametrize("name", NASTY.values(), ids=NASTY)
@pytest.mark.parametrize("command", ["status", "prioritystatus", "workers", "show unique jobs"])
def test_a_name_cannot_forge_lines_of_a_listing_or_control_a_terminal(command: str, name: bytes) -> None:
    harness = Harness()
    worker, client, admin = harness.talker("worker"), harness.talker("client"), harness.talker("admin")
    worker.send(request(Kind.SET_CLIENT_ID, name) + request(Kind.CAN_DO, name))
    client.send(request(Kind.SUBMIT_JOB_BG, name, name, b"x"))
    admin.send(command.encode() + b"\n")
    answer = admin.take_bytes()
    lines = answer.decode("utf-8", "replace").split("\n")
    assert lines[-2:] == [".", ""]
    assert len(lines) == (5 if command == "workers" else 3)
    assert all(line.replace("\t", "").isprintable() for line in lines)


@pytest.mark.parametrize("name", [b"mail", b"a\\x0ab", b"with space", b"space\tname", "größe".encode(), b"gr\xf6\xdfe"])
def test_plain_names_are_listed_byte_by_byte(name: bytes) -> None:
    harness = Harness()
    harness.engine.submit(name, name, b"x", NORMAL, Delivery.HANDLE)
    admin = harness.talker("admin")
    admin.send(b"status\nshow unique jobs\n")
    assert admin.take_bytes() == name + b"\t1\t0\t0\n.\n" + name + b"\n.\n"


def test_a_command_that_does_not_exist_is_repeated_without_what_a_terminal_obeys() -> None:
    admin = Harness().talker("admin")
    admin.send(b"\x1b[2J\r \n")
    assert admin.take_bytes() == b"ERR UNKNOWN_COMMAND Unknown+server+command\\x1b[2J\\x0d\r\n"


@pytest.mark.parametrize(
    ("command", "waits"),
    [
        (b"cancel job H:t:1\n", True),
        (b"cancel job H:t:2\n", False),
        (b"maxqueue f 5\n", True),
        (b"maxqueue\n", False),
        (b"status\n", False),
    ],
)
def test_what_changed_is_kept_before_it_is_answered(command: bytes, waits: bool) -> None:
    harness = Harness(keeps=True)
    harness.talker("client").send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x"))
    session = harness.talker("admin").session
    session.receive(command)
    assert session.out
    assert session.awaits_commit == waits


def test_a_limit_never_exceeds_what_a_store_can_keep() -> None:
    harness = Harness(keeps=True)
    harness.talker("admin").send(b"maxqueue f %b\n" % (b"9" * 40))
    assert all(0 < limit < 2**63 for limit in harness.engine.functions[b"f"].limits)


def test_a_function_whose_name_is_not_text_can_be_dropped() -> None:
    harness = Harness()
    admin = harness.talker("admin")
    admin.send(b"create function \xff\xfe\n", b"drop function \xff\xfe\n", b"status\n")
    assert admin.take_bytes() == b"OK\r\nOK\r\n.\n"


def test_a_function_is_dropped_for_good_before_that_is_answered() -> None:
    harness = Harness(keeps=True)
    admin = harness.talker("admin")
    admin.send(b"maxqueue f 5\n")
    admin.session.receive(b"drop function f\n")
    assert admin.session.awaits_commit
    admin.session.receive(b"drop function f\n")
    assert admin.session.awaits_commit


def test_a_refusal_is_one_line_whatever_the_reason() -> None:
    text = "storage failed: server closed the connection\n\tThis probably means\r\n\tnothing\x1b"
    assert refusal(b"STORAGE", text) == (
        b"ERR STORAGE storage+failed:+server+closed+the+connection+This+probably+means+nothing\\x1b\r\n"
    )
