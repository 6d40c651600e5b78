"""`Keys`: the Redis keys of a bridged function, those of the GearMonkey document and those of the bridge.

All of them carry the function's name, so that on a cluster a hash tag in it puts them into one place.

switchgear:claimed:FN   sorted set: ids that servers hold, and when their leases end (ms, by the clock of Redis)
switchgear:holders:FN   hash: the same ids, and which server holds each, from which queue
switchgear:counted:FN   sorted set: servers that are counted in count:FN, and until when
switchgear:pushed:FN:ORIGIN  the mark of a server's job: the id under which it was pushed
switchgear:functions    set: every function that was ever bridged inbound
switchgear:redis        a random word: tells this Redis, with these data, from any other
"""

from __future__ import annotations

from typing import Final

from switchgear.model import HIGH, LOW, NORMAL, URGENT

__all__ = ["FUNCTIONS", "IDENTITY", "JOB_SECONDS", "LOCK_SECONDS", "MARK_SECONDS", "PRIORITIES", "Keys"]

FUNCTIONS: Final = b"switchgear:functions"
IDENTITY: Final = b"switchgear:redis"

JOB_SECONDS: Final = 90_000  # as GearMonkey's document says: a finished job is kept for 25 hours
LOCK_SECONDS: Final = 10  # how long the token stays for a client that blocks on the lock
MARK_SECONDS: Final = 7 * 86_400  # how long a server can be away without pushing its jobs a second time

# In the order in which a worker looks at its queues.
PRIORITIES: Final = {b"scheduled": URGENT, b"high": HIGH, b"normal": NORMAL, b"low": LOW}


class Keys:
    """The Redis keys of one function, made from its name."""

    def __init__(self, function: bytes) -> None:
        self.function = function
        self.count = b"count:%b" % function
        self.uid = b"uid:%b" % function
        self.channel = b"channel:%b" % function
        self.queues = {priority: b"queue:%b:%b" % (function, word) for word, priority in PRIORITIES.items()}
        self.claimed = b"switchgear:claimed:%b" % function
        self.holders = b"switchgear:holders:%b" % function
        self.counted = b"switchgear:counted:%b" % function

    def __repr__(self) -> str:
        return f"Keys({self.function!r})"

    def job(self, job_id: bytes) -> bytes:
        return b"job:%b:%b" % (self.function, job_id)

    def mark(self, origin: bytes) -> bytes:
        return b"switchgear:pushed:%b:%b" % (self.function, origin)

    def lock(self, job_id: bytes) -> bytes:
        return b"lock:%b:%b" % (self.function, job_id)

    @property
    def has_one_place(self) -> bool:
        """Whether a cluster keeps all of these keys in one slot: the name has a hash tag, and no key has one before
        it."""
        _, opening, rest = self.function.partition(b"{")
        tag, closing, _ = rest.partition(b"}")
        return bool(opening and closing and tag)
