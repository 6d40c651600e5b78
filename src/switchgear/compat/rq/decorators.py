"""`rq.decorators`: where RQ has `job`."""

from __future__ import annotations

from switchgear.compat.rq.queue import job

__all__ = ["job"]
