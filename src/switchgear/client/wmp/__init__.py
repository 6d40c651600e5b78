"""Workers and devices that speak WMP, the Worker-Manager Protocol."""

from typing import TYPE_CHECKING

from switchgear.lazily import lazy_names

if TYPE_CHECKING:
    from switchgear.client.wmp.address import ManagerAddress
    from switchgear.client.wmp.aio import AsyncJobFunction, AsyncWmpWorker
    from switchgear.client.wmp.device_process import WmpDevice
    from switchgear.client.wmp.worker import GiveBack, JobFunction, WmpWorker, WmpWorkerObserver
    from switchgear.client.wmp.worker_protocol import WmpJob, WmpResult, WmpTiming
    from switchgear.client.zeromq_sockets import CurveKeys, SocketSettings
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "switchgear.client.wmp.address": ("ManagerAddress",),
            "switchgear.client.wmp.aio": ("AsyncJobFunction", "AsyncWmpWorker"),
            "switchgear.client.wmp.device_process": ("WmpDevice",),
            "switchgear.client.wmp.worker": ("GiveBack", "JobFunction", "WmpWorker", "WmpWorkerObserver"),
            "switchgear.client.wmp.worker_protocol": ("WmpResult", "WmpJob", "WmpTiming"),
            "switchgear.client.zeromq_sockets": ("CurveKeys", "SocketSettings"),
        },
    )

__all__ = [
    "AsyncJobFunction",
    "AsyncWmpWorker",
    "CurveKeys",
    "GiveBack",
    "JobFunction",
    "ManagerAddress",
    "SocketSettings",
    "WmpDevice",
    "WmpJob",
    "WmpResult",
    "WmpTiming",
    "WmpWorker",
    "WmpWorkerObserver",
]
