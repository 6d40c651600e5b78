"""`CeleryRequest`: what a running task knows about its job, as `self.request`."""

from __future__ import annotations

import socket
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from switchgear.app.current_job import CurrentJob

__all__ = ["DIRECT_CALL", "CeleryRequest", "current_request", "request_of"]


@dataclass(slots=True)
class CeleryRequest:
    """The job that runs, or a call that is no job."""

    id: str | None = None
    task: str = ""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    retries: int = 0
    is_eager: bool = False
    called_directly: bool = True
    hostname: str = ""
    headers: dict[str, Any] = field(default_factory=dict)
    delivery_info: dict[str, Any] = field(default_factory=dict)
    root_id: str | None = None
    parent_id: str | None = None
    override_max_retries: int | None = None


DIRECT_CALL: Final = CeleryRequest()
current_request: Final[ContextVar[CeleryRequest]] = ContextVar("switchgear_celery_request", default=DIRECT_CALL)


def request_of(job: CurrentJob, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CeleryRequest:
    """The request of a job that a worker runs."""
    return CeleryRequest(
        id=job.handle,
        task=job.function,
        args=args,
        kwargs=kwargs,
        retries=max(0, job.attempt - job.losses - 1),
        called_directly=False,
        hostname=socket.gethostname(),
        delivery_info={"routing_key": job.function},
    )
