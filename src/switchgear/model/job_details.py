"""`Details`: the fields that only few jobs need; see `model.job`."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

__all__ = ["NO_DETAILS", "Details", "shared_details"]


@mypyc_attr(acyclic=True)
class Details:
    """Fields that few jobs need."""

    __slots__ = (
        "attempts_limit",
        "blockers",
        "chunks",
        "collected_bytes",
        "crash_limit",
        "denominator",
        "edges",
        "error",
        "expires_us",
        "irrevocable",
        "key",
        "label",
        "losses",
        "message",
        "name",
        "numerator",
        "origin",
        "predecessors",
        "progress_text",
        "rank",
        "reducer",
        "requires",
        "result_code",
        "retention_us",
        "run_at_us",
        "run_limit",
        "run_until_us",
        "schedule",
        "shared",
        "starts",
        "time_left_s",
        "timeout_us",
        "trace",
        "unique_scope",
        "unique_until_us",
        "unsent",
        "warnings",
        "withdrawn",
    )

    def __init__(self) -> None:
        self.shared = False  # several jobs share it, so it is never changed; see `shared_details`
        self.name = b""
        self.reducer = b""
        self.origin = ""
        self.run_at_us = 0
        self.expires_us = 0
        self.timeout_us = 0  # the longest run of one attempt; 0: the worker's limit, or none
        self.attempts_limit = -1  # 0: no limit; -1: the server's setting
        self.numerator = 0
        self.denominator = 0
        self.time_left_s = -1  # -1: unknown
        self.progress_text = b""  # the progress in the form of the worker's protocol
        self.result_code = 0  # 0 is success, 1 to 255 an error
        self.error: bytes | None = None  # the worker's error text, if there is one
        self.warnings = b""  # the worker's warnings; the end of them, if they are long
        self.chunks: list[bytes] | None = None  # parts of the result that arrived ahead of its end
        self.collected_bytes = 0  # their length, including parts that were dropped
        self.predecessors: tuple[int, ...] = ()  # ids of all its predecessors, done or not
        self.blockers = 0  # how many of them are not done
        self.run_limit = 0  # distinguishes the deadline of this attempt from earlier ones
        self.run_until_us = 0  # the end of this attempt, if it was renewed
        self.unsent = False  # it is sent to its worker when its start is stored; until then its time limit does not run
        self.withdrawn = False  # undone because it could not be stored
        self.irrevocable = False  # it cannot be withdrawn
        self.key = (
            # Its tenant or group: each key may have limits, and keys can be served round robin; see engine.limiters.
            b""
        )
        self.label = b""  # what people see beside the function
        self.losses = 0  # how often its worker, or the server, was lost during a run
        self.starts = 0  # how often it was started, if not exactly once; see `Job.start_number`
        self.crash_limit = -1  # dead after this many losses; 0: no limit; -1: a loss counts as an attempt
        self.edges = b""  # an EdgePolicy for each predecessor; empty: WAIT for all
        self.unique_scope = 0  # UniqueScope
        self.unique_until_us = 0  # it holds its unique key until then, even beyond its end
        self.retention_us = -1  # how long it is kept after its end; -1: the server's setting
        self.schedule = b""  # the schedule that made it
        self.requires = b""  # tags and amounts that a worker needs to run it; see engine.requirements
        self.trace = b""  # its traceparent; see switchgear.trace_context
        self.message = b""  # a text for people about what its worker is doing
        self.rank = 0  # its place in its queue, if not that of its submission; see engine.ready_queues

    def content_size(self) -> int:
        """The number of bytes of the texts and partial results held here."""
        size = len(self.warnings) + len(self.progress_text) + len(self.message)
        if self.error is not None:
            size += len(self.error)
        if self.chunks is not None:
            for chunk in self.chunks:
                size += len(chunk)
        return size

    def drop_contents(self) -> None:
        """Free the texts and partial results."""
        self.warnings = self.progress_text = self.message = b""
        self.error = None
        self.chunks = None


NO_DETAILS: Final = Details()  # shared by all jobs without details; never changed


def shared_details(
    *,
    timeout_us: int = 0,
    attempts_limit: int = -1,
    crash_limit: int = -1,
    retention_us: int = -1,
    requires: bytes = b"",
) -> Details:
    """Details for all jobs that were submitted with exactly these options."""
    details = Details()
    details.shared = True
    details.timeout_us = timeout_us
    details.attempts_limit = attempts_limit
    details.crash_limit = crash_limit
    details.retention_us = retention_us
    details.requires = requires
    return details
