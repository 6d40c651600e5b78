"""A GearMonkey client and worker of a few lines for the demo: those of the library need redis-py, which is optional."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

from switchgear.cli.demo_addresses import FUNCTION
from switchgear.errors import ClientError, JobFailed
from switchgear.model import HIGH, LOW, NORMAL
from switchgear.protocols.gearmonkey.keys import JOB_SECONDS, LOCK_SECONDS, FunctionKeys

__all__ = ["RespConnection", "call", "work"]

_KEYS: Final = FunctionKeys(FUNCTION.encode())
_QUEUES: Final = tuple(_KEYS.queues[priority] for priority in (HIGH, NORMAL, LOW))
_READ_BYTES: Final = 65_536

Word = bytes | str | int | float


class RespConnection:
    """A blocking RESP2 connection: commands out, replies in."""

    def __init__(self, address: tuple[str, int], timeout_seconds: float) -> None:
        self._socket = socket.create_connection(address, timeout_seconds)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def close(self) -> None:
        """Close the connection from another thread; a wait for a reply ends with an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def ask(self, *words: Word) -> Any:
        """Send a command and return its reply; raises ClientError or OSError."""
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = (b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)
        self._socket.sendall(b"*%d\r\n%b" % (len(encoded), b"".join(parts)))
        return self._reply()

    def _reply(self) -> Any:
        line = self._take_line()
        kind, rest = line[:1], line[1:]
        match kind:
            case b"+":
                return rest
            case b":":
                return int(rest)
            case b"$":
                return self._take(int(rest)) if int(rest) >= 0 else None
            case b"*":
                return [self._reply() for _ in range(int(rest))] if int(rest) >= 0 else None
            case b"-":
                raise ClientError(rest.decode(errors="replace"))
        raise ClientError(f"a reply that begins with {kind!r}")

    def _take_line(self) -> bytes:
        while b"\r\n" not in self._received:
            self._read()
        line, _, self._received = self._received.partition(b"\r\n")
        return line

    def _take(self, size: int) -> bytes:
        while len(self._received) < size + 2:
            self._read()
        data, self._received = self._received[:size], self._received[size + 2 :]
        return data

    def _read(self) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._received += data


def call(line: RespConnection, payload: bytes, timeout_seconds: float) -> bytes:
    """Submit a job as a GearMonkey client, and return its result; raises JobFailed or TimeoutError."""
    job_id = b"%d" % line.ask("INCR", _KEYS.uid)
    line.ask("HMSET", _KEYS.job(job_id), "status", "idle", "input", payload)
    line.ask("PUBLISH", _KEYS.channel, b"create:" + job_id)
    line.ask("LPUSH", _KEYS.queues[NORMAL], job_id)
    if line.ask("BRPOP", _KEYS.lock(job_id), timeout_seconds) is None:
        raise TimeoutError("the job did not end in time")
    status = line.ask("HGET", _KEYS.job(job_id), "status")
    output: bytes = line.ask("HGET", _KEYS.job(job_id), "output") or b""
    if status != b"success":
        raise JobFailed(output.decode(errors="replace"), output)
    return output


def work(line: RespConnection, do: Callable[[bytes], bytes]) -> None:
    """Run jobs as a GearMonkey worker, until the connection is closed."""
    line.ask("INCR", _KEYS.count)
    while True:
        popped = line.ask("BRPOP", *_QUEUES, 1)
        if popped is None:
            continue
        job_id: bytes = popped[1]
        payload = line.ask("HGET", _KEYS.job(job_id), "input")
        line.ask("PUBLISH", _KEYS.channel, b"start:" + job_id)
        line.ask("HMSET", _KEYS.job(job_id), "status", "busy")
        line.ask("HMSET", _KEYS.job(job_id), "status", "success", "output", do(payload))
        line.ask("EXPIRE", _KEYS.job(job_id), JOB_SECONDS)
        line.ask("PUBLISH", _KEYS.channel, b"finish:" + job_id)
        line.ask("LPUSH", _KEYS.lock(job_id), "OK")
        line.ask("EXPIRE", _KEYS.lock(job_id), LOCK_SECONDS)
