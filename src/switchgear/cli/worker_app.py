"""`switchgear worker MODULE:APP`: runs the tasks of an app, or of several."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from types import FrameType
from typing import Any, Final, NoReturn, TextIO

from switchgear.app.app import App
from switchgear.app.worker.app_loader import AppNotFound, load_app
from switchgear.app.worker.executor_choice import ExecutorChoice, choose_executors
from switchgear.app.worker.logging_setup import set_up_logging
from switchgear.app.worker.observer import EXPECTED_REASONS, AppWorkerObserver
from switchgear.app.worker.process_autoscaler import AutoscaleLimits
from switchgear.app.worker.source_watch import SourceWatch
from switchgear.app.worker.worker import AppWorker, WorkerSettings
from switchgear.cli.main import ExitCode
from switchgear.cli.output import complain, server_location
from switchgear.cli.report_writer import ReportWriter
from switchgear.cli.worker_pools import SOLO
from switchgear.client.gearman.assigned_job import AssignedJob, Complete, Outcome, RetryLater, Stopped
from switchgear.errors import ConfigError
from switchgear.text import counted
from switchgear.units import short_duration

__all__ = ["work_for_apps"]

RELOAD_SECONDS: Final = 0.5  # between checks of the source
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_STDOUT, _STDERR = 1, 2

PROCESS_LIMITS: Final = ("max_jobs_per_process", "max_memory_per_process", "kill_above_memory")


def work_for_apps(targets: Sequence[str], options: dict[str, Any], servers: Sequence[str] | None) -> ExitCode:
    """Work until stopped; raises ConfigError if there is no such app, or nothing for it to do."""
    with _output_apart(options["as_json"]) as output:
        reporter = _AppReporter(
            ReportWriter(
                "switchgear worker",
                quiet=options["quiet"],
                as_json=options["as_json"],
                log_format=options["log_format"],
                output=output,
            )
        )
        code = _work_for_apps(targets, options, servers, reporter)
    if code is None:
        _restart_process()
    return code


@contextmanager
def _output_apart(is_apart: bool) -> Iterator[TextIO | None]:
    """Keep standard output for JSON: what tasks and their processes print goes to standard error."""
    if not is_apart or sys.stdout is None:
        yield None
        return
    sys.stdout.flush()
    ours = os.dup(_STDOUT)  # which child processes do not inherit
    os.dup2(_STDERR, _STDOUT)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # as people expect of standard error
    try:
        with open(ours, "w", encoding="utf-8", closefd=False) as output:
            yield output
    finally:
        _flush()
        os.dup2(ours, _STDOUT)
        os.close(ours)


def _work_for_apps(
    targets: Sequence[str], options: dict[str, Any], servers: Sequence[str] | None, reporter: _AppReporter
) -> ExitCode | None:
    """Work until stopped; returns the exit code, or None if the process is to be started again."""
    if options["reload"]:
        _disable_bytecode()
    try:
        apps = {target: load_app(target) for target in targets}
    except AppNotFound as error:
        if not options["reload"]:
            raise
        _wait_for_repair(error)
        return None
    if len(set(map(id, apps.values()))) < len(apps):
        raise ConfigError(f"{', '.join(apps)} are not several apps, but one")
    set_up_logging(options["log_level"], options["log_format"])
    watch = SourceWatch(os.getcwd()) if options["reload"] else None  # before anything else takes time
    reporter.shows_tracebacks = not all(app.logs_failures for app in apps.values())
    chosen = _chosen_tasks(apps, options["only"])
    if len(apps) > 1:
        _check_names(apps, chosen, options["queues"].keys(), servers)
    workers = [
        (app, worker)
        for target, app in apps.items()
        if target in chosen
        for worker in _workers(target, app, options, servers, reporter, chosen[target])
    ]
    if not workers:
        raise ConfigError(f"there are no tasks of the queues {', '.join(options['queues'])}")
    if not any(worker.has_processes for _, worker in workers):
        _refuse_process_options(options)
    return _work(workers, reporter, options["drain_timeout"], watch)


def _refuse_process_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError if an option limits child processes: a limit without effect would be noticed too late."""
    given = [f"--{name.replace('_', '-')}" for name in PROCESS_LIMITS if options[name]]
    if given:
        raise ConfigError(
            f"{', '.join(given)}: no task runs in a child process; add --processes or --pool processes, or write "
            "@app.task(run_in='process')"
        )


def _chosen_tasks(apps: Mapping[str, App], functions: str | None) -> dict[str, frozenset[str] | None]:
    """The tasks that --functions names, by app, without the apps that have none of them; None: all."""
    if functions is None:
        return dict.fromkeys(apps)
    names = frozenset(name.strip() for name in functions.split(",") if name.strip())
    if len(apps) == 1:
        return dict.fromkeys(apps, names)
    unknown = names.difference(*(app.tasks for app in apps.values()))
    if unknown or not names:
        raise ConfigError(f"none of the apps has a task {', '.join(sorted(unknown))}")
    return {target: names & app.tasks.keys() for target, app in apps.items() if names & app.tasks.keys()}


def _check_names(
    apps: Mapping[str, App],
    chosen: Mapping[str, frozenset[str] | None],
    queues: Set[str],
    servers: Sequence[str] | None,
) -> None:
    """Raise ConfigError if two apps run tasks of the same name for one server: it does not tell the two apart, and
    would give the jobs of one app to the other."""
    targets: dict[tuple[str, str], str] = {}
    for target, names in chosen.items():
        app = apps[target]
        places = [str(location.directory or location.url) for location in app.locations] if servers is None else [""]
        for name, task in app.tasks.items():
            if (names is not None and name not in names) or (queues and task.settings.queue not in queues):
                continue
            for place in places:
                other = targets.setdefault((place, name), target)
                if other != target:
                    raise ConfigError(
                        f"{other} and {target} both have a task {name}, and work for the same server, which does not "
                        f"tell the two apart: give one another name (@app.task(name=...)), or another server"
                    )


def _workers(
    target: str,
    app: App,
    options: dict[str, Any],
    servers: Sequence[str] | None,
    reporter: _AppReporter,
    only: frozenset[str] | None,
) -> list[AppWorker]:
    """The workers of one app: one, and one for each queue of --queues that has slots of its own."""
    queues: dict[str, int | None] = options["queues"]
    if not queues:
        return [_worker(target, app, options, servers, reporter, only)]
    workers: list[AppWorker] = []
    shared = frozenset(queue for queue, slots in queues.items() if slots is None)
    own = [(frozenset({queue}), slots) for queue, slots in queues.items() if slots is not None]
    for names, slots in [(shared, None), *own]:
        tasks = frozenset(
            name for name, task in app.tasks.items() if task.settings.queue in names and (only is None or name in only)
        )
        if not tasks:
            continue
        changes: dict[str, Any] = {}
        if slots is not None:
            in_processes = options["processes"] is not None and options["slots"] is None
            changes = {"slots": None if in_processes else slots, "async_slots": slots, "processes": slots}
            changes["name"] = f"{options['name'] or _default_name()}/{next(iter(names))}"
        workers.append(_worker(target, app, {**options, **changes}, servers, reporter, tasks))
    return workers


def _default_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


def _worker(
    target: str,
    app: App,
    options: dict[str, Any],
    servers: Sequence[str] | None,
    reporter: _AppReporter,
    only: frozenset[str] | None,
) -> AppWorker:
    """The worker of one app, which is not started yet; `only` are the names of its tasks, if not all."""
    executor_choice = choose_executors(
        app.tasks,
        slots=options["slots"],
        async_slots=options["async_slots"],
        processes=options["processes"],
        only=only,
        solo=options["pool"] == SOLO,
    )
    settings = WorkerSettings(
        name=options["name"],
        tags=options["tags"],
        resources=options["resources"],
        drain_seconds=options["drain_timeout"],
        lease_seconds=options["lease"],
        kill_after_seconds=options["kill_after"],
        autoscale=options["autoscale"],
        jobs_per_process=options["max_jobs_per_process"] or 0,
        memory_per_process_bytes=options["max_memory_per_process"] or 0,
        hard_memory_per_process_bytes=options["kill_above_memory"] or 0,
        restart_after=options["restart_after"] or 0,
        prefetch=options["prefetch"],
        burst=options["burst"],
        log_level=options["log_level"],
        log_format=options["log_format"],
    )
    locations = [server_location(url) for url in servers] if servers is not None else None
    if locations is not None:
        app.use_locations(locations)  # tasks submit where the worker works
    reporter.serving(target, executor_choice, options["autoscale"])
    return AppWorker(app, executor_choice, settings, reporter, locations=locations, target=target)


def _work(
    workers: Sequence[tuple[App, AppWorker]], reporter: _AppReporter, drain_seconds: float, watch: SourceWatch | None
) -> ExitCode | None:
    received: list[int] = []

    def stop_all(seconds: float, reason: str = "stop") -> None:
        for _, worker in workers:
            worker.stop(seconds, reason)

    def on_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)  # first of all: the next signal may come while we are here
        if len(received) > 1 or number == signal.SIGQUIT:
            stop_all(0.0)
        else:
            stop_all(drain_seconds)
            reporter.stopping(signal.Signals(number), drain_seconds)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        for _, worker in workers:
            worker.start()
        for _, worker in workers:
            while not worker.wait(RELOAD_SECONDS if watch is not None else None):
                changed = watch.changes() if watch is not None else []
                if changed and not received:
                    reporter.note(f"{', '.join(map(os.path.relpath, changed))} changed; starting afresh")
                    stop_all(drain_seconds, "reload")
                    watch = None
            if worker.end_reason == "restart":  # all of them, in one process
                stop_all(drain_seconds, "restart")
    finally:
        stop_all(0.0)  # if one has ended through a defect
        for number, handler in before.items():
            signal.signal(number, handler)
    for app, worker in workers:
        app.close()
        for location in worker.locations:  # an embedded server that lives in this process is left in good order
            location.close()
    reasons = {worker.end_reason for _, worker in workers}
    if not received and reasons & {"restart", "reload"}:
        if "restart" in reasons:
            finished_jobs = sum(worker.finished_jobs for _, worker in workers)
            reporter.note(f"starting afresh after {counted(finished_jobs, 'job')}")
        return None
    code = ExitCode.INTERRUPTED if signal.SIGINT in received else ExitCode.SUCCESS
    if any(worker.left_behind for _, worker in workers):  # a function that does not return must not keep us
        _flush()
        os._exit(code)
    return code


def _disable_bytecode() -> None:
    """Write no bytecode: its check for changes counts whole seconds, and a source file may be saved twice in one."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # for child processes


def _restart_process() -> NoReturn:
    """Replace this process by a new one with the same command."""
    _flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _wait_for_repair(error: AppNotFound) -> None:
    """Wait until a source file is changed, after the app could not be loaded; for development."""
    watch = SourceWatch(os.getcwd(), error.files)
    complain(f"{error}\nwaiting for a change of the source")
    while not watch.changes():
        time.sleep(RELOAD_SECONDS)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


class _AppReporter(AppWorkerObserver):
    """Prints the reports of a worker of an app."""

    def __init__(self, writer: ReportWriter) -> None:
        self._writer = writer
        self.shows_tracebacks = True  # of jobs that have failed for good; False if the app logs them

    def serving(self, target: str, executor_choice: ExecutorChoice, autoscale: AutoscaleLimits | None = None) -> None:
        """Report the tasks and their executors, before the work begins."""
        kinds = {
            "threads": (executor_choice.slots, sorted(executor_choice.in_threads)),
            "asyncio": (executor_choice.async_slots, sorted(executor_choice.in_loop)),
            "processes": (executor_choice.processes, sorted(executor_choice.in_processes)),
        }
        used: dict[str, Any] = {
            kind: {"slots": slots, "tasks": tasks} for kind, (slots, tasks) in kinds.items() if tasks
        }
        if autoscale is not None and "processes" in used:
            used["processes"]["least"] = autoscale.least
        words: list[str] = []
        for kind, found in used.items():
            least = f"{found['least']} to " if "least" in found else ""
            words.append(f"{kind} ({least}{found['slots']}): {', '.join(found['tasks'])}")
        self._writer.say(f"{target} serves {'; '.join(words)}", event="serving", app=target, **used)
        if executor_choice.not_served:
            text = f"not served, because there are no slots for them: {', '.join(executor_choice.not_served)}"
            self._writer.say(text, is_problem=True, event="not_served", tasks=list(executor_choice.not_served))

    def subscribed(self, server: str, post: str, *, again: bool, extended: bool) -> None:
        how = "connected again" if again else "connected"
        fields: dict[str, Any] = {"server": server, "post": post, "again": again, "plain": not extended}
        self._writer.say(f"{how} to {server} ({post}), ready for jobs", is_problem=again, event="connected", **fields)

    def disconnected(self, server: str, post: str, problem: str, retry_seconds: float) -> None:
        text = f"{server} ({post}): {problem}; next attempt in {short_duration(retry_seconds)}"
        fields: dict[str, Any] = {"server": server, "post": post, "problem": problem, "retry_seconds": retry_seconds}
        self._writer.say(text, is_problem=True, event="disconnected", **fields)

    def refused(self, server: str, problem: str) -> None:
        text = f"{server} answered with an error: {problem}"
        self._writer.say(text, is_problem=True, event="refused", server=server, error=problem)

    def job_started(self, assignment: AssignedJob) -> None:
        if self._writer.is_quiet:
            return
        text = f"{_about(assignment)} started"
        self._writer.say(text, event="started", attempt=assignment.attempt, **_fields(assignment))

    def job_ended(self, assignment: AssignedJob, outcome: Outcome, seconds: float) -> None:
        if self._writer.is_quiet and isinstance(outcome, Complete):
            return
        fields: dict[str, Any] = {"seconds": round(seconds, 6), **_fields(assignment)}
        about = f"{_about(assignment)} {{}} in {short_duration(seconds)}"
        if isinstance(outcome, Complete):
            self._writer.say(about.format("done"), event="done", **fields)
        elif isinstance(outcome, RetryLater):
            text = f"{about.format('failed')}, next attempt in {short_duration(outcome.delay_seconds)}: {outcome.error}"
            fields |= {"error": outcome.error, "delay_seconds": outcome.delay_seconds}
            self._writer.say(text, is_problem=True, event="retry", **fields)
        elif isinstance(outcome, Stopped):
            self.job_dropped(assignment, outcome.reason, seconds)
        else:
            error = outcome.error if self.shows_tracebacks else outcome.error.partition("\n")[0]
            text = f"{about.format('failed')}: {error}"
            self._writer.say(text, is_problem=True, event="failed", error=outcome.error, **fields)

    def job_dropped(self, assignment: AssignedJob, reason: str, seconds: float) -> None:
        text = f"{_about(assignment)} stopped before its end after {short_duration(seconds)}: {reason}"
        fields: dict[str, Any] = {"reason": reason, "seconds": round(seconds, 6), **_fields(assignment)}
        self._writer.say(text, is_problem=reason not in EXPECTED_REASONS, event="dropped", **fields)

    def job_returned(self, assignment: AssignedJob) -> None:
        if not self._writer.is_quiet:
            self._writer.say(f"{_about(assignment)} released, not started", event="returned", **_fields(assignment))

    def stopping(self, number: signal.Signals, drain_seconds: float) -> None:
        """Report a stop signal."""
        text = (
            f"{number.name}: running jobs may finish within {short_duration(drain_seconds)}; the next signal stops them"
        )
        self._writer.say(text, event="stopping", signal=number.name, drain_seconds=drain_seconds)

    def note(self, text: str, *, is_problem: bool = False) -> None:
        self._writer.say(text, is_problem=is_problem, event="note", text=text)


def _about(assignment: AssignedJob) -> str:
    return f"{assignment.handle} ({assignment.function})"


def _fields(assignment: AssignedJob) -> dict[str, Any]:
    return {"handle": assignment.handle, "function": assignment.function}
