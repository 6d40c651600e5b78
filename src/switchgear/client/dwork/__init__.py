"""Clients and workers for dwork servers, blocking or with asyncio; the original server has fewer features."""

from typing import TYPE_CHECKING

from switchgear.lazily import lazy_names

if TYPE_CHECKING:
    from switchgear.client.dwork.address import DEFAULT_URL, DworkAddress
    from switchgear.client.dwork.aio import AsyncDworkClient
    from switchgear.client.dwork.blocking import DworkClient
    from switchgear.client.dwork.records import NewTask, ServerStatus, Stolen, StolenTask, TaskRecord
    from switchgear.client.dwork.task_stealer import DworkWorkerObserver
    from switchgear.client.dwork.worker import AsyncDworkWorker, DworkWorker, FunctionResult
    from switchgear.client.zeromq_sockets import CurveKeys
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "switchgear.client.dwork.address": ("DEFAULT_URL", "DworkAddress"),
            "switchgear.client.dwork.aio": ("AsyncDworkClient",),
            "switchgear.client.dwork.blocking": ("DworkClient",),
            "switchgear.client.dwork.records": ("NewTask", "ServerStatus", "Stolen", "StolenTask", "TaskRecord"),
            "switchgear.client.dwork.task_stealer": ("DworkWorkerObserver",),
            "switchgear.client.dwork.worker": ("AsyncDworkWorker", "DworkWorker", "FunctionResult"),
            "switchgear.client.zeromq_sockets": ("CurveKeys",),
        },
    )

__all__ = [
    "DEFAULT_URL",
    "AsyncDworkClient",
    "AsyncDworkWorker",
    "CurveKeys",
    "DworkAddress",
    "DworkClient",
    "DworkWorker",
    "DworkWorkerObserver",
    "FunctionResult",
    "NewTask",
    "ServerStatus",
    "Stolen",
    "StolenTask",
    "TaskRecord",
]
