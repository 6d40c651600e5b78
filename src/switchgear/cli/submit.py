"""`switchgear submit`: submits a job, and waits for its result."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

import click

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
    when_option,
)
from switchgear.client.gearman.blocking import Client
from switchgear.client.gearman.submit_request import ExtendedOptions
from switchgear.client.gearman.submitted_job import Submission, Update, UpdateKind
from switchgear.errors import JobFailed, SwitchgearError
from switchgear.json_bytes import plain
from switchgear.model import PRIORITY_NAMES, EdgePolicy, UniquePolicy, UniqueScope

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["submit"]

_EPILOG = """\b
Examples:
  switchgear submit reverse hello
  switchgear submit resize - < photo.jpg > small.jpg
  switchgear submit --background --unique order-4711 invoice '{"order": 4711}'
  switchgear submit --background --at +5m remind 'tea is ready'
  switchgear submit --background --after H:myhost:17 --on-failure run cleanup
  switchgear submit --timeout 30 --json report | jq -r .result

\b
WHEN is +30s, +5m, +1h30m or +2d from now; 2030-01-31T18:00, local unless a zone is given;
or seconds since the epoch.

\b
Exit codes:
    0  the job is done, or with --background: taken
    1  the job failed, or the server did not take it
    2  wrong usage
    3  the server cannot be reached, or the connection was lost before the job's end
    4  --timeout: still not done
  130  interrupted; what becomes of the job is the same as with --timeout
"""


def _words(policies: type[EdgePolicy | UniquePolicy | UniqueScope]) -> click.Choice[str]:
    return click.Choice([policy.name.lower() for policy in policies], case_sensitive=False)


@click.command(epilog=_EPILOG)
@click.argument("function")
@click.argument("payload", required=False)
@click.option("--background", is_flag=True, help="Do not wait: print the job's handle.")
@click.option(
    "--priority",
    type=click.Choice(PRIORITY_NAMES, case_sensitive=False),
    default="normal",
    show_default=True,
    help="Which of the function's queues it goes to.",
)
@click.option(
    "--unique",
    default="",
    metavar="KEY",
    help="Share one job with all submissions of this key, as long as it is unfinished."
    " The key - stands for the payload itself.",
)
@click.option("--unique-scope", type=_words(UniqueScope), help="How long the unique key is its own. *")
@click.option("--unique-policy", type=_words(UniquePolicy), help="What to do if another job has the unique key. *")
@duration_option("--unique-for", "The unique key is its own for so long, even if it ends before. *")
@when_option("--at", "Do not start it earlier.")
@duration_option(
    "--timeout",
    "Wait no longer than this. What the job does then: if it is running it goes on, and its result is lost; if it is"
    " still queued and nobody else waits for it, the server drops it.",
)
@duration_option("--run-timeout", "Take the job from a worker that runs it for longer than this. *")
@click.option(
    "--attempts",
    type=click.IntRange(0),
    metavar="N",
    help="Start it at most so often when workers are lost or time out, 0 for any number. *",
)
@click.option(
    "--crashes",
    type=click.IntRange(0),
    metavar="N",
    help="Give it up when so many workers were lost with it, 0 for never; they do not count as attempts then. *",
)
@click.option(
    "--after",
    multiple=True,
    metavar="HANDLE",
    help="Do not start it before this job is done; may be given several times. *",
)
@click.option("--on-failure", type=_words(EdgePolicy), help="What becomes of it if one of those does not succeed. *")
@when_option("--expires", "Give it up if it has not started by then. *")
@click.option("--key", metavar="KEY", help="Whose job it is, for limits by key and fair turns. *")
@duration_option("--retention", "How long it is remembered after its end. Default: the server's setting. *")
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
    attempts: int | None,
    after: tuple[str, ...],
    expires: float | None,
    server: str,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Submit a job of FUNCTION, and wait for its result unless told not to.

    PAYLOAD is the job's input; if it is - or left out, standard input is read, except from a terminal. The result goes
    to standard output byte for byte, parts of it as they come; warnings go to standard error.

    Options marked * and --at without --background or with another --priority need a switchgear server; everything
    else works with any Gearman server.
    """
    if background and timeout is not None:
        raise click.UsageError("--timeout is about waiting, and --background does not wait; see --run-timeout.")
    given = _extended_options(wishes, unique=unique, after=after)
    with Client(server) as client:
        submission = client.submit(
            os.fsencode(function),
            _read_payload(payload),
            background=background,
            priority=priority,
            unique=os.fsencode(unique),
            at=at,
            run_timeout_seconds=run_timeout or 0.0,
            attempts=attempts,
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
    if "unique_for" in given:
        given["unique_seconds"] = given.pop("unique_for")
    return cast(ExtendedOptions, given)


def _read_payload(payload: str | None) -> bytes:
    if payload is not None and payload != "-":
        return os.fsencode(payload)
    stdin = sys.stdin.buffer
    return b"" if payload is None and stdin.isatty() else stdin.read()


# --- for people and pipes ---


def _wait(client: Client, submission: Submission, timeout_seconds: float | None) -> ExitCode:
    stdout = sys.stdout.buffer
    stderr = sys.stderr.buffer
    end: Update | None = None
    try:
        with _ProgressBar() as bar:
            for update in submission.updates(timeout_seconds):
                end = update
                if update.kind is UpdateKind.STATUS:
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


class _ProgressBar:
    """A progress bar on standard error, if that is a terminal and the job reports progress."""

    def __init__(self) -> None:
        self._wanted = sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def show(self, numerator: int, denominator: int) -> None:
        if not self._wanted or not denominator:
            return
        if self._progress is None:
            from rich.console import Console  # here, because most jobs do not report progress
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=denominator)
        assert self._task is not None
        self._progress.start()
        self._progress.update(self._task, completed=numerator, total=denominator)

    def hide(self) -> None:
        """Remove the bar before output that may go to the same terminal."""
        if self._progress is not None:
            self._progress.stop()


# --- for programs ---


def _wait_for_json(client: Client, submission: Submission, timeout_seconds: float | None) -> ExitCode:
    try:
        result = submission.wait(timeout_seconds)
    except TimeoutError:
        print_json(_object(submission, "timed_out"))
        return ExitCode.TIMED_OUT
    except JobFailed as failed:
        print_json(_object(submission, "failed", error=failed.error or _known_reason(client, submission)))
        return ExitCode.FAILED
    print_json(_object(submission, "done", result=result))
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
