"""Gearman: submitters, clients that wait, cancellers and workers."""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
from collections import deque
from typing import Any

from torture.peers.load import FUNCTIONS, KEYED_FUNCTION, PATIENCE_SECONDS, Load, ServerGone, number_of, token_of
from torture.peers.tcp import Connection

CAN_DO, PRE_SLEEP, NOOP, SUBMIT_JOB, JOB_CREATED, GRAB_JOB, NO_JOB, JOB_ASSIGN = 1, 4, 6, 7, 8, 9, 10, 11
WORK_COMPLETE, WORK_FAIL, ECHO_REQ, SUBMIT_JOB_BG, ERROR, SUBMIT_JOB_HIGH = 13, 14, 16, 18, 19, 21
SUBMIT_JOB_HIGH_BG, SUBMIT_JOB_LOW_BG, SUBMIT_JOB_EPOCH = 32, 34, 36
SUBMIT_JOB_OPTIONS, CONTROL, CONTROL_RES, JOB_ENDED = 1000, 1001, 1002, 1005  # extensions of this server
WORK_EXCEPTION = 25
ENDS = (WORK_COMPLETE, WORK_FAIL, WORK_EXCEPTION, JOB_ENDED)
UNKNOWN_JOB = "there is no such job"
_HEADER = struct.Struct(">4sII")


def request(kind: int, *arguments: bytes) -> bytes:
    body = b"\0".join(arguments)
    return _HEADER.pack(b"\0REQ", kind, len(body)) + body


class GearmanConnection(Connection):
    """Packets."""

    async def receive_packet(self, patience: float = PATIENCE_SECONDS) -> tuple[int, bytes]:
        _, kind, size = _HEADER.unpack(await self.receive(_HEADER.size, patience))
        return kind, await self.receive(size)

    async def ask(self, verb: bytes, patience: float = PATIENCE_SECONDS, **arguments: Any) -> Any:
        """The answer to an operator's question; raises LookupError with the reason if there is none."""
        self.send(request(CONTROL, verb, json.dumps(arguments).encode()))
        kind, body = await self.receive_packet(patience)
        if kind != CONTROL_RES:
            raise LookupError(body.replace(b"\0", b": ").decode("utf-8", "replace"))
        return json.loads(body)


def connection(load: Load, role: str) -> GearmanConnection:
    return GearmanConnection(load, load.ports.gearman, "gearman " + role)


# --- submitters ---


async def submitter(load: Load) -> None:
    """Background submissions, sent on while the answers to earlier ones are not there yet."""
    async with connection(load, "submitter") as peer:
        waiting: deque[str] = deque()
        while True:
            _submit_more(load, peer, waiting, load.chance.randint(1, 30))
            await _submission_answer(load, peer, waiting.popleft())


async def streaming_submitter(load: Load) -> None:
    """Background submissions one by one, without a look at the answers, so that some arrive while the server is in the
    middle of anything."""
    async with connection(load, "streaming submitter") as peer:
        while True:
            waiting: deque[str] = deque()
            for _ in range(load.chance.randint(5, 60)):
                _submit_more(load, peer, waiting, len(waiting) + 1)
                await asyncio.sleep(0)
            while waiting:
                await _submission_answer(load, peer, waiting.popleft())


def _submit_more(load: Load, peer: GearmanConnection, waiting: deque[str], window: int) -> None:
    packets = []
    while len(waiting) < window:
        if load.is_full():
            if not waiting:
                waiting.append("")
                packets.append(request(ECHO_REQ, b"anybody there?"))
            break
        token = load.token()
        packets.append(_submission(load, token))
        waiting.append(token)
    peer.send(*packets)


def _submission(load: Load, token: str) -> bytes:
    """A durable job of one of the ways to submit one."""
    draw = load.chance.random()
    function = load.chance.choice(FUNCTIONS)
    unique = load.chance.choice(("", token)) if function != "dwork" else ""
    if draw < 0.1:
        limit = load.chance.randint(1, 3)
        load.history.record("submitting", token, function, unique, limit, 0)
        options = json.dumps({"attempts": limit, "priority": load.chance.choice(("high", "low"))})
        return request(SUBMIT_JOB_OPTIONS, function.encode(), unique.encode(), options.encode(), load.payload(token))
    if draw < 0.15:
        run_at = int(load.server_time() + load.chance.choice((-5, 1, 2)))
        load.history.record("submitting", token, function, unique, -1, run_at)
        return request(SUBMIT_JOB_EPOCH, function.encode(), unique.encode(), b"%d" % run_at, load.payload(token))
    load.history.record("submitting", token, function, unique, -1, 0)
    kind = load.chance.choice((SUBMIT_JOB_BG, SUBMIT_JOB_HIGH_BG, SUBMIT_JOB_LOW_BG))
    return request(kind, function.encode(), unique.encode(), load.payload(token))


async def _submission_answer(load: Load, peer: GearmanConnection, token: str) -> None:
    kind, body = await peer.receive_packet()
    if kind == JOB_CREATED:
        load.history.record("acknowledged", token, number_of(body), peer.name)
    elif token:
        load.history.record("refused", token, body.decode("utf-8", "replace"), peer.name)


async def unique_submitter(load: Load) -> None:
    """Submissions with a few keys that others use as well."""
    async with connection(load, "unique submitter") as peer:
        while True:
            function = KEYED_FUNCTION
            token, key = load.token(), f"key{load.chance.randrange(8)}"
            load.history.record("submitting", token, function, key, 0, 0)
            options = b'{"attempts": 0}'  # the same for all, whoever comes first
            peer.send(request(SUBMIT_JOB_OPTIONS, function.encode(), key.encode(), options, load.payload(token)))
            await _submission_answer(load, peer, token)
            await asyncio.sleep(0.002)


async def steady_submitter(load: Load, function: str) -> None:
    """Background submissions to one function, one after the other, also while others find that enough jobs wait."""
    async with connection(load, f"steady submitter of {function}") as peer:
        while True:
            token = load.token()
            load.history.record("submitting", token, function, "", -1, 0)
            peer.send(request(SUBMIT_JOB_BG, function.encode(), b"", load.payload(token)))
            await _submission_answer(load, peer, token)
            await asyncio.sleep(0.1 if load.is_full() else 0.01)


async def waiting_client(load: Load) -> None:
    """Foreground submissions, half of which somebody else submits in the background too."""
    async with connection(load, "waiting client") as peer, connection(load, "twin") as twin:
        while True:
            token = load.token()
            function, payload = KEYED_FUNCTION.encode(), load.payload(token)
            load.history.record("submitting", token, function.decode(), token, -1, 0)
            peer.send(request(SUBMIT_JOB_HIGH, function, token.encode(), payload))
            if load.chance.random() < 0.5:
                other = load.token()
                load.history.record("submitting", other, function.decode(), token, -1, 0)
                twin.send(request(SUBMIT_JOB_BG, function, token.encode(), load.payload(other)))
                await asyncio.gather(_wait_end(load, peer, token, durable=False), _submission_answer(load, twin, other))
            else:
                await _wait_end(load, peer, token, durable=False)


async def watching_client(load: Load) -> None:
    """Background submissions whose ends are told to it: so ends are acknowledged that workers cannot be told of."""
    async with connection(load, "watching client") as peer:
        while True:
            token, function = load.token(), load.chance.choice(FUNCTIONS)
            load.history.record("submitting", token, function, "", -1, 0)
            options = b'{"watch": true, "priority": "high"}'
            peer.send(request(SUBMIT_JOB_OPTIONS, function.encode(), b"", options, load.payload(token)))
            await _wait_end(load, peer, token, durable=True)


async def _wait_end(load: Load, peer: GearmanConnection, token: str, *, durable: bool) -> None:
    number = 0
    while True:
        kind, body = await peer.receive_packet()
        if kind == JOB_CREATED:
            number = number_of(body)
            load.history.record("acknowledged" if durable else "created", token, number, peer.name)
        elif kind == ERROR:
            load.history.record("refused", token, body.decode("utf-8", "replace"), peer.name)
            return
        elif kind in ENDS:
            load.history.record("told_end", token, number_of(body.partition(b"\0")[0]), peer.name)
            return


# --- cancellers ---


async def text_canceller(load: Load) -> None:
    async with connection(load, "text canceller") as peer:
        while True:
            number = await _prey(load)
            load.history.record("cancelling", number, peer.name)
            peer.send(b"cancel job %b:%d\n" % (load.handle_prefix, number))
            line = await peer.receive_line()
            if line.startswith((b"OK", b"ERR UNKNOWN_JOB")):
                _cancel_answer(load, peer, number, line.startswith(b"OK"))


async def packet_canceller(load: Load) -> None:
    async with connection(load, "packet canceller") as peer:
        while True:
            number = await _prey(load)
            load.history.record("cancelling", number, peer.name)
            try:
                await peer.ask(b"cancel", handle=str(number))
            except LookupError as error:
                if UNKNOWN_JOB in str(error):
                    _cancel_answer(load, peer, number, False)
                # Otherwise it may have been cancelled or not, as if there were no answer.
            else:
                _cancel_answer(load, peer, number, True)


async def _prey(load: Load) -> int:
    """The number of some job that waits or runs; now and then, so that most jobs live."""
    while True:
        await asyncio.sleep(0.01 + 0.05 * load.chance.random())
        owed = [job.number for job in itertools.islice(load.history.owed, 100) if job.number]
        if owed:
            return load.chance.choice(owed)


def _cancel_answer(load: Load, peer: GearmanConnection, number: int, done: bool) -> None:
    load.history.record("cancelled" if done else "not_cancelled", number, peer.name)


# --- workers ---


async def worker(load: Load) -> None:
    """Takes some jobs, reports on them in any order or not at all, and hangs up when it likes."""
    most_held = load.chance.choice((1, 4))
    async with connection(load, "worker") as peer:
        peer.send(*(request(CAN_DO, function.encode()) for function in (*FUNCTIONS, KEYED_FUNCTION)))
        held: list[tuple[bytes, str]] = []
        forgotten = 0
        while forgotten < 3 and load.chance.random() > 0.002:
            packets: list[bytes] = []
            load.chance.shuffle(held)
            for _ in range(load.chance.randint(0, len(held))):
                draw = load.chance.random()
                handle, token = held.pop()
                if draw < 0.03:
                    forgotten += 1  # never reported; it goes back when we hang up
                    continue
                packets.append(_report(load, peer, handle, token, failing=draw < 0.1))
            wanted = load.chance.randint(1, max(1, most_held - len(held)))
            given = await _grab(load, peer, packets, wanted)
            held += given
            if not held and not given:
                await _sleep(load, peer)


async def healthy_worker(load: Load) -> None:
    """Takes and completes jobs until there is none."""
    async with connection(load, "healthy worker") as peer:
        peer.send(*(request(CAN_DO, function.encode()) for function in (*FUNCTIONS, KEYED_FUNCTION)))
        given = await _grab(load, peer, [], 50)
        while given:
            reports = [_report(load, peer, handle, token, failing=False) for handle, token in given]
            given = await _grab(load, peer, reports, 50)


def _report(load: Load, peer: GearmanConnection, handle: bytes, token: str, *, failing: bool) -> bytes:
    load.history.record("reporting", token, "WORK_FAIL" if failing else "WORK_COMPLETE", peer.name)
    return request(WORK_FAIL, handle) if failing else request(WORK_COMPLETE, handle, b"done")


async def _grab(load: Load, peer: GearmanConnection, packets: list[bytes], wanted: int) -> list[tuple[bytes, str]]:
    """Send these, and ask for so many jobs; those that were given."""
    questions = []
    for _ in range(wanted):
        questions.append(load.history.record("asks", peer.name))
        packets.append(request(GRAB_JOB))
    peer.send(*packets)
    given = []
    for question in questions:
        kind, body = await peer.receive_packet()
        while kind in (NOOP, ERROR):
            if kind == ERROR:
                load.history.record("denied", question, body.decode("utf-8", "replace"))
            kind, body = await peer.receive_packet()
        if kind == JOB_ASSIGN:
            handle, _, payload = body.split(b"\0", 2)
            token = token_of(payload)
            number = number_of(handle)
            load.history.record("assigned", token, number, question, peer.name, 0, load.held_seconds)
            given.append((handle, token))
        load.history.record("answered", question)
    return given


async def _sleep(load: Load, peer: GearmanConnection) -> None:
    peer.send(request(PRE_SLEEP))
    try:
        while (await peer.receive_packet(PATIENCE_SECONDS))[0] != NOOP:
            pass
    except ServerGone:
        if load.stopping:
            raise
