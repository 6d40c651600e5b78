"""Celery's interface over Switchgear: `from switchgear.compat.celery import Celery, shared_task, chain, group, chord`.

The modules have the names that programs import from Celery: `schedules`, `result`, `exceptions`, `signals`, `states`
and `utils.log`.  See docs/howto/compatibility.md.
"""

from __future__ import annotations

from switchgear.compat.celery.app import CeleryApp as Celery
from switchgear.compat.celery.app import current_celery_app, shared_task
from switchgear.compat.celery.canvas import CeleryChain as chain  # noqa: N813 - Celery's names
from switchgear.compat.celery.canvas import CeleryChord as chord  # noqa: N813
from switchgear.compat.celery.canvas import CeleryGroup as group  # noqa: N813
from switchgear.compat.celery.canvas import CelerySignature as Signature
from switchgear.compat.celery.canvas import signature
from switchgear.compat.celery.task import CeleryTask as Task

subtask = signature

__all__ = [
    "Celery",
    "Signature",
    "Task",
    "chain",
    "chord",
    "current_celery_app",
    "group",
    "shared_task",
    "signature",
    "subtask",
]
