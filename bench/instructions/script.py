"""The fixed script whose instructions are counted: jobs through sessions, engine and hub, without a socket.

    python -m bench.instructions.script background=1000 drain=1000 foreground=500 push=500

Every number is a count of jobs.  Whatever it does for one job it does for all, and nothing depends on time or chance.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from switchgear.engine.engine import Engine
from switchgear.net.clock import SystemClock
from switchgear.net.hub import Hub
from switchgear.protocols.gearman.admin import on_line
from switchgear.protocols.gearman.codec import request
from switchgear.protocols.gearman.messages import Packet
from switchgear.protocols.gearman.packet_dispatch import handle_messages
from switchgear.protocols.gearman.session import GearmanSession, GearmanSetup
from switchgear.protocols.http.browser_guard import BrowserGuard
from switchgear.protocols.http.listener import HttpState
from switchgear.protocols.http.routes import ROUTES
from switchgear.protocols.http.routing import Router
from switchgear.protocols.http.session import HttpSession
from switchgear.protocols.http.session_setup import HttpSetup
from switchgear.protocols.session import ByteSession
from switchgear.protocols.transport import PeerTransport
from switchgear.storage.memory import MemoryStore
from switchgear.telemetry import Telemetry

BATCH: Final = 32  # packets in one read, as a busy peer sends them
PAYLOAD: Final = b"x" * 100
MODES: Final = ("background", "drain", "foreground", "push", "http", "http_json", "http_take", "http_poll")
AFTER_BACKGROUND: Final = ("drain", "http_take", "http_poll")  # which take the jobs that `background` has submitted
HANDLE_LINE: Final = re.compile(rb"Switchgear-Job: (\S+)")
HANDLE_FIELD: Final = re.compile(rb'"handle":"(\S+?)"')


class NoWire(PeerTransport):
    """Takes what it is given."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.out: list[bytes] = []

    def when_taken(self, go_on: Callable[[], None]) -> None:
        self.hub.soon(go_on)

    def write(self, out: list[Any]) -> None:
        self.out.extend(out)

    def close(self) -> None:
        raise RuntimeError("nobody should be hung up on")

    def take(self) -> list[bytes]:
        out, self.out = self.out, []
        return out


class Peer:
    """One end of a conversation, played by the script."""

    def __init__(self, hub: Hub, setup: GearmanSetup | HttpSetup) -> None:
        self.hub = hub
        self.wire = NoWire(hub)
        self.session: ByteSession
        if isinstance(setup, HttpSetup):
            self.session = HttpSession(hub, self.wire, setup)
        else:
            self.session = GearmanSession(hub, self.wire, setup)

    async def say(self, *packets: bytes) -> list[bytes]:
        """What is answered, in one turn, to packets that arrive in one read."""
        self.hub.begin_turn()
        self.session.receive(b"".join(packets))
        await asyncio.sleep(0)  # in which the turn ends
        return self.wire.take()


def submission(kind: Packet, number: int) -> bytes:
    return request(kind, b"work", b"%036d" % number, PAYLOAD)


def handle_of(answer: bytes) -> bytes:
    """The first argument of a packet."""
    return answer[12:].partition(b"\0")[0]


def check(answers: list[bytes], kind: Packet, count: int) -> None:
    """The script must do what it says, or its figures mean nothing."""
    kinds = [int.from_bytes(answer[4:8], "big") for answer in answers]
    if kinds != [kind] * count:
        raise SystemExit(f"expected {count} times {kind.name}, got {kinds}")


async def background(client: Peer, worker: Peer, jobs: int) -> None:
    """Submit jobs that nobody waits for, many in one read."""
    for first in range(0, jobs, BATCH):
        numbers = range(first, min(first + BATCH, jobs))
        packets = [submission(Packet.SUBMIT_JOB_BG, number) for number in numbers]
        check(await client.say(*packets), Packet.JOB_CREATED, len(packets))


async def http(client: Peer, worker: Peer, jobs: int) -> None:
    """What `background` does, over HTTP: each payload is the body of a request."""
    await post(client, [http_request(b"/v1/functions/work/jobs", PAYLOAD)] * jobs)


async def http_json(client: Peer, worker: Peer, jobs: int) -> None:
    """The same with JSON, and with a unique key as Gearman's submissions have."""
    text = b'{"function": "work", "payload": "%b", "unique": "%036d"}'
    await post(client, [http_request(b"/v1/jobs", text % (PAYLOAD, number)) for number in range(jobs)])


def http_request(target: bytes, body: bytes, method: bytes = b"POST", lines: bytes = b"") -> bytes:
    """A request as curl would send it."""
    head = b"%b %b HTTP/1.1\r\nHost: 127.0.0.1:4740\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n%bContent-Length: %d"
    return (head + b"\r\n\r\n%b") % (method, target, lines, len(body), body)


async def http_take(client: Peer, worker: Peer, jobs: int) -> None:
    """What `drain` does, over HTTP: each job is taken and reported on by itself."""
    take = http_request(b"/v1/functions/work/take", b"")
    for first in range(0, jobs, BATCH):
        count = min(BATCH, jobs - first)
        handles = HANDLE_LINE.findall(b"".join(await worker.say(*[take] * count)))
        await report(worker, handles, count)


async def http_poll(client: Peer, worker: Peer, jobs: int) -> None:
    """The same by a registered worker that asks for many jobs at a time."""
    body = b'{"functions": ["work"]}'
    poll = b"/v1/workers/%b/poll?max=%d"
    answer = b"".join(await worker.say(http_request(b"/v1/workers", body)))
    ask = http_request(poll % (answer.partition(b"Location: /v1/workers/")[2].partition(b"\r\n")[0], BATCH), b"")
    for first in range(0, jobs, BATCH):
        handles = HANDLE_FIELD.findall(b"".join(await worker.say(ask)))
        await report(worker, handles, min(BATCH, jobs - first))


async def report(worker: Peer, handles: list[bytes], count: int) -> None:
    """Send the results of jobs."""
    if len(handles) != count:
        raise SystemExit(f"expected {count} jobs, got {handles}")
    lines = b"Switchgear-Attempt: 1\r\n"
    reports = [http_request(b"/v1/jobs/%b/result" % handle, b"done", b"PUT", lines) for handle in handles]
    answers = b"".join(await worker.say(*reports))
    if answers.count(b"HTTP/1.1 204 No Content") != count:
        raise SystemExit(f"expected {count} times 204, got {answers!r}")


async def post(client: Peer, requests: list[bytes]) -> None:
    """Make requests, many in one read."""
    for first in range(0, len(requests), BATCH):
        some = requests[first : first + BATCH]
        answers = await client.say(*some)
        if b"".join(answers).count(b"HTTP/1.1 201 Created") != len(some):
            raise SystemExit(f"expected {len(some)} times 201, got {answers}")


async def drain(client: Peer, worker: Peer, jobs: int) -> None:
    """Take and complete what `background` has submitted."""
    await worker.say(request(Packet.CAN_DO, b"work"))
    grab = request(Packet.GRAB_JOB)
    for first in range(0, jobs, BATCH):
        count = min(BATCH, jobs - first)
        assigned = await worker.say(*[grab] * count)
        check(assigned, Packet.JOB_ASSIGN, count)
        await worker.say(*(request(Packet.WORK_COMPLETE, handle_of(answer), b"done") for answer in assigned))


async def foreground(client: Peer, worker: Peer, jobs: int) -> None:
    """One job at a time for a client that waits, by a worker that sleeps and is woken."""
    await worker.say(request(Packet.CAN_DO, b"work"), request(Packet.PRE_SLEEP))
    for number in range(jobs):
        check(await client.say(submission(Packet.SUBMIT_JOB, number)), Packet.JOB_CREATED, 1)
        check(worker.wire.take(), Packet.NOOP, 1)
        assigned = await worker.say(request(Packet.GRAB_JOB))
        check(assigned, Packet.JOB_ASSIGN, 1)
        complete = request(Packet.WORK_COMPLETE, handle_of(assigned[0]), b"done")
        await worker.say(complete, request(Packet.PRE_SLEEP))
        check(client.wire.take(), Packet.WORK_COMPLETE, 1)


async def push(client: Peer, worker: Peer, jobs: int) -> None:
    """Jobs for clients that wait, by a worker that has granted credit."""
    await worker.say(request(Packet.OPTION_REQ, b"switchgear"), request(Packet.CAN_DO, b"work"))
    await worker.say(request(Packet.CREDIT, b"%d" % BATCH, b"0"))
    for first in range(0, jobs, BATCH):
        count = min(BATCH, jobs - first)
        packets = [submission(Packet.SUBMIT_JOB, number) for number in range(first, first + count)]
        check(await client.say(*packets), Packet.JOB_CREATED, count)
        pushed = worker.wire.take()
        for _ in range(3):  # now and then the server pushes no more until it knows that the last ones were taken
            if len(pushed) < count:
                await asyncio.sleep(0)
                pushed += worker.wire.take()
        check(pushed, Packet.JOB_PUSH, count)
        reports = [request(Packet.WORK_COMPLETE, handle_of(answer), b"done") for answer in pushed]
        await worker.say(*reports, request(Packet.CREDIT, b"%d" % count, b"0"))
        check(client.wire.take(), Packet.WORK_COMPLETE, count)


async def run(counts: dict[str, int]) -> None:
    """Each part with a server of its own; where jobs are taken, `background` submits them first."""
    gc.disable()  # when it runs depends on everything before
    parts: dict[str, Callable[[Peer, Peer, int], Awaitable[None]]] = {
        "background": background,
        "drain": drain,
        "foreground": foreground,
        "push": push,
        "http": http,
        "http_json": http_json,
        "http_take": http_take,
        "http_poll": http_poll,
    }
    for mode, jobs in counts.items():
        engine = Engine()
        hub = Hub(engine, MemoryStore(), SystemClock(), Telemetry(lambda: 0.0))
        gearman = GearmanSetup(b"H:host:", "0", handle_messages, on_line)
        http_setup = HttpSetup(Router(ROUTES, BrowserGuard(())), b"H:host:", 1_000_000, 512)
        http_setup.share(HttpState(engine))
        client = Peer(hub, http_setup if mode in ("http", "http_json") else gearman)
        worker = Peer(hub, http_setup if mode.startswith("http") else gearman)
        if mode in AFTER_BACKGROUND:
            await background(client, worker, jobs)
        await parts[mode](client, worker, jobs)


def main() -> None:
    counts = {}
    for word in sys.argv[1:]:
        mode, _, jobs = word.partition("=")
        if mode not in MODES or not jobs.isdigit():
            raise SystemExit(f"{word}: expected one of {', '.join(MODES)}, an equals sign and a number of jobs")
        counts[mode] = int(jobs)
    asyncio.run(run(counts))


if __name__ == "__main__":
    main()
