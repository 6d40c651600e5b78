"""Data classes of the engine: job, function, worker, peer, limiter, schedule.

Each is in the module of its name; other packages import them from here. Times are whole microseconds since the epoch,
so that comparing them is comparing integers.
"""

from __future__ import annotations

from typing import Final

from switchgear.model.function import Function, PlainJob, PriorityWaiters
from switchgear.model.job import KEPT, PAYLOAD_KEY, RESIDENT, Job
from switchgear.model.job_details import Details
from switchgear.model.limiter import KeyQueue, Limiter, QueueGroup
from switchgear.model.peer import Peer, Timer
from switchgear.model.priority import BEST_FIRST, HIGH, LOW, NORMAL, URGENT
from switchgear.model.ready_queue import NO_JOBS, NOT_SEGMENTED, ReadyQueue
from switchgear.model.schedule import Schedule, Timetable
from switchgear.model.segments import PackedSegment, SegmentedQueue
from switchgear.model.table import JobTable
from switchgear.model.worker import NO_RESOURCES, NO_TAGS, Offer, Worker
from switchgear.states import (
    CANCELLED,
    DONE,
    EXPIRED,
    FAILED,
    FINAL_STATES,
    PRIORITY_NAMES,
    QUEUED_STATES,
    READY,
    RUNNING,
    SCHEDULED,
    WAITING,
    CatchUp,
    Cause,
    Delivery,
    EdgePolicy,
    JobState,
    UniquePolicy,
    UniqueScope,
)

__all__ = [
    "BEST_FIRST",
    "CANCELLED",
    "DONE",
    "EXPIRED",
    "FAILED",
    "FINAL_STATES",
    "HIGH",
    "KEPT",
    "LOW",
    "NORMAL",
    "NOT_SEGMENTED",
    "NO_JOBS",
    "NO_RESOURCES",
    "NO_TAGS",
    "PAYLOAD_KEY",
    "PRIORITY_NAMES",
    "QUEUED_STATES",
    "READY",
    "RESIDENT",
    "RUNNING",
    "SCHEDULED",
    "SECOND_US",
    "URGENT",
    "WAITING",
    "CatchUp",
    "Cause",
    "Delivery",
    "Details",
    "EdgePolicy",
    "Function",
    "Job",
    "JobState",
    "JobTable",
    "KeyQueue",
    "Limiter",
    "Offer",
    "PackedSegment",
    "Peer",
    "PlainJob",
    "PriorityWaiters",
    "QueueGroup",
    "ReadyQueue",
    "Schedule",
    "SegmentedQueue",
    "Timer",
    "Timetable",
    "UniquePolicy",
    "UniqueScope",
    "Worker",
]

SECOND_US: Final = 1_000_000
