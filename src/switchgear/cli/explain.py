"""`switchgear explain`: why a job waits, where it runs, or how it ended."""

from __future__ import annotations

import click

from switchgear.cli.main import ExitCode
from switchgear.cli.output import complain, json_option, print_json, printable, server_option, text_of
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.error_codes import JOB_NOT_FOUND
from switchgear.errors import ServerRefused

__all__ = ["explain"]


@click.command(
    epilog="""\b
Examples:
  switchgear explain H:myhost:42
  switchgear explain
  switchgear explain --json H:myhost:42 | jq -r '.reasons[].word'
"""
)
@click.argument("handle", required=False)
@server_option
@json_option("Write one JSON object: handle, function, state, and reasons, an array of word, text and data.")
@click.pass_context
def explain(ctx: click.Context, handle: str | None, server: str, as_json: bool) -> None:
    """Show why a job waits, where it runs, or how it ended; or why the server refuses submissions.

    Name the job by its HANDLE, which its submitter received, or its number, the last part of the handle.

    Without HANDLE, show whether the server refuses submissions, and why. If memory is full, also show the function and
    the connection that use the most.

    A job can have several reasons at once; the most important comes first. Exits with 1 if the server does not know the
    job.
    """
    try:
        with Client(server) as client:
            if handle is None:
                answer = client.control("explain_server")
            else:
                answer = client.control("explain", handle=handle)
    except ServerRefused as error:
        if error.code != JOB_NOT_FOUND:
            raise
        complain(f"{handle}: {error.text}")
        ctx.exit(ExitCode.FAILED)
    if as_json:
        print_json(answer)
        return
    if handle is None:
        for reason in answer["reasons"]:
            click.echo(printable(reason["text"]))
        return
    where = f" at {printable(answer['node'])}" if "node" in answer else ""
    placed = ", where its function was placed" if answer.get("placed") else ""
    click.echo(
        f"{printable(answer['handle'])} ({printable(text_of(answer['function']))}) is {answer['state']}{where}{placed}"
    )
    for reason in answer["reasons"]:
        click.echo(f"  {printable(reason['text'])}")
