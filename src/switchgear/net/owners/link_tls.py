"""`LinkTls`: the encryption of links between nodes.

A node that has a certificate accepts encrypted links only, and says so in its address in the database (`tls://…`),
which every node trusts. Which certificate it is becomes part of the proofs of a link (`link_handshake`), so that even
without an authority nobody can be between two nodes who does not know the cluster's secret.
"""

from __future__ import annotations

import ssl
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from switchgear.config.settings import ClusterConfig
from switchgear.errors import ConfigError
from switchgear.net.connections.tls import TlsStream, load_authorities, load_certificate, made_context

__all__ = ["TLS_SCHEME", "LinkTls"]

TLS_SCHEME: Final = "tls://"
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class _Loaded(NamedTuple):
    """What the files had when they were read."""

    accepting: ssl.SSLContext | None  # None: this node has no certificate
    certificate: bytes  # the digest of this node's own; empty: none
    opening: ssl.SSLContext


class LinkTls:
    """The certificate of this node and the authorities of all; raises ConfigError if a file cannot be used."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._loaded = self._load()

    def reload(self) -> None:
        """Use what the files have now for new links; raises ConfigError and changes nothing."""
        self._loaded = self._load()

    @property
    def is_required(self) -> bool:
        """Whether this node uses no link that is not encrypted."""
        return bool(self._config.link_tls_ca)

    @property
    def scheme(self) -> str:
        """What the address of this node begins with."""
        return TLS_SCHEME if self._config.link_tls_cert else ""

    def accepted(self) -> tuple[TlsStream, bytes] | None:
        """The encryption of a link that another node opens, and the digest of this node's certificate."""
        loaded = self._loaded
        return None if loaded.accepting is None else (TlsStream(loaded.accepting), loaded.certificate)

    def opened(self) -> TlsStream:
        """The encryption of a link that this node opens."""
        return TlsStream(self._loaded.opening, server_side=False)

    def _load(self) -> _Loaded:
        config = self._config
        certificate, key = config.link_tls_cert, config.link_tls_key or config.link_tls_cert
        opening = made_context(ssl.PROTOCOL_TLS_CLIENT)
        opening.check_hostname = False  # the node proves which one it is, and which certificate it has
        opening.verify_mode = ssl.CERT_NONE
        if not certificate:
            return _Loaded(None, b"", opening)
        accepting = made_context(ssl.PROTOCOL_TLS_SERVER)
        for context in (accepting, opening):
            load_certificate(context, "cluster.link_tls_cert", certificate, key)
            if config.link_tls_ca:
                load_authorities(context, "cluster.link_tls_ca", config.link_tls_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        return _Loaded(accepting, digest_of(certificate), opening)


def digest_of(path: str) -> bytes:
    """The SHA-256 of the first certificate of a file, which is the node's own."""
    try:
        text = Path(path).read_text("utf-8", "replace")
        first = text[text.index(BEGIN) : text.index(END) + len(END)]
        return sha256(ssl.PEM_cert_to_DER_cert(first)).digest()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cluster.link_tls_cert: {path}: {error}") from None
