"""WMP: workers.  Nobody acknowledges what they report, so the ends of their jobs are known from others."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import zmq.asyncio

from torture.peers.load import FUNCTIONS, LEASE_SECONDS, Load, ServerGone, send, token_of

READY_AGAIN_SECONDS = 0.5


async def worker(load: Load) -> None:
    """One job at a time; now and then it gives one back, or vanishes with it."""
    name = load.name("wmp worker")
    with load.dealer(load.ports.wmp, name) as socket:
        await _say(socket, b"READY", roles=FUNCTIONS, lease=LEASE_SECONDS, slots=1)
        asked_at = 0
        while True:
            heard = await _hear(socket)
            if heard is None:
                if load.stopping:
                    raise ServerGone
                await _say(socket, b"READY", roles=FUNCTIONS, lease=LEASE_SECONDS, slots=1)
                continue
            command, headers, payload = heard
            if command == b"WAKE":
                asked_at = load.history.now
                await _say(socket, b"GIVE", to=headers["path"], roles=FUNCTIONS, lease=LEASE_SECONDS)
            elif command == b"TAKE":
                token = token_of(payload)
                load.history.record("assigned", token, 0, 0, name, asked_at, load.lease_seconds)
                if load.chance.random() < 0.01:
                    return
                await _finish(load, socket, name, token, headers)
                await _say(socket, b"READY", roles=FUNCTIONS, lease=LEASE_SECONDS, slots=1)
            elif command == b"NO":
                await _say(socket, b"READY", roles=FUNCTIONS, lease=LEASE_SECONDS, slots=1)


async def _finish(load: Load, socket: zmq.asyncio.Socket, name: str, token: str, headers: dict[str, Any]) -> None:
    draw = load.chance.random()
    status = "returned" if draw < 0.04 else "failed" if draw < 0.08 else "done"
    if status == "returned":
        load.history.record("releasing", token, name)
    else:
        load.history.record("reporting", token, f"DONE, {status}", name)
    about = {"to": headers["path"], "job": headers["job"], "manager": headers["manager"], "status": status}
    await _say(socket, b"DONE", b"done", **about)


async def _say(socket: zmq.asyncio.Socket, command: bytes, *payload: bytes, **headers: Any) -> None:
    await send(socket, [b"", b"WMP1", command, msgspec.msgpack.encode(headers), *payload])


async def _hear(socket: zmq.asyncio.Socket) -> tuple[bytes, dict[str, Any], bytes] | None:
    try:
        async with asyncio.timeout(READY_AGAIN_SECONDS):
            frames = await socket.recv_multipart()
    except TimeoutError:
        return None
    return frames[2], msgspec.msgpack.decode(frames[3]), frames[4] if len(frames) > 4 else b""
