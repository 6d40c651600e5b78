"""`unique_key`: the unique key of a Gearman submission; `-` stands for the payload.

Gearman's packets and the HTTP interface of gearmand share these rules.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from switchgear.engine.engine import Engine
from switchgear.errors import PeerError
from switchgear.model import PAYLOAD_KEY

__all__ = ["UNIQUE_BYTES", "unique_key"]

UNIQUE_BYTES: Final = 64


def unique_key(engine: Engine, unique: bytes, payload: bytes) -> bytes:
    """The key that decides which submissions share a job; raises PeerError."""
    if unique == b"-":
        # Equal payloads share a job; an empty payload gets a key that no other job has.
        words = blake2b(payload, digest_size=16).digest() if payload else b"\0%d" % engine.next_job_id
        return PAYLOAD_KEY + words
    if len(unique) > UNIQUE_BYTES:
        raise PeerError("Unique value too large", code="ARGUMENT_TOO_LARGE")
    return unique
