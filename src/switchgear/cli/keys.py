"""`switchgear keys`: makes CURVE key pairs for encrypted ZeroMQ connections."""

from __future__ import annotations

from pathlib import Path

import click

from switchgear.errors import SwitchgearError

__all__ = ["keys"]

_EPILOG = """\b
Examples:
  switchgear keys /etc/switchgear server            the server's key pair
  switchgear keys /etc/switchgear/clients alice     a client's, where the server looks for those it may admit

\b
In the server's configuration:
  [zeromq]
  curve_key_file = "/etc/switchgear/server.key_secret"
  curve_clients_dir = "/etc/switchgear/clients"

A client needs its own .key_secret file and the server's .key file; the server needs only the .key files of its clients.
"""


@click.command(epilog=_EPILOG)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.argument("name")
@click.option("--force", is_flag=True, help="Replace a key pair of that name.")
def keys(directory: Path, name: str, force: bool) -> None:
    """Generate a CURVE key pair for ZeroMQ: NAME.key is public, NAME.key_secret is secret."""
    import zmq.auth

    if not name or "/" in name or name.startswith("."):
        raise click.BadParameter("a name for files, without a slash", param_hint="NAME")
    public, secret = directory / f"{name}.key", directory / f"{name}.key_secret"
    if not force and (public.exists() or secret.exists()):
        raise SwitchgearError(f"{directory} has a key pair named {name}; --force replaces it")
    directory.mkdir(parents=True, exist_ok=True)
    secret.unlink(missing_ok=True)
    secret.touch(mode=0o600)  # before anything secret is in it
    zmq.auth.create_certificates(directory, name)
    click.echo(f"public key: {public}\nsecret key: {secret}")
