"""TLS: `ServerTls` has the certificate and the authorities of a listener, `TlsStream` is one encrypted connection.

The connection itself encrypts and decrypts (net/connections/tcp_connection.py), and not the event loop: a peer in its
handshake is then a connection like every other, within the limits of connections and memory, and the time for its
handshake is limited.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from switchgear.access.identities import PeerCertificate
from switchgear.config import ListenUrl
from switchgear.errors import ConfigError

__all__ = ["ServerTls", "TlsFailure", "TlsStream", "load_authorities", "load_certificate", "made_context"]

READ_BYTES: Final = 262_144
WORLD_READABLE: Final = 0o004
JOINED_BYTES: Final = 65_536  # shorter pieces are joined before they are encrypted: each call makes a record of its own

START_BYTES: Final = 200  # enough to recognise a protocol that is not TLS

# What OpenSSL says to bytes that are not TLS.
NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE"})


class TlsFailure(Exception):
    """The handshake failed, or the peer has broken the protocol."""


class ServerTls:
    """The TLS settings of a listener; raises ConfigError if a file cannot be used."""

    def __init__(self, url: ListenUrl, *, has_identities: bool) -> None:
        self._url = url
        self._has_identities = has_identities
        self.context = self._made_context()

    def reload(self) -> None:
        """Use what the files have now for new connections; raises ConfigError and changes nothing."""
        self.context = self._made_context()

    def _made_context(self) -> ssl.SSLContext:
        url = self._url
        certificate = url.text("cert")
        key = url.text("key") or certificate
        where = f"listen: {url}"
        context = made_context(ssl.PROTOCOL_TLS_SERVER)
        if url.scheme == "http":
            context.set_alpn_protocols(["http/1.1"])
        load_certificate(context, where, certificate, key)
        authorities = url.text("client_ca")
        if authorities:
            load_authorities(context, where, authorities)
            others_may_connect = self._has_identities and bool(url.access - {"certificate"})
            context.verify_mode = ssl.CERT_OPTIONAL if others_may_connect else ssl.CERT_REQUIRED
        return context

    def begin(self) -> TlsStream:
        """Create the TLS state of a new connection."""
        return TlsStream(self.context)


def made_context(protocol: int) -> ssl.SSLContext:
    """TLS settings without a certificate, for one of the sides."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context


def load_certificate(context: ssl.SSLContext, where: str, certificate: str, key: str) -> None:
    """Load a certificate with its key from files. Raises ConfigError, which begins with `where`."""
    check_key_mode(where, Path(key))
    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {shown_error(error, certificate, key)}") from None


def load_authorities(context: ssl.SSLContext, where: str, authorities: str) -> None:
    """Load the certificates of authorities from a file. Raises ConfigError, which begins with `where`."""
    try:
        context.load_verify_locations(authorities)
    except OSError as error:
        raise ConfigError(f"{where}: {shown_error(error, authorities)}") from None


class TlsStream:
    """The TLS state of one connection: bytes of the network in, bytes of the session out, and the other way round."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool = True) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self.is_ready = False  # the handshake is complete
        self.has_ended = False  # the peer has said that it sends no more
        self.start = b""  # of what the peer has sent, until it is clear that this is TLS

    def receive(self, data: bytes) -> bytes:
        """The decrypted bytes among these; raises TlsFailure. There may be something to be sent then."""
        self._incoming.write(data)
        try:
            if not self.is_ready:
                if len(self.start) < START_BYTES:
                    self.start += data[:START_BYTES]
                self._object.do_handshake()
                self.is_ready = True
                self.start = b""
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            raise TlsFailure(failure_text(error)) from None

    def _read(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            try:
                piece = self._object.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                self.has_ended = True
                break
            if not piece:
                self.has_ended = True
                break
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def encrypt(self, pieces: Sequence[bytes | memoryview]) -> bytes:
        """Encrypt bytes for the peer; returns the TLS records to be written."""
        write = self._object.write
        if len(pieces) == 1:
            write(pieces[0])
        elif sum(map(len, pieces)) <= JOINED_BYTES:
            write(b"".join(pieces))
        else:
            for piece in pieces:
                if piece:
                    write(piece)
        return self._outgoing.read()

    def take_outgoing(self) -> bytes:
        """Bytes of the protocol itself that have to be sent."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def goodbye(self) -> bytes:
        """What tells the peer that no more comes; empty before the handshake is complete."""
        if self.is_ready:
            with suppress(OSError):  # the peer's own is not there yet
                self._object.unwrap()
        return self.take_outgoing()

    def certificate(self) -> PeerCertificate | None:
        """The peer's certificate, which was verified; `None` if it has none."""
        digest = self.certificate_digest()
        if digest is None:
            return None
        found: Any = self._object.getpeercert()
        names = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
        return PeerCertificate(names[-1] if names else "", digest)

    def certificate_digest(self) -> bytes | None:
        """The SHA-256 of the peer's certificate, which may not have been verified; `None` if it has none."""
        encoded = self._object.getpeercert(binary_form=True)
        return sha256(encoded).digest() if encoded else None


def no_password() -> str:
    """Called by OpenSSL for an encrypted key, instead of asking at the terminal."""
    raise ValueError("the private key is encrypted by a password; give one that is not")


def check_key_mode(where: str, path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {error.strerror}") from None
    if mode & WORLD_READABLE:
        raise ConfigError(f"{where}: every user of this machine can read the private key; chmod o= {path}")


def shown_error(error: Exception, *paths: str) -> str:
    files = " and ".join(dict.fromkeys(paths))
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "not PEM").lower().replace("_", " ")
        return f"{files}: {reason}"
    return f"{files}: {getattr(error, 'strerror', None) or error}"


def failure_text(error: ssl.SSLError) -> str:
    """Why a handshake failed, for an operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    reason = error.reason or ""
    if reason in NOT_TLS:
        return "it does not speak TLS"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it has no client certificate"
    return reason.lower().replace("_", " ") or str(error)
