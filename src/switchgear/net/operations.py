"""What an operator can ask a server, in one place for every way of asking.

Each verb takes named arguments and gives an answer of plain values.  Bytes are text where they are UTF-8, and
otherwise an object with the one key `base64`; times are seconds since the epoch.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from switchgear.engine.core import REFUSED_CONFLICT, REFUSED_STORAGE
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
    Cause,
    Delivery,
    Function,
    Job,
    JobState,
    Worker,
)
from switchgear.net.hub import Hub
from switchgear.storage.base import JobQuery
from switchgear.version import VERSION

__all__ = ["Operations"]

MOST_LISTED: Final = 1000
LARGEST: Final = 2**63 - 1
# A filter that matches little must not keep the server from its work: this many unfinished jobs are looked at.
MOST_SCANNED: Final = 200_000
STATE_NAMES: Final = {state.name.lower(): state for state in JobState}


class Operations:
    """The verbs."""

    def __init__(self, hub: Hub, handle_prefix: str) -> None:
        self.hub = hub
        self.engine = hub.engine
        self.handle_prefix = handle_prefix
        self.started_us = hub.clock.now_us()
        self.connections: Callable[[], int] = lambda: 0
        self.recorder: Recorder | None = None
        self._verbs: dict[str, Callable[..., Any]] = {
            "server": self.server,
            "functions": self.functions,
            "workers": self.workers,
            "jobs": self.jobs,
            "job": self.job,
            "cancel": self.cancel,
            "retry": self.retry,
            "pause": self.pause,
            "resume": self.resume,
        }

    def __call__(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Do it; raises ValueError or TypeError for bad arguments, LookupError for an unknown job, or Refused."""
        action = self._verbs.get(verb)
        if action is None:
            raise ValueError(f"unknown verb {verb!r}; there are {', '.join(self._verbs)}")
        try:
            return action(**arguments)
        except (TypeError, ValueError) as error:
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
            "store": self.hub.store.url,
            "storage_error": str(self.hub.storage_error or ""),
            "jobs": len(engine.jobs),
            "functions": len(engine.functions),
            "workers": len(self._workers()),
            "connections": self.connections(),
            "draining": engine.refusal is not None and engine.refusal.reason == "draining",
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

    def functions(self) -> list[dict[str, Any]]:
        return [self._function(function) for function in self.engine.functions.values()]

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
            "submitted": function.submitted,
            "done": function.done,
            "failed": function.failed,
            "cancelled": function.cancelled,
            "expired": function.expired,
            "requeued": function.requeued,
            "oldest_ready_seconds": self._oldest_ready_seconds(function),
        }

    def _oldest_ready_seconds(self, function: Function) -> float | None:
        heads = [next((job for job in islice(queue, 100) if job.state is READY), None) for queue in function.queues]
        created = [job.created_us for job in heads if job is not None]
        return (self.engine.now_us - min(created)) / SECOND_US if created else None

    def workers(self) -> list[dict[str, Any]]:
        return [self._worker(worker) for worker in self._workers()]

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
            "functions": [plain(function.name) for function in worker.timeouts_us],
            "running": [self.handle(job_id) for job_id in worker.running],
            "asleep": worker.asleep,
            "connected_at": worker.since_us / SECOND_US,
        }

    def jobs(
        self,
        function: str | None = None,
        states: list[str] | None = None,
        unique: str | None = None,
        name: str | None = None,
        before_id: int = 0,
        limit: int = 100,
    ) -> dict[str, Any]:
        query = JobQuery(
            function=encoded(function),
            states=frozenset(state_named(word) for word in states or ()),
            unique=encoded(unique),
            name=encoded(name),
            before_id=whole(before_id),
            limit=max(1, min(whole(limit), MOST_LISTED)),
        )
        kept = self.hub.store.find(query)
        unfinished, complete_from = self._unfinished(query)
        # The store may lag behind: the engine has the last word on what it still has, and what it has not is over.
        finished = [job for job in kept if job.state in FINAL_STATES and job.id not in self.engine.jobs]
        if len(kept) >= query.limit:
            complete_from = max(complete_from, kept[-1].id)
        listed = sorted((job for job in finished + unfinished if job.id >= complete_from), key=lambda job: -job.id)
        if len(listed) > query.limit:
            listed = listed[: query.limit]
            complete_from = listed[-1].id
        return {"jobs": [self._summary(job) for job in listed], "next_before_id": complete_from or None}

    def _unfinished(self, query: JobQuery) -> tuple[list[Job], int]:
        """Unfinished jobs that match, about as many as wanted, and the id from which on these are all."""
        found: list[Job] = []
        if query.states and query.states <= FINAL_STATES:
            return found, 0
        wanted = query.limit
        for job in islice(reversed(self.engine.jobs.values()), MOST_SCANNED):
            if matches(job, query):
                found.append(job)
                if not was_retried(job):  # which has moved to the end of the table, where its id does not belong
                    wanted -= 1
                    if not wanted:
                        return found, job.id
        return found, 0

    def job(self, job_id: int) -> dict[str, Any]:
        job = self._find(job_id)
        try:
            payload = self.hub.payload(job) if job.id in self.engine.jobs else job.payload or b""
        except (Refused, LookupError):
            payload = b""
        return {
            **self._summary(job),
            "payload": plain(payload),
            "payload_bytes": len(payload),
            "result": plain(job.whole_result),
            "warnings": plain(job.warnings),
            "log": [{"cause": cause.name.lower(), "at": at_us / SECOND_US} for cause, at_us in job.log],
        }

    def _summary(self, job: Job) -> dict[str, Any]:
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
            "error": plain(job.error) if job.error is not None else None,
            "predecessors": [self.handle(predecessor) for predecessor in job.predecessors],
            "origin": job.origin,
        }

    # --- acting ---

    def cancel(self, job_id: int, cascade: bool = False) -> dict[str, Any]:
        job = self._find(job_id)
        ended = self.engine.cancel(job, cascade=bool(cascade))
        if not ended:
            raise LookupError(f"{self.handle(job_id)} is {job.state.name.lower()}: there is nothing to cancel")
        return {"cancelled": [self.handle(other.id) for other in ended]}

    def retry(
        self, job_id: int | None = None, function: str | None = None, all_dead: bool = False, limit: int = MOST_LISTED
    ) -> dict[str, Any]:
        if job_id is not None:
            job = self._find(job_id)
            if job.state is JobState.DONE or job.state not in FINAL_STATES:
                raise Refused(REFUSED_CONFLICT, f"it is {job.state.name.lower()}: there is nothing to retry")
            self._revive(job)
            return {"retried": [self.handle(job.id)]}
        if not all_dead:
            raise ValueError("retry takes a handle, or all_dead")
        if self.engine.refusal is not None:
            raise Refused(self.engine.refusal.reason, str(self.engine.refusal))
        retried: list[str] = []
        for dead in self._dead(encoded(function)):
            if len(retried) >= whole(limit):
                break
            try:
                self._revive(self._find(dead.id))
            except Refused:
                continue  # another job has its unique key; that one counts
            retried.append(self.handle(dead.id))
        return {"retried": retried}

    def _dead(self, function: bytes | None) -> Iterator[Job]:
        """The dead jobs of the history, newest first, however many others failed in between."""
        before_id = 0
        while True:
            query = JobQuery(
                function=function, states=frozenset({JobState.FAILED}), before_id=before_id, limit=MOST_LISTED
            )
            failed = self.hub.store.find(query)
            yield from (job for job in failed if job.is_dead and job.id not in self.engine.jobs)
            if len(failed) < MOST_LISTED:
                return
            before_id = failed[-1].id

    def _revive(self, job: Job) -> None:
        job.function = self.engine.function_named(job.function.name)
        self.engine.retry(job)

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

    def _find(self, job_id: int) -> Job:
        job_id = whole(job_id)
        job = self.hub.find_job(job_id)
        if job is None:
            raise LookupError("there is no such job, or it finished so long ago that it was dropped from the history")
        return job


def matches(job: Job, query: JobQuery) -> bool:
    return (
        (not query.before_id or job.id < query.before_id)
        and (query.function is None or job.function.name == query.function)
        and (not query.states or job.state in query.states)
        and (query.unique is None or job.unique == query.unique)
        and (query.name is None or job.name == query.name)
    )


def was_retried(job: Job) -> bool:
    return any(cause in (Cause.RETRIED, Cause.RETRIED_WAITING) for cause, _ in job.log)


def state_named(word: str) -> JobState:
    state = STATE_NAMES.get(str(word).lower())
    if state is None:
        raise ValueError(f"unknown state {word!r}; there are {', '.join(STATE_NAMES)}")
    return state


def encoded(text: str | None) -> bytes | None:
    if text is not None and not isinstance(text, str):  # it comes from a stranger's JSON
        raise ValueError(f"expected a text, got {text!r}")
    return text.encode() if text is not None else None


def whole(number: int) -> int:
    if type(number) is not int or not 0 <= number <= LARGEST:  # a bool is not meant as a number
        raise ValueError(f"expected a whole number, got {number!r}")
    return number


def plain(data: bytes) -> str | dict[str, str]:
    """Bytes as JSON can carry them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


assert {WAITING, SCHEDULED, READY} | FINAL_STATES | {JobState.RUNNING} == set(JobState)
