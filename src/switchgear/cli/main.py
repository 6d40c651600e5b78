"""The `switchgear` command: a group whose sub-commands are imported when they are called.

Importing all of them would make every call wait for the server's modules, the help text included, so their one-line
descriptions stand here.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from enum import IntEnum
from importlib import import_module
from typing import NamedTuple

import click

from switchgear.cli.help_format import HelpContext, use_help_format
from switchgear.errors import (
    ConfigError,
    JobFailed,
    ServerUnreachable,
    SwitchgearError,
)
from switchgear.text import printable, without_secrets
from switchgear.version import VERSION

__all__ = ["COMMANDS", "LOG_FORMAT", "UNREACHABLE_HINT", "ExitCode", "exit_code_of", "has_no_colors", "main", "report"]


class ExitCode(IntEnum):
    """The exit codes of the command."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMED_OUT = 4
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """The description of the exit code, for help texts."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.SUCCESS: "success",
    ExitCode.FAILED: "the job failed, or the request was refused",
    ExitCode.USAGE: "wrong usage or configuration",
    ExitCode.UNREACHABLE: "the server cannot be reached",
    ExitCode.TIMED_OUT: "timed out waiting",
    ExitCode.INTERRUPTED: "interrupted",
}

# The key in the meta of a context for a hint to print if the server cannot be reached.
UNREACHABLE_HINT = "switchgear.unreachable_hint"
LOG_FORMAT = "switchgear.log_format"  # of errors, once it is known

# Which error ends in which code; the first that fits decides.
_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (ConfigError, ExitCode.USAGE),
    (ServerUnreachable, ExitCode.UNREACHABLE),
    (JobFailed, ExitCode.FAILED),
    (SwitchgearError, ExitCode.FAILED),
    (TimeoutError, ExitCode.TIMED_OUT),
    (KeyboardInterrupt, ExitCode.INTERRUPTED),
    (OSError, ExitCode.FAILED),
)


class _Lazy(NamedTuple):
    module: str
    attribute: str
    help: str


COMMANDS = {
    "serve": _Lazy("switchgear.cli.serve", "serve", "Run the job server."),
    "gearmand": _Lazy("switchgear.cli.gearmand", "gearmand", "Run the job server with gearmand's own options."),
    "submit": _Lazy("switchgear.cli.submit", "submit", "Submit a job and wait for its result."),
    "worker": _Lazy("switchgear.cli.worker", "worker", "Run the tasks of an app, or a command for each job."),
    "device": _Lazy("switchgear.cli.device", "device", "Forward WMP messages between workers and managers."),
    "server": _Lazy("switchgear.cli.server", "server", "Show the state of the server and its memory use."),
    "nodes": _Lazy("switchgear.cli.nodes", "nodes", "List the servers that share one PostgreSQL."),
    "top": _Lazy("switchgear.cli.top.command", "top", "Show functions, workers and jobs on the terminal, live."),
    "dashboard": _Lazy("switchgear.cli.dashboard", "dashboard", "Open the dashboard of the server in a browser."),
    "functions": _Lazy("switchgear.cli.inspect_server", "functions", "List functions with their queues and workers."),
    "workers": _Lazy("switchgear.cli.inspect_server", "workers", "List connected workers."),
    "jobs": _Lazy("switchgear.cli.inspect_server", "jobs", "List jobs."),
    "job": _Lazy("switchgear.cli.inspect_server", "job", "Show one job."),
    "explain": _Lazy("switchgear.cli.explain", "explain", "Show why a job waits, where it runs, or how it ended."),
    "trace": _Lazy("switchgear.cli.trace", "trace", "Show the packets between a client or worker and the server."),
    "log": _Lazy("switchgear.cli.log", "log", "Show which jobs ran, how long, and how they ended."),
    "cancel": _Lazy("switchgear.cli.control", "cancel", "Cancel a job."),
    "retry": _Lazy("switchgear.cli.control", "retry", "Run a finished job again."),
    "change": _Lazy("switchgear.cli.control", "change", "Change the priority or the start time of a job."),
    "control": _Lazy("switchgear.cli.control_workers", "control", "Ping, drain, restart or resize workers."),
    "signal": _Lazy("switchgear.cli.send_signal", "signal", "Tell a waiting job that something has happened."),
    "pause": _Lazy("switchgear.cli.control", "pause", "Stop starting jobs of a function."),
    "resume": _Lazy("switchgear.cli.control", "resume", "Start jobs of a paused function again."),
    "place": _Lazy("switchgear.cli.place", "place", "Show or set which server owns a function, of several."),
    "limit": _Lazy("switchgear.cli.limit", "limit", "Show or set the concurrency and rate limits of a function."),
    "schedules": _Lazy("switchgear.cli.schedules", "schedules", "List periodic jobs."),
    "schedule": _Lazy("switchgear.cli.schedules", "schedule", "Add, remove, pause, resume or run schedules."),
    "dwork": _Lazy("switchgear.cli.dwork", "dwork", "Run task graphs: locally, or on a dwork server."),
    "keys": _Lazy("switchgear.cli.keys", "keys", "Generate keys for encrypted ZeroMQ connections."),
    "backup": _Lazy("switchgear.cli.transfer", "back_up", "Copy the database of a store, also of a running server."),
    "export": _Lazy("switchgear.cli.transfer", "export_jobs", "Write the jobs of a store as lines of JSON."),
    "import": _Lazy("switchgear.cli.transfer", "import_jobs", "Read exported jobs into an empty store."),
    "access": _Lazy("switchgear.cli.access", "access", "Manage identities and their roles."),
    "bench": _Lazy("switchgear.cli.bench", "bench", "Measure the speed of the server on this machine."),
    "config": _Lazy("switchgear.cli.config", "config", "Check or show the server's configuration."),
    "version": _Lazy("switchgear.cli.version", "version", "Show the version of this program and of its dependencies."),
}

_EPILOG = """\b
Examples:
  switchgear serve
  switchgear worker reverse --exec rev
  switchgear submit reverse hello

\b
Exit codes:
""" + "".join(f"  {code:>3}  {code.meaning}\n" for code in ExitCode)
_EPILOG += "\nWith SWITCHGEAR_DEBUG=1 in the environment, an error comes with its traceback."


class _Main(click.Group):
    """The command group: imports sub-commands when they are needed, and turns errors into a message and an exit
    code."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_module(lazy.module), lazy.attribute)
        assert isinstance(command, click.Command)
        use_help_format(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, lazy.help) for name, lazy in COMMANDS.items()]
        rows += [(name, command.get_short_help_str(80)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (SwitchgearError, OSError, KeyboardInterrupt, click.Abort) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output has gone; click ends quietly
            code = report(error, log_format=ctx.meta.get(LOG_FORMAT, "text"))
            if code is ExitCode.UNREACHABLE and UNREACHABLE_HINT in ctx.meta:
                click.echo(f"switchgear: {ctx.meta[UNREACHABLE_HINT]}", err=True)
            return ctx.exit(code)


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error."""
    if isinstance(error, click.Abort):
        return ExitCode.INTERRUPTED
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)


def report(error: BaseException, prefix: str = "switchgear", log_format: str = "text") -> ExitCode:
    """Print an error to standard error, with a traceback if it is a defect."""
    if log_format == "json":
        return _report_as_json(error)
    if os.environ.get("SWITCHGEAR_DEBUG", "") not in ("", "0"):
        import traceback

        click.echo(without_secrets("".join(traceback.format_exception(error))), err=True, nl=False)
    code = exit_code_of(error)
    if code is ExitCode.INTERRUPTED:
        click.echo(err=True)  # the terminal shows ^C at the start of the line
        return code
    for line in _describe(error).splitlines() or [code.meaning]:
        click.echo(f"{prefix}: {printable(without_secrets(line))}", err=True)
    return code


def _report_as_json(error: BaseException) -> ExitCode:
    """Print an error in the form of the log, for programs that read nothing else."""
    import logging
    import time
    import traceback

    from switchgear.log_format import json_line

    code = exit_code_of(error)
    if code is not ExitCode.INTERRUPTED:
        is_debugging = os.environ.get("SWITCHGEAR_DEBUG", "") not in ("", "0")
        trace = without_secrets("".join(traceback.format_exception(error))) if is_debugging else ""
        text = without_secrets(_describe(error)) or code.meaning
        fields = {"exit_code": int(code), "error": type(error).__name__}
        line = json_line(
            logging.ERROR, "switchgear", "command_failed", text, fields, seconds=time.time(), traceback=trace
        )
        click.echo(line, err=True)
    return code


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:  # without the number
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@click.group(
    cls=_Main,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """One job server for many protocols: run it, submit jobs to it, run workers, inspect it.

    Each command has examples in its own help.
    """
    if has_no_colors():
        ctx.color = False
    for stream in (sys.stdout, sys.stderr):
        # What an encoding such as Latin-1 has no character for becomes a question mark, and ends no command.
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def has_no_colors() -> bool:
    """Whether the user wants no colours (https://no-color.org), or the terminal has none."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
