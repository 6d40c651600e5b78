"""`VisibleOverview`: what an identity of some functions sees of them, in place of the overview of the server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from switchgear.cli.output import text_of
from switchgear.cli.top.views import VerbServer
from switchgear.errors import ServerRefused
from switchgear.text import counted

__all__ = ["VisibleOverview"]

COUNTS = ("submitted", "done", "failed")


class VisibleOverview:
    """Asks for the overview; if the server refuses it, for the functions and workers that the identity may see."""

    def __init__(self) -> None:
        self._before: Mapping[str, int] | None = None  # the sums of the last time
        self._before_at = 0.0

    def ask(self, server: VerbServer) -> Mapping[str, Any]:
        """The answer to the verb `overview`, or what can be said in its place; raises ServerRefused."""
        try:
            overview: Mapping[str, Any] = server.control("overview")
        except ServerRefused as refusal:
            try:
                return self._of_visible(server, refusal)
            except ServerRefused:
                raise refusal from None  # nothing can be seen: the first refusal says most
        return overview

    def _of_visible(self, server: VerbServer, refusal: ServerRefused) -> Mapping[str, Any]:
        state = server.control("server")
        functions = server.control("functions")
        workers = server.control("workers")
        at = time.time()
        names = ("ready", "running", "waiting_or_scheduled", *COUNTS)
        sums = {name: sum(function[name] for function in functions) for name in names}
        rates = self._rates(sums, at)
        waits = [function for function in functions if function["oldest_ready_seconds"] is not None]
        oldest = max(waits, key=lambda function: function["oldest_ready_seconds"], default=None)
        return {
            "at": at,
            "version": state["version"],
            "uptime_seconds": state["uptime_seconds"],
            "draining": state["draining"],
            "jobs": {"ready": sums["ready"], "running": sums["running"], "waiting": sums["waiting_or_scheduled"]},
            "rates": rates,
            "oldest_ready": oldest and {"seconds": oldest["oldest_ready_seconds"], "function": text_of(oldest["name"])},
            "drain_seconds": None,
            "functions": len(functions),
            "paused_functions": sum(function["paused"] for function in functions),
            "workers": {"total": len(workers), "busy": sum(bool(worker["running_count"]) for worker in workers)},
            "store": {"error": state["storage_error"]},
            "alarms": [
                {"code": "not_all", "level": "info", "text": f"not all: {refusal.text}"},
                *_alarms(functions),
            ],
        }

    def _rates(self, sums: Mapping[str, int], at: float) -> Mapping[str, float | None]:
        """How many jobs per second since the last time; unknown the first time."""
        before, seconds = self._before, at - self._before_at
        self._before, self._before_at = sums, at
        if before is None or seconds <= 0:
            return dict.fromkeys(COUNTS)
        # A function without jobs may be forgotten, with its counts.
        return {name: max(0, sums[name] - before[name]) / seconds for name in COUNTS}


def _alarms(functions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Functions whose jobs wait for something that an operator can do."""
    alarms = []
    for function in functions:
        if function["ready"] and (function["paused"] or not function["workers"]):
            waiting = f"{counted(function['ready'], 'job')} {'waits' if function['ready'] == 1 else 'wait'}"
            reason = "the function is paused" if function["paused"] else "no worker is registered"
            text = f"{text_of(function['name'])}: {waiting}, and {reason}"
            alarms.append({"code": "waiting", "level": "warning", "text": text})
    return alarms
