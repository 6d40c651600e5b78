"""`switchgear submit`: submits a job, and waits for its result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import click

from switchgear.cli.job_options import submit_job_options
from switchgear.cli.main import ExitCode
from switchgear.cli.output import (
    bytes_of,
    complain,
    duration_option,
    fit_for,
    json_option,
    print_json,
    printable,
    server_option,
)
from switchgear.cli.progress import ProgressBar
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.submit_request import ExtendedOptions
from switchgear.client.gearman.submitted_job import Submission, Update, UpdateKind
from switchgear.errors import JobFailed, SwitchgearError
from switchgear.json_bytes import plain

__all__ = ["submit"]

HINT_SECONDS = 2.0  # a job that no worker can do has waited for long enough to say so

_EPILOG = """\b
Examples:
  switchgear submit reverse hello
  switchgear submit resize - < photo.jpg > small.jpg
  switchgear submit --background --unique order-4711 invoice '{"order": 4711}'
  switchgear submit --background --at +5m remind 'tea is ready'
  switchgear submit --background --after H:myhost:17 --on-failure run cleanup
  switchgear submit --timeout 30 --json report | jq -r .result

\b
WHEN is +30s, +5m, +1h30m or +2d from now; 2030-01-31T18:00, in local time unless it has a timezone;
or seconds since the epoch.

\b
Exit codes:
    0  the job is done, or with --background: accepted
    1  the job failed, or the server refused it
    2  wrong usage
    3  the server cannot be reached, or the connection was lost before the job's end
    4  the job was not done within --timeout
  130  interrupted; the job is treated as with --timeout
"""


@click.command(epilog=_EPILOG)
@click.argument("function")
@click.argument("payload", required=False)
@click.option("--background", is_flag=True, help="Print the handle of the job, and do not wait for its result.")
@click.option(
    "--unique",
    default="",
    metavar="KEY",
    help="Share one job with all submissions of this key, while the job is unfinished."
    " The key - stands for the payload itself.",
)
@duration_option(
    "--timeout",
    "The longest wait for the result. After that, a running job continues, and its result is lost; if the job is still"
    " queued and no other client waits for it, the server drops it.",
)
@submit_job_options
@server_option
@json_option(
    "Write one JSON object at the end: handle, state (submitted, done, failed, timed_out), result and error."
    ' Bytes that are not UTF-8 are {"base64": "..."}.'
)
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    function: str,
    payload: str | None,
    background: bool,
    priority: str,
    unique: str,
    at: float | None,
    timeout: float | None,
    run_timeout: float | None,
    attempts_limit: int | None,
    after: tuple[str, ...],
    expires: float | None,
    server: str,
    as_json: bool,
    **others: Any,
) -> None:
    """Submit a job of FUNCTION and wait for its result, unless you give --background.

    PAYLOAD is the input of the job; if it is - or absent, the command reads standard input, unless that is a terminal.
    It writes the result to standard output byte for byte, partial results immediately, and warnings to standard error.

    Options marked *, and --at without --background or with another --priority, require a switchgear server; everything
    else works with any Gearman server.
    """
    if background and timeout is not None:
        raise click.UsageError("--timeout is about waiting, and --background does not wait; see --run-timeout.")
    given = _extended_options(others, unique=unique, after=after)
    with Client(server) as client:
        submission = client.submit(
            os.fsencode(function),
            _read_payload(payload),
            background=background,
            priority=priority,
            unique=os.fsencode(unique),
            at=at,
            timeout=run_timeout or 0.0,
            attempts_limit=attempts_limit,
            after=after,
            expires=expires,
            **given,
        )
        if background and as_json:
            print_json(_object(submission, "submitted"))
        elif background:
            click.echo(printable(submission.handle))
        elif as_json:
            ctx.exit(_wait_for_json(client, submission, timeout))
        else:
            ctx.exit(_wait(client, submission, timeout))


def _extended_options(options: dict[str, Any], *, unique: str, after: tuple[str, ...]) -> ExtendedOptions:
    """The extended options that were given."""
    given = {name: value for name, value in options.items() if value is not None}
    if not unique and given.keys() & {"unique_scope", "unique_policy", "unique_for"}:
        raise click.UsageError("--unique-scope, --unique-policy and --unique-for are about the key given by --unique.")
    if not after and "on_failure" in given:
        raise click.UsageError("--on-failure is about the jobs named by --after.")
    return cast(ExtendedOptions, given)


def _read_payload(payload: str | None) -> bytes:
    if payload is not None and payload != "-":
        return os.fsencode(payload)
    stdin = sys.stdin.buffer
    return b"" if payload is None and stdin.isatty() else stdin.read()


def _updates(client: Client, submission: Submission, timeout_seconds: float | None) -> Iterator[Update]:
    """The updates of a job; says on standard error if the job waits because no worker can do it."""
    first_seconds = HINT_SECONDS if timeout_seconds is None else min(HINT_SECONDS, timeout_seconds)
    try:
        yield from submission.updates(first_seconds)
        return
    except TimeoutError:
        if first_seconds == timeout_seconds:
            raise
    _say_if_no_worker(client, submission)
    yield from submission.updates(None if timeout_seconds is None else timeout_seconds - first_seconds)


def _say_if_no_worker(client: Client, submission: Submission) -> None:
    try:
        explanation = client.control("explain", handle=submission.handle)
        if not any(reason["word"] == "no_worker" for reason in explanation["reasons"]):
            return
        rows = client.control("functions")
    except SwitchgearError:
        return  # only a switchgear server knows
    from difflib import get_close_matches  # here, because it takes 10 ms to load

    function = os.fsdecode(bytes_of(explanation["function"]))
    names = [os.fsdecode(bytes_of(row["name"])) for row in rows if row["workers"]]
    # Tasks are called module.function, and people leave the module out.
    nearest = [name for name in names if name.endswith(f".{function}")] or get_close_matches(function, names, n=1)
    hint = f"; did you mean {printable(nearest[0])}?" if nearest else ""
    complain(f"job {submission.handle} waits: no worker that can do {printable(function)} is connected{hint}")


# --- for people and pipes ---


def _wait(client: Client, submission: Submission, timeout_seconds: float | None) -> ExitCode:
    stdout = sys.stdout.buffer
    stderr = sys.stderr.buffer
    end: Update | None = None
    try:
        with ProgressBar() as bar:
            for update in _updates(client, submission, timeout_seconds):
                end = update
                if update.kind is UpdateKind.STATUS and update.denominator:
                    bar.show(update.numerator, update.denominator)
                elif update.kind in (UpdateKind.DATA, UpdateKind.COMPLETE):
                    bar.hide()
                    _write(stdout, update.data)
                elif update.kind is UpdateKind.WARNING:
                    bar.hide()
                    _write(stderr, update.data)
    except TimeoutError:
        complain(f"job {submission.handle} was not done within {timeout_seconds:g} s")
        return ExitCode.TIMED_OUT
    assert end is not None
    if end.kind is UpdateKind.COMPLETE:
        return ExitCode.SUCCESS
    said = end.data if end.kind is UpdateKind.EXCEPTION else b""
    reason = (said.strip() or _known_reason(client, submission)).decode("utf-8", "backslashreplace").strip()
    complain(f"job {submission.handle} failed" + (f": {reason}" if reason else ""))
    return ExitCode.FAILED


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(fit_for(stream, data))
    stream.flush()


def _known_reason(client: Client, submission: Submission) -> bytes:
    """The reason of a failure that no worker has reported: the job expired, was cancelled, or its attempts are spent.

    The protocol's word for the end has no room for this, so it takes a question that only a switchgear server answers.
    """
    try:
        job = client.control("job", handle=submission.handle)
    except SwitchgearError:
        return b""
    if job["state"] in ("expired", "cancelled"):
        return str(job["state"]).encode()
    return bytes_of(job["error"])


# --- for programs ---


def _wait_for_json(client: Client, submission: Submission, timeout_seconds: float | None) -> ExitCode:
    try:
        updates = list(_updates(client, submission, timeout_seconds))
        submission.wait()  # at its end; raises the error of a job that failed
    except TimeoutError:
        print_json(_object(submission, "timed_out"))
        return ExitCode.TIMED_OUT
    except JobFailed as failed:
        print_json(_object(submission, "failed", error=failed.error or _known_reason(client, submission)))
        return ExitCode.FAILED
    parts = [update.data for update in updates if update.kind in (UpdateKind.DATA, UpdateKind.COMPLETE)]
    print_json(_object(submission, "done", result=b"".join(parts)))
    return ExitCode.SUCCESS


def _object(
    submission: Submission, state: str, result: bytes | None = None, error: bytes | None = None
) -> dict[str, object]:
    return {
        "handle": submission.handle,
        "state": state,
        "result": None if result is None else plain(result),
        "error": None if error is None else plain(error),
    }
