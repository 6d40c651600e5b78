"""`switchgear limit`: concurrency and rate limits of a function, and fair hand-out by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from switchgear.cli.output import json_option, print_json, printable, server_option
from switchgear.cli.verb_options import verb_options
from switchgear.client.gearman.blocking import Client
from switchgear.units import exact_duration

__all__ = ["limit", "limits_text"]


@click.command(
    epilog="""\b
Examples:
  switchgear limit resize                          show its limits
  switchgear limit resize --concurrency 4          at most four at once, whatever the number of workers
  switchgear limit mail --rate 10/s                ten starts a second; also 100/h, 5/30s, 1/m
  switchgear limit import --key-concurrency 1 --fair
  switchgear limit mail --rate none                as often as there are workers
"""
)
@click.argument("function")
@verb_options("limit", "concurrency", "rate", "key_concurrency", "key_rate", "fair")
@server_option
@json_option("Write one JSON object: function and policy.")
def limit(function: str, server: str, as_json: bool, **limits: Any) -> None:
    """Show or set the concurrency and rate limits of a function.

    Limits apply to all workers of all protocols together, and are stored. Limits that you do not give do not change. A
    job has the key that its submitter set; limits per key do not apply to jobs without a key. Limits that a Python
    program declares are set again whenever a worker of that program connects.
    """
    with Client(server) as client:
        answer = client.control("limit", function=function, **limits)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{printable(answer['function'])}: {limits_text(answer['policy']) or 'no limits'}")


def limits_text(policy: Mapping[str, Any] | None) -> str:
    """The limits as text for a table; empty if there are none."""
    if policy is None:
        return ""
    words = []
    for prefix, suffix in (("", ""), ("key_", " per key")):
        if policy[f"{prefix}concurrency"]:
            words.append(f"{policy[f'{prefix}concurrency']} at once{suffix}")
        if policy[f"{prefix}rate"]:
            words.append(f"{_rate_text(*policy[f'{prefix}rate'])}{suffix}")
    if policy["fair"]:
        words.append("keys in turn")
    return ", ".join(words)


def _rate_text(count: int, seconds: float) -> str:
    duration = exact_duration(seconds)
    number = duration.rstrip("dhms")
    return f"{count}/{duration.removeprefix(number) if number == '1' else duration}"
