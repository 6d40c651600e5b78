"""`switchgear dwork`: a group of commands, each imported when it is called, because shell loops call them often."""

from __future__ import annotations

from importlib import import_module

import click

from switchgear.cli.dwork_options import read_server, server_option
from switchgear.cli.help_format import use_help_format

__all__ = ["COMMANDS", "dwork"]

# Name, module, attribute, and one line of help.
COMMANDS = {
    "create": ("dwork_tasks", "create", "Create a task, after others are done."),
    "addfile": ("dwork_tasks", "addfile", "Create all tasks of a file."),
    "steal": ("dwork_steal", "steal", "Take tasks that are ready."),
    "complete": ("dwork_steal", "complete", "Report tasks as done, or as failed."),
    "transfer": ("dwork_steal", "transfer", "Give a task back, perhaps to be done after others."),
    "exit": ("dwork_steal", "exit_", "Release all tasks of a worker."),
    "status": ("dwork_tasks", "status", "Show how many tasks there are."),
    "lookup": ("dwork_tasks", "lookup", "Show what is known of a task."),
    "work": ("dwork_work", "work", "Steal tasks and run their names as commands."),
    "run": ("dwork_run", "run", "Run all tasks of a file here, without a server."),
    "graph": ("dwork_graph", "graph", "Show a graph of tasks, and draw it."),
}

_EPILOG = """\b
Examples:
  switchgear dwork run commands.txt --jobs 8           no server needed
\b
  switchgear serve --listen dwork://127.0.0.1:6125 &
  switchgear dwork addfile commands.txt
  switchgear dwork work --jobs 8
  switchgear dwork graph --svg graph.svg

\b
Files of tasks have one line for each: task,predecessor,predecessor...
  A field that contains a comma is written in double quotes, with a quote inside written twice.
  Blank lines, and lines that begin with #, are skipped. The order of lines does not matter.
"""


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(import_module(f"switchgear.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        use_help_format(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=_Group, epilog=_EPILOG)
@server_option
@click.pass_context
def dwork(ctx: click.Context, server: str | None) -> None:
    """Graphs of tasks: create, steal and complete them on a dwork server, or run them here.

    The commands are those of dquery, with more of them, and with a limit to how long they wait for an answer.
    """
    ctx.obj = read_server(server)
