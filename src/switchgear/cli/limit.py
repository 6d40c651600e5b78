"""`switchgear limit`: concurrency and rate limits of a function, and fair hand-out by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from switchgear.cli.output import json_option, print_json, printable, reading, server_option
from switchgear.client.gearman.blocking import Client

__all__ = ["limit", "limits_text"]

_NONE: Final = ("0", "none")
_UNITS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"), (0.001, "ms"))


def _rate(text: str) -> list[float]:
    """A rate as the CONTROL verb takes it."""
    from switchgear.app.task_options import Rate  # those who only list functions do without it

    if text.strip().lower() in _NONE:
        return [0, 0]
    return list(Rate.of(text, "a rate"))


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
@click.option("--concurrency", type=click.IntRange(0), metavar="N", help="Most jobs that run at once; 0: any number.")
@click.option(
    "--rate", callback=reading(_rate), metavar="N/TIME", help="Most starts in a time, such as 10/s or 100/h; none: any."
)
@click.option(
    "--key-concurrency", type=click.IntRange(0), metavar="N", help="Most jobs of each key that run at once; 0: any."
)
@click.option("--key-rate", callback=reading(_rate), metavar="N/TIME", help="Most starts of each key in a time.")
@click.option("--fair/--no-fair", default=None, help="Serve keys in turn, or jobs in the order of their arrival.")
@server_option
@json_option("Write one JSON object: function and policy.")
def limit(
    function: str,
    concurrency: int | None,
    rate: list[float] | None,
    key_concurrency: int | None,
    key_rate: list[float] | None,
    fair: bool | None,
    server: str,
    as_json: bool,
) -> None:
    """Show or set how many jobs of a function may run, and how often one may start.

    Limits hold for all workers together, of whatever protocol, and are kept. What is not given stays as it was. A job
    has the key that its submitter gave it; those without one have no limit by key. Limits that a Python program
    declares are set again whenever a worker of that program connects.
    """
    with Client(server) as client:
        answer = client.control(
            "limit",
            function=function,
            concurrency=concurrency,
            rate=rate,
            key_concurrency=key_concurrency,
            key_rate=key_rate,
            fair=fair,
        )
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
    for unit_seconds, unit in _UNITS:
        units = round(seconds / unit_seconds, 6)
        if units >= 1 and units == int(units):
            return f"{count}/{unit}" if units == 1 else f"{count}/{int(units)}{unit}"
    return f"{count}/{seconds:g}s"
