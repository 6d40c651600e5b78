"""Clients and workers: for Gearman servers, ours with all it can do and any other with what it can, and for the other
protocols.

Names are imported when they are first used.  Those of GearMonkey need redis-py: `pip install 'switchgear[redis]'`.
"""

from typing import TYPE_CHECKING

from switchgear.lazily import lazy_names

if TYPE_CHECKING:
    from switchgear.client.address import DEFAULT_URL, ServerAddress
    from switchgear.client.aio import AsyncClient, AsyncSubmission
    from switchgear.client.aio_worker import Worker
    from switchgear.client.client import Client, JobStatus
    from switchgear.client.connection import GearmanConnection
    from switchgear.client.draft import AsyncDraftClient, AsyncDraftWorker, DraftClient, DraftWorker
    from switchgear.client.dwork import AsyncDworkClient, DworkClient
    from switchgear.client.gearmonkey import AsyncGearMonkeyClient as AsyncGearMonkeyClient
    from switchgear.client.gearmonkey import GearMonkeyClient as GearMonkeyClient
    from switchgear.client.gearmonkey import GearMonkeyWorker as GearMonkeyWorker
    from switchgear.client.pingpong import PingPongClient, PingPongWorker
    from switchgear.client.shell_handler import ShellCommand
    from switchgear.client.submitted_job import Submission, Update, UpdateKind
    from switchgear.client.wmp import WmpWorker
    from switchgear.client.worker_connection import Handler, ReconnectBackoff, WorkerJob, WorkerObserver
    from switchgear.client.zeromq_sockets import CurveKeys
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "switchgear.client.address": ("DEFAULT_URL", "ServerAddress"),
            "switchgear.client.aio": ("AsyncClient", "AsyncSubmission"),
            "switchgear.client.client": ("Client", "JobStatus"),
            "switchgear.client.connection": ("GearmanConnection",),
            "switchgear.client.draft": ("AsyncDraftClient", "AsyncDraftWorker", "DraftClient", "DraftWorker"),
            "switchgear.client.dwork": ("AsyncDworkClient", "DworkClient"),
            "switchgear.client.gearmonkey": ("AsyncGearMonkeyClient", "GearMonkeyClient", "GearMonkeyWorker"),
            "switchgear.client.worker_connection": ("ReconnectBackoff", "Handler", "WorkerJob", "WorkerObserver"),
            "switchgear.client.pingpong": ("PingPongClient", "PingPongWorker"),
            "switchgear.client.shell_handler": ("ShellCommand",),
            "switchgear.client.submitted_job": ("Submission", "Update", "UpdateKind"),
            "switchgear.client.wmp": ("WmpWorker",),
            "switchgear.client.aio_worker": ("Worker",),
            "switchgear.client.zeromq_sockets": ("CurveKeys",),
        },
    )

# Without GearMonkey's, so that `import *` works where redis-py is missing.
__all__ = [
    "DEFAULT_URL",
    "AsyncClient",
    "AsyncDraftClient",
    "AsyncDraftWorker",
    "AsyncDworkClient",
    "AsyncSubmission",
    "Client",
    "CurveKeys",
    "DraftClient",
    "DraftWorker",
    "DworkClient",
    "GearmanConnection",
    "Handler",
    "JobStatus",
    "PingPongClient",
    "PingPongWorker",
    "ReconnectBackoff",
    "ServerAddress",
    "ShellCommand",
    "Submission",
    "Update",
    "UpdateKind",
    "WmpWorker",
    "Worker",
    "WorkerJob",
    "WorkerObserver",
]
