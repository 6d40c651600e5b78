"""Every listing of the command line with names and texts that would control a terminal or forge lines."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from switchgear.cli.output import fit_for
from switchgear.protocols.gearman.messages import Packet as Extension
from tests.cli.commands import call
from tests.support.servers import Server, running_switchgear
from tests.support.wire import Kind, Wire

NASTY = {
    "newline": b"mail\nforged  0  0  0",
    "escape": b"\x1b[2J\x1b]0;title\x07",
    "not UTF-8": b"a\xff\x9b2J",
    "C1": "\x9b2J".encode(),
    "right to left": "a\u202egnp".encode(),
    "markup": b"[red]x[/red]",
    "long": (b"n\n" * 256),
}
COMMANDS = [
    ("functions",),
    ("workers",),
    ("jobs",),
    ("job", "HANDLE"),
    ("explain", "HANDLE"),
    ("pause", "NAME"),
    ("limit", "NAME", "--concurrency", "1"),
    ("cancel", "NAME"),
    ("schedules",),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_switchgear() as running:
        yield running


@pytest.mark.parametrize("name", NASTY.values(), ids=NASTY)
def test_every_listing(server: Server, name: bytes) -> None:
    with Wire(server.address) as worker, Wire(server.address) as client:
        worker.send(Kind.SET_CLIENT_ID, name)
        worker.send(Kind.CAN_DO, name)
        client.send(Kind.SUBMIT_JOB_BG, name, name[:60], name * 3)
        handle = client.receive_packet().body.decode()
        worker.send(Kind.GRAB_JOB)
        assert worker.receive_packet().type == Kind.JOB_ASSIGN
        worker.send(Kind.WORK_WARNING, handle.encode(), name)
        schedule = {"name": "s", "function": "f", "every_seconds": 3600}
        client.send(Extension.CONTROL, b"schedule", json.dumps(schedule).encode())
        client.receive()
        for command in COMMANDS:
            words = [handle if word == "HANDLE" else word for word in command]
            if "NAME" in words:
                try:
                    words[words.index("NAME")] = name.decode()
                except UnicodeDecodeError:
                    continue
            output = call(server, *words).output
            assert all(line.isprintable() for line in output.split("\n")), (words, output)
            assert not any(line.startswith("forged") for line in output.split("\n")), words
        worker.send(Kind.WORK_EXCEPTION, handle.encode(), name)
        output = call(server, "job", handle).output
        assert all(line.isprintable() for line in output.split("\n")), output


class Terminal(io.BytesIO):
    """Where people look."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("data", [*NASTY.values(), b"a\0b", b"line\n\tmore\n", "größe".encode()])
def test_what_jobs_return_is_written_as_it_is_unless_to_a_terminal(data: bytes) -> None:
    assert fit_for(io.BytesIO(), data) == data
    text = fit_for(Terminal(), data).decode()
    assert all(c.isprintable() or c in "\n\t" for c in text)


def test_lines_for_a_terminal_stay_lines() -> None:
    assert fit_for(Terminal(), "größe\n\tmore\n".encode()) == "größe\n\tmore\n".encode()
