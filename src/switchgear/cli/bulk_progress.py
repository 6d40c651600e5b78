"""Runs a bulk action for `switchgear cancel` and `retry`, and shows its progress."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import click

from switchgear.cli.progress import ProgressBar
from switchgear.client.gearman.blocking import Client
from switchgear.errors import ClientError

__all__ = ["change_in_bulk"]

MOST_AT_A_TIME: Final = 1_000_000  # what a server takes in one action
PAUSE_SECONDS: Final = 0.1


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
    bar = ProgressBar(word)
    try:
        while progress["state"] == "running":
            time.sleep(PAUSE_SECONDS)
            (progress,) = client.control("bulk_actions", id=progress["id"])
            bar.show(progress["handled"], progress["matched"])
    except KeyboardInterrupt:
        with suppress(ClientError):
            progress = client.control("abort_bulk", id=progress["id"])
        bar.end()
        click.echo(f"aborted: {progress['changed']} of {progress['matched']} {word}", err=True)
        raise
    finally:
        bar.end()
    changed: int = progress["changed"]
    return changed
