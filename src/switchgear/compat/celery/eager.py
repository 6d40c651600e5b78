"""Runs tasks here and now: `task.apply`, and everything with the setting `task_always_eager`."""

from __future__ import annotations

import traceback
import uuid
from typing import TYPE_CHECKING, Any

from switchgear.compat.celery import states
from switchgear.compat.celery.exceptions import CeleryRetry
from switchgear.compat.celery.request import CeleryRequest
from switchgear.compat.celery.result import EagerResult

if TYPE_CHECKING:
    from switchgear.compat.celery.task import CeleryTask

__all__ = ["apply_here"]


def apply_here(task: CeleryTask, args: tuple[Any, ...], kwargs: dict[str, Any], *, throw: bool) -> EagerResult:
    """Run the task with its retries, which do not wait."""
    id = str(uuid.uuid4())
    retries = 0
    while True:
        request = CeleryRequest(id, task.name or "", args, kwargs, retries, is_eager=True, called_directly=False)
        try:
            return EagerResult(id, task.run_attempt(request), states.SUCCESS)
        except CeleryRetry:
            retries += 1
        except Exception as error:
            if throw:
                raise
            return EagerResult(id, error, states.FAILURE, "".join(traceback.format_exception(error)))
