"""`switchgear place`: which server owns a function, of several that share the work."""

from __future__ import annotations

from typing import Any

import click

from switchgear.cli.output import json_option, print_json, printable, server_option
from switchgear.cli.verb_options import given, verb_options
from switchgear.client.gearman.blocking import Client

__all__ = ["place"]


@click.command(
    epilog="""\b
Examples:
  switchgear place resize                       show where it is
  switchgear place resize --beside upload       at the server of upload, so that a workflow stays together
  switchgear place resize --partition 12
  switchgear place resize --by-name             where it was before it was placed
  switchgear place resize --shards 3            divided among three servers; 1 unites it again
"""
)
@click.argument("function")
@verb_options("place", "beside", "partition", "by_name", "shards")
@server_option
@json_option("Write one JSON object: function, partition, node, placed and shards.")
def place(function: str, server: str, as_json: bool, **options: Any) -> None:
    """Show or set which server owns a function, if several servers own functions (cluster.mode = owners).

    A function belongs to one of 64 partitions, and each partition to one server. The partition follows from the name of
    the function unless you place it. The jobs move at once; those that run may finish first, for five seconds at most.

    With --shards, a function that has no unfinished jobs is divided into several, which different servers own.
    """
    with Client(server) as client:
        answer = client.control("place", function=function, **given(options))
    if as_json:
        print_json(answer)
    elif answer["partition"] is None:
        click.echo(f"{printable(answer['function'])}: this server has all functions")
    elif answer.get("shards"):
        shards = answer["shards"]
        names = f"{printable(shards[0])} to {printable(shards[-1])}"
        click.echo(f"{printable(answer['function'])}: divided into {len(shards)} shards, {names}")
    else:
        owner = f"of {printable(answer['node'])}" if answer["node"] else "without an owner at this moment"
        placed = ", placed by an operator" if answer["placed"] else ""
        click.echo(f"{printable(answer['function'])}: partition {answer['partition']}, {owner}{placed}")
