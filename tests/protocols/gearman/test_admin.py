"""Text commands: conversations, stopping the server, and the promises that answers make."""

from __future__ import annotations

import os

import pytest

from switchgear.model import HIGH, NORMAL, URGENT, Delivery
from switchgear.protocols.gearman.admin import ON_COMMAND
from tests.protocols.gearman.house import House
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
    admin = House().talker("admin")
    admin.send(b"getpid\n")
    assert admin.heard() == [Line(b"OK %d\n" % os.getpid())]


def test_urgent_jobs_count_as_jobs_of_high_priority() -> None:
    house = House()
    for priority in (URGENT, URGENT, HIGH, NORMAL):
        house.engine.submit(b"f", b"", b"x", priority, Delivery.HANDLE)
    admin = house.talker("admin")
    admin.send(b"prioritystatus\n")
    assert admin.heard() == [Line(b"f\t3\t1\t0\t0\n"), Line(b".\n")]


@pytest.mark.parametrize(
    ("command", "stops"),
    [(b"shutdown\n", [False]), (b"shutdown graceful\r\n", [True]), (b"SHUTDOWN Graceful\n", [True])],
)
def test_shutdown(command: bytes, stops: list[bool]) -> None:
    house = House()
    admin = house.talker("admin")
    admin.send(command)
    assert admin.heard() == [Line(b"OK\r\n")]
    assert house.stops == stops


def test_shutdown_with_other_words_does_not_stop() -> None:
    house = House()
    admin = house.talker("admin")
    admin.send(b"shutdown now\n")
    assert admin.heard() == [Line(b"ERR UNKNOWN_SHUTDOWN_ARGUMENTS\r\n")]
    assert house.stops == []


@pytest.mark.parametrize(("allowed", "stops"), [("never", []), ("loopback", []), ("always", [False])])
def test_who_may_shut_down_from_another_machine(allowed: str, stops: list[bool]) -> None:
    house = House(shutdown=allowed)
    admin = house.talker("admin")
    admin.wire.is_loopback = False
    admin.send(b"shutdown\n")
    assert house.stops == stops


@pytest.mark.parametrize(
    ("command", "pledges"),
    [
        (b"cancel job H:t:1\n", 1),
        (b"cancel job H:t:2\n", 0),
        (b"maxqueue f 5\n", 1),
        (b"maxqueue\n", 0),
        (b"status\n", 0),
    ],
)
def test_what_changed_is_kept_before_it_is_answered(command: bytes, pledges: int) -> None:
    house = House(keeps=True)
    house.talker("client").send(request(Kind.SUBMIT_JOB_BG, b"f", b"", b"x"))
    session = house.talker("admin").session
    session.receive(command)
    assert session.out
    assert session.pledges == pledges


def test_a_limit_never_exceeds_what_a_store_can_keep() -> None:
    house = House(keeps=True)
    house.talker("admin").send(b"maxqueue f %b\n" % (b"9" * 40))
    assert all(0 < limit < 2**63 for limit in house.engine.functions[b"f"].limits)


def test_a_function_whose_name_is_not_text_can_be_dropped() -> None:
    house = House()
    admin = house.talker("admin")
    admin.send(b"create function \xff\xfe\n", b"drop function \xff\xfe\n", b"status\n")
    assert admin.take_bytes() == b"OK\r\nOK\r\n.\n"


def test_a_function_is_dropped_for_good_before_that_is_answered() -> None:
    house = House(keeps=True)
    admin = house.talker("admin")
    admin.send(b"maxqueue f 5\n")
    admin.session.receive(b"drop function f\n")
    assert admin.session.pledges == 1
    admin.session.receive(b"drop function f\n")
    assert admin.session.pledges == 1
