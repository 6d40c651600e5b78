"""A harness without connections, and an operator in it."""

from __future__ import annotations

from typing import Any

from switchgear.engine.engine import EngineSettings, SubmitOptions
from switchgear.model import NORMAL, Delivery, Job
from switchgear.net.operations.dispatcher import Operations
from tests.protocols.gearman.harness import Harness


class OperatorHarness:
    """Jobs come and go by the methods; `ask` is the operator."""

    def __init__(self, attempts: int = 3) -> None:
        self.harness = Harness(settings=EngineSettings(attempts=attempts))
        self.engine = self.harness.engine
        self.operations: Operations = self.harness.operations
        self.worker = self.engine.add_worker(self.harness.talker("worker").session, "gearman", b"hand")

    def ask(self, verb: str, **arguments: Any) -> Any:
        """The answer; a job may be given as `job_id` in place of its handle."""
        if "job_id" in arguments:
            arguments["handle"] = arguments.pop("job_id")
        answer = self.operations(verb, arguments)
        self.harness.end_turn()
        return answer

    def submit(self, count: int = 1, function: bytes = b"f", unique: bytes = b"", **options: Any) -> list[Job]:
        submitted = SubmitOptions(**options)
        jobs = [
            self.engine.submit(function, unique, b"payload", NORMAL, Delivery.HANDLE, None, submitted)
            for _ in range(count)
        ]
        self.harness.end_turn()
        return jobs

    def take(self, function: bytes = b"f") -> Job:
        self.engine.can_do(self.worker, self.engine.function_named(function))
        job = self.engine.take(self.worker)
        assert job is not None
        return job

    def finish(self, **outcome: Any) -> Job:
        """Take a job and end it: done, or with the arguments of `fail`."""
        job = self.take()
        if outcome:
            self.engine.fail(self.worker, job.id, **outcome)
        else:
            self.engine.complete(self.worker, job.id, b"result")
        self.harness.end_turn()
        return job

    def kill(self) -> Job:
        """Take a job that has one attempt, and lose its worker."""
        lost = self.engine.add_worker(self.harness.talker("lost").session, "gearman")
        self.engine.can_do(lost, self.engine.function_named(b"f"))
        job = self.engine.take(lost)
        assert job is not None
        self.engine.remove_worker(lost)
        self.harness.end_turn()
        return job

    def ids(self, **arguments: Any) -> list[int]:
        return [job["id"] for job in self.ask("jobs", **arguments)["jobs"]]

    def all_pages(self, **arguments: Any) -> list[int]:
        found: list[int] = []
        before_id = 0
        for _ in range(1000):
            answer = self.ask("jobs", before_id=before_id, **arguments)
            found += [job["id"] for job in answer["jobs"]]
            before_id = answer["next_before_id"]
            if before_id is None:
                return found
        raise AssertionError("pages without end")
