"""Using one server process for many conversations: afterwards it is swept clean, or thrown away.

Starting a Python server costs more than holding a hundred conversations with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from tests.support.servers import Server
from tests.support.waiting import eventually
from tests.support.wire import Kind, Packet, Wire

StartServer = Callable[[], AbstractContextManager[Server]]


class Reused:
    """Gives a server that is as good as new."""

    def __init__(self, start: StartServer) -> None:
        self._start = start
        self._harness = ExitStack()
        self._server: Server | None = None

    @contextmanager
    def clean(self, *, spoilt: bool = False) -> Iterator[Server]:
        """``spoilt``: do not use this process again, whatever it looks like."""
        if self._server is None:
            self._server = self._harness.enter_context(self._start())
        server, self._server = self._server, None
        yield server
        # Inside a test this is not reached when the test fails: then the next one gets a new process.
        if not spoilt and server.is_running() and _is_clean_after_sweeping(server):
            self._server = server

    def close(self) -> None:
        self._harness.close()


def _is_clean_after_sweeping(server: Server) -> bool:
    try:
        return sweep(server)
    except (AssertionError, OSError):
        return False  # it hung or died of the test, which has said so itself


def sweep(server: Server) -> bool:
    """Take all jobs, end them, drop all functions; say whether the server shows no trace of anything."""
    with Wire(server.address) as broom:
        eventually(lambda: len(broom.ask("workers")) == 2, "the test's connections are gone", within_seconds=2)
        for line in broom.ask("status")[:-1]:
            function = line.rsplit(b"\t", 3)[0]
            broom.send(Kind.CAN_DO, function)
            _end_all_jobs(broom)
            broom.send(Kind.CANT_DO, function)
            broom.send_bytes(b"drop function " + function + b"\r\n")
            broom.receive()
        return broom.ask("status") == broom.ask("show jobs") == [b".\n"]


def _end_all_jobs(broom: Wire) -> None:
    while True:
        broom.send(Kind.GRAB_JOB)
        answer = broom.receive()
        if answer == Packet(Kind.NO_JOB, b"") or not isinstance(answer, Packet):
            return
        broom.send(Kind.WORK_FAIL, answer.body.split(b"\0")[0])
