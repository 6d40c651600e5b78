"""`MemoryAccount`: the bytes that peers make the server hold, counted in one place against one limit.

Every part that holds bytes for peers adds them here, and subtracts them when it drops them. Before it holds more it
calls `has_room`. A submission without room is refused with its protocol's error; for unfinished input or unread output
without room, connections are closed, the one that holds most first.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FOR_FUNCTIONS", "FOR_WAITING", "FOR_WORKERS", "MemoryAccount"]

# Unfinished input may take this share of the limit, and so may unread output; functions and workers may take the next
# share. The rest is for jobs. The shares are separate, so that their sum never exceeds the limit, connections cannot
# lock out submissions, and jobs cannot lock out the workers that would run them.
CONNECTION_SHARE: Final = 4
REGISTRATION_SHARE: Final = 16
# A server is useless without some workers, however small its memory limit is.
LEAST_REGISTRATION_BYTES: Final = 1024 * 1024
# What is remembered of jobs that ended without success may take this share; then the oldest are forgotten. It is a part
# of what is for jobs.
FAILURE_SHARE: Final = 32


# How many quarters of that share each kind may fill. Waiting requests, and workers of which one connection can have any
# number, leave room for workers with their own connection, and these leave room for functions.
FOR_WAITING: Final = 2
FOR_WORKERS: Final = 3
FOR_FUNCTIONS: Final = 4


class MemoryAccount:
    """Counts bytes by purpose; a limit of zero means no limit."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.job_bytes = 0  # unfinished jobs, and finished ones that are not stored yet: contents and overhead
        self.key_bytes = 0  # finished jobs that are kept because they hold their unique keys for a time
        self.limiter_bytes = 0  # keys that are distinguished because each has limits
        self.failure_bytes = 0  # jobs that ended without success: ids, names, and the beginnings of their errors
        self.history_bytes = 0  # payloads and results of finished jobs in a store in memory
        self.input_bytes = 0  # input that is incomplete, or not handled yet
        self.output_bytes = 0  # output that peers have not read
        # Drafts of jobs that are not submitted yet, data beside jobs, and contents of jobs that are being sent as JSON.
        self.draft_bytes = 0
        self.subscription_bytes = 0  # channels and patterns to which peers subscribed
        self.series_bytes = 0  # figures of functions over time
        self.answer_bytes = 0  # long answers of this turn that are not written yet
        self.schedule_bytes = 0  # schedules, with the payloads of their jobs
        self.registration_bytes = 0  # functions, workers and their registrations, and waiting requests for jobs

    @property
    def held_bytes(self) -> int:
        """All bytes that are held."""
        return self.stored_bytes + self.registration_bytes + self.input_bytes + self.output_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes that are held for longer than a connection takes to send or read them."""
        jobs_bytes = self.job_bytes + self.key_bytes + self.limiter_bytes + self.history_bytes + self.draft_bytes
        return jobs_bytes + self.failure_bytes + self.subscription_bytes + self.schedule_bytes + self.series_bytes

    @property
    def connection_limit_bytes(self) -> int:
        """The limit of all unfinished input, and of all unread output; zero means no limit."""
        return self.limit_bytes // CONNECTION_SHARE

    @property
    def stored_limit_bytes(self) -> int:
        """The limit of jobs, schedules and subscriptions; zero means no limit."""
        return self.limit_bytes - 2 * self.connection_limit_bytes - self.limit_bytes // REGISTRATION_SHARE

    @property
    def registration_limit_bytes(self) -> int:
        """The limit of functions and workers; zero means no limit."""
        if not self.limit_bytes:
            return 0
        return max(self.limit_bytes // REGISTRATION_SHARE, LEAST_REGISTRATION_BYTES)

    @property
    def failure_limit_bytes(self) -> int:
        """The limit of what is remembered of jobs that ended without success; zero means no limit."""
        return self.limit_bytes // FAILURE_SHARE

    @property
    def answers_must_wait(self) -> bool:
        """Whether the answers of this turn are long enough that further requests should wait for the next turn."""
        return self.limit_bytes > 0 and self.answer_bytes > self.connection_limit_bytes // 2

    def has_room(self, more_bytes: int) -> bool:
        """Whether this many more bytes may be stored."""
        return not self.limit_bytes or self.stored_bytes + more_bytes <= self.stored_limit_bytes

    def has_registration_room(self, more_bytes: int, quarters: int = FOR_FUNCTIONS) -> bool:
        """Whether functions and workers may take this many more bytes, if the requester may fill this many quarters."""
        limit_bytes = self.registration_limit_bytes
        return not limit_bytes or self.registration_bytes + more_bytes <= limit_bytes * quarters // 4
