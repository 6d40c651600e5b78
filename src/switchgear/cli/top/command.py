"""`switchgear top`: the command, and the loop that asks the server and reads keys."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click

from switchgear.cli.main import has_no_colors
from switchgear.cli.output import json_option, print_json, server_option, text_of
from switchgear.cli.top.screen import KeyCommand, Screen
from switchgear.cli.top.views import VIEWS, VerbServer
from switchgear.cli.top.visible_overview import VisibleOverview
from switchgear.client.gearman.blocking import Client
from switchgear.errors import ServerRefused, ServerUnreachable
from switchgear.verbs.completeness import told_incomplete

__all__ = ["top"]

KEY_SECONDS: Final = 0.05  # how soon the screen follows a key
COLOR: Final = re.compile(r"\x1b\[[39][0-9]m")


@click.command(
    epilog="""\b
Examples:
  switchgear top
  switchgear top --view workers --filter resize
  switchgear top --once --json | jq '.overview.jobs.ready'
"""
)
@server_option
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, metavar="SECONDS",
              help="The time between two updates.")  # fmt: skip
@click.option("--view", type=click.Choice([view.title.split()[0] for view in VIEWS]), default="functions",
              show_default=True, help="The list to begin with.")  # fmt: skip
@click.option("--filter", "filter_text", default="", metavar="TEXT", help="Show only rows that contain this text.")
@click.option("--once", is_flag=True, help="Print the screen once, without waiting for keys.")
@json_option("With --once: write one JSON object: overview, functions, workers, running, dead.")
def top(server: str, interval: float, view: str, filter_text: str, once: bool, as_json: bool) -> None:
    """Show functions, workers and jobs on the terminal, updated live.

    The keys are shown at the bottom of the screen; ? shows all of them. Pausing, cancelling and retrying ask first.
    """
    if as_json and not once:
        raise click.UsageError("--json goes with --once.")
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("This needs a terminal; --once prints one screen.")
    if not once and os.environ.get("TERM") == "dumb":
        raise click.UsageError("This terminal cannot move its cursor (TERM=dumb); --once prints one screen.")
    if as_json:
        with Client(server) as client:
            print_json(_everything(client))
        return
    screen = Screen(server, next(each for each in VIEWS if each.title.split()[0] == view), filter_text=filter_text)
    monitor = Monitor(server, screen)
    try:
        if once:
            monitor.ask()
            for line in screen.all_lines(_size()[0]):
                click.echo(line)
        else:
            monitor.run(interval)
    finally:
        monitor.close()


def _everything(server: VerbServer) -> dict[str, Any]:
    names = ("functions", "workers", "running", "dead")
    return {"overview": VisibleOverview().ask(server)} | {
        name: list(view.ask(server)) for name, view in zip(names, VIEWS, strict=True)
    }


def _size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines


class Monitor:
    """Asks a server again and again, and shows its answers on a screen."""

    def __init__(self, server: str, screen: Screen) -> None:
        self._server = server
        self._screen = screen
        self._client: Client | None = None
        self._overview = VisibleOverview()
        self._lacking = ""  # what is said about servers that did not answer
        self._done: dict[str, tuple[float, int]] = {}  # by function: when it was last asked, and what was done by then

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(self) -> None:
        """Ask the server for everything that the screen shows; raises ServerUnreachable."""
        if self._client is None:
            self._client = Client(self._server)
        overview = self._overview.ask(self._client)
        objects = self._screen.view.ask(self._client)
        if self._screen.view.title == "functions":
            objects = self._with_rates(objects, overview["at"])
        self._screen.show(overview, objects, overview["at"])
        self._show_incomplete(self._client.incomplete)

    def _show_incomplete(self, incomplete: Mapping[str, Any] | None) -> None:
        """Say that servers did not answer, until they do."""
        if self._screen.message == self._lacking:
            self._screen.message = ""
        self._lacking = "" if incomplete is None else told_incomplete(self._screen.view.title, incomplete)
        if self._lacking:
            self._screen.message = self._lacking

    def _with_rates(self, functions: Sequence[Mapping[str, Any]], at: float) -> list[Mapping[str, Any]]:
        """The functions with how many jobs were done per second since the server was last asked."""
        before, self._done = self._done, {text_of(each["name"]): (at, each["done"]) for each in functions}
        found: list[Mapping[str, Any]] = []
        for each in functions:
            last_at, last_done = before.get(text_of(each["name"]), (at, 0))
            rate = (each["done"] - last_done) / (at - last_at) if at > last_at else None
            found.append({**each, "done_per_second": rate})
        return found

    def run(self, interval: float) -> None:
        """Show the server until the user quits."""
        import logging

        from switchgear.cli.top.terminal import full_screen  # termios is not there on every system

        logging.getLogger("switchgear").addHandler(logging.NullHandler())  # the screen shows what the log would

        next_at = time.monotonic()
        shown: tuple[tuple[int, int], list[str]] = ((0, 0), [])
        with full_screen() as keys:
            while True:
                now = time.monotonic()
                if now >= next_at and not self._screen.is_held:
                    self._try(self.ask)
                    next_at = now + interval
                size = _size()
                lines = self._screen.lines(*size)
                if (size, lines) != shown or keys.was_left:
                    text = "\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J"
                    sys.stdout.write(COLOR.sub("", text) if has_no_colors() else text)
                    sys.stdout.flush()
                    shown = (size, lines)
                    keys.was_left = False
                view = self._screen.view
                for key in keys.keys(min(interval, max(KEY_SECONDS, next_at - now))):
                    command = self._screen.press(key)
                    if command == "quit":
                        return
                    if isinstance(command, KeyCommand):
                        self._try(partial(self._obey, command))
                        next_at = now
                if self._screen.view is not view:
                    next_at = now

    def _try(self, action: Callable[[], None]) -> None:
        """Do something with the server; a failure is shown, and the connection made anew the next time."""
        try:
            action()
        except ServerRefused as error:
            self._screen.message = error.text
        except (ServerUnreachable, OSError, TimeoutError) as error:
            self._screen.message = str(error)
            self.close()

    def _obey(self, command: KeyCommand) -> None:
        if self._client is None:
            self._client = Client(self._server)
        client, screen = self._client, self._screen
        if command.verb != "details":
            subject = (
                {"function": command.subject} if command.verb in ("pause", "resume") else {"handle": command.subject}
            )
            client.control(command.verb, **subject)
            screen.message = f"{command.subject}: {command.verb} done"
            return
        entry = screen.current()
        if entry is None:
            return
        if "handle" in entry.about:
            answer = client.control("job", handle=entry.key)
            reasons = client.control("explain", handle=entry.key)["reasons"]
            screen.show_details(answer, reasons)
        else:
            screen.show_details(entry.about, ())
