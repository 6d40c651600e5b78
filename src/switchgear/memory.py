"""`MemoryAccount`: the bytes that peers make the server hold, counted in one place against one limit.

Every part that holds bytes for peers adds them here when it begins to hold them, and subtracts them when it drops them.
Whoever is about to hold more asks `has_room` first. A submission that finds no room is refused in its protocol's words;
a connection whose unfinished input or unread output finds none is closed, the largest holder first.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FOR_FUNCTIONS", "FOR_WAITING", "FOR_WORKERS", "MemoryAccount"]

# Unfinished input may take this part of the limit, and so may output that peers do not read; functions and workers may
# take the next part.  The rest is for jobs.  The shares are apart, so that all together never pass the limit,
# connections cannot lock out submissions, and jobs cannot lock out the workers that would run them.
CONNECTION_SHARE: Final = 4
REGISTRATION_SHARE: Final = 16
# A server is of no use without some workers, however little memory it may take.
LEAST_REGISTRATION_BYTES: Final = 1024 * 1024


# The quarters of that share which each may fill: requests that wait, and workers of which one connection can make up
# any number, leave room for those that are a connection each, and these for functions.
FOR_WAITING: Final = 2
FOR_WORKERS: Final = 3
FOR_FUNCTIONS: Final = 4


class MemoryAccount:
    """Counts bytes by what they are held for; a limit of zero means that there is none."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.job_bytes = (
            0  # jobs that are unfinished, or not yet handed to the store: contents, and what else they take
        )
        self.key_bytes = 0  # jobs that ended, and are remembered because their unique keys are held for a time
        self.limiter_bytes = 0  # keys that are told apart because limits are set for each
        self.history_bytes = 0  # payloads and results of finished jobs that a store keeps in memory
        self.input_bytes = 0  # received parts of messages that are not complete, or not handled yet
        self.output_bytes = 0  # written to peers, and not yet taken by them
        self.draft_bytes = 0  # written for jobs that are not submitted yet, and beside jobs
        self.subscription_bytes = 0  # what peers subscribed to: channels and patterns
        self.answer_bytes = 0  # long answers made in this turn, which are not written yet
        self.schedule_bytes = 0  # schedules, with the payload that each of their jobs gets
        self.registration_bytes = 0  # functions, workers and what they can do, and requests for jobs that wait

    @property
    def held_bytes(self) -> int:
        """All that is held."""
        return self.stored_bytes + self.registration_bytes + self.input_bytes + self.output_bytes

    @property
    def stored_bytes(self) -> int:
        """What is held for longer than a connection takes to send or to read it."""
        jobs_bytes = self.job_bytes + self.key_bytes + self.limiter_bytes + self.history_bytes + self.draft_bytes
        return jobs_bytes + self.subscription_bytes + self.schedule_bytes

    @property
    def connection_limit_bytes(self) -> int:
        """How much all unfinished input may take, and all unread output as well; zero means any amount."""
        return self.limit_bytes // CONNECTION_SHARE

    @property
    def stored_limit_bytes(self) -> int:
        """How much jobs, schedules and subscriptions may take; zero means any amount."""
        return self.limit_bytes - 2 * self.connection_limit_bytes - self.limit_bytes // REGISTRATION_SHARE

    @property
    def registration_limit_bytes(self) -> int:
        """How much functions and workers may take; zero means any amount."""
        if not self.limit_bytes:
            return 0
        return max(self.limit_bytes // REGISTRATION_SHARE, LEAST_REGISTRATION_BYTES)

    @property
    def answers_must_wait(self) -> bool:
        """Whether so much was answered in this turn that further requests should wait for the next."""
        return self.limit_bytes > 0 and self.answer_bytes > self.connection_limit_bytes // 2

    def has_room(self, more_bytes: int) -> bool:
        """Whether so much more may be stored."""
        return not self.limit_bytes or self.stored_bytes + more_bytes <= self.stored_limit_bytes

    def has_registration_room(self, more_bytes: int, quarters: int = FOR_FUNCTIONS) -> bool:
        """Whether functions and workers may take so much more, if those that ask may fill so many quarters."""
        limit_bytes = self.registration_limit_bytes
        return not limit_bytes or self.registration_bytes + more_bytes <= limit_bytes * quarters // 4
