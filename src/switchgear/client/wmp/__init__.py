"""Workers and devices that speak WMP, the Worker-Manager Protocol."""

from typing import TYPE_CHECKING

from switchgear.lazily import lazy_names

if TYPE_CHECKING:
    from switchgear.client.wmp.address import ManagerAddress
    from switchgear.client.wmp.worker import GiveBack, JobFunction, WmpWorker, WmpWorkerObserver
    from switchgear.client.wmp.working import Outcome, WmpJob, WmpPace
    from switchgear.client.zeromq import CurveKeys, LineSettings
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "switchgear.client.wmp.address": ("ManagerAddress",),
            "switchgear.client.wmp.worker": ("GiveBack", "JobFunction", "WmpWorker", "WmpWorkerObserver"),
            "switchgear.client.wmp.working": ("Outcome", "WmpJob", "WmpPace"),
            "switchgear.client.zeromq": ("CurveKeys", "LineSettings"),
        },
    )

__all__ = [
    "CurveKeys",
    "GiveBack",
    "JobFunction",
    "LineSettings",
    "ManagerAddress",
    "Outcome",
    "WmpJob",
    "WmpPace",
    "WmpWorker",
    "WmpWorkerObserver",
]
