"""`switchgear config`: checks a configuration, or shows all settings with their values."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from switchgear.config import as_json as settings_as_json
from switchgear.config import as_toml, load_config, read_config
from switchgear.errors import ConfigError
from switchgear.text import printable

__all__ = ["config"]

_FILE = click.Path(path_type=Path)


@click.group()
def config() -> None:
    """Check or show the server's configuration.

    Both commands read what `switchgear serve --config FILE` would read: the file, SWITCHGEAR_* in the environment, and
    the defaults. Without FILE, the one that SWITCHGEAR_CONFIG names is used, if any.
    """


@config.command(
    epilog="""\b
Examples:
  switchgear config check /etc/switchgear.toml
  switchgear config check --json server.toml && systemctl reload switchgear
"""
)
@click.argument("file", type=_FILE, required=False)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.pass_context
def check(ctx: click.Context, file: Path | None, as_json: bool) -> None:
    """Check the configuration and list all errors.

    Exits with 0 if there are none and with 2 if there are.
    """
    problems: list[str] = []
    try:
        loaded = load_config(file, os.environ, {})
    except ConfigError as error:
        problems = str(error).splitlines()
    else:
        from switchgear.net.service_settings import check_files

        problems = check_files(loaded)
    if as_json:
        click.echo(json.dumps({"ok": not problems, "problems": problems}))
    else:
        for problem in problems or ["OK"]:
            click.echo(printable(problem))
    ctx.exit(2 if problems else 0)


@config.command(
    epilog="""\b
Examples:
  switchgear config show > server.toml
  switchgear config show --json server.toml
"""
)
@click.argument("file", type=_FILE, required=False)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON array, an object for each setting.")
def show(file: Path | None, as_json: bool) -> None:
    """Show every setting with its value, meaning and origin.

    The output is a configuration file that gives the same values.
    """
    loaded = read_config(file, os.environ, {})
    if as_json:
        click.echo(json.dumps(settings_as_json(loaded), indent=2, ensure_ascii=False))
    else:
        click.echo(as_toml(loaded), nl=False)
