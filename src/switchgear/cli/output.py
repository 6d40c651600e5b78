"""Options, tables and JSON output of the commands that talk to a server."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import click
from click.core import ParameterSource

from switchgear.app.server_locations import ServerLocation, location_of
from switchgear.cli.main import UNREACHABLE_HINT
from switchgear.cli.tables import Column, table_lines
from switchgear.client.address import DEFAULT_URL, Locator
from switchgear.client.connection_security import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from switchgear.errors import ConfigError
from switchgear.text import printable, without_secrets
from switchgear.units import parse_duration, parse_when

__all__ = [
    "STATE_STYLES",
    "Column",
    "bytes_of",
    "complain",
    "duration_option",
    "fit_for",
    "insert_nodes",
    "json_option",
    "locators",
    "moment",
    "named_server_option",
    "print_json",
    "print_table",
    "printable",
    "reading",
    "report_line",
    "server_location",
    "server_option",
    "server_url_option",
    "servers_option",
    "shortened",
    "text_of",
    "when_option",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

SERVER_VARIABLE: Final = "SWITCHGEAR_SERVER"
# The variable that `App()` uses. A program and the commands beside it should use the same server.
APP_VARIABLE: Final = "SWITCHGEAR_URL"
DEFAULT_DIRECTORY: Final = ".switchgear"  # the default directory of an app
STATE_STYLES: Final = {
    "running": "cyan",
    "done": "green",
    "failed": "red",
    "dead": "bold red",
    "cancelled": "yellow",
    "expired": "yellow",
    "paused": "yellow",
}
_TEXT_COLUMNS: Final = 60  # of an error, a name or a message in a table


def reading(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that parses an option; `parse` raises ValueError or ConfigError."""

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(parse(each) for each in value)
            return None if value is None else parse(value)
        except (ValueError, ConfigError) as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return read


def when_option(name: str, help_text: str) -> Callable[[F], F]:
    """An option with a moment; its value is seconds since the epoch, or None."""
    callback = reading(lambda text: parse_when(text, time.time()))
    return click.option(name, metavar="WHEN", callback=callback, help=help_text)


def duration_option(name: str, help_text: str, default: str | None = None) -> Callable[[F], F]:
    """An option with a duration; its value is seconds, or None."""
    return click.option(name, metavar="SECONDS", default=default, callback=reading(parse_duration), help=help_text)


def server_location(url: str) -> ServerLocation:
    """The location of the server of a URL; raises ConfigError.

    With `embedded:PATH`, this process runs the server itself while it needs one, if no other does.  The directory must
    be there already: a mistyped path should not become one more queue.
    """
    place = location_of(url)
    if place.directory is not None and place.directory.is_file():
        raise ConfigError(f'"{url}": {place.directory} is not a directory')
    if place.directory is not None and not place.directory.is_dir():
        raise ConfigError(f'"{url}": there is no {place.directory}; it is made by the first program that uses it')
    return place


def _urls_in(text: str) -> list[str]:
    """The URLs in an environment variable, as `App()` reads them too."""
    return text.replace(",", " ").split() or [DEFAULT_URL]


def _server_address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The current address of the server, for commands that send one request."""
    url = _server_url(ctx, param, value)
    address: str = reading(lambda url: str(server_location(url).address()))(ctx, param, url)
    return address


def _server_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The URL of the server, for a command that finds it again when it has moved."""
    source = ctx.get_parameter_source("server")
    if source is ParameterSource.ENVIRONMENT:
        return _urls_in(value)[0]
    if source is ParameterSource.DEFAULT and Path(DEFAULT_DIRECTORY, "jobs.db").exists():
        hint = f"there is a queue in ./{DEFAULT_DIRECTORY}; to ask that: --server embedded:{DEFAULT_DIRECTORY}"
        ctx.meta[UNREACHABLE_HINT] = hint
    return value


def _server_urls(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The URLs of the servers, for commands that keep running and find them again."""
    if ctx.get_parameter_source("servers") is ParameterSource.ENVIRONMENT:
        value = tuple(_urls_in(" ".join(value)))
    urls: tuple[str, ...] = reading(lambda url: location_of(url).url)(ctx, param, value)
    return urls


def locators(urls: Iterable[str]) -> list[str | Locator]:
    """Servers as a `Worker` takes them: URLs, and a `Locator` for those that may move."""
    places = [server_location(url) for url in urls]
    return [place.url if place.directory is None else place for place in places]


def token_file_option(command: F) -> F:
    """The option `--token-file FILE`, which every connection of this process uses."""
    return click.option(
        "--token-file",
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        callback=_use_token_file,
        help="The file with the token that identifies you to the server. Default: SWITCHGEAR_TOKEN, then"
        " SWITCHGEAR_TOKEN_FILE.",
    )(command)


def _use_token_file(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        os.environ.pop(TOKEN_VARIABLE, None)
        os.environ[TOKEN_FILE_VARIABLE] = os.path.abspath(value)  # worker processes find it there too


def server_option(command: F) -> F:
    """The option `--server URL`; its value is the current address."""
    return _server_option(_server_address)(command)


def server_url_option(command: F) -> F:
    """The option `--server URL`; its value is the URL, for a command that keeps running."""
    return _server_option(_server_url)(command)


def _server_option(callback: Callable[[click.Context, click.Parameter, str], str]) -> Callable[[F], F]:
    option = click.option(
        "--server",
        callback=callback,
        metavar="URL",
        envvar=[SERVER_VARIABLE, APP_VARIABLE],
        default=lambda: DEFAULT_URL,
        help="The server: gearman://HOST:PORT, gearmans:// for TLS, http:// or https:// for its HTTP interface,"
        " gearman://HOST:PORT+HOST:PORT for any node of a cluster, or embedded:DIRECTORY for the embedded server of"
        f" programs which use the directory. Default: {SERVER_VARIABLE}, then {APP_VARIABLE}, then {DEFAULT_URL}.",
    )
    return lambda command: option(token_file_option(command))


def named_server_option(help_text: str) -> Callable[[F], F]:
    """The option `--server URL` of a command that needs none: its value is the current address, or None if neither the
    option nor a variable names one."""
    option = click.option(
        "--server",
        callback=lambda ctx, param, value: None if value is None else _server_address(ctx, param, value),
        metavar="URL",
        envvar=[SERVER_VARIABLE, APP_VARIABLE],
        help=help_text,
    )
    return lambda command: option(token_file_option(command))


def servers_option(command: F) -> F:
    """The option `--server URL`, any number of times; see `locators`."""
    command = token_file_option(command)
    return click.option(
        "--server",
        "servers",
        callback=_server_urls,
        metavar="URL",
        envvar=[SERVER_VARIABLE, APP_VARIABLE],
        multiple=True,
        default=lambda: (DEFAULT_URL,),
        help="A server to work for, gearman://HOST:PORT or embedded:DIRECTORY; may be given several times. Default: the"
        f" servers of the app; for a command, those in {SERVER_VARIABLE}, then {APP_VARIABLE}, then {DEFAULT_URL}.",
    )(command)


def json_option(help_text: str = "Write JSON, for programs.") -> Callable[[F], F]:
    """The option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def print_json(value: object) -> None:
    """Print a JSON value to standard output, indented on a terminal."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def complain(text: str) -> None:
    """Print an error message to standard error."""
    for line in text.splitlines():
        click.echo(f"switchgear: {printable(without_secrets(line))}", err=True)


# --- values ---


def text_of(value: object) -> str:
    """Text in a server's answer, which is in base64 if it is not UTF-8."""
    if isinstance(value, Mapping):
        return bytes_of(value).decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)


def shortened(text: str) -> str:
    """The first line of a text, as far as it fits into a table."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TEXT_COLUMNS else line[: _TEXT_COLUMNS - 1] + "…"


def bytes_of(value: object) -> bytes:
    """The bytes of text in a server's answer."""
    if isinstance(value, Mapping):
        return base64.b64decode(str(value.get("base64", "")))
    return text_of(value).encode()


def fit_for(stream: IO[Any], data: bytes) -> bytes:
    """A result or a name as it is written to a stream: every byte of it, unless the stream is a terminal.

    A terminal gets lines and tabs; the rest of what is not printable is written as in a Python string.
    """
    if not stream.isatty():
        return data
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c in "\n\t" else printable(c) for c in text).encode()


def report_line(program: str, text: str) -> str:
    """A log line of a running command: the time and the first line, with further lines indented below."""
    first, *others = [printable(line) for line in text.splitlines() if line.strip()] or [""]
    now = datetime.now().isoformat(" ", "milliseconds")
    return "\n".join([f"{now} {program}: {first}", *(f"    {line}" for line in others)])


def moment(epoch_seconds: float | None, precision: str = "seconds") -> str:
    """A local time as text; empty for None."""
    if not epoch_seconds:
        return ""
    try:
        return datetime.fromtimestamp(epoch_seconds).isoformat(" ", precision)
    except (ValueError, OverflowError, OSError):  # a submitter may have chosen any year
        return f"{epoch_seconds:.0f} s since 1970"


# --- tables ---


def insert_nodes(columns: list[Column], rows: list[list[str]], objects: Iterable[Mapping[str, Any]]) -> None:
    """Insert a second column with the node of each object, if the server is one of several that own functions."""
    nodes = [str(each.get("node", "")) for each in objects]
    if any(nodes):
        columns.insert(1, Column("NODE", wrap=True, drop=1))
        for row, node in zip(rows, nodes, strict=True):
            row.insert(1, node)


def print_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], styles: Mapping[str, str] = STATE_STYLES
) -> None:
    """Print a table: in colour and fitted to the screen on a terminal, else plain lines that are never cut.

    If the screen has no room for some columns, standard error says which.
    """
    import shutil  # which imports compression libraries

    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    lines, hidden = table_lines(columns, [[printable(cell) for cell in row] for row in rows], width, styles)
    for line in lines:
        click.echo(line)
    if hidden:
        click.echo(f"Not shown at {width} columns: {', '.join(hidden)}.", err=True)
