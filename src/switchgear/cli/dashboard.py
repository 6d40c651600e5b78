"""`switchgear dashboard`: opens the dashboard of a server, or of an embedded directory, in a browser."""

from __future__ import annotations

import json
import signal
import time
import webbrowser
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, urlsplit

import click
from click.core import ParameterSource

from switchgear.app.server_locations import EMBEDDED_SCHEME, ServerLocation
from switchgear.cli.main import UNREACHABLE_HINT
from switchgear.cli.output import complain, server_location, server_url_option
from switchgear.client.address import HttpServerAddress
from switchgear.client.gearman.blocking import Client
from switchgear.client.sockets import DEFAULT_TIMEOUT_SECONDS, describe_os_error
from switchgear.dashboard.address import dashboard_url
from switchgear.errors import ConfigError, ServerRefused, ServerUnreachable
from switchgear.text import printable

__all__ = ["EmbeddedDashboard", "dashboard"]

# How soon the dashboard of a directory is there again after the program that ran it has ended.
LOOK_SECONDS: Final = 1.0
_MOST_ANSWER_BYTES: Final = 65_536


@click.command(
    epilog="""\b
Examples:
  switchgear dashboard
  switchgear dashboard --server gearman://jobs.example.org --no-browser
  switchgear dashboard --embedded .switchgear
"""
)
@server_url_option
@click.option(
    "--embedded",
    metavar="DIRECTORY",
    help="The dashboard of the programs that use this directory (App()); the same as --server embedded:DIRECTORY.",
)
@click.option("--port", type=click.IntRange(1, 65_535), help="For --embedded: the port. Default: 4740, or a free one.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.pass_context
def dashboard(ctx: click.Context, server: str, embedded: str | None, port: int | None, no_browser: bool) -> None:
    """Open the dashboard of the server in a browser, and print its address.

    The command requests the HTTP address from the server. If it has a token or a client certificate, it requests a
    login code, with which the browser logs in. The code is valid for a minute, and once; the browser does not get the
    token. The printed address does not contain the code.

    With --embedded the command runs until Ctrl-C: the dashboard is in the program that runs the server of the
    directory, or in this command if no program does.
    """
    if embedded is not None and ctx.get_parameter_source("server") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--embedded and --server name different servers; give one of them.")
    place = server_location(server if embedded is None else f"{EMBEDDED_SCHEME}{embedded}")
    if place.directory is not None:
        ctx.meta[UNREACHABLE_HINT] = (
            "if a server keeps its jobs there (switchgear serve), ask that one: switchgear dashboard --server URL"
        )
        _show_embedded(EmbeddedDashboard(place, port or 0), no_browser)
        return
    if port is not None:
        raise click.UsageError("--port goes with --embedded; a server listens where its setting `listen` says.")
    address = place.address()
    with Client(str(address)) as client:
        listeners = [listener["url"] for listener in client.control("server")["listeners"]]
    url = dashboard_url(listeners, address.host)
    click.echo(url)
    if not no_browser:
        code = ""
        try:
            code = login_code(HttpServerAddress.parse(url))
        except (ConfigError, ServerUnreachable) as error:
            complain(f"the browser is not logged in: {error}")
        _open_browser(url + (f"#code={quote(code, safe='')}" if code else ""))


def _open_browser(url: str) -> None:
    if not webbrowser.open(url):
        click.echo("No browser could be started; open the address yourself.", err=True)


def _show_embedded(embedded: EmbeddedDashboard, no_browser: bool) -> None:
    """Print and open the address, and keep the dashboard open until the user ends the command."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    try:
        url = embedded.refresh()
        click.echo(url)
        if not no_browser:
            _open_browser(url)
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                new = embedded.refresh()
            except ServerUnreachable as error:
                complain(str(error))
                continue
            if new != url:
                url = new
                click.echo(url)
    except KeyboardInterrupt:
        return
    finally:
        embedded.close()


class EmbeddedDashboard:
    """The dashboard of a directory, whichever process runs its server at the moment."""

    def __init__(self, place: ServerLocation, port: int) -> None:
        self._place = place
        self._port = port
        self._at = ""  # the server that was asked last
        self._url = ""

    def refresh(self) -> str:
        """Have the dashboard opened if the server is another one than before; returns its URL.

        A new server opens it where it was, so that browsers find it again; elsewhere if it cannot.  Raises
        ServerUnreachable or ServerRefused.
        """
        address = str(self._place.address())
        if address != self._at:
            with Client(address) as client:
                try:
                    self._url = self._open(client, urlsplit(self._url).port or self._port)
                except ServerRefused:
                    if not self._url:
                        raise
                    self._url = self._open(client, 0)
            self._at = address
        return self._url

    def _open(self, client: Client, port: int) -> str:
        return str(client.control("open_dashboard", port=port)["url"])

    def close(self) -> None:
        """Stop the server, if this process runs it."""
        self._place.close()


def login_code(address: HttpServerAddress) -> str:
    """A code with which a browser logs in as this user; empty if none is needed, or this user has no credential.

    Raises ConfigError or ServerUnreachable.
    """
    token = address.token
    context = address.tls_context()
    if not token and not (context is not None and address.security.cert_file):
        return ""
    place = (address.host, address.port)
    connection = (
        HTTPConnection(*place, timeout=DEFAULT_TIMEOUT_SECONDS)
        if context is None
        else HTTPSConnection(*place, timeout=DEFAULT_TIMEOUT_SECONDS, context=context)
    )
    headers = {"Accept": "application/json", "Content-Length": "0"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.request("POST", f"{address.path}/v1/session/codes", headers=headers)
        response = connection.getresponse()
        answer: Any = json.loads(response.read(_MOST_ANSWER_BYTES))
    except (OSError, HTTPException, ValueError) as error:
        reason = describe_os_error(error) if isinstance(error, OSError) else "it does not answer as this server does"
        raise ServerUnreachable(f"{address}: {reason}") from None
    finally:
        connection.close()
    if not isinstance(answer, dict) or response.status != 201:
        detail = answer.get("detail") if isinstance(answer, dict) else None
        raise ServerUnreachable(f"{address}: {printable(str(detail or f'status {response.status}'))}")
    return str(answer.get("code") or "")
