"""`switchgear dashboard`: open the dashboard of a server in a browser."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from urllib.parse import quote

import click

from switchgear.cli.output import server_option
from switchgear.client.address import ServerAddress
from switchgear.client.gearman.blocking import Client
from switchgear.dashboard.address import dashboard_url

__all__ = ["dashboard"]


@click.command(
    epilog="""\b
Examples:
  switchgear dashboard
  switchgear dashboard --server gearman://jobs.example.org --no-browser
"""
)
@server_option
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def dashboard(server: str, no_browser: bool) -> None:
    """Open the dashboard of the server in a browser, and print its address.

    The server tells where it listens for HTTP. If SWITCHGEAR_TOKEN or SWITCHGEAR_TOKEN_FILE is set, the browser logs in
    with this token, and exchanges it for a cookie at once. The address that is printed has no token in it.
    """
    with Client(server) as client:
        listeners = [listener["url"] for listener in client.control("server")["listeners"]]
    url = dashboard_url(listeners, ServerAddress.parse(server).host)
    click.echo(url)
    if no_browser:
        return
    token = _token()
    login = f"#token={quote(token, safe='')}" if token else ""
    if not webbrowser.open(url + login):
        click.echo("No browser could be started; open the address yourself.", err=True)


def _token() -> str:
    """The token of this user, or nothing."""
    token = os.environ.get("SWITCHGEAR_TOKEN", "")
    file = os.environ.get("SWITCHGEAR_TOKEN_FILE", "")
    return token or (Path(file).read_text(encoding="utf-8").strip() if file else "")
