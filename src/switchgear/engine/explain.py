"""`explain`: why a job is in its state, as text for people and figures for programs.

The cost of an answer does not depend on the length of the queue, so it does not say how many jobs are ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from switchgear.engine.dependencies import Dependencies, policy_of
from switchgear.engine.limiters import Limiters
from switchgear.engine.packed_queues import PackedQueues
from switchgear.engine.predecessor_error import ENDED_WORDS, error_told
from switchgear.engine.requirements import could_fit, fits
from switchgear.engine.state import EngineState
from switchgear.engine.stuck import StuckFunctions
from switchgear.engine.waiting_workers import allowed_priorities
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
    Worker,
)
from switchgear.refusals import REFUSED_DRAINING
from switchgear.resources import amount_text, as_number, shown_requirements, split_requirements
from switchgear.text import counted

__all__ = ["MOST_NAMED", "ExplainParts", "Reason", "explain"]

Name = Callable[[int], str]  # the text form of a job id

# A job may have thousands of predecessors; the first of them are enough.
MOST_NAMED: Final = 20
MOST_LOOKED_AT: Final = 10_000
# A longer message of a worker is shortened; the job has all of it.
MOST_OF_ERROR: Final = 200
# From this many of the smaller unit on, the larger one is used.
MINUTES_FROM: Final = 120
HOURS_FROM: Final = 120
DAYS_FROM: Final = 72

LOSSES: Final = (Cause.WORKER_LOST, Cause.SERVER_LOST, Cause.TIMED_OUT)

END_TEXTS: Final = {
    Cause.SUCCEEDED: "done",
    Cause.SETTLED: "done; reported by a peer that did not hold it",
    Cause.ENDED_BADLY: "failed; its worker reported a failure",
    Cause.EXHAUSTED: "dead: its attempts are used up",
    Cause.CANCELLED: "cancelled on request",
    Cause.ABANDONED: "cancelled, because its only submitter disconnected",
    Cause.EXPIRED: "expired; it was not started in time",
    Cause.SKIPPED: "cancelled, because a predecessor did not succeed",
    Cause.DOOMED: "failed, because a predecessor did not succeed",
    Cause.REPLACED: "cancelled; replaced by another job with its unique key",
}

LIMIT_TEXTS: Final = {
    "concurrency": "as many jobs of this function run as may run at once",
    "rate": "as many jobs of this function were started lately as may be",
    "key_concurrency": "as many jobs of this key run as may run at once",
    "key_rate": "as many jobs of this key were started lately as may be",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a word for programs, a text for people, and figures; times are in microseconds."""

    word: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


class ExplainParts:
    """The parts of the engine that an explanation reads."""

    __slots__ = ("dependencies", "limiters", "packed", "state", "stuck")

    def __init__(
        self,
        state: EngineState,
        limiters: Limiters,
        dependencies: Dependencies,
        packed: PackedQueues,
        stuck: StuckFunctions,
    ) -> None:
        self.state = state
        self.limiters = limiters
        self.dependencies = dependencies
        self.packed = packed
        self.stuck = stuck


def explain(parts: ExplainParts, job: Job, name: Name = "job {}".format) -> list[Reason]:
    """Why the job is in its state, the most important reason first. A finished job may be a copy from a store."""
    if job.state in FINAL_STATES:
        return [ended(parts, job, name)]
    if job.state is RUNNING:
        return [running(parts, job)]
    if job.state is SCHEDULED:
        return [scheduled(parts, job), *history(job)]
    if job.state is READY:
        return [*ready(parts, job), *history(job)]
    return [*waiting(parts, job, name), *history(job)]


# --- ended, running and scheduled jobs ---


def ended(parts: ExplainParts, job: Job, name: Name) -> Reason:
    cause, at_us = job.log[-1]
    word = "dead" if job.is_dead else job.state.name.lower()
    words_of_end = [END_TEXTS.get(cause, word), when(parts, at_us)]
    if job.attempts:
        words_of_end.append(f"after {counted(job.attempts, 'attempt')}")
    text = ", ".join(words_of_end)
    error = error_told(job, name)
    if error and job.state is not DONE:
        text += f": {shortened(error)}"
    data: dict[str, Any] = {"cause": cause.name.lower(), "at_us": at_us, "attempts": job.attempts}
    if job.losses:
        data["losses"] = job.losses
    if job.predecessors and cause in (Cause.SKIPPED, Cause.DOOMED):
        data["predecessors"] = list(job.predecessors[:MOST_NAMED])
    return Reason(word, text, data)


def running(parts: ExplainParts, job: Job) -> Reason:
    since_us = next((at_us for cause, at_us in reversed(job.log) if cause is Cause.TAKEN), job.created_us)
    data: dict[str, Any] = {"since_us": since_us, "attempt": job.attempts}
    worker = job.worker
    text = "runs"
    if worker is not None:
        data |= {"worker_id": worker.id, "worker": worker.name, "protocol": worker.protocol}
        text += f" on {worker_name(worker.name, worker.id)}"
    text += f" for {span(parts.state.now_us - since_us)}, attempt {job.attempts}"
    if job.denominator or job.numerator:
        data |= {"numerator": job.numerator, "denominator": job.denominator}
        text += f", {job.numerator} of {job.denominator}"
    if job.message:
        data["message"] = job.message
        text += f": {shortened(job.message)}"
    return Reason("running", text, data)


def scheduled(parts: ExplainParts, job: Job) -> Reason:
    data = {"at_us": job.run_at_us}
    at = when(parts, job.run_at_us)
    if job.log[-1][0] is not Cause.RETRY_LATER:
        return Reason("scheduled", f"scheduled to run {at}", data)
    text = f"attempt {job.attempts} failed, the next one is due {at}"
    if job.error:
        text += f": {shortened(job.error)}"
    return Reason("retry_later", text, data | {"attempts": job.attempts, "error": job.error or b""})


def history(job: Job) -> Iterator[Reason]:
    """The outcome of earlier attempts, if the job was lost."""
    lost = [cause for cause, _ in job.log if cause in LOSSES]
    if lost:
        text = f"it was started {counted(job.attempts, 'time')}; last time: {words(lost[-1])}"
        yield Reason("lost", text, {"attempts": job.attempts, "losses": len(lost), "cause": lost[-1].name.lower()})


# --- ready jobs ---


def ready(parts: ExplainParts, job: Job) -> list[Reason]:
    function = job.function
    reasons: list[Reason] = []
    if not parts.state.handing_out:
        refusal = parts.state.refusal
        if refusal is not None and refusal.reason != REFUSED_DRAINING:
            reasons.append(Reason(refusal.reason, f"no jobs are assigned: {refusal}"))
        else:
            reasons.append(Reason("draining", "the server is shutting down and assigns no jobs"))
    if function.paused:
        reasons.append(Reason("paused", f"the function {shown(function.name)} is paused"))
    closed = parts.limiters.why_closed(job)
    if closed is not None:
        text = LIMIT_TEXTS[closed.reason]
        data: dict[str, Any] = {"limit": closed.reason}
        if job.key:
            data["key"] = job.key
        if closed.opens_us:
            data["opens_us"] = closed.opens_us
            text += f"; the next may be {when(parts, closed.opens_us)}"
        reasons.append(Reason("limit", text, data))
    if not function.workers:
        text = f"no worker that can do {shown(function.name)} is connected"
        reasons.append(Reason("no_worker", text, {"function": function.name}))
    elif job.requires and not any(could_fit(worker, job) for worker in function.workers):
        reasons.append(unfulfilled(job))
    elif not any(job.priority in allowed_priorities(worker, function) for worker in function.workers):
        text = f"no worker that is connected takes jobs of {shown(function.name)} with this priority"
        reasons.append(Reason("no_worker", text, {"function": function.name, "priority": job.priority}))
    elif not reasons:
        reasons.append(about_workers(parts, job))
    return reasons


def unfulfilled(job: Job) -> Reason:
    """There are workers for the function, and none has all the tags, and as much of everything, as the job requires."""
    workers = job.function.workers
    tags, amounts = split_requirements(job.requires)
    had = frozenset().union(*(worker.tags for worker in workers))
    most = {name: max(worker.resources.get(name, 0) for worker in workers) for name, _ in amounts}
    missing = sorted(tags - had)
    short = [(name, amount) for name, amount in amounts if most[name] < amount]
    parts = []
    if missing:
        parts.append(f"has the tag{'s' * (len(missing) > 1)} {', '.join(map(shown, missing))}")
    for name, amount in short:
        largest = f"the most is {amount_text(most[name])}" if most[name] else "none has any"
        parts.append(f"has {amount_text(amount)} of {shown(name)} ({largest})")
    required = shown_requirements(job.requires)
    if not parts and amounts:
        parts.append(f"has all of {', '.join(required)}")
    elif not parts:
        parts.append(f"has all of the tags {', '.join(map(shown, sorted(tags)))}")
    data = {
        "requires": required,
        "missing": words_of(missing),
        "short": [
            {"resource": words_of([name])[0], "required": as_number(amount), "most": as_number(most[name])}
            for name, amount in short
        ],
        "workers": number_of(workers),
    }
    count = counted(number_of(workers), "worker")
    text = f"none of {count} that can do {shown(job.function.name)} {', and none '.join(parts)}"
    return Reason("missing_resource" if short and not missing else "missing_tag", text, data)


def in_use(job: Job, workers: list[Worker]) -> Reason:
    """Some workers have what the job requires, but other jobs use too much of it."""
    amounts = split_requirements(job.requires)[1]
    free = {
        name: max(worker.offer.free.get(name, 0) if worker.offer else 0 for worker in workers) for name, _ in amounts
    }
    names = [shown(name) for name, _ in amounts]
    count = number_of(workers)
    text = f"other jobs use too much {' and '.join(names)} of {counted(count, 'worker')} that could do it"
    most_free = {name.decode("utf-8", "replace"): as_number(max(0, amount)) for name, amount in free.items()}
    return Reason("resources_in_use", text, {"workers": count, "most_free": most_free})


def number_of(workers: Iterable[Worker]) -> int:
    """How many workers these are: one of another server may stand for several."""
    return sum(worker.stands_for for worker in workers)


def about_workers(parts: ExplainParts, job: Job) -> Reason:
    """The reason that workers are busy or asleep, and nothing else holds the job back."""
    function = job.function
    most = parts.state.settings.jobs_per_worker
    workers = list(function.workers)
    if job.requires:
        workers = [worker for worker in workers if could_fit(worker, job)]
        if not any(fits(worker, job) for worker in workers):
            return in_use(job, workers)
    count = number_of(workers)
    free = full = busy = 0
    for worker in workers:  # there may be a hundred thousand
        if worker.asleep or worker.credits > 0:
            free += min(max(1, worker.credits), worker.stands_for)
        if worker.running:
            busy += min(len(worker.running), worker.stands_for)
            if len(worker.running) >= most > 0:
                full += 1
    data = {"workers": count, "busy": busy, "full": full, "ready": function.ready}
    jobs = f"{counted(function.ready, 'job')} of {shown(function.name)} {'is' if function.ready == 1 else 'are'} ready"
    if free:
        return Reason("about_to_run", f"{free} of {counted(count, 'worker')} wait for work; {jobs}", data)
    if busy:
        return Reason("workers_busy", f"{busy} of {counted(count, 'worker')} that can do it are busy; {jobs}", data)
    text = f"none of {counted(count, 'worker')} that can do it has asked for a job; {jobs}"
    return Reason("workers_absent", text, data)


# --- waiting jobs ---


def waiting(parts: ExplainParts, job: Job, name: Name) -> Iterator[Reason]:
    """The predecessors, unsuccessful ones first, because an operator has to act on them."""
    unsuccessful = parts.dependencies.unsuccessful
    named = 0
    for in_vain in (True, False):
        for job_id in islice(job.predecessors, MOST_LOOKED_AT):
            state = unsuccessful.get(job_id) if in_vain else parts.packed.state_of(job_id)
            if not in_vain and job_id in parts.dependencies.foreign and named < MOST_NAMED:
                named += 1
                yield waiting_elsewhere(parts, job, job_id, name)
                continue
            if state is None or (in_vain and policy_of(job, job_id) == EdgePolicy.RUN):  # it waits for that no more
                continue
            if named == MOST_NAMED:
                break
            named += 1
            yield waiting_for(parts, job, job_id, state, name)
    if job.blockers > named:
        yield Reason("waiting_for_more", f"waits for {job.blockers - named} more", {"count": job.blockers - named})
    function = job.function
    if parts.stuck.is_stuck(function):
        text = f"none of {counted(function.total, 'unfinished job')} of {shown(function.name)} can become ready"
        yield Reason("stuck", f"{text}: all wait for jobs that did not succeed", {"function": function.name})


def waiting_for(parts: ExplainParts, job: Job, job_id: int, state: JobState, name: Name) -> Reason:
    policy = EdgePolicy(policy_of(job, job_id))
    data = {"job_id": job_id, "state": state.name.lower(), "on_failure": policy.name.lower()}
    other = parts.packed.look_at(job_id)
    label = shortened(other.label) if other is not None and other.has_details else ""
    text = f"waits for {name(job_id)}{f' ({label})' if label else ''}, which "
    if state in FINAL_STATES:
        text += f"{ENDED_WORDS[state]}; retry that one, or cancel this"
    else:
        text += f"is {words(state)}"
    return Reason("waiting_for", text, data)


def waiting_elsewhere(parts: ExplainParts, job: Job, job_id: int, name: Name) -> Reason:
    """A predecessor of another engine is unfinished."""
    policy = EdgePolicy(policy_of(job, job_id))
    data: dict[str, Any] = {"job_id": job_id, "state": "unfinished", "on_failure": policy.name.lower()}
    placement = parts.state.placement
    node = placement.owner_of_predecessor(job_id) if placement is not None else ""
    if not node:
        return Reason("waiting_for", f"waits for {name(job_id)}, whose state is not known at this moment", data)
    return Reason("waiting_for", f"waits for {name(job_id)}, which the node {node} has", data | {"node": node})


# --- texts ---


def words(value: Cause | JobState) -> str:
    return value.name.lower().replace("_", " ")


def words_of(tags: list[bytes]) -> list[str]:
    return [tag.decode("utf-8", "replace") for tag in tags]


def shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "replace"))


def worker_name(name: bytes, worker_id: int) -> str:
    return f"worker {shown(name)}" if name else f"worker {worker_id}"


def shortened(text: bytes) -> str:
    """The first line of a text, shortened."""
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


def when(parts: ExplainParts, at_us: int) -> str:
    """The distance of a time from now; the exact time is among the figures."""
    away_us = at_us - parts.state.now_us
    return f"in {span(away_us)}" if away_us > 0 else f"{span(-away_us)} ago"
