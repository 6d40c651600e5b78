"""GearMonkey, in RESP: clients and workers."""

from __future__ import annotations

import asyncio
from typing import Any

from torture.peers.load import FUNCTIONS, KEYED_FUNCTION, PATIENCE_SECONDS, Load, Surprise, token_of
from torture.peers.tcp import Connection

PRIORITIES = ("high", "normal", "low")


class RespError(Surprise):
    """The server says no."""


class RespConnection(Connection):
    """Commands and replies."""

    async def ask(self, *words: str | bytes | int, patience: float = PATIENCE_SECONDS) -> Any:
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(encoded)]
        parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
        self.send(*parts)
        return await self._reply(patience)

    async def _reply(self, patience: float) -> Any:
        line = (await self.receive_line(patience)).rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RespError(rest.decode("utf-8", "replace"))
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else (await self.receive(int(rest) + 2))[:-2]
        return None if rest == b"-1" else [await self._reply(patience) for _ in range(int(rest))]


async def client(load: Load) -> None:
    """Writes jobs and pushes them."""
    async with RespConnection(load, load.ports.gearmonkey, "gearmonkey client") as peer:
        while True:
            if load.is_full():
                await asyncio.sleep(0.02)
            token, function = load.token(), load.chance.choice(("mail", "index"))
            load.history.record("submitting", token, function, "", -1, 0)
            try:
                number = await peer.ask("INCR", f"uid:{function}")
                job = f"job:{function}:{number}"
                await peer.ask("HMSET", job, "status", "idle", "input", load.payload(token))
                await peer.ask("LPUSH", f"queue:{function}:{load.chance.choice(PRIORITIES)}", number)
            except RespError as error:
                load.history.record("refused", token, str(error), peer.name)
                await asyncio.sleep(0.02)
            else:
                load.history.record("acknowledged", token, number, peer.name)


async def worker(load: Load) -> None:
    """Pops jobs and writes their results; now and then it hangs up with one."""
    queues = [f"queue:{function}:{priority}" for function in (*FUNCTIONS, KEYED_FUNCTION) for priority in PRIORITIES]
    async with RespConnection(load, load.ports.gearmonkey, "gearmonkey worker") as peer:
        while True:
            asked_at = load.history.now
            try:
                popped = await peer.ask("BRPOP", *queues, 1)
            except RespError:
                await asyncio.sleep(0.02)
                continue
            if popped is None:
                continue
            _, function, _ = popped[0].decode().split(":")
            number = int(popped[1])
            job = f"job:{function}:{number}"
            payload = await peer.ask("HGET", job, "input")
            token = token_of(payload)
            load.history.record("assigned", token, number, 0, peer.name, asked_at, load.held_seconds)
            if load.chance.random() < 0.02:
                return
            await _report(load, peer, job, token)


async def _report(load: Load, peer: RespConnection, job: str, token: str) -> None:
    status = "success" if load.chance.random() > 0.05 else "error"
    load.history.record("reporting", token, f"status {status}", peer.name)
    question = load.history.record("asks", peer.name)
    try:
        await peer.ask("HMSET", job, "status", status, "output", "done")
    except RespError as error:
        load.history.record("denied", question, str(error))
        load.history.record("unanswered", question)
    else:
        load.history.record("answered", question)
