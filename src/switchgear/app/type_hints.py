"""`Hint`: a type hint of an argument or a result, which reads values of that type from JSON."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from switchgear.app.type_codecs import decode_by_type
from switchgear.errors import ResultError

__all__ = ["ANYTHING", "Hint", "error_text", "read_result", "read_untyped_result"]


class Hint:
    """One type hint: reads values of this type, and says in plain words what is wrong with others."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self._decoder = msgspec.json.Decoder(kind, dec_hook=decode_by_type)  # TypeError: not a type for JSON

    def read(self, data: bytes | msgspec.Raw) -> Any:
        """The value in a piece of JSON; raises ValueError."""
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ValueError(error_text(error)) from error

    def convert(self, value: Any) -> Any:
        """The value of already decoded JSON, in which bytes may occur; raises ValueError."""
        if isinstance(value, bytes) and self.kind in (bytes, Any):
            return value
        try:
            # Keys are text in JSON, whatever the hint says of them.
            return msgspec.convert(value, self.kind, str_keys=True, dec_hook=decode_by_type)
        except msgspec.ValidationError as error:
            raise ValueError(error_text(error)) from error


def error_text(error: Exception) -> str:
    """What msgspec says of a value, in plain words."""
    text = _WHERE.sub(_patherror_text, str(error)).replace("`", "")
    # "Expected int" begins in lower case after a colon.  "JSON is malformed" stays as it is, and so does what a hook
    # has raised, which may begin with the name of a class.
    return text if text[1:2].isupper() or error.__cause__ is not None else text[:1].lower() + text[1:]


# As msgspec says where in a value something is wrong; `$` is the value itself.
_WHERE: Final = re.compile(r" - at (`key` in )?`\$([^`]*)`")


def _patherror_text(match: re.Match[str]) -> str:
    is_key, path = match.groups()
    return (" as a key" if is_key else "") + (f" at {path}" if path else "")


def read_result(hint: Hint, data: bytes, name: str) -> Any:
    if hint.kind is bytes:
        return data
    if not data:
        data = b"null"  # workers in other languages may send nothing
    try:
        return hint.read(data)
    except ValueError as error:
        if hint.kind is Any:
            return data
        raise ResultError(f"the result of {name}: {error}") from error


def read_untyped_result(data: bytes) -> Any:
    """A result without a type hint: the JSON value, or the bytes if they are not JSON."""
    return read_result(ANYTHING, data, "")


ANYTHING: Final = Hint(Any)
