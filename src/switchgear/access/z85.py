"""Z85 (rfc.zeromq.org/spec/32), the text form of CURVE keys."""

from __future__ import annotations

from typing import Final

__all__ = ["z85_decoded"]

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES: Final = {letter: value for value, letter in enumerate(_ALPHABET)}


def z85_decoded(text: str) -> bytes:
    """The bytes of a text whose length is a multiple of five; raises ValueError."""
    if len(text) % 5:
        raise ValueError("the length is not a multiple of five")
    data = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for letter in text[start : start + 5]:
            if letter not in _VALUES:
                raise ValueError(f"{letter!r} is not a character of Z85")
            number = number * 85 + _VALUES[letter]
        if number >= 2**32:
            raise ValueError("five characters are too large a number")
        data += number.to_bytes(4, "big")
    return bytes(data)
