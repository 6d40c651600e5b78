"""What a job takes in memory: a million of them have to fit."""

from __future__ import annotations

import subprocess
import sys

from switchgear.engine.engine import Engine

# A server that has seen only plain jobs so far is given many of other kinds.
MEASURE = """
import tracemalloc
from switchgear.model import Delivery, Function, Job

function = Function(b"mail")
plain = [Job(number, function, b"", b"", 1, Delivery.HANDLE, 0) for number in range(100)]
jobs = [Job(number, function, b"", b"", 1, Delivery.HANDLE, 0) for number in range(1000)]
tracemalloc.start()
for job in jobs:
    job.kept = job.revision = job.finished_us = job.run_limit = 1
    job.result = job.name = job.key = job.edges = b"x"
    job.predecessors = ()
    job.blockers = job.rank = 1
    job.run_at_us = job.expires_us = job.timeout_us = job.attempts_limit = job.losses_limit = 1
print(tracemalloc.get_traced_memory()[0] // len(jobs))
"""


def test_what_many_jobs_are_given_after_they_were_made_has_room_in_every_job() -> None:
    """Without that each would get a dictionary of its own, of some 700 bytes."""
    measured = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    assert int(measured.stdout) < 16


def test_an_engine_has_no_more_attributes_than_cpython_lays_out_well() -> None:
    """With more than 29 it has a dictionary of its own, and was found to be 14 % slower with every job."""
    assert len(vars(Engine())) < 29  # one more is set when it is first needed
