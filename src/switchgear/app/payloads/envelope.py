"""`Envelope`: the bytes of a payload or result that is compressed, encrypted or in a blob store: a header and a body.

    magic (8 bytes)   length of the header (4 bytes, big-endian)   header (JSON object)   body

The magic begins with a NUL, as no JSON does, so that these and plain payloads can be told apart.  The header has:

    size         bytes of the plain payload
    references   handles of the jobs whose results are among the arguments, so that a worker need not read the body
    compression  zstd or zlib
    key          the name of the key that the body is encrypted with, and `nonce`
    function     of the job, if the body is encrypted: it is of no use for another
    blob         the name under which a blob store has the body; there is none here then
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

__all__ = ["MAGIC", "Envelope", "EnvelopeHeader", "is_envelope"]

MAGIC: Final = b"\0SGPAY1\n"
_LENGTH_BYTES: Final = 4
_MOST_HEADER_BYTES: Final = 16 * 1024 * 1024  # references are most of it


class EnvelopeHeader(msgspec.Struct, omit_defaults=True, frozen=True):
    """How the body was made, and how to read it."""

    size: Annotated[int, msgspec.Meta(ge=0)]  # decompressors take a negative limit for none
    references: list[str] = []
    compression: str = ""
    key: str = ""
    nonce: str = ""
    function: str = ""
    blob: str = ""


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(EnvelopeHeader)


class Envelope(msgspec.Struct, frozen=True):
    """The header and the body of a payload or result that is not plain."""

    header: EnvelopeHeader
    body: bytes = b""

    def encode(self) -> bytes:
        """The bytes that a server stores."""
        header = _ENCODER.encode(self.header)
        return MAGIC + len(header).to_bytes(_LENGTH_BYTES, "big") + header + self.body

    @classmethod
    def decode(cls, data: bytes) -> Envelope:
        """Read what `encode` wrote; raises ValueError."""
        start = len(MAGIC) + _LENGTH_BYTES
        length = int.from_bytes(data[len(MAGIC) : start], "big")
        if not is_envelope(data) or length > _MOST_HEADER_BYTES or len(data) < start + length:
            raise ValueError("the payload has an incomplete header")
        try:
            header = _DECODER.decode(data[start : start + length])
        except msgspec.MsgspecError as error:
            raise ValueError(f"the payload has an unreadable header: {error}") from None
        return cls(header, data[start + length :])


def is_envelope(data: bytes) -> bool:
    """Whether these bytes are not a plain payload."""
    return data.startswith(MAGIC)
