"""`switchgear nodes`: the servers that share the jobs in one PostgreSQL."""

from __future__ import annotations

import click

from switchgear.cli.output import Column, json_option, print_json, print_table, server_option, text_of
from switchgear.client.gearman.blocking import Client
from switchgear.units import short_duration

__all__ = ["nodes"]


@click.command(
    epilog="""\b
Examples:
  switchgear nodes
  switchgear nodes --json | jq -r '.[] | select(.role == "owner") | .name'
"""
)
@server_option
@json_option("Write a JSON array, an object for each node.")
def nodes(server: str, as_json: bool) -> None:
    """List the nodes of a cluster, with their role and the time since their last heartbeat.

    You can send this to any node. The list is empty if the server is not part of a cluster.
    """
    with Client(server) as client:
        found = client.control("nodes")
    if as_json:
        print_json(found)
        return
    columns = [
        Column("NAME", wrap=True),
        Column("ADDRESS", wrap=True),
        Column("ROLE"),
        Column("VERSION", drop=1),
        Column("SILENT", right=True),
    ]
    rows = [
        [node["name"], node["address"], node["role"], node["version"], short_duration(node["silent_seconds"])]
        for node in found
    ]
    if sum(node["role"] in ("owner", "leaving") for node in found) > 1:
        columns.append(Column("PARTITIONS", right=True))
        for row, node in zip(rows, found, strict=True):
            row.append(str(node["partitions"]))
    if any(node.get("placed") for node in found):
        columns.append(Column("PLACED", wrap=True))
        for row, node in zip(rows, found, strict=True):
            row.append(" ".join(map(text_of, node["placed"])))
    print_table(columns, rows)
