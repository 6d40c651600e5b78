"""Applications and workers that speak Gearman's draft of 2005, blocking or with asyncio."""

from switchgear.client.draft.aio import AsyncDraftClient, AsyncDraftHandler, AsyncDraftWorker
from switchgear.client.draft.blocking import DraftClient, DraftHandler, DraftWorker
from switchgear.client.draft.records import DraftResult, DraftStatus, JobRecord
from switchgear.client.draft.worker_flow import DraftTask, DraftTiming, DraftWorkerObserver
from switchgear.protocols.gearman_draft.messages import JobType

__all__ = [
    "AsyncDraftClient",
    "AsyncDraftHandler",
    "AsyncDraftWorker",
    "DraftClient",
    "DraftHandler",
    "DraftResult",
    "DraftStatus",
    "DraftTask",
    "DraftTiming",
    "DraftWorker",
    "DraftWorkerObserver",
    "JobRecord",
    "JobType",
]
