"""The same names as the module `rq.decorators`: `job`."""

from __future__ import annotations

from switchgear.compat.rq.queue import job

__all__ = ["job"]
