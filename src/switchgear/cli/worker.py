"""`switchgear worker`: runs the tasks of an app, or a shell command for each job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from switchgear.app.worker.logging_setup import LEVELS
from switchgear.cli.main import LOG_FORMAT, ExitCode
from switchgear.cli.output import duration_option, json_option, reading, servers_option
from switchgear.cli.worker_pools import KNOWN_POOLS, POOLS, slots_of_pool
from switchgear.client.gearman.worker import DEFAULT_DRAIN_SECONDS
from switchgear.log_format import LOG_FORMATS
from switchgear.numbers import whole_number
from switchgear.resources import canonical_resources
from switchgear.tags import canonical_tags, shown_tags
from switchgear.units import MIB, exact_bytes, parse_bytes, short_bytes

__all__ = ["worker"]

_EPILOG = """\b
Examples, with an app:
  switchgear worker myapp:app
  switchgear worker myapp:app --slots 16 --processes 4
  switchgear worker myapp:app --pool processes --concurrency 4
  switchgear worker myapp:app --autoscale 2,10
  switchgear worker myapp --reload
  switchgear worker mypackage
  switchgear worker shop.mail:app shop.images:app --slots 4
  switchgear worker mypackage.tasks:app --functions mypackage.tasks.mail,mypackage.tasks.sms
  switchgear worker myapp:app --queues mail=4,reports=1,default
  switchgear worker myapp:app --burst

\b
Where a task runs:
  async def               in one event loop, --async-slots at once
  run_in="process"        in --processes child processes; only these can be killed when they take too long
  other functions         in threads, --slots at once;
                          but in the child processes if --processes is given and --slots is not
  --pool threads          --slots; --concurrency is the number
  --pool processes        --processes; prefork is another name
  --pool asyncio          --async-slots
  --pool solo             all tasks in one child process, one job at a time

\b
Examples, with a command:
  switchgear worker reverse --exec rev
  switchgear worker resize --exec 'convert - -resize 50% -' --jobs 4 --timeout 60
  switchgear worker mail sms --exec './notify "$SWITCHGEAR_FUNCTION"' \\
      --server gearman://jobs1.example --server gearman://jobs2.example
  switchgear worker report --exec ./report --count 1

\b
Input of the command:
  standard input    the job's payload
  SWITCHGEAR_HANDLE, SWITCHGEAR_FUNCTION, SWITCHGEAR_UNIQUE
Output of the command:
  standard output   the result
  exit status       0: done; anything else: failed, with the last lines of standard error as the reason
  standard error    warnings, sent immediately; a line of one of these forms is progress:
                      progress: 3/10
                      progress: 30%

\b
Signals:
  QUIT        an app: stop at once, as a second TERM does
  TERM, INT   take no more jobs. Running jobs can finish within --drain-timeout; then, or at a second signal, they
              are stopped. Jobs of an app are released without using up an attempt; those of a command run again on
              another worker, or fail if their attempts are used up.

\b
Exit codes:
    0  stopped by TERM, after --count jobs, or by --burst, whether jobs were done or failed
    1  stopped by TERM with commands unfinished
    2  wrong usage, or the app cannot be imported
  130  stopped by INT
"""

LONGEST_SHOWN: Final = 40  # characters of a value that is refused
MOST_QUEUE_SLOTS: Final = 10_000
LEAST_PROCESS_BYTES: Final = MIB  # 500 was meant to be 500M

F = TypeVar("F", bound=Callable[..., Any])

# Which options belong to one form only, as they are written.
_EXEC_OPTIONS: Final = {"jobs": "--jobs", "timeout": "--timeout", "count": "--count"}
_APP_OPTIONS: Final = {
    "slots": "--slots",
    "async_slots": "--async-slots",
    "processes": "--processes",
    "pool": "--pool",
    "concurrency": "--concurrency",
    "autoscale": "--autoscale",
    "prefetch": "--prefetch",
    "max_jobs_per_process": "--max-jobs-per-process",
    "max_memory_per_process": "--max-memory-per-process",
    "kill_above_memory": "--kill-above-memory",
    "kill_after": "--kill-after",
    "only": "--functions",
    "queues": "--queues",
    "restart_after": "--restart-after",
    "reload": "--reload",
    "burst": "--burst",
    "lease": "--lease",
    "log_level": "--log-level",
}


def _prefetch(ctx: click.Context, parameter: click.Parameter, text: str) -> int | None:
    """The value of --prefetch: a number of jobs, or None for `auto`."""
    if text == "auto":
        return None
    from switchgear.app.worker.prefetch import MOST_PREFETCH

    # The digits are counted first, since Python refuses to read thousands of them.
    is_number = text.isascii() and text.isdigit() and len(text.lstrip("0")) <= len(str(MOST_PREFETCH))
    if not is_number or int(text.lstrip("0") or "0") > MOST_PREFETCH:
        shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
        raise click.BadParameter(f"{shown!r} is neither auto nor a number of jobs from 0 to {MOST_PREFETCH}")
    return int(text.lstrip("0") or "0")


def _tags(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """The value of --tags."""
    try:
        return tuple(shown_tags(canonical_tags(text)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _resources(ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    """The value of --resources."""
    try:
        return canonical_resources(text).decode()
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _queues(text: str) -> dict[str, int | None]:
    """The value of --queues: the slots of each queue, None if it shares those of the worker; raises ValueError."""
    queues: dict[str, int | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, has_slots, digits = part.partition("=")
        slots = whole_number(digits.strip().encode(), MOST_QUEUE_SLOTS) if has_slots else None
        if not name or (has_slots and not slots):
            raise ValueError(f"{part!r} is no queue: NAME, or NAME=SLOTS with 1 to {MOST_QUEUE_SLOTS} slots")
        queues[name.strip()] = slots
    return queues


def _process_memory(text: str) -> int:
    """The value of --max-memory-per-process in bytes; raises ValueError."""
    count = parse_bytes(text)
    if count < LEAST_PROCESS_BYTES:
        least = exact_bytes(LEAST_PROCESS_BYTES)
        raise ValueError(f"every Python process has more memory than {short_bytes(count)}; {least} is the least")
    return count


def _autoscale(text: str) -> object:
    """The value of --autoscale; raises ValueError."""
    from switchgear.app.worker.process_autoscaler import parse_autoscale

    return parse_autoscale(text)


def _number(name: str, parameter: str, least: int, help_text: str) -> Callable[[F], F]:
    return click.option(name, parameter, type=click.IntRange(least), metavar="N", help=help_text)


@click.command(epilog=_EPILOG)
@click.argument("names", metavar="MODULE:APP... | FUNCTION...", nargs=-1, required=True)
@_number("--slots", "slots", 0, "App: threads for plain functions. Default: 8.")
@_number("--async-slots", "async_slots", 0, "App: coroutine functions that run at once. Default: 100.")
@_number("--processes", "processes", 0, 'App: child processes. Default: one per core if a task says run_in="process".')
@click.option(
    "--pool",
    type=click.Choice(KNOWN_POOLS),
    metavar=f"[{'|'.join(POOLS)}]",
    help="App: with --concurrency, another way to write the three above.",
)
@_number("--concurrency", "concurrency", 1, "App: jobs that run at once in the --pool. Default: as above; solo: 1.")
@click.option(
    "--autoscale",
    metavar="MIN,MAX",
    callback=reading(_autoscale),
    help="App: instead of --processes, a number of child processes between these two, by the backlog.",
)
@_number("--max-jobs-per-process", "max_jobs_per_process", 1, "App: replace a child process after this many jobs.")
@click.option(
    "--max-memory-per-process",
    metavar="SIZE",
    callback=reading(_process_memory),
    help="App: replace a child process that has more resident memory than this after a job, such as 500M.",
)
@click.option(
    "--kill-above-memory",
    metavar="SIZE",
    callback=reading(_process_memory),
    help="App: kill a child process that has more resident memory than this at any time; its job is lost.",
)
@duration_option(
    "--kill-after", "App: how long a cancelled job may take to end before its process is killed. Default: 5.", "5"
)
@click.option(
    "--prefetch",
    metavar="N|auto",
    default="auto",
    callback=_prefetch,
    help="App: jobs that wait in the worker for a free thread; auto: as many as should start within 10 ms, and those"
    " that have waited for 30 ms are released. Default: auto.",
)
@click.option("--functions", "only", metavar="A,B", help="App: only these tasks.")
@click.option(
    "--queues",
    metavar="A,B=N",
    default="",
    callback=reading(_queues),
    help="App: only tasks of these queues (the option queue= of a task; without it: `default`). A queue with a number"
    " has so many slots of its own, the others share those of the worker.",
)
@_number("--restart-after", "restart_after", 1, "App: restart after this many jobs, without losing any.")
@click.option("--reload", is_flag=True, help="App: restart when a source file changes; for development.")
@click.option("--burst", is_flag=True, help="App: stop when no job is ready.")
@duration_option(
    "--lease",
    "App: the server assigns the jobs to other workers after this long without a heartbeat. Default: 15.",
    "15",
)
@click.option("--exec", "command", metavar="COMMAND", help="Run this with /bin/sh for each job of the FUNCTIONs.")
@_number("--jobs", "jobs", 1, "Command: run this many at once, over all servers. Default: 1.")
@duration_option("--timeout", "Command: stop a command that runs longer than this: TERM, then KILL. Its job fails.")
@_number("--count", "count", 1, "Command: stop after this many jobs.")
@duration_option(
    "--drain-timeout",
    f"How long running jobs may take to finish after a signal. Default: {DEFAULT_DRAIN_SECONDS:g}.",
    default=f"{DEFAULT_DRAIN_SECONDS:g}",
)
@click.option("--name", default="", help="The name of the worker in `switchgear workers`. Default: HOST/PID.")
@click.option(
    "--tags",
    metavar="A,B",
    default="",
    callback=_tags,
    help="The tags of this worker: it also gets jobs that require them.",
)
@click.option(
    "--resources",
    metavar="A=1,B=2G",
    default="",
    callback=_resources,
    help="The resources of this worker: it also gets jobs that require amounts which its running jobs leave free.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="App: the lowest level of messages to log to standard error; no effect if the app sets up logging itself.",
)
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS, case_sensitive=False),
    default="text",
    show_default=True,
    help="The form of standard error: lines of text, or one JSON object per line, as with `serve`.",
)
@click.option("--quiet", "-q", is_flag=True, help="Report problems only.")
@servers_option
@json_option("Report on standard output, one JSON object on each line.")
@click.pass_context
def worker(ctx: click.Context, /, names: tuple[str, ...], command: str | None, **options: Any) -> None:
    """Run the tasks of an app, or a command for each job of the FUNCTIONs.

    MODULE:APP is a switchgear.App in a module that can be imported from the current directory; MODULE is enough if it
    has only one app. You can also name a package: the worker looks for the app in its modules app, tasks, worker, jobs
    and main, and imports all modules called tasks. If you name several apps, each has its own slots. Jobs come from
    the servers of the app, or from those in --server.

    If a server cannot be reached, the worker tries again until it can. If a connection is lost, the tasks of an app go
    on, and are reported when the server is back, unless another worker has begun their jobs by then. Commands are
    stopped, because the server assigns their jobs to other workers.
    """
    ctx.meta[LOG_FORMAT] = options["log_format"]
    given = {name for name in options if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    _refuse_foreign(ctx, command, given)
    if command is not None:
        ctx.exit(_by_command(command, names, options))
    options |= slots_of_pool(options)
    from switchgear.cli.worker_app import work_for_apps

    ctx.exit(work_for_apps(names, options, servers=options["servers"] if "servers" in given else None))


def _refuse_foreign(ctx: click.Context, command: str | None, given: set[str]) -> None:
    foreign = _EXEC_OPTIONS if command is None else _APP_OPTIONS
    found = [option for name, option in foreign.items() if name in given]
    if found and command is None:
        raise click.UsageError(f"{', '.join(found)} is for workers that run a command, with --exec", ctx)
    if found:
        raise click.UsageError(f"{', '.join(found)} is for workers of an app, without --exec", ctx)


def _by_command(command: str, functions: tuple[str, ...], options: dict[str, Any]) -> ExitCode:
    from switchgear.cli.worker_exec import work_by_command

    return work_by_command(
        command,
        functions,
        options["servers"],
        slots=options["jobs"] or 1,
        timeout_seconds=options["timeout"],
        count=options["count"],
        drain_seconds=options["drain_timeout"],
        name=options["name"],
        tags=options["tags"],
        resources=options["resources"],
        quiet=options["quiet"],
        as_json=options["as_json"],
        log_format=options["log_format"],
    )
