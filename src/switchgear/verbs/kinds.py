"""Kinds of arguments: how a value from a peer's JSON is checked, described and written as a JSON schema.

`read` returns the checked value, or raises ValueError with a text such as "expected true or false, got 'yes'".  The
caller puts the names of the verb and the argument in front of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from switchgear.json_bytes import bytes_of

__all__ = [
    "ArgumentKind",
    "Boolean",
    "Handle",
    "HandleList",
    "JsonObject",
    "NameList",
    "Number",
    "PayloadText",
    "PlainText",
    "StartRate",
    "Whole",
    "Word",
    "WordList",
    "shown_value",
]

LARGEST_WHOLE: Final = 2**63 - 1
MOST_SHOWN_CHARACTERS: Final = 80  # of a wrong value in an error text


def shown_value(value: object) -> str:
    """A wrong value as an error text shows it: its beginning."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to write numbers of thousands of digits
        return f"a very long {type(value).__name__}"
    return text if len(text) <= MOST_SHOWN_CHARACTERS else text[: MOST_SHOWN_CHARACTERS - 1] + "…"


class ArgumentKind(ABC):
    """The type of an argument: checks values and describes them."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """The values in words: what an error text says was expected, and what the reference page shows."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the values."""

    def read(self, value: Any) -> Any:
        """The value as the server's code takes it; raises ValueError."""
        if not self.accepts(value):
            raise ValueError(f"expected {self.expected}, got {shown_value(value)}")
        return self.converted(value)

    def converted(self, value: Any) -> Any:
        """An accepted value as the server's code takes it."""
        return value


@dataclass(frozen=True, slots=True)
class PlainText(ArgumentKind):
    """A text, if need be with a limit of its size in bytes; a text with a limit is a name, and is not empty."""

    most_bytes: int = 0

    @property
    def expected(self) -> str:
        return f"a text of 1 to {self.most_bytes} bytes without NUL" if self.most_bytes else "a text"

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, str):
            return False
        try:
            data = value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return False
        return not self.most_bytes or (0 < len(data) <= self.most_bytes and b"\0" not in data)

    def schema(self) -> dict[str, Any]:
        return (
            {"type": "string", "minLength": 1, "maxLength": self.most_bytes} if self.most_bytes else {"type": "string"}
        )


@dataclass(frozen=True, slots=True)
class Boolean(ArgumentKind):
    """A boolean argument: true or false, in JSON and as a flag of the command line."""

    @property
    def expected(self) -> str:
        return "true or false"

    def accepts(self, value: Any) -> bool:
        return type(value) is bool

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Whole(ArgumentKind):
    """A whole number in a range.  A number beyond a range that is `clamped` counts as its nearest end."""

    least: int = 0
    most: int = LARGEST_WHOLE
    clamped: bool = False

    @property
    def expected(self) -> str:
        if self.most == LARGEST_WHOLE:
            return f"a whole number, {self.least} or more"
        return f"a whole number from {self.least} to {self.most}"

    def accepts(self, value: Any) -> bool:
        if type(value) is not int:  # a bool is not meant as a number
            return False
        return 0 <= value <= LARGEST_WHOLE if self.clamped else self.least <= value <= self.most

    def converted(self, value: Any) -> int:
        return max(self.least, min(int(value), self.most))

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Number(ArgumentKind):
    """A number in a range, with a fraction if need be."""

    most: float
    least: float = 0.0

    @property
    def expected(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def accepts(self, value: Any) -> bool:
        return type(value) in (int, float) and self.least <= value <= self.most

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Word(ArgumentKind):
    """An argument that is one of a fixed list of words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.words

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class WordList(ArgumentKind):
    """A list of some words, in upper or lower case."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"a list of {', '.join(self.words)}"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(word, str) and word.lower() in self.words for word in value)

    def converted(self, value: Any) -> list[str]:
        return [word.lower() for word in value]

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "enum": list(self.words)}}


@dataclass(frozen=True, slots=True)
class PayloadText(ArgumentKind):
    """Bytes: a text, or an object with the one key `base64`."""

    @property
    def expected(self) -> str:
        return "a text, or an object with the one key base64"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (str, dict))

    def converted(self, value: Any) -> bytes:
        try:
            return bytes_of(value, "payload")
        except ValueError:
            raise ValueError(f"expected {self.expected}, got {shown_value(value)}") from None

    def schema(self) -> dict[str, Any]:
        base64 = {
            "type": "object",
            "properties": {"base64": {"type": "string", "contentEncoding": "base64"}},
            "required": ["base64"],
            "additionalProperties": False,
        }
        return {"anyOf": [{"type": "string"}, base64]}


@dataclass(frozen=True, slots=True)
class Handle(ArgumentKind):
    """The handle of a job, or its number alone."""

    @property
    def expected(self) -> str:
        return "the handle of a job"

    def accepts(self, value: Any) -> bool:
        return True

    def converted(self, value: Any) -> str:
        # A value of another type gets no error of its own: there is no such job.
        return value if isinstance(value, str) else shown_value(value) if type(value) is int else ""

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class HandleList(ArgumentKind):
    """A list of complete handles."""

    most: int

    @property
    def expected(self) -> str:
        return f"a list of at most {self.most} handles"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, list) and len(value) <= self.most

    def converted(self, value: Any) -> list[str]:
        return [item if isinstance(item, str) else "" for item in value]  # a value that is not a text is no handle

    def read(self, value: Any) -> Any:
        if isinstance(value, list) and len(value) > self.most:
            raise ValueError(f"expected {self.expected}, got {len(value)}")
        return ArgumentKind.read(self, value)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string"}, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class NameList(ArgumentKind):
    """An argument that is a list of names, such as those of schedules."""

    most: int

    @property
    def expected(self) -> str:
        return f"a list of at most {self.most} names"

    def accepts(self, value: Any) -> bool:
        text = PlainText()
        return isinstance(value, list) and len(value) <= self.most and all(text.accepts(item) for item in value)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string"}, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class StartRate(ArgumentKind):
    """A rate of starts: an array of a count and a number of seconds, or 0 for no limit."""

    @property
    def expected(self) -> str:
        return "an array of a count and a number of seconds, or 0"

    def accepts(self, value: Any) -> bool:
        if type(value) is int:
            return value == 0
        if not isinstance(value, list) or len(value) != 2:
            return False
        count, seconds = value
        return type(count) is int and type(seconds) in (int, float) and (type(seconds) is int or isfinite(seconds))

    def converted(self, value: Any) -> tuple[int, float]:
        return (0, 0.0) if value == 0 else (value[0], value[1])

    def schema(self) -> dict[str, Any]:
        pair: Sequence[Any] = [{"type": "integer", "minimum": 0}, {"type": "number", "minimum": 0}]
        array = {"type": "array", "prefixItems": pair, "minItems": 2, "maxItems": 2}
        return {"anyOf": [array, {"const": 0}]}


@dataclass(frozen=True, slots=True)
class JsonObject(ArgumentKind):
    """An object whose fields another table describes."""

    @property
    def expected(self) -> str:
        return "an object"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, dict)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}
