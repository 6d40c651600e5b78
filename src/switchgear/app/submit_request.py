"""What a server is asked for, before it is known what kind of server it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["SubmitRequest"]


@dataclass(slots=True)
class SubmitRequest:
    """A job to be submitted."""

    function: bytes
    payload: bytes
    unique: bytes = b""
    priority: str = "normal"
    durable: bool | None = None  # None: if the server can give back results of durable jobs
    watch: bool = True  # news are wanted
    run_at: float = 0.0  # seconds since the epoch; 0: at once
    options: dict[str, Any] = field(default_factory=dict)  # of SUBMIT_JOB_OPTIONS; left out for a plain server
    needs: tuple[str, ...] = ()  # what of these a plain server could not do, in the words of the user
