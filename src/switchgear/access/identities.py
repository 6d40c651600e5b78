"""`Identities`: finds the permissions of a peer by its credentials. `ListenerAccess` is the view of one listener.

A listener says which kinds of credentials it accepts (`?access=`). Without an access file every listener is open: every
peer may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from switchgear.access.access_file import HASH_PREFIX, AccessEntry, AccessList, read_access_file
from switchgear.access.permissions import ANONYMOUS, FULL_PERMISSIONS, NO_PERMISSIONS, Permissions
from switchgear.access.tokens import MOST_TOKEN_BYTES, digest_of, is_same_digest
from switchgear.access.z85 import z85_decoded
from switchgear.protocol_registry import ACCESS_KINDS, OPEN

__all__ = ["OPEN_ACCESS", "Identities", "ListenerAccess", "PeerCertificate"]

# The first bytes of a hash find its owner; then the whole hash is compared in constant time.
PREFIX_BYTES: Final = 8


class PeerCertificate:
    """What identifies the owner of a client certificate, which the TLS handshake has verified."""

    def __init__(self, common_name: str, digest: bytes) -> None:
        self.common_name = common_name
        self.digest = digest  # SHA-256 of the certificate


class Identities:
    """The identities of a server. `load` reads the access file again."""

    def __init__(self, path: Path | None = None, access: AccessList | None = None) -> None:
        self.path = path
        self.generation = 0  # grows when the file was read again
        self.anonymous = Permissions(ANONYMOUS)
        self._by_name: dict[str, Permissions] = {}
        self._tokens: dict[bytes, list[tuple[bytes, Permissions]]] = {}  # by the first bytes of the hash
        self._certificates: dict[str, Permissions] = {}
        self._curve_keys: dict[bytes, Permissions] = {}
        if access is not None:
            self.use(access)

    def load(self) -> list[Permissions]:
        """Read the access file; returns the permissions that were reduced. Raises ConfigError and changes nothing."""
        assert self.path is not None
        return self.use(read_access_file(self.path))

    def use(self, access: AccessList) -> list[Permissions]:
        """Use these identities from now on; returns the permissions that were reduced.

        Connections hold the permissions of their peers, so those of an identity stay the same object.
        """
        reduced: list[Permissions] = []
        self.generation += 1
        update(self.anonymous, access.anonymous, reduced)
        credentials_before = self._credentials()
        for name, permissions in list(self._by_name.items()):
            if name not in access.identities:
                update(permissions, AccessEntry(name), reduced)
                del self._by_name[name]
        self._tokens, self._certificates, self._curve_keys = {}, {}, {}
        for name, entry in access.identities.items():
            permissions = self._by_name.setdefault(name, Permissions(name))
            update(permissions, entry, reduced)
            for text in entry.tokens:
                digest = bytes.fromhex(text.removeprefix(HASH_PREFIX))
                self._tokens.setdefault(digest[:PREFIX_BYTES], []).append((digest, permissions))
            self._certificates.update(dict.fromkeys(entry.certificates, permissions))
            self._curve_keys.update({z85_decoded(text): permissions for text in entry.curve_keys})
        credentials = self._credentials()
        for credential, name in credentials_before.items():
            # Whoever used a credential that is gone must identify itself again.
            if credentials.get(credential) != name and name in self._by_name:
                reduced.append(self._by_name[name])
        return reduced

    def _credentials(self) -> dict[bytes | str, str]:
        found: dict[bytes | str, str] = {}
        for pairs in self._tokens.values():
            found.update({digest: permissions.name for digest, permissions in pairs})
        found.update({text: permissions.name for text, permissions in self._certificates.items()})
        found.update({key: permissions.name for key, permissions in self._curve_keys.items()})
        return found

    def named(self, name: str) -> Permissions | None:
        """The permissions of an identity by its name."""
        return self._by_name.get(name)

    def by_token(self, token: bytes) -> Permissions | None:
        """The permissions of the owner of a token."""
        if not token or len(token) > MOST_TOKEN_BYTES:
            return None
        digest = digest_of(token)
        for known, permissions in self._tokens.get(digest[:PREFIX_BYTES], ()):
            if is_same_digest(known, digest):
                return permissions
        return None

    def by_certificate(self, certificate: PeerCertificate) -> Permissions | None:
        """The permissions of the owner of a verified certificate."""
        found = self._certificates.get(HASH_PREFIX + certificate.digest.hex())
        return found or self._certificates.get(f"CN={certificate.common_name}")

    def by_curve_key(self, key: bytes) -> Permissions | None:
        """The permissions of the owner of a public CURVE key, who has proved to have the secret one."""
        return self._curve_keys.get(key)


class ListenerAccess:
    """Which identities one listener accepts, and what peers without one may do there."""

    def __init__(self, identities: Identities | None = None, kinds: Iterable[str] = ACCESS_KINDS) -> None:
        self.kinds = frozenset(kinds)
        self.identities = identities if OPEN not in self.kinds else None
        self.is_open = self.identities is None

    def anonymous(self) -> Permissions:
        """The permissions of a peer that has not identified itself."""
        if self.identities is None:
            return FULL_PERMISSIONS
        return self.identities.anonymous if "anonymous" in self.kinds else NO_PERMISSIONS

    def by_token(self, token: bytes) -> Permissions | None:
        """The permissions of the owner of a token; `None` if there is none, or no token is accepted here."""
        if self.identities is None or "token" not in self.kinds:
            return None
        return self.identities.by_token(token)

    def by_certificate(self, certificate: PeerCertificate) -> Permissions | None:
        """The same for a verified client certificate."""
        if self.identities is None or "certificate" not in self.kinds:
            return None
        return self.identities.by_certificate(certificate)

    def by_curve_key(self, key: bytes) -> Permissions | None:
        """The same for a public CURVE key."""
        if self.identities is None or "curve" not in self.kinds:
            return None
        return self.identities.by_curve_key(key)


OPEN_ACCESS: Final = ListenerAccess()


def update(permissions: Permissions, entry: AccessEntry, reduced: list[Permissions]) -> None:
    """Let permissions be what an entry says, and note those that lose something."""
    roles, globs = permissions.roles, permissions.globs
    permissions.use(entry.roles, entry.functions)
    if not roles <= permissions.roles or (
        permissions.globs and (not globs or not set(globs) <= set(permissions.globs))
    ):
        reduced.append(permissions)
