"""Clients and workers: for Gearman servers, ours with all it can do and any other with what it can, and for the other
protocols.

Names are imported when they are first used.  Those of GearMonkey need redis-py: `pip install 'switchgear[redis]'`.
"""

from typing import TYPE_CHECKING

from switchgear.lazily import lazy_names

if TYPE_CHECKING:
    from switchgear.client.address import DEFAULT_URL, ServerAddress
    from switchgear.client.aio import AsyncClient, AsyncSubmission
    from switchgear.client.client import Client, JobStatus
    from switchgear.client.connection import Connection
    from switchgear.client.draft import AsyncDraftClient, AsyncDraftWorker, DraftClient, DraftWorker
    from switchgear.client.dwork import AsyncDworkClient, DworkClient
    from switchgear.client.gearmonkey import AsyncGearMonkeyClient as AsyncGearMonkeyClient
    from switchgear.client.gearmonkey import GearMonkeyClient as GearMonkeyClient
    from switchgear.client.gearmonkey import GearMonkeyWorker as GearMonkeyWorker
    from switchgear.client.link import Backoff, Handler, WorkerJob, WorkerObserver
    from switchgear.client.pingpong import PingPongClient, PingPongWorker
    from switchgear.client.shell import ShellCommand
    from switchgear.client.submission import Submission, Update, UpdateKind
    from switchgear.client.wmp import WmpWorker
    from switchgear.client.worker import Worker
    from switchgear.client.zeromq import CurveKeys
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "switchgear.client.address": ("DEFAULT_URL", "ServerAddress"),
            "switchgear.client.aio": ("AsyncClient", "AsyncSubmission"),
            "switchgear.client.client": ("Client", "JobStatus"),
            "switchgear.client.connection": ("Connection",),
            "switchgear.client.draft": ("AsyncDraftClient", "AsyncDraftWorker", "DraftClient", "DraftWorker"),
            "switchgear.client.dwork": ("AsyncDworkClient", "DworkClient"),
            "switchgear.client.gearmonkey": ("AsyncGearMonkeyClient", "GearMonkeyClient", "GearMonkeyWorker"),
            "switchgear.client.link": ("Backoff", "Handler", "WorkerJob", "WorkerObserver"),
            "switchgear.client.pingpong": ("PingPongClient", "PingPongWorker"),
            "switchgear.client.shell": ("ShellCommand",),
            "switchgear.client.submission": ("Submission", "Update", "UpdateKind"),
            "switchgear.client.wmp": ("WmpWorker",),
            "switchgear.client.worker": ("Worker",),
            "switchgear.client.zeromq": ("CurveKeys",),
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
    "Backoff",
    "Client",
    "Connection",
    "CurveKeys",
    "DraftClient",
    "DraftWorker",
    "DworkClient",
    "Handler",
    "JobStatus",
    "PingPongClient",
    "PingPongWorker",
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
