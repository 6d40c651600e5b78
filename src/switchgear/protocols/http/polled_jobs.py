"""The answer to a poll: jobs for a registered worker, and those that it is to stop.

Most jobs of registered workers pass here, so the answer is put together from pieces that stay the same; one with long
payloads is an object, because it is sent in steps (`json_bytes.LongBytes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from switchgear.json_bytes import LONG_BYTES, plain, told
from switchgear.model import SECOND_US, Function, Job
from switchgear.model.job import PAYLOAD_KEY

__all__ = ["has_long_payload", "polled_jobs", "polled_jobs_json"]


def has_long_payload(jobs: list[Job]) -> bool:
    """Whether a payload takes so long to write that it is written in steps."""
    for job in jobs:
        payload = job.payload
        if payload is not None and len(payload) > LONG_BYTES:
            return True
    return False


def unique_of(job: Job) -> bytes:
    """The unique key that the submitter of a job has given."""
    return job.client_unique if job.unique.startswith(PAYLOAD_KEY) else job.unique


def polled_jobs(handle_prefix: str, jobs: list[Job], timeouts_us: Mapping[Function, int]) -> list[dict[str, Any]]:
    """Jobs as a registered worker gets them: `schemas.PolledJob`.  `timeouts_us` are the worker's own."""
    return [
        {
            "handle": f"{handle_prefix}{job.id}",
            "function": plain(job.function.told_name),
            "attempt": job.start_number,
            "payload": told(job.payload or b""),
            "trace": job.trace.decode(),
            "unique": plain(unique_of(job)),
            "attempts": job.attempts,
            "losses": job.losses if job.has_details else 0,
            "attempts_limit": max(0, job.attempts_limit),
            "timeout": ((job.timeout_us if job.has_details else 0) or timeouts_us.get(job.function, 0)) / SECOND_US,
        }
        for job in jobs
    ]


def polled_jobs_json(handle_json: bytes, jobs: list[Job], timeouts_us: Mapping[Function, int]) -> bytes:
    """The same as JSON.  `handle_json` is the prefix of handles, as JSON but without quotes."""
    encode = msgspec.json.encode
    start = b'[{"handle":"' + handle_json
    next_start = b',{"handle":"' + handle_json
    parts: list[bytes] = []
    function: Function | None = None
    function_timeout_us = 0
    middle = b""  # from the number of the job to its attempt
    end = b""  # what follows the unique key
    end_of: tuple[int, int, int, int] | None = None  # what that is made of
    for job in jobs:
        if job.function is not function:
            function = job.function
            function_timeout_us = timeouts_us.get(function, 0)
            middle = b'","function":' + encode(plain(function.told_name)) + b',"attempt":'
        timeout_us = losses = 0
        trace = b""
        if job.has_details:
            timeout_us, losses, trace = job.timeout_us, job.losses, job.trace
        timeout_us = timeout_us or function_timeout_us
        numbers = (job.attempts, losses, job.attempts_limit, timeout_us)
        if numbers != end_of:
            end_of = numbers
            seconds = encode(timeout_us / SECOND_US)
            counts = f',"attempts":{job.attempts},"losses":{losses},"attempts_limit":{max(0, job.attempts_limit)}'
            end = counts.encode() + b',"timeout":' + seconds + b"}"
        parts.append(start)
        parts.append(str(job.id).encode())
        parts.append(middle)
        parts.append(str(job.start_number).encode())
        parts.append(b',"payload":')
        parts.append(encode(plain(job.payload or b"")))
        parts.append(b',"trace":' + encode(trace.decode()) if trace else b',"trace":""')
        parts.append(b',"unique":')
        parts.append(encode(plain(unique_of(job))))
        parts.append(end)
        start = next_start
    parts.append(b"]" if jobs else b"[]")
    return b"".join(parts)
