"""A WMP manager without sockets, and workers that speak to it, directly or through devices.

harness = WmpHarness()
worker = harness.worker("w1")                 # or harness.worker("d1/w1"): behind a device of that name
worker.say(READY, roles=["echo"])
job = harness.submit("echo", b"hi")
assert worker.hear() == WAKE
"""

from __future__ import annotations

from typing import Any

from switchgear.engine.engine import EngineSettings
from switchgear.model import NORMAL, Delivery, Job
from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.codec import READY, TAKE, decode, encode
from switchgear.protocols.wmp.manager import ManagerSession, WmpSetup
from tests.protocols.message_harness import MessageHarness

__all__ = ["MANAGER", "WmpHarness", "WmpWorker"]

MANAGER = b"manager-1"


class WmpHarness(MessageHarness):
    """The manager's engine, with what tests do to it."""

    def __init__(
        self,
        *,
        keeps: bool = False,
        timeout: float = 600,
        paths: int = 10_000,
        identity: bytes = MANAGER,
        settings: EngineSettings | None = None,
    ) -> None:
        super().__init__(keeps=keeps, settings=settings)
        self.setup = WmpSetup(identity, timeout_us=int(timeout * 1e6), paths=paths)
        self.router = self.listener(lambda context, transport: ManagerSession(context, transport, self.setup))
        self.references: dict[int, list[bytes]] = {}  # by job, in the order in which they were given
        self.submitted: list[Job] = []
        self._inboxes: dict[tuple[bytes, ...], list[Message]] = {}

    @property
    def manager(self) -> ManagerSession:
        session = self.router.session
        assert isinstance(session, ManagerSession)
        return session

    def worker(self, name: str) -> WmpWorker:
        return WmpWorker(self, *(part.encode() for part in name.split("/")))

    def submit(self, function: str, payload: bytes = b"", delivery: int = Delivery.THROW_AWAY) -> Job:
        job = self.engine.submit(function.encode(), b"", payload, NORMAL, delivery)
        self.submitted.append(job)
        self.turn()
        return job

    def job(self, job_id: int) -> Job:
        return next(job for job in self.submitted if job.id == job_id)

    def cancel(self, job: Job) -> None:
        self.engine.cancel(job)
        self.turn()

    def take_bad_input(self) -> list[str]:
        """The codes of what was complained of since this was last asked."""
        codes = [code for code, _ in self.bad_input]
        self.bad_input.clear()
        return codes

    def messages_for(self, path: tuple[bytes, ...]) -> list[Message]:
        """What was sent along this path and not heard yet."""
        for message in self.router.heard_by_all():
            headers = decode(message[1:])[1]
            self._inboxes.setdefault((message[0], *headers.get("to", ())), []).append(message)
        return self._inboxes.setdefault(path, [])

    def unheard(self) -> list[Message]:
        self.messages_for(())
        return [message for inbox in self._inboxes.values() for message in inbox]


class WmpWorker:
    """A worker at the end of a path: the names of the devices first, its own last."""

    def __init__(self, harness: WmpHarness, *path: bytes) -> None:
        self.harness = harness
        self.path = path

    def say(self, command: bytes, payload: bytes | None = None, **headers: Any) -> None:
        """Send a command with its route, unless the headers have another."""
        self.harness.router.send(*self.message(command, payload, **headers))

    def message(self, command: bytes, payload: bytes | None = None, **headers: Any) -> Message:
        if len(self.path) > 1:
            headers.setdefault("path", list(self.path[1:]))
        if command != READY:
            headers.setdefault("to", [MANAGER])
        return [self.path[0], *encode(command, headers, payload)]

    def hear(self) -> tuple[bytes, dict[str, Any], bytes | None] | None:
        """The next message, or None.  The routes of each are checked here, so that tests need not speak of them."""
        inbox = self.harness.messages_for(self.path)
        if not inbox:
            return None
        command, headers, payload = decode(inbox.pop(0)[1:])
        assert headers.pop("to", []) == list(self.path[1:])
        assert headers.pop("path") == [MANAGER]
        if command == TAKE:
            reference = headers["job"]
            self.harness.references.setdefault(int(reference.partition(b".")[0]), []).append(reference)
        return command, headers, payload

    def hear_command(self) -> bytes | None:
        heard = self.hear()
        return heard[0] if heard is not None else None

    def take(self, *roles: str, **headers: Any) -> bytes:
        """Ask for a job that is there; returns its reference."""
        self.say(READY, roles=list(roles) or ["echo"], **headers)
        assert self.hear_command() == b"WAKE"
        self.say(b"GIVE")
        heard = self.hear()
        assert heard is not None
        assert heard[0] == TAKE
        reference = heard[1]["job"]
        assert isinstance(reference, bytes)
        return reference
