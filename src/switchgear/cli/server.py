"""`switchgear server`: the state of a server, and what it holds in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from switchgear.cli.output import (
    Column,
    insert_nodes,
    json_option,
    print_json,
    print_table,
    printable,
    server_option,
    text_of,
)
from switchgear.cli.verb_options import verb_options
from switchgear.client.gearman.blocking import Client
from switchgear.units import short_bytes, short_duration

__all__ = ["server"]

# Descriptions of the parts of the memory account, for the table.
_HELD_FOR: Final = {
    "jobs": "unfinished jobs",
    "held_keys": "unique keys held longer than their jobs",
    "limiters": "keys with limits of their own",
    "history": "payloads and results of finished jobs",
    "failures": "names and errors of jobs that ended without success",
    "drafts": "GearMonkey jobs not pushed yet, and their fields",
    "subscriptions": "channels and patterns that peers subscribed to",
    "schedules": "schedules and their payloads",
    "series": "figures of functions over time",
    "registrations": "functions, workers, and requests for jobs that wait",
    "input": "packets that are not complete",
    "output": "answers that peers have not read",
}


@click.command(
    epilog="""\b
Examples:
  switchgear server
  switchgear server --json | jq .memory
  switchgear server --connections
"""
)
@server_option
@click.option("--connections", "show_connections", is_flag=True, help="Show the connections that use the most memory.")
@verb_options("connections", "limit", limit={"help": "With --connections: the maximum number. Default: 100."})
@json_option("Write one JSON object.")
def server(server: str, show_connections: bool, limit: int | None, as_json: bool) -> None:
    """Show the state of the server and its memory use.

    MEMORY is the memory that clients and workers make the server hold, compared with the setting limits.memory_bytes.
    When it is full, the server refuses submissions, and closes connections with incomplete packets or unread answers,
    the largest first. `switchgear explain` then shows which function and connection use the most.

    With --connections, INPUT and OUTPUT are the incomplete packets and unread answers of a connection, JOBS is the
    number and memory of the unfinished jobs that it waits for, and SENT is the number of bytes sent to it. The list has
    connections over TCP, the largest first.
    """
    if limit is not None and not show_connections:
        raise click.UsageError("--limit goes with --connections.")
    with Client(server) as client:
        answer = client.control("connections", limit=limit) if show_connections else client.control("server")
    if as_json:
        print_json(answer)
    elif show_connections:
        _print_connections(answer)
    else:
        _print_server(answer)


def _print_server(answer: Mapping[str, Any]) -> None:
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


def _print_connections(answer: Mapping[str, Any]) -> None:
    columns = [
        Column("ADDRESS", wrap=True),
        Column("PROTOCOL", drop=3),
        Column("INPUT", right=True),
        Column("OUTPUT", right=True),
        Column("JOBS", right=True, drop=1),
        Column("SENT", right=True, drop=4),
        Column("NAME", wrap=True, drop=2),
    ]
    rows = [_connection_row(connection) for connection in answer["connections"]]
    insert_nodes(columns, rows, answer["connections"])
    print_table(columns, rows)
    more = answer["count"] - len(answer["connections"])
    if more:
        click.echo(f"and {more} more that hold less")


def _connection_row(connection: Mapping[str, Any]) -> list[str]:
    jobs = connection["waits_for"]
    return [
        connection["address"],
        connection["protocol"],
        short_bytes(connection["input"]),
        short_bytes(connection["output"]),
        f"{jobs}, {short_bytes(connection['waits_for_bytes'])}" if jobs else "0",
        short_bytes(connection["received"]),
        text_of(connection["client_id"]),
    ]


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
        Column("LISTENER", wrap=True),
        Column("CONNECTIONS", right=True),
        Column("INPUT", right=True),
        Column("OUTPUT", right=True),
        Column("LARGEST", wrap=True, drop=1),
    ]
    rows = [_listener_row(listener) for listener in listeners]
    insert_nodes(columns, rows, listeners)
    print_table(columns, rows)


def _listener_row(listener: Mapping[str, Any]) -> list[str]:
    largest = listener["largest"]
    return [
        listener["url"],
        str(listener["connections"]),
        short_bytes(listener["input"]),
        short_bytes(listener["output"]),
        f"{largest['address']} {short_bytes(largest['input'] + largest['output'])}" if largest else "",
    ]
