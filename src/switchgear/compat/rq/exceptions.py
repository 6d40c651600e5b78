"""The same names as the module `rq.exceptions`: `NoSuchJobError`."""

from __future__ import annotations

from switchgear.compat.rq.job import NoSuchJobError

__all__ = ["NoSuchJobError"]
