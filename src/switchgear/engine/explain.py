"""Why a job is where it is: reasons for people, with the figures for programs.

An answer costs no more for a long queue than for a short one, so it does not say how many jobs stand before one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from switchgear.engine.core import REFUSED_DRAINING
from switchgear.engine.edge_errors import ENDED_WORDS, error_told
from switchgear.engine.graph import policy_of
from switchgear.engine.tables import Tables
from switchgear.model import (
    DONE,
    FINAL_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    SECOND_US,
    Cause,
    EdgePolicy,
    Job,
    JobState,
)
from switchgear.text import counted

__all__ = ["MOST_NAMED", "Reason", "explain"]

Name = Callable[[int], str]  # what to call the job of this id

# A job may wait for thousands; the first of them tell enough.
MOST_NAMED: Final = 20
# Of what a worker said; the whole of it is in the job.
MOST_OF_ERROR: Final = 200
# So many of the smaller unit are told in the larger one.
MINUTES_FROM: Final = 120
HOURS_FROM: Final = 120
DAYS_FROM: Final = 72

LOSSES: Final = (Cause.WORKER_LOST, Cause.SERVER_LOST, Cause.TIMED_OUT)

END_TEXTS: Final = {
    Cause.SUCCEEDED: "done",
    Cause.SETTLED: "done; somebody who did not hold it reported so",
    Cause.ENDED_BADLY: "failed; its worker said so",
    Cause.EXHAUSTED: "dead: its attempts are spent",
    Cause.CANCELLED: "cancelled; somebody asked for that",
    Cause.ABANDONED: "cancelled; it was only for a submitter who is gone",
    Cause.EXPIRED: "expired; it was not started in time",
    Cause.SKIPPED: "cancelled, because one that it waited for did not succeed",
    Cause.DOOMED: "failed, because one that it waited for did not succeed",
    Cause.REPLACED: "cancelled; another with its unique key came in its place",
}

LIMIT_TEXTS: Final = {
    "concurrency": "as many jobs of this function run as may run at once",
    "rate": "as many jobs of this function were started lately as may be",
    "key_concurrency": "as many jobs of this key run as may run at once",
    "key_rate": "as many jobs of this key were started lately as may be",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a word for programs, a text for people, and the figures; times in it are in microseconds."""

    word: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


def explain(engine: Tables, job: Job, name: Name = "job {}".format) -> list[Reason]:
    """Why the job is where it is, the most important reason first.  A finished one may be a copy from a store."""
    if job.state in FINAL_STATES:
        return [ended(engine, job, name)]
    if job.state is RUNNING:
        return [running(engine, job)]
    if job.state is SCHEDULED:
        return [scheduled(engine, job), *history(job)]
    if job.state is READY:
        return [*ready(engine, job), *history(job)]
    return [*waiting(engine, job, name), *history(job)]


# --- what has ended, runs, or waits for a time ---


def ended(engine: Tables, job: Job, name: Name) -> Reason:
    cause, at_us = job.log[-1]
    word = "dead" if job.is_dead else job.state.name.lower()
    parts = [END_TEXTS.get(cause, word), when(engine, at_us)]
    if job.attempts:
        parts.append(f"after {counted(job.attempts, 'attempt')}")
    text = ", ".join(parts)
    error = error_told(job, name)
    if error and job.state is not DONE:
        text += f": {shortened(error)}"
    data: dict[str, Any] = {"cause": cause.name.lower(), "at_us": at_us, "attempts": job.attempts}
    if job.losses:
        data["losses"] = job.losses
    if job.predecessors and cause in (Cause.SKIPPED, Cause.DOOMED):
        data["predecessors"] = list(job.predecessors[:MOST_NAMED])
    return Reason(word, text, data)


def running(engine: Tables, job: Job) -> Reason:
    since_us = next((at_us for cause, at_us in reversed(job.log) if cause is Cause.TAKEN), job.created_us)
    data: dict[str, Any] = {"since_us": since_us, "attempt": job.attempts}
    worker = job.worker
    text = "runs"
    if worker is not None:
        data |= {"worker_id": worker.id, "worker": worker.name, "protocol": worker.protocol}
        text += f" on {worker_name(worker.name, worker.id)}"
    text += f" for {span(engine.now_us - since_us)}, attempt {job.attempts}"
    if job.denominator or job.numerator:
        data |= {"numerator": job.numerator, "denominator": job.denominator}
        text += f", {job.numerator} of {job.denominator}"
    if job.message:
        data["message"] = job.message
        text += f": {shortened(job.message)}"
    return Reason("running", text, data)


def scheduled(engine: Tables, job: Job) -> Reason:
    data = {"at_us": job.run_at_us}
    at = when(engine, job.run_at_us)
    if job.log[-1][0] is not Cause.RETRY_LATER:
        return Reason("scheduled", f"scheduled to run {at}", data)
    text = f"attempt {job.attempts} failed, the next one is due {at}"
    if job.error:
        text += f": {shortened(job.error)}"
    return Reason("retry_later", text, data | {"attempts": job.attempts, "error": job.error or b""})


def history(job: Job) -> Iterator[Reason]:
    """What has become of earlier attempts, if the job was lost."""
    lost = [cause for cause, _ in job.log if cause in LOSSES]
    if lost:
        text = f"it was started {counted(job.attempts, 'time')}; last time: {words(lost[-1])}"
        yield Reason("lost", text, {"attempts": job.attempts, "losses": len(lost), "cause": lost[-1].name.lower()})


# --- what could be handed out ---


def ready(engine: Tables, job: Job) -> list[Reason]:
    function = job.function
    reasons: list[Reason] = []
    if not engine.handing_out:
        refusal = engine.refusal
        if refusal is not None and refusal.reason != REFUSED_DRAINING:
            reasons.append(Reason(refusal.reason, f"nothing is handed out: {refusal}"))
        else:
            reasons.append(Reason("draining", "the server is shutting down and hands nothing out"))
    if function.paused:
        reasons.append(Reason("paused", f"the function {shown(function.name)} is paused"))
    closed = engine.why_closed(job)
    if closed is not None:
        text = LIMIT_TEXTS[closed.reason]
        data: dict[str, Any] = {"limit": closed.reason}
        if job.key:
            data["key"] = job.key
        if closed.opens_us:
            data["opens_us"] = closed.opens_us
            text += f"; the next may be {when(engine, closed.opens_us)}"
        reasons.append(Reason("limit", text, data))
    if not function.workers:
        text = f"no worker that can do {shown(function.name)} is connected"
        reasons.append(Reason("no_worker", text, {"function": function.name}))
    elif not reasons:
        reasons.append(about_workers(engine, job))
    return reasons


def about_workers(engine: Tables, job: Job) -> Reason:
    """There are workers for the job, and nothing stands in the way."""
    function = job.function
    most = engine.settings.jobs_per_worker
    count = len(function.workers)
    free = sum(worker.asleep or worker.credits > 0 for worker in function.workers)
    full = sum(len(worker.running) >= most > 0 for worker in function.workers)
    busy = sum(bool(worker.running) for worker in function.workers)
    data = {"workers": count, "busy": busy, "full": full, "ready": function.ready}
    jobs = f"{counted(function.ready, 'job')} of {shown(function.name)} {'is' if function.ready == 1 else 'are'} ready"
    if free:
        return Reason("about_to_run", f"{free} of {counted(count, 'worker')} wait for work; {jobs}", data)
    if busy:
        return Reason("workers_busy", f"{busy} of {counted(count, 'worker')} that can do it are busy; {jobs}", data)
    text = f"none of {counted(count, 'worker')} that can do it has asked for a job; {jobs}"
    return Reason("workers_absent", text, data)


# --- what waits for others ---


def waiting(engine: Tables, job: Job, name: Name) -> Iterator[Reason]:
    """The jobs that it waits for, those that did not succeed first: somebody has to do something about them."""
    unsuccessful = engine.graph.unsuccessful
    named = 0
    for in_vain in (True, False):
        for job_id in job.predecessors:
            state = unsuccessful.get(job_id) if in_vain else engine.state_of(job_id)
            if state is None:
                continue
            if named == MOST_NAMED:
                break
            named += 1
            yield waiting_for(job, job_id, state, name)
    if job.blockers > named:
        yield Reason("waiting_for_more", f"waits for {job.blockers - named} more", {"count": job.blockers - named})


def waiting_for(job: Job, job_id: int, state: JobState, name: Name) -> Reason:
    policy = EdgePolicy(policy_of(job, job_id))
    data = {"job_id": job_id, "state": state.name.lower(), "on_failure": policy.name.lower()}
    text = f"waits for {name(job_id)}, which "
    if state in FINAL_STATES:
        text += f"{ENDED_WORDS[state]}; retry that one, or cancel this"
    else:
        text += f"is {words(state)}"
    return Reason("waiting_for", text, data)


# --- words ---


def words(value: Cause | JobState) -> str:
    return value.name.lower().replace("_", " ")


def shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "replace"))


def worker_name(name: bytes, worker_id: int) -> str:
    return f"worker {shown(name)}" if name else f"worker {worker_id}"


def shortened(text: bytes) -> str:
    """The first line of what somebody said."""
    line = text.decode("utf-8", "replace").strip().partition("\n")[0]
    return line if len(line) <= MOST_OF_ERROR else f"{line[:MOST_OF_ERROR]}…"


def span(span_us: int) -> str:
    seconds = max(0, span_us) / SECOND_US
    if seconds < MINUTES_FROM:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < HOURS_FROM:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < DAYS_FROM else f"{round(seconds / 86400)} days"


def when(engine: Tables, at_us: int) -> str:
    """How far away a moment is; whoever needs it exactly finds it among the figures."""
    away_us = at_us - engine.now_us
    return f"in {span(away_us)}" if away_us > 0 else f"{span(-away_us)} ago"
