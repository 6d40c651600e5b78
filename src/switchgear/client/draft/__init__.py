"""Applications and workers that speak Gearman's draft of 2005, blocking or with asyncio."""

from switchgear.client.draft.aio import AsyncDraftClient, AsyncDraftHandler, AsyncDraftWorker
from switchgear.client.draft.blocking import DraftClient, DraftHandler, DraftWorker
from switchgear.client.draft.records import JobRecord, Outcome, Status
from switchgear.client.draft.working import DraftTask, DraftWorkerObserver, Pace
from switchgear.protocols.gearman_draft.messages import JobType

__all__ = [
    "AsyncDraftClient",
    "AsyncDraftHandler",
    "AsyncDraftWorker",
    "DraftClient",
    "DraftHandler",
    "DraftTask",
    "DraftWorker",
    "DraftWorkerObserver",
    "JobRecord",
    "JobType",
    "Outcome",
    "Pace",
    "Status",
]
