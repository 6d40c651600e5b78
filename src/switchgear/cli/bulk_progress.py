"""Runs a bulk action for `switchgear cancel` and `retry`, and shows how far it is."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any, Final

import click

from switchgear.client.gearman.blocking import Client
from switchgear.errors import ClientError

__all__ = ["change_in_bulk"]

MOST_AT_A_TIME: Final = 1_000_000  # what a server takes in one action
PAUSE_SECONDS: Final = 0.1
# How often progress is told where lines cannot be written over.
LINE_SECONDS: Final = 5.0


def change_in_bulk(client: Client, action: str, selection: dict[str, Any], most: int | None, word: str) -> int:
    """Cancel or retry all jobs that match, or as many; returns how many were changed.  Ctrl-C aborts the action."""
    changed = 0
    left = most
    while left is None or left > 0:
        limit = MOST_AT_A_TIME if left is None else min(left, MOST_AT_A_TIME)
        progress = client.control("bulk", action=action, **selection, limit=limit)
        changed += _finished(client, progress, word)
        if progress["matched"] < limit:
            break
        if left is not None:
            left -= limit
    return changed


def _finished(client: Client, progress: dict[str, Any], word: str) -> int:
    """Wait for the end of an action, and say how far it is; returns how many jobs it has changed."""
    shown = _ProgressLine(word)
    try:
        while progress["state"] == "running":
            time.sleep(PAUSE_SECONDS)
            (progress,) = client.control("bulk_actions", id=progress["id"])
            shown.show(progress["handled"], progress["matched"])
    except KeyboardInterrupt:
        with suppress(ClientError):
            progress = client.control("abort_bulk", id=progress["id"])
        shown.end()
        click.echo(f"aborted: {progress['changed']} of {progress['matched']} {word}", err=True)
        raise
    shown.end()
    changed: int = progress["changed"]
    return changed


class _ProgressLine:
    """A line of standard error that is written over and over, or a line now and then if that is not a terminal."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._told_at = time.monotonic()
        self._is_open = False

    def show(self, handled: int, matched: int) -> None:
        now = time.monotonic()
        if not self._is_terminal and now - self._told_at < LINE_SECONDS:
            return
        self._told_at = now
        text = f"{self._word} {handled:,} of {matched:,}"
        click.echo(f"\r{text}" if self._is_terminal else text, err=True, nl=not self._is_terminal)
        self._is_open = self._is_terminal

    def end(self) -> None:
        if self._is_open:
            click.echo("", err=True)
            self._is_open = False
