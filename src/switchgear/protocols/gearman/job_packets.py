"""Packets that the server sends about a job: pushed to a worker, revoked, progress, and its end."""

from __future__ import annotations

from typing import Final

from switchgear.engine.predecessor_error import error_told
from switchgear.model import CANCELLED, DONE, PAYLOAD_KEY, Cause, Job, Worker
from switchgear.protocols.gearman.codec import JobPackets, response
from switchgear.protocols.gearman.messages import Packet

__all__ = ["COMPLETE", "bad_end_start", "job_push", "last_packet", "progress_packet", "revocation"]

PUSH: Final = JobPackets(Packet.JOB_PUSH)
PUSH_TRACED: Final = JobPackets(Packet.JOB_PUSH_TRACED)
COMPLETE: Final = JobPackets(Packet.WORK_COMPLETE)
FIRST_OF_PLAIN: Final = b"\0".join((b"1", b"0", b"0", b"0"))  # the figures of most jobs; see push_figures

# The reasons in REVOKE packets.
REASONS: Final = {
    Cause.CANCELLED: b"cancelled",
    Cause.REPLACED: b"cancelled",  # the same to the worker
    Cause.TIMED_OUT: b"timed_out",
    Cause.SETTLED: b"done",
    Cause.HELD_BACK: b"held_back",
}


def job_push(prefix: bytes, worker: Worker, job: Job, payload: bytes, wants_traces: bool) -> bytes:
    """The packet with a job for a worker that has granted credit. Optimised, because every job of our own workers
    passes here."""
    name = job.function.told_name
    unique = job.unique
    if unique and unique.startswith(PAYLOAD_KEY):
        unique = job.client_unique
    is_plain = job.attempts == 1 and not job.has_details and not worker.has_timeouts
    figures = FIRST_OF_PLAIN if is_plain else push_figures(worker, job)
    if wants_traces and job.has_details and job.trace:
        trace = job.trace
        start = PUSH_TRACED.start(
            prefix, job.id, len(name) + len(unique) + len(figures) + len(trace) + len(payload) + 5
        )
        return b"%b%d\0%b\0%b\0%b\0%b\0%b" % (start, job.id, name, unique, figures, trace, payload)
    start = PUSH.start(prefix, job.id, len(name) + len(unique) + len(figures) + len(payload) + 4)
    return b"%b%d\0%b\0%b\0%b\0%b" % (start, job.id, name, unique, figures, payload)


def push_figures(worker: Worker, job: Job) -> bytes:
    """Attempts including this one, losses, the job's own limit of attempts, and the time limit."""
    timeout_us = worker.timeouts_us.get(job.function, 0)
    losses = 0
    if job.has_details:
        losses = job.losses
        timeout_us = job.timeout_us or timeout_us
    timeout_ms = -(-timeout_us // 1000)  # rounded up: a short limit must not become none
    return b"%d\0%d\0%d\0%d" % (job.attempts, losses, max(0, job.attempts_limit), timeout_ms)


def revocation(handle: bytes, cause: Cause) -> bytes:
    """The REVOKE packet, which tells a worker to stop a job."""
    return response(Packet.REVOKE, handle, REASONS.get(cause) or cause.name.lower().encode())


def last_packet(prefix: bytes, job: Job, *, exceptions: bool, extended: bool) -> bytes:
    """The packet with the end of a job, for a client; `prefix` is the handle prefix."""
    if job.state is DONE:
        result = job.result
        return b"%b%d\0%b" % (COMPLETE.start(prefix, job.id, len(result) + 1), job.id, result)
    return bad_end(prefix, job, exceptions=exceptions, extended=extended)


def bad_end(prefix: bytes, job: Job, *, exceptions: bool, extended: bool) -> bytes:
    """The packet for a job that ended without success, depending on the extensions that the peer understands."""
    error = error_told(job, lambda job_id: f"{prefix.decode(errors='replace')}{job_id}")
    start = bad_end_start(prefix, job, exceptions=exceptions and error is not None, extended=extended)
    if start is None:
        return response(Packet.WORK_FAIL, b"%b%d" % (prefix, job.id))
    kind, body = start
    return response(kind, body + (error or b""))


def bad_end_start(prefix: bytes, job: Job, *, exceptions: bool, extended: bool) -> tuple[int, bytes] | None:
    """The type of that packet, and its body up to the error; `None` if the packet has no error text."""
    handle = b"%b%d" % (prefix, job.id)
    if extended:
        cause = job.log[-1][0]
        words = job.state.name.lower().encode(), cause.name.lower().encode()
        return Packet.JOB_ENDED, b"%b\0%b\0%b\0" % (handle, *words)
    if exceptions and job.state is not CANCELLED:
        return Packet.WORK_EXCEPTION, handle + b"\0"
    return None


def progress_packet(handle: bytes, job: Job, *, extended: bool) -> bytes:
    """The WORK_STATUS or WORK_PROGRESS packet with the progress of a job."""
    if extended and job.message:
        figures = b"%d\0%d" % (job.numerator, job.denominator)
        return response(Packet.WORK_PROGRESS, handle, figures, job.message)
    words = job.progress_text or b"%d\0%d" % (job.numerator, job.denominator)
    return response(Packet.WORK_STATUS, handle, words)
