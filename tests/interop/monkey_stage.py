"""Conversations of GearMonkey's clients and workers, played to a real server: a Redis, or this one in its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.protocols.gearmonkey.transcript import Names, Step, Transcript, reply_bytes, words_in
from tests.support.resp_wire import RespWire
from tests.support.waiting import eventually


class Stage:
    """Somebody who plays all roles against one server; `side` is what it is called where two servers differ."""

    def __init__(self, address: tuple[str, int], version: int, names: Names, side: str) -> None:
        self.heard: list[tuple[str, bytes]] = []  # each line of the transcript that tells of a reply, and the reply
        self._address = address
        self._version = version
        self._names = names
        self._side = side
        self._wires: dict[str, RespWire] = {}
        self._waiting: set[str] = set()

    def play(self, transcript: Transcript) -> None:
        for step in transcript.steps:
            try:
                self._take(step)
            except (AssertionError, OSError) as error:
                raise AssertionError(f"{transcript.title} (RESP{self._version}): {step.line}\n{error!r}") from error

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def _take(self, step: Step) -> None:
        if step.who == "later":
            return  # time passes by itself
        rest = self._names.fill_in(step.rest)
        wire = self._wire(step.who)
        if step.verb == ">":
            wire.send(*words_in(rest))
        elif step.verb in ("<", f"<{self._side}"):
            wire.receive()
            self._waiting.discard(step.who)
            self.heard.append((step.line, wire.last_bytes))
            expected = reply_bytes(rest, self._version)
            assert wire.last_bytes == expected, f"heard {wire.last_bytes!r} and not {expected!r}"
        elif step.verb == "waits":
            self._waiting.add(step.who)
            eventually(self._all_wait, f"{self._waiting} wait")
        elif step.verb == "leaves":
            self._wires.pop(step.who).close()
        elif step.verb == "is":
            self._is_hung_up_on(wire)
        else:
            assert step.verb.startswith("<"), f"what is {step.verb}?"

    def _wire(self, name: str) -> RespWire:
        if name not in self._wires:
            self._wires[name] = RespWire(self._address, self._version)
        return self._wires[name]

    def _all_wait(self) -> bool:
        """Whether the server has begun to let everybody wait who should; what is sent may be on its way."""
        with RespWire(self._address) as watcher:
            return b"blocked_clients:%d\r\n" % len(self._waiting) in watcher.ask("INFO", "clients")

    @staticmethod
    def _is_hung_up_on(wire: RespWire) -> None:
        try:
            reply = wire.receive()
        except ConnectionError:
            return
        raise AssertionError(f"heard {reply!r}")


@contextmanager
def stage(address: tuple[str, int], version: int, names: Names, side: str) -> Iterator[Stage]:
    played = Stage(address, version, names, side)
    try:
        yield played
    finally:
        played.close()
