"""Clients and workers for Gearman servers: ours with all it can do, and any other with what it can."""

from switchgear.client.address import DEFAULT_URL, ServerAddress
from switchgear.client.client import Client, JobStatus
from switchgear.client.connection import Connection
from switchgear.client.draft import AsyncDraftClient, AsyncDraftWorker, DraftClient, DraftWorker
from switchgear.client.link import Backoff, Handler, WorkerJob, WorkerObserver
from switchgear.client.shell import ShellCommand
from switchgear.client.submission import Submission, Update, UpdateKind
from switchgear.client.worker import Worker

__all__ = [
    "DEFAULT_URL",
    "AsyncDraftClient",
    "AsyncDraftWorker",
    "Backoff",
    "Client",
    "Connection",
    "DraftClient",
    "DraftWorker",
    "Handler",
    "JobStatus",
    "ServerAddress",
    "ShellCommand",
    "Submission",
    "Update",
    "UpdateKind",
    "Worker",
    "WorkerJob",
    "WorkerObserver",
]
