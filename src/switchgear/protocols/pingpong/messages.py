"""The messages of the PING/PONG protocol, and the two forms of an answer."""

from __future__ import annotations

from typing import Final

from switchgear.model import CANCELLED, DONE, EXPIRED, Job
from switchgear.protocols.multipart import Message

__all__ = ["FAILED", "GOODBYE", "PING", "PONG", "READY", "answer_of", "failure", "printable"]

# From workers. So no result can be equal to one of these words.
READY: Final = b"READY"
PING: Final = b"PING"

# To workers. So no job can be equal to this word.
PONG: Final = b"PONG"

# To clients, for a failed request.
FAILED: Final = b"FAILED"

# From a worker that will take no more jobs, and back to it: jobs sent earlier arrive before this.
GOODBYE: Final = [b"", b"", b"LEAVE"]

ENDS: Final = {CANCELLED: b"cancelled", EXPIRED: b"expired"}


def failure(envelope: Message, text: bytes) -> Message:
    """The answer to a failed request.

    A result is always a single frame after the delimiter, so a client that knows nothing of failures cannot take
    one for a result, nor a result for a failure.
    """
    return [*envelope, b"", FAILED, text]


def answer_of(job: Job, envelope: Message, most_bytes: int) -> Message:
    """The answer to a client at the end of its job; a result in parts of more than `most_bytes` is incomplete."""
    if job.state is DONE:
        if job.collected_bytes > most_bytes:
            return failure(envelope, b"the result came in parts of more than %d bytes" % most_bytes)
        return [*envelope, job.whole_result]
    text = ENDS.get(job.state) or job.error or job.whole_result or b"failed with code %d" % job.result_code
    return failure(envelope, text)


def printable(identity: bytes) -> bytes:
    """An identity in readable form: as it is, if it is printable, and otherwise in hexadecimal."""
    return identity if identity.isascii() and identity.decode().isprintable() else b"0x" + identity.hex().encode()
