"""Clients and workers for servers of every protocol: this package's servers with all extensions, and others without.

Names are imported when they are first used.  Those of GearMonkey need redis-py: `pip install 'switchgear[redis]'`.
"""

from typing import TYPE_CHECKING

from switchgear.lazily import lazy_names

if TYPE_CHECKING:
    from switchgear.backoff import ReconnectBackoff
    from switchgear.client.address import DEFAULT_URL, ServerAddress
    from switchgear.client.draft import AsyncDraftClient, AsyncDraftWorker, DraftClient, DraftWorker
    from switchgear.client.dwork import AsyncDworkClient, AsyncDworkWorker, DworkClient, DworkWorker
    from switchgear.client.gearman.aio import AsyncClient, AsyncSubmission
    from switchgear.client.gearman.blocking import Client
    from switchgear.client.gearman.client_requests import JobStatus
    from switchgear.client.gearman.connection import GearmanConnection
    from switchgear.client.gearman.shell_handler import ShellCommand
    from switchgear.client.gearman.submitted_job import Submission, Update, UpdateKind
    from switchgear.client.gearman.worker import Handler, Worker, WorkerJob, WorkerObserver
    from switchgear.client.gearmonkey import AsyncGearMonkeyClient as AsyncGearMonkeyClient
    from switchgear.client.gearmonkey import AsyncGearMonkeyWorker as AsyncGearMonkeyWorker
    from switchgear.client.gearmonkey import GearMonkeyClient as GearMonkeyClient
    from switchgear.client.gearmonkey import GearMonkeyWorker as GearMonkeyWorker
    from switchgear.client.pingpong import AsyncPingPongWorker, PingPongClient, PingPongWorker
    from switchgear.client.wmp import AsyncWmpWorker, WmpDevice, WmpWorker
    from switchgear.client.zeromq_sockets import CurveKeys
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "switchgear.backoff": ("ReconnectBackoff",),
            "switchgear.client.address": ("DEFAULT_URL", "ServerAddress"),
            "switchgear.client.draft": ("AsyncDraftClient", "AsyncDraftWorker", "DraftClient", "DraftWorker"),
            "switchgear.client.dwork": ("AsyncDworkClient", "AsyncDworkWorker", "DworkClient", "DworkWorker"),
            "switchgear.client.gearman.aio": ("AsyncClient", "AsyncSubmission"),
            "switchgear.client.gearman.blocking": ("Client",),
            "switchgear.client.gearman.client_requests": ("JobStatus",),
            "switchgear.client.gearman.connection": ("GearmanConnection",),
            "switchgear.client.gearman.shell_handler": ("ShellCommand",),
            "switchgear.client.gearman.submitted_job": ("Submission", "Update", "UpdateKind"),
            "switchgear.client.gearman.worker": ("Handler", "Worker", "WorkerJob", "WorkerObserver"),
            "switchgear.client.gearmonkey": (
                "AsyncGearMonkeyClient",
                "AsyncGearMonkeyWorker",
                "GearMonkeyClient",
                "GearMonkeyWorker",
            ),
            "switchgear.client.pingpong": ("AsyncPingPongWorker", "PingPongClient", "PingPongWorker"),
            "switchgear.client.wmp": ("AsyncWmpWorker", "WmpDevice", "WmpWorker"),
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
    "AsyncDworkWorker",
    "AsyncPingPongWorker",
    "AsyncSubmission",
    "AsyncWmpWorker",
    "Client",
    "CurveKeys",
    "DraftClient",
    "DraftWorker",
    "DworkClient",
    "DworkWorker",
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
    "WmpDevice",
    "WmpWorker",
    "Worker",
    "WorkerJob",
    "WorkerObserver",
]
