"""`switchgear signal`: tells a job that waits for it that something has happened."""

from __future__ import annotations

import click
import msgspec

from switchgear.app.app import App
from switchgear.cli.main import ExitCode
from switchgear.cli.output import complain, json_option, print_json, printable, server_option

__all__ = ["signal"]


@click.command(
    epilog="""\b
Examples:
  switchgear signal H:myhost:42 paid
  switchgear signal H:myhost:42 paid '{"amount": 12.5}'
  switchgear signal H:myhost:42 approval --approve --by ann
  switchgear signal H:myhost:42 approval --reject --by ann --comment 'too much'
  switchgear jobs --function switchgear.event --state scheduled    # what jobs wait for

\b
Exit codes:
  0  sent
  1  a signal of this name had come before, or the job is unknown or has ended
"""
)
@click.argument("handle")
@click.argument("name")
@click.argument("value", required=False)
@click.option("--approve/--reject", "approved", default=None, help="Approve or reject the job; instead of a VALUE.")
@click.option("--by", default="", metavar="NAME", help="Who approves or rejects.")
@click.option("--comment", default="", metavar="TEXT", help="Why.")
@server_option
@json_option("Write one JSON object: handle, name, and sent, false if a signal of this name had come before.")
@click.pass_context
def signal(
    ctx: click.Context,
    /,
    handle: str,
    name: str,
    value: str | None,
    approved: bool | None,
    by: str,
    comment: str,
    server: str,
    as_json: bool,
) -> None:
    """Send a signal to a job, whose task waits for it by `current_job().wait_for(NAME)`.

    VALUE is JSON, or else a text; without one it is null. The first signal of a NAME counts. It may come before the
    task waits for it.
    """
    if approved is None and (by or comment):
        raise click.UsageError("--by and --comment are for --approve and --reject.")
    if approved is not None and value is not None:
        raise click.UsageError("Give a VALUE, or one of --approve and --reject.")
    told = _value_of(value) if approved is None else {"approved": approved, "by": by, "comment": comment}
    with App(server, name="switchgear signal", run_here=False) as app:
        is_sent = app.signal(handle, name, told)
    if as_json:
        print_json({"handle": handle, "name": name, "sent": is_sent})
    elif is_sent:
        click.echo(f"{printable(handle)} was sent {printable(name)}")
    else:
        complain(f"{handle}: a signal {name} had come before; the first one counts")
    ctx.exit(ExitCode.SUCCESS if is_sent else ExitCode.FAILED)


def _value_of(text: str | None) -> object:
    """The value as JSON, or the text itself."""
    if text is None:
        return None
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return value
