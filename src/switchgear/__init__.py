"""Switchgear: one job server that speaks many job-distribution protocols over one scheduling engine.

What a Python program uses of it is here: `from switchgear import App`.  Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from switchgear import version
from switchgear.lazily import lazy_names

if TYPE_CHECKING:
    from switchgear.app.app import App
    from switchgear.app.current_job import Retry, current_job
    from switchgear.app.failure import Failure
    from switchgear.app.graph_context import Graph
    from switchgear.app.injection import INJECTED
    from switchgear.app.job import Job
    from switchgear.app.job_group import JobGroup
    from switchgear.app.middleware import Middleware, TaskSubmission
    from switchgear.app.payloads.blobs import BlobStore, DirectoryBlobs
    from switchgear.app.payloads.codec import PayloadCodec
    from switchgear.app.payloads.encryption import new_payload_key
    from switchgear.app.payloads.postgres_blobs import PostgresBlobs
    from switchgear.app.payloads.s3_blobs import S3Blobs
    from switchgear.app.shared_tasks import shared_task
    from switchgear.app.signatures import chain, chord, group
    from switchgear.app.soft_timeout import SoftTimeout
    from switchgear.app.task import Task
    from switchgear.app.type_codecs import register_type
    from switchgear.backoff import Backoff
    from switchgear.client.dwork.worker import AsyncDworkWorker, DworkWorker
    from switchgear.client.gearman.aio import AsyncClient
    from switchgear.client.gearman.blocking import Client
    from switchgear.client.gearman.job_subscriber import Progress
    from switchgear.client.gearman.worker import Worker
    from switchgear.client.gearmonkey import AsyncGearMonkeyWorker, GearMonkeyWorker
    from switchgear.client.pingpong import AsyncPingPongWorker, PingPongWorker
    from switchgear.client.wmp import AsyncWmpWorker, WmpDevice, WmpWorker
    from switchgear.errors import (
        AlreadySubmitted,
        ArgumentError,
        ClientError,
        ExtensionRequired,
        JobCancelled,
        JobExpired,
        JobFailed,
        JobLost,
        JobTimedOut,
        JobUnknown,
        NotFound,
        PredecessorFailed,
        ResultError,
        ServerRefused,
        ServerUnreachable,
        SwitchgearError,
        TaskFailed,
    )
    from switchgear.hosting.servers import DworkHub, GearMonkeyServer, PingPongBroker, WmpManager
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "switchgear.app.app": ("App",),
            "switchgear.backoff": ("Backoff",),
            "switchgear.app.current_job": ("Retry", "current_job"),
            "switchgear.app.soft_timeout": ("SoftTimeout",),
            "switchgear.client.gearman.job_subscriber": ("Progress",),
            "switchgear.app.failure": ("Failure",),
            "switchgear.app.signatures": ("chain", "chord", "group"),
            "switchgear.app.graph_context": ("Graph",),
            "switchgear.app.job_group": ("JobGroup",),
            "switchgear.app.job": ("Job",),
            "switchgear.app.injection": ("INJECTED",),
            "switchgear.app.middleware": ("Middleware", "TaskSubmission"),
            "switchgear.app.payloads.blobs": ("BlobStore", "DirectoryBlobs"),
            "switchgear.app.payloads.encryption": ("new_payload_key",),
            "switchgear.app.payloads.codec": ("PayloadCodec",),
            "switchgear.app.payloads.postgres_blobs": ("PostgresBlobs",),
            "switchgear.app.payloads.s3_blobs": ("S3Blobs",),
            "switchgear.app.shared_tasks": ("shared_task",),
            "switchgear.app.task": ("Task",),
            "switchgear.app.type_codecs": ("register_type",),
            "switchgear.client.dwork.worker": ("AsyncDworkWorker", "DworkWorker"),
            "switchgear.client.gearman.aio": ("AsyncClient",),
            "switchgear.client.gearman.blocking": ("Client",),
            "switchgear.client.gearman.worker": ("Worker",),
            "switchgear.client.gearmonkey": ("AsyncGearMonkeyWorker", "GearMonkeyWorker"),
            "switchgear.client.pingpong": ("AsyncPingPongWorker", "PingPongWorker"),
            "switchgear.client.wmp": ("AsyncWmpWorker", "WmpDevice", "WmpWorker"),
            "switchgear.hosting.servers": ("DworkHub", "GearMonkeyServer", "PingPongBroker", "WmpManager"),
            "switchgear.errors": (
                "AlreadySubmitted",
                "ArgumentError",
                "ClientError",
                "ExtensionRequired",
                "JobCancelled",
                "JobExpired",
                "JobFailed",
                "JobLost",
                "JobTimedOut",
                "JobUnknown",
                "NotFound",
                "PredecessorFailed",
                "ResultError",
                "ServerRefused",
                "ServerUnreachable",
                "SwitchgearError",
                "TaskFailed",
            ),
        },
    )

__all__ = [
    "INJECTED",
    "AlreadySubmitted",
    "App",
    "ArgumentError",
    "AsyncClient",
    "AsyncDworkWorker",
    "AsyncGearMonkeyWorker",
    "AsyncPingPongWorker",
    "AsyncWmpWorker",
    "Backoff",
    "BlobStore",
    "Client",
    "ClientError",
    "DirectoryBlobs",
    "DworkHub",
    "DworkWorker",
    "ExtensionRequired",
    "Failure",
    "GearMonkeyServer",
    "GearMonkeyWorker",
    "Graph",
    "Job",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobGroup",
    "JobLost",
    "JobTimedOut",
    "JobUnknown",
    "Middleware",
    "NotFound",
    "PayloadCodec",
    "PingPongBroker",
    "PingPongWorker",
    "PostgresBlobs",
    "PredecessorFailed",
    "Progress",
    "ResultError",
    "Retry",
    "S3Blobs",
    "ServerRefused",
    "ServerUnreachable",
    "SoftTimeout",
    "SwitchgearError",
    "Task",
    "TaskFailed",
    "TaskSubmission",
    "WmpDevice",
    "WmpManager",
    "WmpWorker",
    "Worker",
    "__version__",
    "chain",
    "chord",
    "current_job",
    "group",
    "new_payload_key",
    "register_type",
    "shared_task",
]

__version__ = version.VERSION
