"""Compresses payloads: zstd, with the standard library of Python 3.14 or the package `zstandard`; else zlib."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from switchgear.errors import ConfigError

__all__ = ["Compression", "compression_named"]

_ZLIB_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3


class Compression(NamedTuple):
    """A way to compress; `decompress` is told the size that it has to produce, and produces no more."""

    name: str
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], bytes]


def compression_named(name: str) -> Compression:
    """The compression of this name; raises ConfigError if there is none, or if a package is missing."""
    if name == "zlib":
        return Compression("zlib", lambda data: zlib.compress(data, _ZLIB_LEVEL), _unzlib)
    if name == "zstd":
        return _zstd()
    raise ConfigError(f'compression is "zstd" or "zlib", not {name!r}')


def _unzlib(data: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(f"cannot be decompressed: {error}") from None


def _zstd() -> Compression:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # Python 3.14 and later
    except ImportError:
        return _zstandard()

    def decompress(data: bytes, size: int) -> bytes:
        try:
            return bytes(zstd.ZstdDecompressor().decompress(data, size + 1))
        except zstd.ZstdError as error:
            raise ValueError(f"cannot be decompressed: {error}") from None

    return Compression("zstd", lambda data: bytes(zstd.compress(data, _ZSTD_LEVEL)), decompress)


def _zstandard() -> Compression:
    try:
        import zstandard
    except ImportError:
        raise ConfigError("zstd needs a package: pip install 'switchgear[zstd]'; or use zlib") from None

    def decompress(data: bytes, size: int) -> bytes:
        reader: Any = zstandard.ZstdDecompressor().stream_reader(data)
        try:
            return bytes(reader.read(size + 1))
        except zstandard.ZstdError as error:
            raise ValueError(f"cannot be decompressed: {error}") from None

    return Compression("zstd", lambda data: zstandard.ZstdCompressor(_ZSTD_LEVEL).compress(data), decompress)
