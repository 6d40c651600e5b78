"""`PingPongClient`: a PING/PONG client that blocks."""

from __future__ import annotations

import time
from typing import Self

import zmq

from switchgear.client.pingpong.address import DEFAULT_CLIENTS_URL, SETTINGS, ClientsAddress
from switchgear.client.zeromq_sockets import CurveKeys, connect, dealer
from switchgear.errors import ClientError, JobFailed
from switchgear.protocols.pingpong.messages import FAILED

__all__ = ["PingPongClient"]


class PingPongClient:
    """Submits jobs to a broker, one at a time.  Not for use by several threads at once.

    A broker that is not there, or is restarted, says nothing; so a call that must end has to have a timeout.
    """

    def __init__(self, url: str = DEFAULT_CLIENTS_URL, *, keys: CurveKeys | None = None) -> None:
        """`url` is the broker's address for clients, and `keys` are for a broker that encrypts; raises ConfigError."""
        self.address = ClientsAddress.parse(url)
        if keys is not None:
            keys.check(1, "broker")
        self._calls = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._socket = dealer(self._context, SETTINGS, keys)
            connect(self._socket, self.address)
        except BaseException:
            self._context.destroy()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect.  A job that is not answered yet still runs."""
        self._socket.close()
        self._context.term()

    def call(self, job: bytes, timeout_seconds: float | None = None) -> bytes:
        """Submit a job, and return its result.

        Raises JobFailed if there is none, and TimeoutError if there is no answer by then; the job may be done
        nevertheless, and its result is dropped.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._calls += 1
        tag = b"%d" % self._calls  # tells the answer from one to a call that was given up
        try:
            # Not a poll and then a send: a broker that refuses our handshake in between would block the send for ever.
            self._socket.set(zmq.SNDTIMEO, _left_ms(deadline))
            self._socket.send_multipart([tag, b"", job])
        except zmq.Again:
            raise TimeoutError(f"{self.address} took nothing within {timeout_seconds} s") from None
        while True:
            if not self._socket.poll(_left_ms(deadline)):
                raise TimeoutError(f"no answer from {self.address} within {timeout_seconds} s")
            frames = self._socket.recv_multipart()
            if frames[0] == tag:
                return self._result(frames[1:])

    def _result(self, frames: list[bytes]) -> bytes:
        match frames:
            case [b"", result]:
                return result
            case [b"", b"", word, text] if word == FAILED:
                raise JobFailed(f"the job came to nothing: {text.decode(errors='replace')}", text)
        raise ClientError(f"{self.address} sent an answer of {len(frames)} frames that makes no sense")


def _left_ms(deadline: float | None) -> int:
    """The time until then, as ZeroMQ wants it: -1 is for ever."""
    return -1 if deadline is None else max(0, round((deadline - time.monotonic()) * 1000))
