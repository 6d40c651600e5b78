"""The answer to a poll is the same JSON, whether it is put together from pieces or written as an object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear.engine.engine import Engine, SubmitOptions
from switchgear.model import NORMAL, SECOND_US, Delivery, Function, Job, Peer
from switchgear.protocols.http.polled_jobs import has_long_payload, polled_jobs, polled_jobs_json
from switchgear.protocols.http.schemas import PolledJob

some_bytes = st.one_of(st.binary(max_size=20), st.text(max_size=20).map(str.encode))
options = st.builds(
    SubmitOptions,
    trace=st.sampled_from([b"", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]),
    attempts_limit=st.sampled_from([-1, 0, 7]),
    timeout_us=st.sampled_from([0, 1, 1_500_000, 86_400 * SECOND_US]),
)
submissions = st.tuples(st.sampled_from([b"f", b"g\xff", 'ä"\\'.encode()]), some_bytes, some_bytes, options)


def taken(some: list[tuple[bytes, bytes, bytes, SubmitOptions]], engine: Engine) -> list[Job]:
    worker = engine.add_worker(Peer(), "http")
    for name in {each[0] for each in some}:
        engine.can_do(worker, engine.function_named(name), 0)
    for name, payload, unique, chosen in some:
        engine.submit(name, unique, payload, NORMAL, Delivery.HANDLE, options=chosen)
    jobs = []
    while (job := engine.take(worker)) is not None:
        jobs.append(job)
    return jobs


@given(st.lists(submissions, max_size=5), st.sampled_from([0, 2_000_000]), st.sampled_from(["H:host:", 'H:"ä:']))
def test_both_ways_to_write_it_agree(
    some: list[tuple[bytes, bytes, bytes, SubmitOptions]], timeout_us: int, prefix: str
) -> None:
    engine = Engine()
    jobs = taken(some, engine)
    timeouts: dict[Function, int] = {engine.function_named(b"f"): timeout_us}
    expected: list[dict[str, Any]] = polled_jobs(prefix, jobs, timeouts)
    text = polled_jobs_json(json.dumps(prefix)[1:-1].encode(), jobs, timeouts)
    assert json.loads(text) == expected
    assert [list(each) for each in json.loads(text)] == [list(PolledJob.__annotations__)] * len(jobs)


@pytest.mark.parametrize(("size", "is_long"), [(0, False), (256 * 1024, False), (256 * 1024 + 1, True)])
def test_long_payloads_are_written_in_steps(size: int, is_long: bool) -> None:
    engine = Engine()
    jobs = taken([(b"f", b"", b"", SubmitOptions()), (b"f", b"x" * size, b"", SubmitOptions())], engine)
    assert has_long_payload(jobs) is is_long
