"""PING/PONG: clients that wait for their answers, and workers."""

from __future__ import annotations

import asyncio

from torture.peers.load import Load, ServerGone, answer_of, send, token_of

PING_SECONDS = 0.5

# A job goes to another worker as soon as the connection of its worker is lost.  libzmq hides from a worker when that
# happens, so the worker cannot say for how long a job is its own.
NO_LEASE_SECONDS = 0.0


async def client(load: Load) -> None:
    """One request after the other."""
    name = load.name("pingpong client")
    with load.dealer(load.ports.pingpong) as socket:
        while True:
            token = load.token()
            load.history.record("submitting", token, "pingpong", "", -1, 0)
            await send(socket, [b"", load.payload(token)])
            answer = await answer_of(socket.recv_multipart())
            if len(answer) == 2:
                load.history.record("told_end", token, 0, name)
            await asyncio.sleep(0.005)


async def worker(load: Load) -> None:
    """One job at a time; now and then it vanishes with one."""
    name = load.name("pingpong worker")
    with load.dealer(load.ports.pingpong_workers, name) as socket:
        asked_at = load.history.now
        await send(socket, [b"", b"READY"])
        while True:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    frames = await socket.recv_multipart()
            except TimeoutError:
                if load.stopping:
                    raise ServerGone from None
                asked_at = load.history.now
                await send(socket, [b"", b"PING"])
                continue
            if len(frames) != 2 or frames[1] == b"PONG":
                continue
            token = token_of(frames[1])
            load.history.record("assigned", token, 0, 0, name, asked_at, NO_LEASE_SECONDS)
            if load.chance.random() < 0.01:
                return
            load.history.record("reporting", token, "a result", name)
            asked_at = load.history.now
            await send(socket, [b"", b"done"])
