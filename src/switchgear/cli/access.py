"""`switchgear access`: adds, removes and checks identities in the access file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from switchgear.access.access_file import (
    HASH_PREFIX,
    AccessEntry,
    AccessList,
    check_name,
    read_access_file,
    write_access_file,
)
from switchgear.access.identities import Identities
from switchgear.access.permissions import Permissions
from switchgear.access.tokens import digest_of, new_token, read_token_file
from switchgear.cli.output import Column, json_option, print_json, print_table
from switchgear.config import load_config
from switchgear.errors import ConfigError, SwitchgearError
from switchgear.verbs.access import Role

__all__ = ["access"]

_ROLES = [role.value for role in Role]
_EPILOG = """\b
Examples:
  switchgear access add mailer --role submit --function 'mail.*' --token-out mailer.token
  switchgear access add ops --role operate --certificate CN=ops
  switchgear access add anonymous --role read
  switchgear access list
  switchgear access check --token-file mailer.token --role submit --function mail.send

\b
Roles:
  read     inspect jobs, functions, workers, schedules and the server
  submit   submit jobs, and follow single jobs by their handles
  work     run jobs; declare the limits and schedules of a program
  operate  cancel, retry, pause, limit, schedule; and everything that read permits
  admin    everything, including stopping the server
"""

_file_option = click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The access file. Default: access.file of the server's configuration.",
)
_role_option = click.option(
    "--role", "roles", multiple=True, type=click.Choice(_ROLES), help="A role; may be given several times."
)
_function_option = click.option(
    "--function",
    "functions",
    multiple=True,
    metavar="GLOB",
    help="Only for functions that match, such as 'mail.*'; may be given several times. Default: every function.",
)


def _path(file: Path | None) -> Path:
    """The access file that is meant; raises ConfigError."""
    if file is None:
        configured = load_config(None, os.environ, {}).access.file
        if not configured:
            raise ConfigError(
                "which access file? name it with --file, or set access.file in the configuration"
                " (SWITCHGEAR_ACCESS_FILE)"
            )
        file = Path(configured)
    return file


def _read(path: Path) -> AccessList:
    return read_access_file(path) if path.exists() else AccessList()


def _write(path: Path, changed: AccessList) -> None:
    write_access_file(path, changed)
    click.echo(f"wrote {path}; a running server reads it on SIGHUP", err=True)


@click.group(epilog=_EPILOG)
def access() -> None:
    """Manage the access file: identities with roles, functions, and tokens, certificates or CURVE keys.

    The server reads the file in its setting access.file (`switchgear serve --access-file FILE`), and again on SIGHUP.
    """


@access.command(
    epilog="""\b
Examples:
  switchgear access add mailer --role submit --function 'mail.*' --token-out mailer.token
  switchgear access add ops --role operate --certificate CN=ops
  switchgear access add worker-7 --role work --curve-key worker-7.key
"""
)
@click.argument("name")
@_role_option
@_function_option
@click.option(
    "--token-out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the new token to this file, with mode 0600. Default: standard output.",
)
@click.option("--no-token", is_flag=True, help="Create no token. The default if you give a certificate or a key.")
@click.option(
    "--certificate",
    "certificates",
    multiple=True,
    metavar="CN=NAME|sha256:HEX",
    help="A client certificate of the identity: the common name of its subject, or its SHA-256 fingerprint.",
)
@click.option(
    "--curve-key",
    "curve_keys",
    multiple=True,
    metavar="KEY|FILE",
    help="A public CURVE key of the identity, or the .key file that contains it.",
)
@_file_option
def add(
    name: str,
    roles: tuple[str, ...],
    functions: tuple[str, ...],
    token_out: Path | None,
    no_token: bool,
    certificates: tuple[str, ...],
    curve_keys: tuple[str, ...],
    file: Path | None,
) -> None:
    """Add an identity, or add roles, functions and credentials to one.

    NAME is the name in logs. The name anonymous is for peers that have not identified themselves.
    """
    path = _path(file)
    known = _read(path)
    is_anonymous = name == "anonymous"
    if is_anonymous:
        if certificates or curve_keys or token_out is not None:
            raise click.UsageError("anonymous peers have no token, certificate or key.")
        old = known.anonymous
    else:
        try:
            old = known.identities.get(check_name(name)) or AccessEntry(name)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="NAME") from None
    if not roles and not old.roles:
        raise click.UsageError("without --role it may do nothing.")
    has_token = not (is_anonymous or no_token or ((certificates or curve_keys) and token_out is None))
    has_token = has_token and not (old.tokens and token_out is None and (roles or functions))
    token = new_token() if has_token else ""
    new = replace(
        old,
        roles=old.roles | {Role(role) for role in roles},
        functions=_joined(old.functions, functions),
        tokens=_joined(old.tokens, (HASH_PREFIX + digest_of(token.encode()).hex(),) if token else ()),
        certificates=_joined(old.certificates, tuple(_certificate(text) for text in certificates)),
        curve_keys=_joined(old.curve_keys, tuple(_curve_key(text) for text in curve_keys)),
    )
    if not is_anonymous and not (new.tokens or new.certificates or new.curve_keys):
        raise click.UsageError("it needs a token, a certificate or a key.")
    if token and token_out is not None:
        _write_secret(token_out, token)
    if is_anonymous:
        _write(path, replace(known, anonymous=new))
    else:
        _write(path, replace(known, identities={**known.identities, name: new}))
    if token and token_out is None:
        click.echo(token)
        click.echo("This is the token. It is not stored and cannot be shown again.", err=True)


def _joined(old: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *more)))


def _certificate(text: str) -> str:
    kind, _, rest = text.partition(":")
    return f"{HASH_PREFIX}{rest.replace(':', '').lower()}" if kind.lower() == "sha256" else text


def _curve_key(text: str) -> str:
    path = Path(text)
    if not path.is_file():
        return text
    import zmq.auth

    try:
        public, _ = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot read a key: {error}") from None
    return public.decode()


def _write_secret(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # an old token is not overwritten
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")


@access.command(
    "list",
    epilog="""\b
Examples:
  switchgear access list
  switchgear access list --file access.toml --json | jq -r '.[].identity'
""",
)
@_file_option
@json_option("Write a JSON array, an object for each identity.")
def list_identities(file: Path | None, as_json: bool) -> None:
    """List identities with their roles and functions. Tokens are only counted."""
    known = _read_existing(_path(file))
    entries = [known.anonymous, *(entry for _, entry in sorted(known.identities.items()))]
    if as_json:
        print_json([_described(entry) for entry in entries])
        return
    columns = (
        Column("IDENTITY", wrap=True),
        Column("ROLES", wrap=True),
        Column("FUNCTIONS", wrap=True),
        Column("TOKENS", right=True, drop=2),
        Column("CERTIFICATES", wrap=True, drop=1),
        Column("CURVE KEYS", right=True, drop=3),
    )
    print_table(columns, [_row(entry) for entry in entries])


def _read_existing(path: Path) -> AccessList:
    return read_access_file(path)


def _described(entry: AccessEntry) -> dict[str, object]:
    return {
        "identity": entry.name,
        "roles": [role.value for role in Role if role in entry.roles],
        "functions": list(entry.functions),
        "tokens": len(entry.tokens),
        "certificates": list(entry.certificates),
        "curve_keys": list(entry.curve_keys),
    }


def _row(entry: AccessEntry) -> list[str]:
    roles = " ".join(role.value for role in Role if role in entry.roles) or "none"
    functions = " ".join(entry.functions) or "all"
    return [
        entry.name,
        roles,
        functions,
        str(len(entry.tokens)),
        " ".join(entry.certificates),
        str(len(entry.curve_keys)),
    ]


@access.command(
    epilog="""\b
Examples:
  switchgear access remove mailer
"""
)
@click.argument("name")
@_file_option
def remove(name: str, file: Path | None) -> None:
    """Remove an identity. On SIGHUP, the server closes the connections of this identity."""
    path = _path(file)
    known = _read_existing(path)
    if name == "anonymous":
        _write(path, replace(known, anonymous=AccessEntry("anonymous")))
        return
    if name not in known.identities:
        raise SwitchgearError(f"{path} has no identity {name}")
    _write(path, replace(known, identities={key: entry for key, entry in known.identities.items() if key != name}))


@access.command(
    epilog="""\b
Examples:
  switchgear access check
  switchgear access check --identity mailer --role submit --function mail.send
  switchgear access check --token-file mailer.token --role submit
"""
)
@click.option("--identity", metavar="NAME", help="Check what this identity may do.")
@click.option("--token-file", metavar="FILE", help="Check what the owner of the token in this file may do.")
@_role_option
@_function_option
@_file_option
def check(
    identity: str | None, token_file: str | None, roles: tuple[str, ...], functions: tuple[str, ...], file: Path | None
) -> None:
    """Check the access file, or whether an identity has roles for functions.

    Exits with 0 if the file is valid and the identity has the roles, and with 1 otherwise.
    """
    path = _path(file)
    known = _read_existing(path)
    identities = Identities(access=known)
    found: Permissions | None
    if token_file is not None:
        found = identities.by_token(read_token_file(token_file).encode())
        if found is None:
            raise SwitchgearError(f"no identity of {path} has this token")
    elif identity is not None:
        found = identities.anonymous if identity == "anonymous" else identities.named(identity)
        if found is None:
            raise SwitchgearError(f"{path} has no identity {identity}")
    else:
        count = len(known.identities)
        click.echo(f"{path}: {count} {'identity' if count == 1 else 'identities'}, nothing is wrong")
        return
    for role in roles or ():
        for function in functions or (None,):
            name = None if function is None else function.encode()
            refusal = found.refusal(role, frozenset({Role(role)}), name)
            if refusal:
                raise SwitchgearError(refusal)
    may = " ".join(role.value for role in Role if role in found.roles) or "nothing"
    click.echo(f"{found.name}: {may}, for {' '.join(found.globs) or 'every function'}")
