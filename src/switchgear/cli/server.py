"""`switchgear server`: the state of a server, and what it holds in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from switchgear.cli.output import Column, json_option, print_json, print_table, printable, server_option
from switchgear.client.gearman.blocking import Client
from switchgear.units import short_bytes, short_duration

__all__ = ["server"]

# What peers make a server hold, in the words of the table.
_HELD_FOR: Final = {
    "jobs": "payloads and results of unfinished jobs",
    "history": "payloads and results of finished jobs",
    "input": "packets that are not complete",
    "output": "answers that peers have not read",
    "drafts": "fields of GearMonkey jobs beside their payloads and results",
    "subscriptions": "channels and patterns that peers subscribed to",
}


@click.command(
    epilog="""\b
Examples:
  switchgear server
  switchgear server --json | jq .memory
"""
)
@server_option
@json_option("Write one JSON object.")
def server(server: str, as_json: bool) -> None:
    """Show how the server is, and what it holds in memory.

    MEMORY is what clients and workers make the server hold, against the setting limits.memory_bytes. When it is full,
    submissions are refused, and connections with unfinished packets or unread answers are closed, the largest first.
    """
    with Client(server) as client:
        answer = client.control("server")
    if as_json:
        print_json(answer)
        return
    for name, value in _facts(answer):
        click.echo(f"{name:<12} {printable(value)}")
    memory = answer["memory"]
    click.echo()
    columns = [Column("MEMORY", right=True), Column("HELD FOR", wrap=True)]
    print_table(columns, ([short_bytes(memory[name]), words] for name, words in _HELD_FOR.items()))
    limit = short_bytes(memory["limit"]) if memory["limit"] else "no limit"
    click.echo(f"{short_bytes(memory['held'])} of {limit}")
    if answer["listeners"]:
        click.echo()
        _print_listeners(answer["listeners"])


def _facts(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    state = "draining" if answer["draining"] else "serving"
    if answer["storage_error"]:
        state = f"refusing jobs: {answer['storage_error']}"
    return [
        ("version", answer["version"]),
        ("process", f"{answer['pid']}, up for {short_duration(answer['uptime_seconds'])}"),
        ("state", state),
        ("store", answer["store"]),
        ("jobs", f"{answer['jobs']} of {answer['functions']} functions"),
        ("workers", f"{answer['workers']}, and {answer['connections']} connections in all"),
    ]


def _print_listeners(listeners: list[Mapping[str, Any]]) -> None:
    columns = [
        Column("LISTENER"),
        Column("CONNECTIONS", right=True),
        Column("INPUT", right=True),
        Column("OUTPUT", right=True),
        Column("LARGEST"),
    ]
    print_table(columns, map(_listener_row, listeners))


def _listener_row(listener: Mapping[str, Any]) -> list[str]:
    largest = listener["largest"]
    return [
        listener["url"],
        str(listener["connections"]),
        short_bytes(listener["input"]),
        short_bytes(listener["output"]),
        f"{largest['address']} {short_bytes(largest['input'] + largest['output'])}" if largest else "",
    ]
