"""`PayloadCodec`: how an app compresses, encrypts and stores its payloads and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchgear.app.payloads.blobs import BlobStore, blob_name
from switchgear.app.payloads.compression import Compression, compression_named
from switchgear.app.payloads.encryption import PayloadKeys
from switchgear.app.payloads.envelope import Envelope, EnvelopeHeader, is_envelope
from switchgear.errors import ConfigError

__all__ = ["PLAIN", "PayloadCodec"]

MOST_BYTES: Final = 1024**3
_LEAST_GAIN: Final = 0.9  # compressed payloads of more than this part of their size are sent as they are


class PayloadCodec:
    """What is done to payloads and results before they are sent, and undone when they are read.

    `compress_from`  bytes from which on they are compressed, by `compression`: "zstd" or "zlib"; None: never
    `keys`           keys by name, of which the first encrypts them (`new_payload_key` makes one); None: not encrypted
    `blobs`          where those of more than `blobs_from` bytes are stored, so that the server only has their names
    `most_bytes`     of a payload that is read; larger ones are refused, so that a small one cannot fill the memory

    All programs and workers of an app need the same keys and the same blob store.
    """

    def __init__(
        self,
        *,
        compress_from: int | None = None,
        compression: str = "zstd",
        keys: Mapping[str, str] | None = None,
        blobs: BlobStore | None = None,
        blobs_from: int = 1_000_000,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        for name, value in (
            ("compress_from", compress_from or 0),
            ("blobs_from", blobs_from),
            ("most_bytes", most_bytes),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"{name} is a number of bytes, not {value!r}")
        if blobs is not None and not isinstance(blobs, BlobStore):
            raise ConfigError(f"blobs is a blob store, such as DirectoryBlobs(...), not {blobs!r}")
        self._compression: Compression | None = None
        if compress_from is not None:
            self._compression = compression_named(compression)
        self._compress_from = compress_from or 0
        self._keys = PayloadKeys(keys) if keys is not None else None
        self._blobs = blobs
        self._blobs_from = blobs_from
        self._most_bytes = most_bytes

    def wrap(self, plain: bytes, function: str, references: list[str]) -> bytes:
        """What is sent to the server for a payload or result of this function."""
        body, compression, key, nonce, blob = plain, "", "", "", ""
        if self._compression is not None and len(plain) >= self._compress_from:
            smaller = self._compression.compress(plain)
            if len(smaller) < len(plain) * _LEAST_GAIN:
                body, compression = smaller, self._compression.name
        if self._keys is not None:
            body, nonce = self._keys.encrypt(body, function)
            key = self._keys.current
        if self._blobs is not None and len(body) > self._blobs_from:
            blob = blob_name(body)
            self._blobs.put(blob, body)
            body = b""
        if not (compression or key or blob):
            return plain
        of_function = function if key else ""
        header = EnvelopeHeader(len(plain), references, compression, key, nonce, of_function, blob)
        return Envelope(header, body).encode()

    def unwrap(self, data: bytes, function: str | None) -> bytes:
        """The payload or result that `wrap` was given; raises ValueError if it cannot be read.

        Without `function` it may be of any.
        """
        if not is_envelope(data):
            return data
        envelope = Envelope.decode(data)
        header, body = envelope.header, envelope.body
        if header.size > self._most_bytes:
            raise ValueError(f"the payload has {header.size} bytes, and {self._most_bytes} are the most that is read")
        if header.blob:
            body = self._blob(header.blob)
        if header.key:
            if function is not None and header.function != function:
                raise ValueError(f"the payload was encrypted for {header.function!r}, not for {function!r}")
            if self._keys is None:
                raise ValueError(f"the payload is encrypted with the key {header.key!r}, which this app does not have")
            body = self._decrypted(header, body)
        if header.compression:
            body = self._decompressed(header, body)
        if len(body) != header.size:
            raise ValueError(f"the payload has {len(body)} bytes, and its header says {header.size}")
        return body

    def _blob(self, name: str) -> bytes:
        if self._blobs is None:
            raise ValueError("the payload is in a blob store, and this app has none")
        try:
            body = self._blobs.get(name)
        except KeyError:
            raise ValueError(f"the payload is not in the blob store {self._blobs!r} any more: {name}") from None
        if blob_name(body) != name:
            raise ValueError(f"the payload is damaged in the blob store {self._blobs!r}: {name}")
        return body

    def _decrypted(self, header: EnvelopeHeader, body: bytes) -> bytes:
        assert self._keys is not None
        try:
            return self._keys.decrypt(body, header.key, header.nonce, header.function)
        except ValueError as error:
            raise ValueError(f"the payload {error}") from None

    def _decompressed(self, header: EnvelopeHeader, body: bytes) -> bytes:
        try:
            return compression_named(header.compression).decompress(body, header.size)
        except ConfigError as error:
            raise ValueError(f"the payload cannot be decompressed: {error}") from None
        except ValueError as error:
            raise ValueError(f"the payload {error}") from None


PLAIN: Final = PayloadCodec()
