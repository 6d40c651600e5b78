"""The verb `overview`: counts, rates and alarms of the whole server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from switchgear.json_bytes import plain
from switchgear.model import SECOND_US, Function, Worker
from switchgear.model.job import JOB_BYTES
from switchgear.net.connections.tcp_connection import Connection
from switchgear.net.monitoring.loop_lag import LATE_SECONDS
from switchgear.net.operations.context import OperationsContext
from switchgear.net.operations.functions import function_portions, oldest_ready_us
from switchgear.net.operations.verb_steps import Steps
from switchgear.refusals import REFUSED_DRAINING
from switchgear.text import counted
from switchgear.units import short_bytes
from switchgear.verbs.live_answers import AlarmAnswer, EndedCounts, OverviewAnswer, RateFigures
from switchgear.version import VERSION

__all__ = ["OverviewOperations"]

# Adding up one function, worker or connection takes about a microsecond.
ITEMS_PER_STEP: Final = 250

CRITICAL: Final = "critical"
WARNING: Final = "warning"
# A function that has had no worker for a moment is not alarming: workers reconnect.
UNSERVED_SECONDS: Final = 10
LONG_WAIT_SECONDS: Final = 15 * 60
MOST_FUNCTIONS_NAMED: Final = 10
RECENT_SECONDS: Final = 600
MUCH_UNREAD_BYTES: Final = 256 * 1024
MANY_LOG_ROWS: Final = 10_000

# Events of `telemetry` whose number is compared with that of ten minutes ago.
RECENT_EVENTS: Final = ("job_died", "slow_reader_closed", "schedule_missed", "joblog_overrun")


class FunctionTotals:
    """The sums of all functions, and those functions that are worth an alarm."""

    def __init__(self, now_us: int, dropped_counts: Sequence[int]) -> None:
        self.now_us = now_us
        self.total = self.ready = self.running = self.waiting = 0
        self.counts = list(dropped_counts)
        self.functions = self.paused = 0
        self.oldest_us: int | None = None
        self.oldest: Function | None = None
        self.unserved: list[Function] = []  # jobs wait, and there is no worker
        self.held_up: list[Function] = []  # jobs wait, and it is paused

    def add(self, function: Function) -> None:
        """Add one function."""
        self.functions += 1
        self.total += function.total
        self.ready += function.ready
        self.running += function.running
        self.waiting += function.waiting
        counts = self.counts
        for index, count in enumerate(function.counts()):
            counts[index] += count
        if function.paused:
            self.paused += 1
        if not function.ready:
            return
        created_us = oldest_ready_us(function)
        if created_us is None:
            return
        if self.oldest_us is None or created_us < self.oldest_us:
            self.oldest_us, self.oldest = created_us, function
        if function.paused:
            self.held_up.append(function)
        elif not function.workers and self.now_us - created_us >= UNSERVED_SECONDS * SECOND_US:
            self.unserved.append(function)


class OverviewOperations:
    """The verb `overview`."""

    def __init__(self, context: OperationsContext) -> None:
        self._context = context
        self._engine = context.engine
        self.recent = context.recent_counts

    def overview(self) -> Steps:
        totals = yield from self.totals()
        workers = yield from self._workers(self._context.workers())
        connections, unread = yield from self._connections(self._context.open_connections())
        hub, engine = self._context.hub, self._engine
        now_us = totals.now_us
        rates = self._rates(totals)
        events = self._events()
        since = self._context.recent_events.before(now_us, RECENT_SECONDS)
        self.note(totals)
        news = [count - before for count, before in zip(events, since[1] if since else [0] * len(events), strict=True)]
        answer: OverviewAnswer = {
            "at": now_us / SECOND_US,
            "version": VERSION,
            "uptime_seconds": (now_us - self._context.started_us) / SECOND_US,
            "draining": engine.refusal is not None and engine.refusal.reason == REFUSED_DRAINING,
            "jobs": {
                "total": totals.total,
                "ready": totals.ready,
                "running": totals.running,
                "waiting": totals.waiting,
                "scheduled": totals.total - totals.ready - totals.running - totals.waiting,
            },
            "counts": ended_counts(totals.counts, hub.telemetry.counts["job_died"]),
            "rates": rates,
            "oldest_ready": None
            if totals.oldest is None or totals.oldest_us is None
            else {"seconds": (now_us - totals.oldest_us) / SECOND_US, "function": plain(totals.oldest.name)},
            "drain_seconds": drain_seconds(totals.ready + totals.running, rates),
            "functions": totals.functions,
            "paused_functions": totals.paused,
            "workers": workers,
            "connections": connections,
            "store": {
                "url": hub.store.url,
                "is_durable": hub.is_durable,
                "error": str(hub.storage_error or ""),
                "waiting_changes": self._context.waiting_changes(),
            },
            "memory": {"held": engine.memory.held_bytes, "limit": engine.memory.limit_bytes},
            "alarms": self._alarms(totals, unread, news),
        }
        return answer

    def _events(self) -> list[int]:
        return [self._context.hub.telemetry.counts[name] for name in RECENT_EVENTS]

    def note(self, totals: FunctionTotals) -> None:
        """Remember the present counts, for rates and recent events."""
        self.recent.note(totals.now_us, totals.counts)
        self._context.recent_events.note(totals.now_us, self._events())

    def totals(self) -> Steps:
        """The sums of all functions, in steps; the present time is that of the first step."""
        engine = self._engine
        totals = FunctionTotals(engine.now_us, engine.dropped_counts)
        functions = self._context.functions()
        for portion in function_portions(functions, ITEMS_PER_STEP):
            for function in portion:
                totals.add(function)
            yield False
        return totals

    def _rates(self, totals: FunctionTotals) -> RateFigures:
        seconds, rates = self.recent.rates(totals.now_us, totals.counts)
        self.recent.note(totals.now_us, totals.counts)
        submitted, done, failed, cancelled, expired, requeued = rates
        return {
            "over_seconds": seconds,
            "submitted": submitted,
            "done": done,
            "failed": failed,
            "cancelled": cancelled,
            "expired": expired,
            "requeued": requeued,
        }

    def _workers(self, workers: Sequence[Worker]) -> Steps:
        by_protocol: Counter[str] = Counter()
        busy = 0
        for start in range(0, len(workers), ITEMS_PER_STEP):
            yield False
            for worker in workers[start : start + ITEMS_PER_STEP]:
                by_protocol[worker.protocol] += 1
                busy += bool(worker.running)
        return {"total": len(workers), "busy": busy, "by_protocol": dict(sorted(by_protocol.items()))}

    def _connections(self, connections: Sequence[Connection]) -> Steps:
        """The connections by protocol, and how many of them have much output that they do not read."""
        by_protocol: Counter[str] = Counter()
        unread = 0
        for start in range(0, len(connections), ITEMS_PER_STEP):
            yield False
            for connection in connections[start : start + ITEMS_PER_STEP]:
                session = connection.session
                by_protocol[(session.protocol if session is not None else "") or "unknown"] += 1
                unread += connection.output_bytes > MUCH_UNREAD_BYTES and connection.is_stalled
        return {"total": len(connections), "by_protocol": dict(sorted(by_protocol.items()))}, unread

    # --- alarms ---

    def _alarms(self, totals: FunctionTotals, unread: int, news: Sequence[int]) -> list[AlarmAnswer]:
        """The alarms that need the attention of an operator, the most urgent first."""
        died, closed, missed, overrun = news
        alarms = self._server_alarms()
        if totals.oldest_us is not None and totals.oldest is not None:
            seconds = (totals.now_us - totals.oldest_us) / SECOND_US
            if seconds >= LONG_WAIT_SECONDS:
                name = plain(totals.oldest.name)
                alarms.append(alarm("oldest_wait", f"{name}: a ready job has waited for {round(seconds)} s", name))
        alarms += function_alarms("no_worker", "and no worker is registered", totals.unserved)
        alarms += function_alarms("paused", "and the function is paused", totals.held_up)
        if died > 0:
            alarms.append(alarm("dead_letters", f"{counted(died, 'job')} died in the last ten minutes", None, died))
        if unread or closed > 0:
            text = f"{unread} connections do not read what they are sent; {max(0, closed)} were closed for it recently"
            alarms.append(alarm("slow_readers", text, None, unread + max(0, closed)))
        if missed > 0:
            alarms.append(
                alarm("schedule_missed", f"schedules missed {counted(missed, 'tick')} recently", None, missed)
            )
        recorder = self._context.recorder
        waiting = recorder.waiting if recorder is not None else 0
        if waiting > MANY_LOG_ROWS or overrun > 0:
            alarms.append(alarm("joblog_behind", f"the job log is behind: {waiting} rows wait", None, waiting))
        return alarms

    def _server_alarms(self) -> list[AlarmAnswer]:
        """The alarms that concern the whole server."""
        alarms: list[AlarmAnswer] = []
        hub, engine = self._context.hub, self._engine
        memory = engine.memory
        if hub.storage_error is not None:
            text = f"the store has failed, and submissions are refused: {hub.storage_error}"
            alarms.append(alarm("store_down", text, level=CRITICAL))
        if not memory.has_room(JOB_BYTES):
            text = f"memory is full: {short_bytes(memory.held_bytes)} of {short_bytes(memory.limit_bytes)} are held"
            alarms.append(alarm("memory_full", text, level=CRITICAL))
        lag_seconds = self._context.loop_lag_seconds()
        if lag_seconds >= LATE_SECONDS:
            text = f"the event loop was {round(lag_seconds * 1000)} ms late within the last half minute: peers wait"
            alarms.append(alarm("loop_lag", text))
        if engine.refusal is not None and engine.refusal.reason == REFUSED_DRAINING:
            alarms.append(alarm("draining", "the server shuts down, and submissions are refused"))
        return alarms


def alarm(
    code: str, text: str, function: str | dict[str, str] | None = None, count: int | None = None, level: str = WARNING
) -> AlarmAnswer:
    return {"code": code, "level": level, "text": text, "function": function, "count": count}


def function_alarms(code: str, reason: str, functions: Sequence[Function]) -> list[AlarmAnswer]:
    """One alarm for each of these functions; of very many, for those with most ready jobs."""
    most = sorted(functions, key=lambda function: -function.ready)[:MOST_FUNCTIONS_NAMED]
    return [
        alarm(code, f"{name}: {waiting}, {reason}", name, function.ready)
        for function in most
        for name in [plain(function.name)]
        for waiting in ["1 job waits" if function.ready == 1 else f"{function.ready} jobs wait"]
    ]


def ended_counts(counts: Sequence[int], dead: int) -> EndedCounts:
    """The sums of `Function.counts`, by name."""
    submitted, done, failed, cancelled, expired, requeued = counts
    return {
        "submitted": submitted,
        "done": done,
        "failed": failed,
        "cancelled": cancelled,
        "expired": expired,
        "requeued": requeued,
        "dead": dead,
    }


def drain_seconds(jobs: int, rates: RateFigures) -> float | None:
    """How long these jobs take at the rate at which jobs end."""
    if not jobs:
        return 0.0
    ended = sum(rate or 0.0 for rate in (rates["done"], rates["failed"], rates["cancelled"], rates["expired"]))
    return round(jobs / ended, 3) if ended > 0 else None
