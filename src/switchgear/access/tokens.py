"""Tokens: secret texts by which peers identify themselves. Only their hashes are stored.

A token is made by `new_token` and has 256 random bits, so one round of SHA-256 is enough: nobody can try all tokens. A
token that a person has chosen would need a slow hash, so tokens that are too short are refused.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from switchgear.errors import ConfigError
from switchgear.text import TOKEN_PREFIX

__all__ = ["LEAST_TOKEN_BYTES", "MOST_TOKEN_BYTES", "digest_of", "is_same_digest", "new_token", "read_token_file"]

RANDOM_BYTES: Final = 32
LEAST_TOKEN_BYTES: Final = 32
MOST_TOKEN_BYTES: Final = 512


def new_token() -> str:
    """A new token. Its prefix tells people and scanners what it is, and logs that it is to be hidden."""
    return TOKEN_PREFIX + token_urlsafe(RANDOM_BYTES)


def digest_of(token: bytes) -> bytes:
    """The hash of a token, as the access file has it."""
    return sha256(token).digest()


def is_same_digest(one: bytes, other: bytes) -> bool:
    """Whether two hashes are equal; the time that this takes does not depend on where they differ."""
    return hmac.compare_digest(one, other)


def read_token_file(path: Path | str) -> str:
    """The token in a file; raises ConfigError."""
    try:
        token = Path(path).expanduser().read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(f"token file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"token file {path}: a token is ASCII") from None
    if not token:
        raise ConfigError(f"token file {path}: it is empty")
    return token
