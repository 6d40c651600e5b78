"""`WideSubmissions`: jobs with so many predecessors that they are linked to them over several turns."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from switchgear.engine.dependencies import Dependencies, has_policies
from switchgear.engine.function_placement import is_foreign
from switchgear.engine.functions import FunctionRegistry
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.state import EngineState
from switchgear.engine.submissions import Submissions
from switchgear.engine.submit_options import SubmitOptions
from switchgear.model import Function, Job, Peer

__all__ = ["WideSubmissions"]

# So many edges take about as long as to submit a hundred jobs.
LINKED_PER_SLICE: Final = 200


class WideSubmissions:
    """Links a new job to its predecessors in portions, and then submits it as `Submissions` does."""

    def __init__(
        self,
        state: EngineState,
        packed: PackedQueues,
        functions: FunctionRegistry,
        dependencies: Dependencies,
        submissions: Submissions,
    ) -> None:
        self._state = state
        self._packed = packed
        self._functions = functions
        self._dependencies = dependencies
        self._submissions = submissions

    def submit(
        self,
        function_name: bytes,
        unique: bytes,
        payload: bytes,
        priority: int,
        delivery: int,
        subscriber: Peer | None,
        options: SubmitOptions,
    ) -> Generator[bool, None, Job]:
        """Submit a job of very many predecessors, none of which is named twice, or that relies on very many jobs, in
        slices; raises Refused.

        Gives False after each part, and returns the job.  Other commands come in between.  The job is in no table until
        it is linked to all its predecessors; whether it can be taken is decided then, and if it cannot, or joins
        another, its edges are removed again.
        """
        submission = (function_name, unique, payload, priority, delivery, subscriber, options)
        function = self._state.functions.get(function_name)
        if options.job_id or (unique and function is not None and self._packed.has_holder(function, unique)):
            return self._submissions.submit(*submission)
        if self._state.refusal is None and self._state.memory.has_room(options.held_bytes()):
            function = self._functions.named(function_name)
            if is_foreign(function):
                return self._submissions.submit(*submission)
            if delivery:
                for _ in self._dependencies.rely_in_steps(options.predecessors):
                    yield False
            job = self.new_job(function, payload, priority, delivery, options, unique)
            try:
                for start in range(0, len(options.predecessors), LINKED_PER_SLICE):
                    self._dependencies.link_some(job, start, start + LINKED_PER_SLICE)
                    yield False
                if not function.dropped:  # as one that nobody used, to make room for others
                    options.job_id = job.id
                    options.linked = job
                return self._submissions.submit(*submission)
            finally:
                options.linked = None
                self._dependencies.give_up_linking(job)
        return self._submissions.submit(*submission)  # which refuses it

    def new_job(
        self,
        function: Function,
        payload: bytes,
        priority: int,
        delivery: int,
        options: SubmitOptions,
        unique: bytes = b"",
        reserved_id: int = 0,
        below_id: int = 0,
    ) -> Job:
        """A job of very many predecessors, with an id and in no table, to be linked to them in portions."""
        job = self._submissions.new_job(function, unique, payload, priority, delivery, reserved_id, below_id)
        job.has_details = True
        job.predecessors = options.predecessors
        if options.edges and has_policies(options.edges):
            job.edges = options.edges
        self._dependencies.begin_linking(job)
        return job
