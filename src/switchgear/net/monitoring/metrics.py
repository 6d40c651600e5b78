"""`Metrics`: the figures of a server for a monitoring system, in the text formats of Prometheus.

`METRICS` is the table of all families. They are written one after the other, in steps of some tenths of a millisecond:
ten thousand functions take many turns of the event loop. Each piece is sent before the next is made, so that a scrape
holds little memory. One scrape after the other is written: two at a time could place functions differently.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from switchgear.joblog.recorder import Recorder
from switchgear.model import PRIORITY_NAMES, Function
from switchgear.net.hub import Hub
from switchgear.net.monitoring.function_series import COUNTERS, OTHER, FunctionSeries, FunctionSums
from switchgear.net.monitoring.loop_lag import LoopLag
from switchgear.net.monitoring.metrics_text import END_OF_METRICS, Metric, family_head, histogram_lines, label, labels
from switchgear.net.operations.connections import memory_figures
from switchgear.net.operations.functions import oldest_ready_seconds
from switchgear.telemetry import EVENTS
from switchgear.version import BUILD, VERSION

__all__ = ["METRICS", "Metrics"]

FUNCTION: Final = ("function",)
PRIORITIES: Final = (*PRIORITY_NAMES, "urgent")  # by number; no submitter chooses the last one
PER_PIECE: Final = 10  # functions

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric("switchgear_jobs_submitted_total", "counter", FUNCTION, "Jobs that were submitted."),
        Metric("switchgear_jobs_done_total", "counter", FUNCTION, "Jobs that ended with success."),
        Metric("switchgear_jobs_failed_total", "counter", FUNCTION, "Jobs that failed for good."),
        Metric("switchgear_jobs_cancelled_total", "counter", FUNCTION, "Jobs that were cancelled."),
        Metric("switchgear_jobs_expired_total", "counter", FUNCTION, "Jobs that were not started in time."),
        Metric("switchgear_jobs_requeued_total", "counter", FUNCTION, "Attempts that were lost and made again."),
        Metric("switchgear_jobs_dead_total", "counter", FUNCTION, "Jobs that failed with all their attempts spent."),
        Metric("switchgear_queue_jobs", "gauge", ("function", "state"), "Unfinished jobs by state."),
        Metric("switchgear_queue_ready_jobs", "gauge", ("function", "priority"), "Ready jobs by priority."),
        Metric("switchgear_oldest_ready_seconds", "gauge", FUNCTION, "Age of the oldest ready job; 0 without one."),
        Metric("switchgear_function_workers", "gauge", FUNCTION, "Workers that take jobs of the function."),
        Metric("switchgear_function_paused", "gauge", FUNCTION, "1 while the function is paused."),
        Metric("switchgear_job_wait_seconds", "histogram", FUNCTION, "How long jobs were ready before each start."),
        Metric("switchgear_job_run_seconds", "histogram", FUNCTION, "How long each attempt ran."),
        Metric(
            "switchgear_flow_jobs_total",
            "counter",
            ("submitter", "worker"),
            "Jobs that workers have ended, by the protocols of submitter and worker.",
        ),
        Metric("switchgear_workers", "gauge", ("protocol",), "Registered workers."),
        Metric("switchgear_connections", "gauge", ("protocol",), "Open connections by the protocol of the listener."),
        Metric("switchgear_commit_seconds", "histogram", (), "How long each commit of the store took."),
        Metric("switchgear_storage_up", "gauge", (), "1 while the store works."),
        Metric("switchgear_joblog_lag_rows", "gauge", (), "Entries that wait to be written to the job log."),
        Metric(
            "switchgear_loop_lag_seconds",
            "gauge",
            (),
            "Longest delay of the event loop within the last 15 to 30 seconds.",
        ),
        Metric("switchgear_memory_bytes", "gauge", ("part",), "Memory that peers make the server hold, by purpose."),
        Metric("switchgear_memory_limit_bytes", "gauge", (), "The limit of that memory; 0: no limit."),
        Metric("switchgear_events_total", "counter", ("event",), "Events of the log, also those that are not logged."),
        Metric("switchgear_http_requests_total", "counter", ("route", "status"), "Answers to HTTP requests."),
        Metric("switchgear_build_info", "info", ("version", "build", "python"), "The version that runs."),
    )
}


class Metrics:
    """Writes the metrics of one server."""

    def __init__(self, hub: Hub, lag: LoopLag) -> None:
        self._hub = hub
        self._engine = hub.engine
        self._lag = lag
        self._series = FunctionSeries()
        self._is_placing = False
        # Not every server has these; the service sets them.
        self.recorder: Recorder | None = None
        self.connections: Callable[[], Mapping[str, int]] = dict  # by protocol

    def write(self, is_open: bool, http_requests: Mapping[str, Mapping[int, int]]) -> Iterator[bytes]:
        """The pieces of the text, some of them empty; `is_open` for OpenMetrics."""
        if not self._is_placing:  # another scrape does it, and what it has placed so far is enough
            self._is_placing = True
            try:
                for _ in self._series.place(list(self._engine.functions.values())):
                    yield b""
            finally:
                self._is_placing = False
        sums = FunctionSums()
        for _ in self._series.sum_others(sums, self._engine.now_us):
            yield b""
        for piece in self._function_families(list(self._series.named.items()), sums, is_open=is_open):
            yield piece.encode()
        yield from self._server_families(http_requests, is_open=is_open)
        if is_open:
            yield END_OF_METRICS

    # --- functions ---

    def _function_families(
        self, named: list[tuple[Function, str]], sums: FunctionSums, *, is_open: bool
    ) -> Iterator[str]:
        has_others = bool(self._series.others) or any(sums.counters.values())
        other = label("function", OTHER)
        for name in COUNTERS:
            metric = METRICS[f"switchgear_jobs_{name}_total"]
            lines = [f"{metric.name}{{{where}}} {getattr(function, name)}\n" for function, where in named]
            if has_others:
                lines.append(f"{metric.name}{{{other}}} {sums.counters[name]}\n")
            yield family_head(metric, is_open=is_open) + "".join(lines)
        holders: list[tuple[Function | FunctionSums, str]] = [*named]
        if has_others:
            holders.append((sums, other))
        rows: list[tuple[str, Callable[[Function | FunctionSums, str], str]]] = [
            ("switchgear_queue_jobs", queue_rows),
            ("switchgear_queue_ready_jobs", priority_rows),
            ("switchgear_oldest_ready_seconds", self._oldest_row),
            ("switchgear_function_workers", worker_row),
            ("switchgear_function_paused", paused_row),
            ("switchgear_job_wait_seconds", wait_rows),
            ("switchgear_job_run_seconds", run_rows),
        ]
        for name, row in rows:
            yield family_head(METRICS[name], is_open=is_open)
            for begin in range(0, len(holders), PER_PIECE):
                yield "".join([row(holder, where) for holder, where in holders[begin : begin + PER_PIECE]])

    def _oldest_row(self, holder: Function | FunctionSums, where: str) -> str:
        if isinstance(holder, FunctionSums):
            seconds: float | None = holder.oldest_seconds
        else:
            seconds = oldest_ready_seconds(holder, self._engine.now_us) if holder.ready else None
        return f"switchgear_oldest_ready_seconds{{{where}}} {seconds or 0}\n"

    # --- the server ---

    def _server_families(self, http_requests: Mapping[str, Mapping[int, int]], *, is_open: bool) -> Iterator[bytes]:
        hub = self._hub
        connections = dict(self.connections())
        workers = Counter(dict.fromkeys(connections, 0))
        for done, worker in enumerate(list(self._engine.workers.values()), 1):
            workers[worker.protocol] += 1
            if not done % 1_000:
                yield b""
        events = hub.telemetry.counts
        memory: dict[str, Any] = dict(memory_figures(self._engine.memory))
        limit_bytes = memory.pop("limit")
        del memory["held"]  # the sum of all parts
        families: list[tuple[str, Iterator[tuple[str, object]]]] = [
            ("switchgear_flow_jobs_total", self._flow_samples()),
            ("switchgear_workers", ((label("protocol", name), count) for name, count in workers.items())),
            ("switchgear_connections", ((label("protocol", name), count) for name, count in connections.items())),
            ("switchgear_storage_up", iter([("", int(hub.storage_error is None))])),
            ("switchgear_joblog_lag_rows", iter([("", self.recorder.waiting if self.recorder is not None else 0)])),
            ("switchgear_loop_lag_seconds", iter([("", round(self._lag.seconds, 6))])),
            ("switchgear_memory_bytes", ((label("part", part), size) for part, size in memory.items())),
            ("switchgear_memory_limit_bytes", iter([("", limit_bytes)])),
            ("switchgear_events_total", ((label("event", name), events[name]) for name in EVENTS)),
            (
                "switchgear_http_requests_total",
                (
                    (labels(("route", "status"), (route, str(status))), count)
                    for route, counts in http_requests.items()
                    for status, count in counts.items()
                ),
            ),
            ("switchgear_build_info", iter([(build_labels(), 1)])),
        ]
        for name, samples in families:
            lines = [f"{name}{{{where}}} {value}\n" if where else f"{name} {value}\n" for where, value in samples]
            yield (family_head(METRICS[name], is_open=is_open) + "".join(lines)).encode()
        commits = METRICS["switchgear_commit_seconds"]
        yield (
            family_head(commits, is_open=is_open) + histogram_lines(commits.name, "", hub.commits.commit_times)
        ).encode()

    def _flow_samples(self) -> Iterator[tuple[str, object]]:
        """The jobs of each pair of protocols that has occurred."""
        flows = self._engine.flows
        names = METRICS["switchgear_flow_jobs_total"].labels
        for worker, by_source in flows.by_worker.items():
            for submitter, flow in zip(flows.sources, by_source, strict=True):
                jobs = sum(flow.counts())
                if jobs:
                    yield labels(names, (submitter, worker)), jobs


def build_labels() -> str:
    python = ".".join(str(number) for number in sys.version_info[:3])
    return labels(METRICS["switchgear_build_info"].labels, (VERSION, BUILD, python))


# --- the rows of one function, or of all others together ---


def queue_rows(holder: Function | FunctionSums, where: str) -> str:
    scheduled = holder.total - holder.ready - holder.running - holder.waiting
    start = f'switchgear_queue_jobs{{{where},state="'
    return (
        f'{start}ready"}} {holder.ready}\n{start}running"}} {holder.running}\n'
        f'{start}waiting"}} {holder.waiting}\n{start}scheduled"}} {scheduled}\n'
    )


def priority_rows(holder: Function | FunctionSums, where: str) -> str:
    if isinstance(holder, FunctionSums):
        counts = holder.ready_by_priority
    else:
        counts = [holder.ready_of(priority) if holder.ready else 0 for priority in range(len(PRIORITIES))]
    start = f'switchgear_queue_ready_jobs{{{where},priority="'
    return "".join([f'{start}{name}"}} {count}\n' for name, count in zip(PRIORITIES, counts, strict=True)])


def worker_row(holder: Function | FunctionSums, where: str) -> str:
    workers = holder.workers if isinstance(holder, FunctionSums) else len(holder.workers)
    return f"switchgear_function_workers{{{where}}} {workers}\n"


def paused_row(holder: Function | FunctionSums, where: str) -> str:
    return f"switchgear_function_paused{{{where}}} {int(holder.paused)}\n"


def wait_rows(holder: Function | FunctionSums, where: str) -> str:
    return histogram_lines("switchgear_job_wait_seconds", where, holder.wait_times)


def run_rows(holder: Function | FunctionSums, where: str) -> str:
    return histogram_lines("switchgear_job_run_seconds", where, holder.run_times)
