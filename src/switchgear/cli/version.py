"""`switchgear version`: the versions of this program and of its dependencies."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

import click

from switchgear.version import BUILD, VERSION

__all__ = ["version"]

_EPILOG = """\b
Examples:
  switchgear version
  switchgear version --verbose
  switchgear version --verbose --json | jq -r .build
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--verbose", is_flag=True, help="Also show the versions of libraries, and where the package is installed."
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def version(verbose: bool, as_json: bool) -> None:
    """Show the version of this program and of its dependencies.

    A compiled build behaves like a pure build, and is faster.
    """
    python = platform.python_version()
    if as_json:
        described = {"switchgear": VERSION, "build": BUILD, "python": python, "system": platform.platform()}
        click.echo(json.dumps({**described, **(_details() if verbose else {})}))
        return
    click.echo(f"switchgear {VERSION}, {BUILD} (Python {python}, {sys.platform})")
    if verbose:
        for name, value in {"system": platform.platform(), **_details()}.items():
            click.echo(f"{name:<8} {value}")


def _details() -> dict[str, str]:
    """The versions of the libraries, and the directory that the package was loaded from."""
    import sqlite3

    import zmq

    return {
        "uvloop": _installed("uvloop"),
        "msgspec": _installed("msgspec"),
        "sqlite": sqlite3.sqlite_version,
        "zeromq": zmq.zmq_version(),
        "pyzmq": zmq.pyzmq_version(),
        "files": str(Path(__file__).parents[1]),
    }


def _installed(name: str) -> str:
    try:
        return version_of(name)
    except PackageNotFoundError:
        return "not installed"
