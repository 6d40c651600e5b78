"""The access file: a TOML file that lists identities with their roles, functions and credentials.

    [anonymous]
    roles = ["read"]

    [identities.mailer]
    roles = ["submit"]
    functions = ["mail.*"]
    tokens = ["sha256:9f86d081..."]
    certificates = ["CN=mailer", "sha256:2c26b46b..."]
    curve_keys = ["Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"]

`switchgear access` writes it. It has no secrets that can be used, but whoever can write to it decides who may do what,
so nobody but its owner may have access to it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from switchgear.access.z85 import z85_decoded
from switchgear.errors import ConfigError
from switchgear.toml_file import read_toml_file
from switchgear.verbs.access import Role

__all__ = ["AccessEntry", "AccessList", "check_name", "read_access_file", "write_access_file"]

HASH_PREFIX: Final = "sha256:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_CURVE_KEY: Final = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_HEADER: Final = """\
# Who may do what at this Switchgear server. `switchgear access` writes this file; a server reads it at its start and
# on SIGHUP. Tokens are stored as hashes.
"""


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """One identity of an access file."""

    name: str
    roles: frozenset[Role] = frozenset()
    functions: tuple[str, ...] = ()  # globs; none: every function
    tokens: tuple[str, ...] = ()  # hashes, written sha256:HEX
    certificates: tuple[str, ...] = ()  # CN=NAME of the subject, or sha256:HEX of the certificate
    curve_keys: tuple[str, ...] = ()  # public keys as text (Z85)


@dataclass(frozen=True, slots=True)
class AccessList:
    """The contents of an access file."""

    anonymous: AccessEntry = field(default_factory=lambda: AccessEntry("anonymous"))
    identities: Mapping[str, AccessEntry] = field(default_factory=dict)


def check_name(name: str) -> str:
    """The name of an identity; raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name: up to 100 letters, digits and ._@-, of which the first is one of those")
    if name == "anonymous":
        raise ValueError("anonymous is the name of peers that have not identified themselves")
    return name


def read_access_file(path: Path) -> AccessList:
    """The identities of an access file; raises ConfigError that says what is wrong with the file."""
    try:
        return _access_list(read_toml_file(path, check=partial(_check_mode, path)))
    except OSError as error:
        raise ConfigError(f"access file {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"access file {path}: {error}") from None


def write_access_file(path: Path, access: AccessList) -> None:
    """Replace an access file, so that a reader finds either the old or the new one; raises OSError, or ConfigError if
    the new one could not be read."""
    blocks = [_HEADER]
    if access.anonymous.roles:
        blocks.append("[anonymous]\n" + _lines(access.anonymous))
    for name, entry in sorted(access.identities.items()):
        blocks.append(f"[identities.{json.dumps(name)}]\n" + _lines(entry))
    text = "\n".join(blocks)
    try:
        _access_list(tomllib.loads(text))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _check_mode(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"access file {path}: it belongs to another user (uid {found.st_uid}), who could change it")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(f"access file {path}: other users have access to it; chmod 600 {path}")


def _lines(entry: AccessEntry) -> str:
    lists = {
        "roles": [role.value for role in Role if role in entry.roles],
        "functions": entry.functions,
        "tokens": entry.tokens,
        "certificates": entry.certificates,
        "curve_keys": entry.curve_keys,
    }
    # A JSON array of texts is a TOML array of texts.
    return "".join(f"{key} = {json.dumps(list(values))}\n" for key, values in lists.items() if values or key == "roles")


def _access_list(document: Mapping[str, Any]) -> AccessList:
    _refuse_unknown(document, ("anonymous", "identities"), "the file")
    anonymous = _entry("anonymous", _table(document, "anonymous"), "[anonymous]", ("roles", "functions"))
    identities: dict[str, AccessEntry] = {}
    owners: dict[str, str] = {}
    for name, table in _table(document, "identities").items():
        where = f"[identities.{name}]"
        if not isinstance(table, dict):
            raise ValueError(f"{where}: expected a table")
        entry = identities[check_name(name)] = _entry(name, table, where, tuple(AccessEntry.__slots__)[1:])
        for credential in (*entry.tokens, *entry.certificates, *entry.curve_keys):
            if owners.setdefault(credential, name) != name:
                raise ValueError(f"{where}: {owners[credential]} has the same token, certificate or key")
    return AccessList(anonymous, identities)


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise ValueError(f"{key}: expected a table")
    return table


def _entry(name: str, table: Mapping[str, Any], where: str, keys: tuple[str, ...]) -> AccessEntry:
    _refuse_unknown(table, keys, where)
    lists = {key: _texts(table, key, where) for key in keys}
    roles = []
    for word in lists["roles"]:
        if word not in [role.value for role in Role]:
            known = ", ".join(role.value for role in Role)
            raise ValueError(f"{where}: roles: there is no role {word!r}; there are: {known}")
        roles.append(Role(word))
    for key, form, what in (
        ("tokens", _HASH, "sha256: and 64 digits; `switchgear access add` makes tokens and their hashes"),
        ("curve_keys", _CURVE_KEY, "the 40 characters of a public key"),
    ):
        for text in lists.get(key, ()):
            if not form.fullmatch(text):
                raise ValueError(f"{where}: {key}: an entry is not {what}")
    for text in lists.get("curve_keys", ()):
        try:
            z85_decoded(text)
        except ValueError as error:
            raise ValueError(f"{where}: curve_keys: {error}") from None
    for text in lists.get("certificates", ()):
        if not _HASH.fullmatch(text) and not (text.startswith("CN=") and len(text) > len("CN=")):
            raise ValueError(f"{where}: certificates: {text!r} is neither CN=NAME nor sha256: and 64 digits")
    if "" in lists.get("functions", ()):
        raise ValueError(f"{where}: functions: a name is empty")
    return AccessEntry(
        name,
        frozenset(roles),
        lists.get("functions", ()),
        lists.get("tokens", ()),
        lists.get("certificates", ()),
        lists.get("curve_keys", ()),
    )


def _texts(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{where}: {key}: expected an array of texts")
    return tuple(dict.fromkeys(values))


def _refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0][:100]!r}; there are: {', '.join(known)}")
