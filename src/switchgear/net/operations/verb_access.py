"""Checks whether a peer may use an operator verb, for which jobs and functions, and what of the answer it may see.

The roles of a verb are in the table of verbs. An identity may be restricted to some functions. A verb then takes a
function, a job or a schedule of these only, and lists and sums show only what belongs to them. A verb that is none of
that is refused to such an identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from switchgear.access.permissions import EVERYBODY
from switchgear.json_bytes import bytes_of
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.verb_steps import Steps
from switchgear.protocols.session import Session
from switchgear.text import harmless
from switchgear.verbs.operator_verb import OperatorVerb
from switchgear.verbs.permitted_values import EVENT_FUNCTION

__all__ = ["check_arguments", "shown_arguments", "visible_answer"]

# These may concern jobs of other functions than the one that is named.
ACROSS_FUNCTIONS: Final = frozenset({"bulk", "graph"})
# Arguments that may be long or secret.
HIDDEN: Final = frozenset({"payload", "options", "result"})
LONGEST_SHOWN: Final = 400
# These can be told only when the answer is there: `visible_answer` refuses or filters it.
BY_ANSWER: Final = frozenset(
    {"job", "explain", "jobs", "functions", "workers", "schedules", "server", "explain_server"}
)
FUNCTIONS_PER_STEP: Final = 250


def check_arguments(context: OperationsContext, session: Session, verb: OperatorVerb, values: dict[str, Any]) -> Steps:
    """Raise Refused if the peer may not use the verb with these arguments."""
    session.require(verb.name, verb.roles)
    if verb.name == "complete":
        job = yield from context.named_job(values["handle"])
        if job.function.name != EVENT_FUNCTION.encode():
            session.require(verb.name, frozenset({verb.role}))
    if not session.permissions.globs:
        return
    if verb.name in ACROSS_FUNCTIONS:
        refuse_all(session, verb.name)
    if values.get("cascade"):  # the jobs that wait for a job may be of any function
        refuse_all(session, f"{verb.name} with cascade")
    function = values.get("function")
    if function is not None:
        session.require(verb.name, EVERYBODY, function.encode())
    if verb.name == "schedule":  # it must not replace a schedule of another function
        yield from check_schedule(context, session, verb.name, values["name"])
    elif function is not None or verb.name in BY_ANSWER:
        return
    elif values.get("handle") is not None:
        job = yield from context.named_job(values["handle"])
        session.require_job(verb.name, EVERYBODY, job.function.told_name)
        others = values.get("after") or values.get("jobs")
        if others:  # the job would learn how they end
            yield from check_handles(context, session, verb.name, others)
    elif "handles" in values:
        yield from check_handles(context, session, verb.name, values["handles"])
    elif "name" in values and verb.name.endswith("schedule"):
        yield from check_schedule(context, session, verb.name, values["name"])
    else:
        refuse_all(session, verb.name)


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """The arguments of a verb as the audit log shows them, without what jobs carry."""
    shown = [f"{name}={value}" for name, value in arguments.items() if name not in HIDDEN and value is not None]
    return harmless(", ".join(shown)[:LONGEST_SHOWN])


def refuse_all(session: Session, verb: str) -> None:
    refusal = session.permissions.refusal_of_all(verb)
    if refusal:
        raise session.access_refusal(refusal)


def check_handles(context: OperationsContext, session: Session, verb: str, handles: list[str]) -> Steps:
    """Refuse handles of jobs that the peer may not see."""
    for start in range(0, len(handles), 250):
        found = yield from context.hub.find_jobs([context.job_id(handle) for handle in handles[start : start + 250]])
        for job in found.values():
            session.require_job(verb, EVERYBODY, job.function.told_name)
        yield False


def check_schedule(context: OperationsContext, session: Session, verb: str, name: str) -> Steps:
    function_name = yield from context.find_schedule_function(name.encode())
    if function_name is not None:
        session.require(verb, EVERYBODY, function_name)


def visible_answer(context: OperationsContext, session: Session, verb: str, answer: Any) -> Steps:
    """The part of an answer that the peer may see; raises Refused if that is none."""
    if not session.permissions.globs:
        return answer
    if verb == "server":
        return (yield from visible_server(context, session, answer))
    if verb in ("job", "explain"):
        session.require_job(verb, EVERYBODY, name_of(answer, "function"))
        return visible_reasons(context, session, answer) if verb == "explain" else answer
    keep = VISIBLE.get(verb)
    return answer if keep is None else keep(session, answer)


def name_of(answer: Mapping[str, Any], key: str) -> bytes:
    return bytes_of(answer[key], key)


def visible_jobs(session: Session, page: Any) -> Any:
    covers = session.permissions.covers
    return {**page, "jobs": [job for job in page["jobs"] if covers(name_of(job, "function"))]}


def visible_functions(session: Session, functions: Any) -> Any:
    return [function for function in functions if session.permissions.covers(name_of(function, "name"))]


def visible_schedules(session: Session, schedules: Any) -> Any:
    return [schedule for schedule in schedules if session.permissions.covers(name_of(schedule, "function"))]


def visible_workers(session: Session, workers: Any) -> Any:
    """The workers of functions that the peer may use, without what they do for others."""
    covers = session.permissions.covers
    found = []
    for worker in workers:
        functions = [function for function in worker["functions"] if covers(bytes_of(function, "functions"))]
        if functions:
            is_all = len(functions) == worker["functions_count"]
            shown = {**worker, "functions": functions, "functions_count": len(functions)}
            if not is_all:
                shown |= {"running": [], "running_count": 0}
            found.append(shown)
    return found


def visible_server(context: OperationsContext, session: Session, server: Any) -> Steps:
    """The state of the server with the jobs, functions and workers that the peer may use, without counts of what has
    happened to all, and without connections of others."""
    jobs = functions = 0
    workers: set[int] = set()
    for number, function in enumerate(context.functions(), 1):
        if number % FUNCTIONS_PER_STEP == 0:
            yield False
        if session.permissions.covers(function.name):
            functions += 1
            jobs += function.total
            workers.update(worker.id for worker in function.workers)
    listeners = [{**listener, "largest": None} for listener in server["listeners"]]  # which may be another identity's
    sums = {"jobs": jobs, "functions": functions, "workers": len(workers), "events": {}, "listeners": listeners}
    return {**server, **sums}


def visible_reasons(context: OperationsContext, session: Session, explanation: Any) -> Any:
    """Why a job waits, without what jobs of other functions are and do for which it waits."""
    reasons = []
    for reason in explanation["reasons"]:
        if reason["word"] == "waiting_for":
            data = reason["data"]
            function = context.engine.function_to_wait_for(context.job_id(data["handle"]))
            if function is not None and not session.permissions.covers(function):
                data = {"handle": data["handle"], "on_failure": data["on_failure"]}
                reason = {**reason, "text": f"waits for {data['handle']}", "data": data}
        reasons.append(reason)
    return {**explanation, "reasons": reasons}


def visible_explanation(session: Session, explanation: Any) -> Any:
    """Why submissions are refused, without other identities' functions and connections."""
    covers = session.permissions.covers
    reasons = [
        reason
        for reason in explanation["reasons"]
        if reason["word"] != "largest_connection"
        and (reason["word"] != "largest_function" or covers(name_of(reason["data"], "function")))
    ]
    return {**explanation, "reasons": reasons}


VISIBLE: Final[Mapping[str, Callable[[Session, Any], Any]]] = {
    "jobs": visible_jobs,
    "functions": visible_functions,
    "schedules": visible_schedules,
    "workers": visible_workers,
    "explain_server": visible_explanation,
}
