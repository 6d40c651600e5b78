"""`MemoryAccount`: the bytes that peers make the server hold, counted in one place against one limit.

Every part that holds bytes for peers adds them here when it begins to hold them, and subtracts them when it drops them.
Whoever is about to hold more asks `has_room` first. A submission that finds no room is refused in its protocol's words;
a connection whose unfinished input or unread output finds none is closed, the largest holder first.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MemoryAccount"]

# Unfinished input may take this part of the limit, and so may output that peers do not read.  The rest is for jobs.
# The shares are apart, so that all together never pass the limit, and connections cannot lock out submissions.
CONNECTION_SHARE: Final = 4


class MemoryAccount:
    """Counts bytes by what they are held for; a limit of zero means that there is none."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.job_bytes = 0  # payloads and results of jobs that are unfinished, or not yet handed to the store
        self.history_bytes = 0  # payloads and results of finished jobs that a store keeps in memory
        self.input_bytes = 0  # received parts of messages that are not complete, or not handled yet
        self.output_bytes = 0  # written to peers, and not yet taken by them
        self.draft_bytes = 0  # written for jobs that are not submitted yet, and beside jobs
        self.subscription_bytes = 0  # what peers subscribed to: channels and patterns

    @property
    def held_bytes(self) -> int:
        """All that is held."""
        return self.stored_bytes + self.input_bytes + self.output_bytes

    @property
    def stored_bytes(self) -> int:
        """What is held for longer than a connection takes to send or to read it."""
        return self.job_bytes + self.history_bytes + self.draft_bytes + self.subscription_bytes

    @property
    def connection_limit_bytes(self) -> int:
        """How much all unfinished input may take, and all unread output as well; zero means any amount."""
        return self.limit_bytes // CONNECTION_SHARE

    @property
    def stored_limit_bytes(self) -> int:
        """How much jobs and subscriptions may take; zero means any amount."""
        return self.limit_bytes - 2 * self.connection_limit_bytes

    def has_room(self, more_bytes: int) -> bool:
        """Whether so much more may be stored."""
        return not self.limit_bytes or self.stored_bytes + more_bytes <= self.stored_limit_bytes
