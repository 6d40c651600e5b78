"""dwork: creators of tasks, and workers that steal them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import zmq.asyncio

from torture.peers.load import LEASE_SECONDS, Load, answer_of, send, token_of

CREATE, STEAL, COMPLETE, TRANSFER, NOT_FOUND, OK, EXIT, ERROR = 0, 1, 2, 3, 5, 6, 7, 8


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def task(name: bytes, after: tuple[bytes, ...] = ()) -> bytes:
    preds = b"".join(bytes_field(4, bytes_field(1, pred)) for pred in after)
    return bytes_field(2, bytes_field(1, name) + bytes_field(2, b"torture") + preds)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer, numbers and bytes."""
    position = 0

    def read() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        key = read()
        if key & 7:
            size = read()
            yield key >> 3, message[position : position + size]
            position += size
        else:
            yield key >> 3, read()


async def ask(socket: zmq.asyncio.Socket, request: bytes) -> tuple[int, list[bytes], str]:
    """The type of the answer, the names of its tasks, and its reason."""
    await send(socket, [b"", request])
    _, answer = await answer_of(socket.recv_multipart())
    kind, names, reason = -1, [], ""
    for field, value in fields(answer):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 2 and isinstance(value, bytes):
            names.append(next(name for number, name in fields(value) if number == 1 and isinstance(name, bytes)))
        elif field == 100 and isinstance(value, bytes):
            reason = value.decode("utf-8", "replace")
    return kind, names, reason


async def creator(load: Load) -> None:
    """Creates some tasks at a time, of which each may wait for the one before it."""
    name = load.name("dwork creator")
    with load.dealer(load.ports.dwork) as socket:
        while True:
            if load.is_full():
                await asyncio.sleep(0.02)
            tokens = [load.token() for _ in range(load.chance.randint(1, 5))]
            request, before = number_field(1, CREATE), b""
            for token in tokens:
                load.history.record("submitting", token, "dwork", "", -1, 0)
                request += task(token.encode(), (before,) if before and load.chance.random() < 0.3 else ())
                before = token.encode()
            kind, _, reason = await ask(socket, request)
            for token in tokens:
                if kind == OK:
                    load.history.record("acknowledged", token, 0, name)
                else:
                    load.history.record("refused", token, reason, name)


async def worker(load: Load) -> None:
    """Steals some tasks at a time, and completes them or gives them back; now and then it vanishes with one."""
    name = load.name("dwork worker")
    location = bytes_field(6, name.encode())
    with load.dealer(load.ports.dwork) as socket:
        while True:
            asked_at = load.history.now
            steal = number_field(1, STEAL) + number_field(4, load.chance.randint(1, 4)) + location
            steal += number_field(101, 300) + number_field(102, LEASE_SECONDS * 1000)
            kind, names, _ = await ask(socket, steal)
            if kind != TRANSFER:
                await asyncio.sleep(0.01)
                continue
            for payload in names:
                token = token_of(payload)
                load.history.record("assigned", token, 0, 0, name, asked_at, load.lease_seconds)
            draw = load.chance.random()
            if draw < 0.01:
                return
            if draw < 0.05:
                await _transfer(load, socket, name, names)
            else:
                await _complete(load, socket, name, names)


async def _transfer(load: Load, socket: zmq.asyncio.Socket, name: str, names: list[bytes]) -> None:
    for payload in names:
        load.history.record("releasing", token_of(payload), name)
    tasks = b"".join(task(payload) for payload in names)
    await ask(socket, number_field(1, TRANSFER) + tasks + bytes_field(6, name.encode()))


async def _complete(load: Load, socket: zmq.asyncio.Socket, name: str, names: list[bytes]) -> None:
    for payload in names:
        load.history.record("reporting", token_of(payload), "Complete", name)
    question = load.history.record("asks", name)
    tasks = b"".join(task(payload) for payload in names)
    kind, _, _ = await ask(socket, number_field(1, COMPLETE) + tasks + bytes_field(6, name.encode()))
    # NotFound: somebody has cancelled one of them.
    load.history.record("answered" if kind == OK else "unanswered", question)
