"""Conversations of a WMP worker, written down and played without wires, threads or a clock.

    start                     what happens
      m0 hears READY          what the worker does then, all of it, in this order
    m0 says WAKE
      m0 hears GIVE
    m0 says TAKE 1 f
      1 starts
    1 returns
      m0 hears DONE 1
      m0 hears READY

Managers are m0, m1, ... and each has its own connection.  Jobs are numbers.  What may happen besides:
`m0 says NO`, `m0 says CANCEL 1`, `m0 connects`, `1 fails words`, `1 gives back`, `1 is told to stop` (asks for it),
`1 progresses 2/5`, `3.5 s pass`, `stop`, `give up`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from switchgear.client.wmp.worker_protocol import WmpJob, WmpResult, WmpSend, WmpTiming, WmpWorkerProtocol
from switchgear.protocols.multipart import Message

__all__ = ["PACE", "Play", "message", "play"]

PACE = WmpTiming(lease_seconds=12.0, lock_seconds=5.0, retry_first_seconds=100.0, retry_most_seconds=1000.0)


def message(command: str, payload: bytes | None = None, **headers: Any) -> Message:
    """The frames, written out as the protocol's page has them."""
    frames = [b"", b"WMP1", command.encode(), msgspec.msgpack.encode(headers)]
    return frames if payload is None else [*frames, payload]


class Play:
    """A worker, and what it has done."""

    def __init__(
        self,
        managers: int = 2,
        slots: int = 1,
        roles: dict[str, int] | None = None,
        timing: WmpTiming = PACE,
        headers: dict[str, Any] | None = None,
    ) -> None:
        self.now = 1000.0
        self.units = {role.encode(): needed for role, needed in (roles or {"f": 1, "g": 1}).items()}
        self.working = WmpWorkerProtocol(self.units, slots, managers, timing, headers, self._on_news)
        self.slots = slots
        self.jobs: dict[str, WmpJob] = {}  # the last that was started under a reference
        self.sent: list[tuple[int, str, dict[str, Any], bytes | None]] = []  # all of it, in full
        self.kept: list[str] = []  # commands of what must not be lost

    def _on_news(self, job: WmpJob) -> None:
        self.working.progress(job, self.now)

    # --- what happens ---

    def do(self, line: str) -> list[str]:
        """Let something happen; returns what the worker does then."""
        who, _, what = line.partition(" ")
        if line == "start":
            self.working.start(self.now)
        elif line == "stop":
            self.working.stop()
        elif line == "give up":
            self.working.give_up(self.now)
        elif what in ("s pass", "s passes"):
            return self.pass_time(float(who))
        elif who.startswith("m"):
            self._manager(int(who[1:]), what.split())
        else:
            self._job(self.jobs[who], what)
        return self.did()

    def _manager(self, number: int, words: list[str]) -> None:
        if words == ["connects"]:
            self.working.connected(number, self.now)
            return
        headers: dict[str, Any] = {"path": [b"m%d" % number]}
        command = words[1]
        if command == "TAKE":
            headers |= {"job": words[2].encode(), "role": words[3]}
        elif command == "CANCEL":
            headers["job"] = words[2].encode()
        elif command == "WAKE" and len(words) > 2:
            headers["role"] = words[2]
        self.hear(number, message(command, b"payload" if command == "TAKE" else None, **headers))

    def hear(self, number: int, frames: Message) -> None:
        self.working.receive(number, frames, self.now)

    def _job(self, job: WmpJob, what: str) -> None:
        verb, _, words = what.partition(" ")
        if verb == "returns":
            self.working.finished(job, WmpResult(result=words.encode()), self.now)
        elif verb == "fails":
            self.working.finished(job, WmpResult("failed", error=words.encode()), self.now)
        elif what == "gives back":
            self.working.finished(job, WmpResult("returned"), self.now)
        elif what == "is told to stop":
            assert job.cancelled.is_set()
        elif what == "stops":
            assert job.cancelled.is_set()
            self.working.finished(job, WmpResult("cancelled"), self.now)
        else:
            assert verb == "progresses", what
            numerator, _, denominator = words.partition("/")
            job.progress(int(numerator), int(denominator))

    def pass_time(self, seconds: float) -> list[str]:
        """Let time pass, stopping wherever something happens by itself."""
        end = self.now + seconds
        while (moment := self.working.next_deadline()) is not None and moment <= end:
            assert moment > self.now, "the same deadline again"
            self.now = moment
            self.working.advance(self.now)
        self.now = end
        return self.did()

    # --- what the worker does ---

    def did(self) -> list[str]:
        """What it has done since this was last asked."""
        out, self.working.out = self.working.out, []
        return [self._told(step) if isinstance(step, WmpSend) else self._started(step.job) for step in out]

    def _started(self, job: WmpJob) -> str:
        self.jobs[name_of(job.reference)] = job
        return f"{name_of(job.reference)} starts"

    def _told(self, step: WmpSend) -> str:
        frames = step.message
        assert frames[:2] == [b"", b"WMP1"]
        command, headers = frames[2].decode(), msgspec.msgpack.decode(frames[3])
        self.sent.append((step.connection, command, headers, frames[4] if len(frames) > 4 else None))
        if step.keep:
            self.kept.append(command)
        words = [f"m{step.connection}", "hears", command]
        if "job" in headers:
            words.append(name_of(headers["job"]))
        if "status" in headers:
            words.append(headers["status"])
        if "numerator" in headers:
            words.append(f"{headers['numerator']}/{headers['denominator']}")
        return " ".join(words)


def name_of(reference: bytes) -> str:
    return reference.decode(errors="backslashreplace")


def play(transcript: str, **options: Any) -> Play:
    """Play a transcript; fails where the worker does something else."""
    it = Play(**options)
    lines = [line for line in transcript.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    while lines:
        happening = lines.pop(0).strip()
        expected = []
        while lines and len(lines[0]) - len(lines[0].lstrip()) > margin:
            expected.append(lines.pop(0).strip())
        did = it.do(happening)
        assert did == expected, f"after {happening!r} at {it.now - 1000:g} s"
    return it
