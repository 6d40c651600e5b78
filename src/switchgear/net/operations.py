"""What an operator can ask a server, in one place for every way of asking.

Each verb takes named arguments and gives an answer of plain values.  Bytes are text where they are UTF-8, and
otherwise an object with the one key `base64`; times are seconds since the epoch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from switchgear.engine.core import REFUSED_STORAGE
from switchgear.engine.edge_errors import error_told
from switchgear.errors import Refused, StorageError
from switchgear.joblog.recorder import Recorder
from switchgear.model import (
    FINAL_STATES,
    PRIORITY_NAMES,
    READY,
    SCHEDULED,
    SECOND_US,
    URGENT,
    WAITING,
    Delivery,
    EdgePolicy,
    Function,
    Job,
    JobState,
    UniqueScope,
    Worker,
)
from switchgear.net.connection_operations import ConnectionOperations, memory_figures
from switchgear.net.explain_operations import ExplainOperations
from switchgear.net.hub import Hub
from switchgear.net.job_operations import JobOperations
from switchgear.net.limit_operations import LimitOperations, plain_policy
from switchgear.net.schedule_operations import ScheduleOperations
from switchgear.net.steps import Steps, in_steps
from switchgear.net.tcp import Connection
from switchgear.net.values import encoded, plain, whole
from switchgear.version import VERSION

__all__ = ["Operations"]

# Looking at more must not keep the server from its work.
MOST_LINES: Final = 1000
# Of the jobs and the functions of a worker so many are named in a list of workers, which may be long.
MOST_NAMED: Final = 100


class Operations:
    """The verbs."""

    def __init__(self, hub: Hub, handle_prefix: str) -> None:
        self.hub = hub
        self.engine = hub.engine
        self.handle_prefix = handle_prefix
        self.started_us = hub.clock.now_us()
        self.connections: Callable[[], int] = lambda: 0
        self.listeners: Callable[[], list[dict[str, Any]]] = list
        self.open_connections: Callable[[], Sequence[Connection]] = tuple
        self.recorder: Recorder | None = None
        self._verbs: dict[str, Callable[..., Any]] = {
            "server": self.server,
            "functions": self.functions,
            "workers": self.workers,
            "job": self.job,
            **ConnectionOperations(self).verbs(),
            **ExplainOperations(self).verbs(),
            **JobOperations(self).verbs(),
            "pause": self.pause,
            "resume": self.resume,
            **LimitOperations(self).verbs(),
            **ScheduleOperations(self).verbs(),
        }

    def __call__(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Do it; raises ValueError or TypeError for bad arguments, LookupError for an unknown job, or Refused."""
        answers: list[Any] = []
        for _ in self.in_steps(verb, arguments, answers):
            pass
        return answers[0]

    def in_steps(self, verb: str, arguments: dict[str, Any], answers: list[Any]) -> Iterator[bool]:
        """The same in steps; at the end the answer is added to the list.  A verb that may have much to do is a
        generator, and gives its answer by returning it."""
        action = self._verbs.get(verb)
        if action is None:
            raise ValueError(f"unknown verb {verb!r}; there are {', '.join(self._verbs)}")
        try:
            answer = action(**arguments)
            if isinstance(answer, Generator):
                answer = yield from answer
            answers.append(answer)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{verb}: {error}") from error
        except StorageError as error:
            raise Refused(REFUSED_STORAGE, str(error)) from error

    # --- looking ---

    def server(self) -> dict[str, Any]:
        engine = self.engine
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "uptime_seconds": (self.hub.clock.now_us() - self.started_us) / SECOND_US,
            "handle_prefix": self.handle_prefix,
            "store": self.hub.store.url,
            "storage_error": str(self.hub.storage_error or ""),
            "jobs": engine.job_count(),
            "functions": len(engine.functions),
            "workers": len(self._workers()),
            "connections": self.connections(),
            "draining": engine.refusal is not None and engine.refusal.reason == "draining",
            "memory": memory_figures(engine.memory),
            "listeners": self.listeners(),
            "joblog": self._joblog(),
            "events": dict(self.hub.telemetry.counts),
        }

    def _joblog(self) -> dict[str, Any] | None:
        recorder = self.recorder
        if recorder is None:
            return None
        return {
            "url": recorder.url,
            "written": recorder.written,
            "waiting": recorder.waiting,
            "dropped": recorder.dropped,
        }

    def functions(self) -> Steps:
        return in_steps(self._function, list(self.engine.functions.values()))

    def _function(self, function: Function) -> dict[str, Any]:
        return {
            "name": plain(function.name),
            "total": function.total,
            "ready": function.ready,
            "running": function.running,
            "waiting_or_scheduled": function.total - function.ready - function.running,
            "workers": len(function.workers),
            "paused": function.paused,
            "limits": list(function.limits),
            "policy": plain_policy(function.gate.policy) if function.gate is not None else None,
            "keys_waiting": self._keys_waiting(function),
            "submitted": function.submitted,
            "done": function.done,
            "failed": function.failed,
            "cancelled": function.cancelled,
            "expired": function.expired,
            "requeued": function.requeued,
            "oldest_ready_seconds": self._oldest_ready_seconds(function),
        }

    def _oldest_ready_seconds(self, function: Function) -> float | None:
        """Of those at the head of a line; if there are lines of very many keys, of some of them."""
        heads = [
            next((job for job in islice(queue, 100) if job.state is READY), None)
            for line in islice(function.lines(), MOST_LINES)
            for queue in line.queues
        ]
        created = [job.created_us for job in heads if job is not None]
        return (self.engine.now_us - min(created)) / SECOND_US if created else None

    def _keys_waiting(self, function: Function) -> int | None:
        """How many keys have ready jobs; None: they are not told apart."""
        gate = function.gate
        return gate.keys_waiting if gate is not None and gate.lanes is not None else None

    def workers(self) -> Steps:
        return in_steps(self._worker, self._workers())

    def _workers(self) -> list[Worker]:
        """Without those that can do nothing and only have an alarm set: they stand for nobody."""
        return [worker for worker in self.engine.workers.values() if worker.timeouts_us or worker.alarms is None]

    def _worker(self, worker: Worker) -> dict[str, Any]:
        wire = getattr(worker.peer, "wire", None)
        return {
            "id": worker.id,
            "name": plain(worker.name),
            "protocol": worker.protocol,
            "address": f"{wire.host}:{wire.port}" if wire is not None and wire.host else "",
            "functions": [plain(function.name) for function in islice(worker.timeouts_us, MOST_NAMED)],
            "functions_count": len(worker.timeouts_us),
            "running": [self.handle(job_id) for job_id in islice(worker.running, MOST_NAMED)],
            "running_count": len(worker.running),
            "asleep": worker.asleep,
            "connected_at": worker.since_us / SECOND_US,
        }

    def job(self, job_id: int) -> dict[str, Any]:
        job = self.find(job_id)
        try:
            payload = self.hub.payload(job) if self.engine.has_job(job.id) else job.payload or b""
        except (Refused, LookupError):
            payload = b""
        return {
            **self.summary(job),
            "payload": plain(payload),
            "payload_bytes": len(payload),
            "result": plain(job.whole_result),
            "warnings": plain(job.warnings),
            "log": [{"cause": cause.name.lower(), "at": at_us / SECOND_US} for cause, at_us in job.log],
        }

    def summary(self, job: Job) -> dict[str, Any]:
        error = error_told(job, self.handle)
        return {
            "handle": self.handle(job.id),
            "id": job.id,
            "function": plain(job.function.name),
            "state": job.state.name.lower(),
            "dead": job.is_dead,
            "priority": "urgent" if job.priority == URGENT else PRIORITY_NAMES[job.priority],
            "delivery": Delivery(job.delivery).name.lower(),
            "unique": plain(job.shown_unique),
            "name": plain(job.name),
            "attempts": job.attempts,
            "attempts_limit": job.attempts_limit if job.attempts_limit >= 0 else self.engine.settings.attempts,
            "created_at": job.created_us / SECOND_US,
            "run_at": job.run_at_us / SECOND_US or None,
            "expires_at": job.expires_us / SECOND_US or None,
            "finished_at": job.finished_us / SECOND_US or None,
            "timeout": job.timeout_us / SECOND_US or None,
            "numerator": job.numerator,
            "denominator": job.denominator,
            "time_left": job.time_left_s if job.time_left_s >= 0 else None,
            "result_code": job.result_code,
            "error": None if error is None else plain(error),
            "predecessors": [self.handle(predecessor) for predecessor in job.predecessors],
            "on_failure": [EdgePolicy(policy).name.lower() for policy in job.edges or bytes(len(job.predecessors))],
            "origin": job.origin,
            "key": plain(job.key),
            "losses": job.losses,
            "losses_limit": job.losses_limit if job.losses_limit >= 0 else None,
            "unique_scope": UniqueScope(job.unique_scope).name.lower(),
            "unique_until": job.unique_until_us / SECOND_US or None,
            "retention": job.retention_us / SECOND_US if job.retention_us >= 0 else None,
            "message": plain(job.message),
            "schedule": plain(job.schedule),
        }

    # --- acting ---

    def pause(self, function: str) -> dict[str, Any]:
        return self._set_paused(function, True)

    def resume(self, function: str) -> dict[str, Any]:
        return self._set_paused(function, False)

    def _set_paused(self, name: str, paused: bool) -> dict[str, Any]:
        encoded_name = encoded(name)
        if encoded_name is None:
            raise ValueError("function is missing")
        function = self.engine.function_named(encoded_name)
        if paused:
            self.engine.pause(function)
        else:
            self.engine.resume(function)
        return {"function": name, "paused": function.paused}

    # --- inside ---

    def handle(self, job_id: int) -> str:
        return f"{self.handle_prefix}{job_id}"

    def find(self, job_id: int) -> Job:
        job_id = whole(job_id)
        job = self.hub.find_job(job_id)
        if job is None:
            raise LookupError("there is no such job, or it finished so long ago that it was dropped from the history")
        return job


assert {WAITING, SCHEDULED, READY} | FINAL_STATES | {JobState.RUNNING} == set(JobState)
