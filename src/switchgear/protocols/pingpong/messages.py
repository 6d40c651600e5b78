"""The words of the PING/PONG protocol, and the two shapes of an answer."""

from __future__ import annotations

from typing import Final

from switchgear.model import CANCELLED, DONE, EXPIRED, Job
from switchgear.protocols.base import Message

__all__ = ["FAILED", "GOODBYE", "PING", "PONG", "READY", "answer_of", "failure", "printable"]

# From workers.  So no result can consist of one of these words.
READY: Final = b"READY"
PING: Final = b"PING"

# To workers.  So no job can consist of this word.
PONG: Final = b"PONG"

# To clients, of a request that came to nothing.
FAILED: Final = b"FAILED"

# From a worker that will take no more jobs, and back to it: those that it was sent before are on their way before this.
GOODBYE: Final = [b"", b"", b"LEAVE"]

ENDS: Final = {CANCELLED: b"cancelled", EXPIRED: b"expired"}


def failure(envelope: Message, text: bytes) -> Message:
    """The answer to a request that came to nothing.

    A result is always a single frame after the delimiter, so a client that knows nothing of failures cannot take
    one for a result, nor a result for a failure.
    """
    return [*envelope, b"", FAILED, text]


def answer_of(job: Job, envelope: Message, most_bytes: int) -> Message:
    """What the client is told of the end of its job; results in parts of more than `most_bytes` are not whole."""
    if job.state is DONE:
        if job.collected_bytes > most_bytes:
            return failure(envelope, b"the result came in parts of more than %d bytes" % most_bytes)
        return [*envelope, job.whole_result]
    text = ENDS.get(job.state) or job.error or job.whole_result or b"failed with code %d" % job.result_code
    return failure(envelope, text)


def printable(identity: bytes) -> bytes:
    """An identity as people may read it: as it is, if it is a name, and else in hexadecimal."""
    return identity if identity.isascii() and identity.decode().isprintable() else b"0x" + identity.hex().encode()
