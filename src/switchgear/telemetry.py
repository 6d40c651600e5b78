"""`Telemetry`: counts and logs the events in one table, which has all events that an operator may want to know."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from switchgear.engine.state import Observer
from switchgear.model import Cause, Function, Job, Schedule, Worker
from switchgear.text import TOKEN_PREFIX, harmless, without_secrets

__all__ = ["EVENTS", "Telemetry", "repeatable"]

log = logging.getLogger("switchgear")

# name -> level, text. Counters and JSON logs use the names; the fields in braces come with the event.
EVENTS: Final[dict[str, tuple[int, str]]] = {
    "server_started": (logging.INFO, "switchgear {version} ({build}) started, store {store}"),
    "restoring": (logging.INFO, "restoring jobs from {store}: {jobs} after {seconds} s; clients can connect and wait"),
    "server_draining": (logging.INFO, "draining: {running} running jobs may finish within {seconds} s"),
    "server_stopped": (logging.INFO, "stopped"),
    "loop_late": (
        logging.WARNING,
        "the event loop was {seconds} s late: one step took so long, or other programs had the processor",
    ),
    "config_reloaded": (logging.INFO, "configuration reloaded"),
    "config_not_reloaded": (logging.WARNING, "configuration not reloaded: {reason}"),
    "setting_needs_restart": (logging.WARNING, "setting {name} has changed; it takes effect after a restart"),
    "server_failed": (logging.ERROR, "the server has ended: {error}"),
    "listening": (logging.INFO, "listening on {url}"),
    "connecting": (logging.INFO, "connecting to {url}"),
    "connection_refused": (logging.WARNING, "connection from {host} refused: {reason}"),
    "connections_clamped": (
        logging.WARNING,
        "limits.connections is {wanted}, but the system permits {permitted} file descriptors;"
        " at most {connections} connections are accepted",
    ),
    "descriptors_exhausted": (
        logging.WARNING,
        "there are no file descriptors left, and new connections are refused: {reason}",
    ),
    "connection_made": (logging.DEBUG, "connection from {host}:{port}"),
    "connection_lost": (logging.DEBUG, "connection from {host}:{port} closed"),
    "slow_reader_closed": (logging.WARNING, "closed {host}:{port}: it does not read its output of {pending} bytes"),
    "held_output_closed": (logging.WARNING, "closed {host}:{port}: {pending} bytes of output wait for the store"),
    "intake_closed": (
        logging.WARNING,
        "closed {host}:{port}: its incomplete packet has {pending} bytes, and memory is full",
    ),
    "bad_input": (logging.WARNING, "{protocol} peer {host}:{port}: {code}: {text}"),
    "access_refused": (logging.WARNING, "{protocol} peer {host}:{port} ({identity}) was refused: {text}"),
    "operator_action": (logging.INFO, "{identity} at {address} ({protocol}): {verb} {target}"),
    "authentication_failed": (logging.WARNING, "{protocol} peer {host}:{port}: no identity has this credential"),
    "access_reloaded": (logging.INFO, "access file reloaded: {closed} connections of changed identities are closed"),
    "access_not_reloaded": (logging.WARNING, "access file not reloaded, the old one stays in force: {reason}"),
    "tls_not_reloaded": (logging.WARNING, "not reloaded, the old certificate and key stay in use: {reason}"),
    "internal_error": (logging.ERROR, "{protocol} peer {host}:{port}: {text}"),
    "handshake_failed": (logging.WARNING, "{protocol} peer {host}:{port} failed in its handshake: {reason}"),
    "link_refused": (logging.WARNING, "the link that {host}:{port} has opened to this node is closed: {reason}"),
    "silent_peer_closed": (
        logging.WARNING,
        "closed {protocol} peer {host}:{port}: it sent nothing within the time limit",
    ),
    "peer_unreachable": (logging.DEBUG, "{protocol} peer {identity} is gone; a message for it was not delivered"),
    "directory_open": (
        logging.WARNING,
        "every user of this machine can replace files in {path}, and so the jobs of this server; chmod o-w",
    ),
    "job_requeued": (logging.INFO, "{job} of {function} requeued: {cause} (attempt {attempt})"),
    "job_died": (logging.ERROR, "{job} of {function} is dead: {error}"),
    "job_expired": (logging.INFO, "{job} of {function} expired before it was started"),
    "worker_expired": (logging.WARNING, "worker {worker} did not renew its lease and is considered lost"),
    "wake_policy_failed": (logging.WARNING, "the wake policy failed for {function}: {error}"),
    "address_in_use": (logging.WARNING, "{url} is in use by another process; trying again for {seconds} s"),
    "function_created": (logging.DEBUG, "function {function} created"),
    "schedule_fired": (logging.DEBUG, "schedule {schedule} made {job} of {function}"),
    "schedule_skipped": (logging.INFO, "schedule {schedule}: no job, because the last one is unfinished"),
    "schedule_missed": (logging.WARNING, "schedule {schedule}: ticks that were missed and get no job: {count}"),
    "schedule_refused": (logging.WARNING, "schedule {schedule}: no job yet: {reason}"),
    "clock_stepped": (logging.WARNING, "the clock was set by {seconds} s"),
    "storage_failed": (logging.ERROR, "storage: {error}; submissions are refused until it works again"),
    "storage_recovered": (logging.WARNING, "storage works again after {seconds} s"),
    "storage_refused": (
        logging.ERROR,
        "the store has newer revisions of jobs {jobs}; those of this server were not stored",
    ),
    "server_fenced": (logging.ERROR, "{error}; this server sends nothing more to its peers, and stops"),
    "joblog_failed": (logging.ERROR, "job log: {error}; entries wait until it works again"),
    "joblog_recovered": (logging.WARNING, "job log: works again after {seconds} s"),
    "joblog_overrun": (logging.WARNING, "job log: too slow; the oldest {count} waiting entries are dropped"),
    "joblog_trimmed": (logging.DEBUG, "job log: {count} old entries dropped"),
    "forwarding_lost": (logging.WARNING, "forwarding from {url}: {error}; trying to reconnect"),
    "forwarding_recovered": (logging.WARNING, "forwarding from {url}: works again after {seconds} s"),
    "forwarding_refused": (logging.WARNING, "forwarding from {url}: the server answered with an error: {error}"),
    "forwarding_circle": (
        logging.ERROR,
        "forwarding from {url}: that is this server itself; it takes no jobs from there",
    ),
    "bridge_lost": (logging.WARNING, "bridge to {url}: {error}; trying to reconnect"),
    "bridge_recovered": (logging.WARNING, "bridge to {url}: works again after {seconds} s"),
    "bridge_refused": (logging.WARNING, "bridge to {url}: Redis refused a command: {error}"),
    "bridge_replaced": (logging.WARNING, "bridge to {url}: Redis has lost its data; all claims are dropped"),
    "bridge_function_skipped": (
        logging.WARNING,
        "function {function} is not bridged: on a Redis Cluster its name needs a hash tag, such as {{name}}",
    ),
    "history_skipped": (
        logging.WARNING,
        "{job} is not stored in the history, because the store is too slow",
    ),
    "memory_full": (logging.WARNING, "refused: {reason}"),
    "history_dropped": (logging.DEBUG, "{count} finished jobs dropped from the history"),
}

# A flood of the same event must not become a flood of log lines.
LINES_PER_SECOND: Final = 10


class Telemetry(Observer):
    """Counts every event and logs it, at most a fixed number of each kind in a second."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        self.handle_prefix = ""  # set when the server has a prefix; jobs are then shown by their handles
        self.for_debugging: frozenset[str] = frozenset()  # events that people see elsewhere, logged at debug level only
        self._now_seconds = now_seconds
        self._second = 0
        self._lines: Counter[str] = Counter()

    def emit(self, event_name: str, /, **fields: object) -> None:
        """Count and log an event of the table."""
        level, text = EVENTS[event_name]
        if event_name in self.for_debugging:
            level = logging.DEBUG
        self.counts[event_name] += 1
        if not log.isEnabledFor(level):
            return
        second = int(self._now_seconds())
        if second != self._second:
            self._report_suppressed()
            self._second = second
        self._lines[event_name] += 1
        if self._lines[event_name] <= LINES_PER_SECOND:
            shown = {key: repeatable(value) if isinstance(value, str) else value for key, value in fields.items()}
            log.log(level, text.format(**shown), extra={"event": event_name, "fields": shown})

    def _report_suppressed(self) -> None:
        for name, lines in self._lines.items():
            if lines > LINES_PER_SECOND:
                more = lines - LINES_PER_SECOND
                extra = {"event": name, "fields": {"suppressed": more}}
                log.log(EVENTS[name][0], f"{name}: {more} more like this within a second", extra=extra)
        self._lines.clear()

    def label(self, job: Job) -> str:
        """The name of a job in the log: its name, or else its handle."""
        if job.name:
            return text_of(job.name)
        return f"{self.handle_prefix}{job.id}" if self.handle_prefix else f"job {job.id}"

    # --- events of the engine ---

    def job_requeued(self, job: Job, cause: Cause) -> None:
        word = cause.name.lower().replace("_", " ")
        attempt = job.attempts + (cause is Cause.GIVEN_BACK)  # one that was given back does not count
        self.emit("job_requeued", job=self.label(job), function=text_of(job.function.name), cause=word, attempt=attempt)

    def job_died(self, job: Job) -> None:
        error = text_of(job.error or b"")
        self.emit("job_died", job=self.label(job), function=text_of(job.function.name), error=error)

    def job_expired(self, job: Job) -> None:
        self.emit("job_expired", job=self.label(job), function=text_of(job.function.name))

    def worker_expired(self, worker: Worker) -> None:
        self.emit("worker_expired", worker=text_of(worker.name) or worker.id)

    def wake_policy_failed(self, function: Function, error: Exception) -> None:
        self.emit("wake_policy_failed", function=text_of(function.name), error=repr(error))

    def function_created(self, function: Function) -> None:
        self.emit("function_created", function=text_of(function.name))

    def memory_full(self, reason: str) -> None:
        self.emit("memory_full", reason=reason)

    def schedule_fired(self, schedule: Schedule, job: Job) -> None:
        function = text_of(job.function.name)
        self.emit("schedule_fired", schedule=text_of(schedule.name), job=self.label(job), function=function)

    def schedule_skipped(self, schedule: Schedule) -> None:
        self.emit("schedule_skipped", schedule=text_of(schedule.name))

    def schedule_missed(self, schedule: Schedule, count: int) -> None:
        self.emit("schedule_missed", schedule=text_of(schedule.name), count=count)

    def schedule_refused(self, schedule: Schedule, reason: str) -> None:
        self.emit("schedule_refused", schedule=text_of(schedule.name), reason=reason)


def repeatable(text: str) -> str:
    """Text in the form that a log may show: one line, without passwords and tokens."""
    return harmless(without_secrets(text) if "://" in text or TOKEN_PREFIX in text else text)


def text_of(data: bytes) -> str:
    """Bytes of a peer in the form that a log may show."""
    return harmless(data.decode("utf-8", "replace"))
