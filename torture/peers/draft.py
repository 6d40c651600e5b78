"""The Gearman draft of 2005: applications and workers."""

from __future__ import annotations

import asyncio
import struct

from torture.peers.load import FUNCTIONS, PATIENCE_SECONDS, Load, number_of, token_of
from torture.peers.tcp import Connection

NOOP, WORKER_CONNECT, JOB_CREATE_REQ, JOB_CREATE_RES, JOB_ASSIGN_REQ, JOB_ASSIGN_RES = 0, 1, 4, 5, 6, 7
JOB_STATUS_RES, JOB_COMPLETE_ANNOUNCE, JOB_COMPLETE_RES, ERROR = 10, 11, 13, 14
WAIT, HANDLE, THROW_AWAY = range(3)
_HEADER = struct.Struct(">4sBI")


def packet(kind: int, body: bytes = b"") -> bytes:
    return _HEADER.pack(b"\0JOB", kind, len(body)) + body


class DraftConnection(Connection):
    """Packets."""

    async def receive_packet(self) -> tuple[int, bytes]:
        _, kind, size = _HEADER.unpack(await self.receive(_HEADER.size, PATIENCE_SECONDS))
        return kind, await self.receive(size)


async def application(load: Load) -> None:
    """Creates jobs of all three types, one after the other."""
    async with DraftConnection(load, load.ports.gearman, "draft application") as peer:
        while True:
            if load.is_full():
                await asyncio.sleep(0.02)
            await _create(load, peer)


async def _create(load: Load, peer: DraftConnection) -> None:
    token = load.token()
    job_type = load.chance.choice((WAIT, HANDLE, HANDLE, THROW_AWAY, THROW_AWAY))
    function = load.chance.choice(("mail", "index"))
    # Nobody is told the number of a job that is thrown away, so its key has to name it.
    key = load.chance.choice(("", token)) if job_type == HANDLE else token
    load.history.record("submitting", token, function, key, -1, 0)
    head = b"%b\0%b\0" % (function.encode(), key.encode())
    peer.send(packet(JOB_CREATE_REQ, head + bytes([0, job_type]) + load.payload(token)))
    kind, body = await peer.receive_packet()
    if kind != JOB_CREATE_RES:
        load.history.record("refused", token, body.decode("utf-8", "replace"), peer.name)
        return
    if job_type != WAIT:
        load.history.record("acknowledged", token, number_of(body), peer.name)
        return
    load.history.record("created", token, 0, peer.name)
    while kind != JOB_COMPLETE_RES:
        kind, body = await peer.receive_packet()
        if kind == ERROR:
            return
    load.history.record("told_end", token, 0, peer.name)


async def worker(load: Load) -> None:
    """One task at a time; now and then it hangs up with one."""
    async with DraftConnection(load, load.ports.gearman, "draft worker") as peer:
        peer.send(packet(WORKER_CONNECT, b"\0".join(function.encode() for function in FUNCTIONS)))
        report: list[bytes] = []
        while True:
            question = load.history.record("asks", peer.name)
            peer.send(*report, packet(JOB_ASSIGN_REQ))
            report = []
            kind, body = await peer.receive_packet()
            while kind == ERROR:
                load.history.record("denied", question, body.decode("utf-8", "replace"))
                kind, body = await peer.receive_packet()
            if kind == JOB_ASSIGN_RES:
                token = token_of(body.partition(b"\0")[2])
                load.history.record("assigned", token, 0, question, peer.name, 0, load.held_seconds)
                _acknowledge(load, question)
                if load.chance.random() < 0.02:
                    return
                code = 0 if load.chance.random() > 0.05 else 17
                load.history.record("reporting", token, f"job_complete_announce {code}", peer.name)
                report = [packet(JOB_COMPLETE_ANNOUNCE, bytes([code]) + b"done")]
            else:
                _acknowledge(load, question)
                await asyncio.sleep(0.01)


def _acknowledge(load: Load, question: int) -> None:
    """A server that takes tasks back ignores what is announced about them, and the draft has no word for that."""
    load.history.record("unanswered" if load.history.may_take_back else "answered", question)
