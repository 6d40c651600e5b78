"""Requests of operators: verbs, functions, schedules."""

from typing import Any, Final

from switchgear.protocols.http import operator_requests as operators
from switchgear.protocols.http import (
    schemas,
)
from switchgear.protocols.http.routes.shared_parts import (
    JSON,
    NO_CONTENT,
    json,
    verb_roles,
)
from switchgear.protocols.http.routing import BodyKind, Route
from switchgear.verbs import answers
from switchgear.verbs.access import ALL_ROLES
from switchgear.verbs.table import VERBS

__all__ = ["OPERATOR_ROUTES"]

OPERATOR_ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        "/v1/verbs/{verb}",
        ALL_ROLES,
        "Use an operator verb by its name; the body has its arguments. Each verb needs its own roles.",
        operators.on_use_verb,
        (json(200, "The answer of the verb.", Any),),
        body=BodyKind(JSON, dict[str, Any], is_required=False),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "GET",
        "/v1/functions",
        verb_roles("functions"),
        VERBS["functions"].help,
        operators.on_list_functions,
        (json(200, "The functions.", list[answers.FunctionAnswer]),),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/workers/control",
        verb_roles("control_workers"),
        VERBS["control_workers"].help,
        operators.on_control_workers,
        (json(200, "The workers that were told, which answer with their status.", answers.ControlWorkersAnswer),),
        body=BodyKind(JSON, schemas.WorkerControl),
        tag="operate",
    ),
    Route(
        "GET",
        "/v1/functions/{function}",
        verb_roles("functions"),
        "Show one function.",
        operators.on_get_function,
        (json(200, "The function.", answers.FunctionAnswer),),
        tag="operate",
    ),
    Route(
        "PATCH",
        "/v1/functions/{function}",
        verb_roles("pause") & verb_roles("limit"),
        "Pause or resume a function, and set its limits.",
        operators.on_change_function,
        (json(200, "The function.", answers.FunctionAnswer),),
        body=BodyKind(JSON, schemas.FunctionChange),
        tag="operate",
    ),
    Route(
        "GET",
        "/v1/schedules",
        verb_roles("schedules"),
        VERBS["schedules"].help,
        operators.on_list_schedules,
        (json(200, "The schedules.", list[answers.ScheduleAnswer]),),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "GET",
        "/v1/schedules/{name}",
        verb_roles("schedules"),
        "Show one schedule.",
        operators.on_get_schedule,
        (json(200, "The schedule.", answers.ScheduleAnswer),),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "PUT",
        "/v1/schedules/{name}",
        verb_roles("schedule"),
        VERBS["schedule"].help,
        operators.on_put_schedule,
        (json(200, "The schedule.", answers.ScheduleAnswer),),
        body=BodyKind(JSON, schemas.ScheduleDefinition),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "DELETE",
        "/v1/schedules/{name}",
        verb_roles("unschedule"),
        VERBS["unschedule"].help,
        operators.on_delete_schedule,
        (NO_CONTENT,),
        tag="operate",
        is_scoped=True,
    ),
    Route(
        "POST",
        "/v1/schedules/{name}/run",
        verb_roles("run_schedule"),
        VERBS["run_schedule"].help,
        operators.on_run_schedule,
        (json(201, "The job.", schemas.JobCreated),),
        tag="operate",
        is_scoped=True,
    ),
)
