"""The types of settings: how their values are read from text and TOML, and written as TOML.

A value comes in one of two ways: as text (the environment, the command line) or already typed (a TOML file, Python).
A type reads both, says what it expects in words that fit after "expected", and writes the value as TOML.  Reading a
bad value raises ValueError; its text, if there is any, says more than the general expectation would.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from switchgear.config.listen import ListenUrl
from switchgear.units import BYTES_PER_UNIT, SECONDS_PER_UNIT, exact_bytes, parse_quantity

__all__ = [
    "Choice",
    "FilePath",
    "FreeText",
    "JobLogUrl",
    "ListenUrls",
    "PythonName",
    "RedactionRules",
    "Seconds",
    "SettingType",
    "Size",
    "StoreUrl",
    "Switch",
    "WholeNumber",
]

# The limit of SQLite and most wire formats.
LARGEST = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9][0-9_]*", re.ASCII)
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class SettingType(ABC):
    """The type of a setting's values."""

    expected: str

    @abstractmethod
    def read(self, value: object) -> object:
        """The checked value of a typed value; raises ValueError."""

    def read_text(self, text: str) -> object:
        """The checked value of a text; raises ValueError."""
        return self.read(text)

    @abstractmethod
    def toml(self, value: object) -> str:
        """The value as TOML."""


class WholeNumber(SettingType):
    """A whole number within bounds."""

    noun = "a whole number"

    def __init__(self, minimum: int = 0, maximum: int = LARGEST) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.expected = self.noun + _between(minimum, maximum)

    def read(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            raise ValueError
        return value

    def read_text(self, text: str) -> object:
        if _INTEGER.fullmatch(text.strip()) is None:
            raise ValueError
        return self.read(int(text))

    def toml(self, value: object) -> str:
        return str(value)


class Size(WholeNumber):
    """A number of bytes, with or without a unit."""

    noun = 'a number of bytes such as 65536 or "64KiB"'

    def read(self, value: object) -> object:
        return self.read_text(value) if isinstance(value, str) else super().read(value)

    def read_text(self, text: str) -> object:
        size = parse_quantity(text, BYTES_PER_UNIT)
        if size != int(size):
            raise ValueError
        return super().read(int(size))

    def toml(self, value: object) -> str:
        assert isinstance(value, int)
        written = exact_bytes(value)
        return written if written.isdigit() else f'"{written}"'


class Seconds(SettingType):
    """A duration; `whole` if only whole seconds are allowed."""

    def __init__(self, minimum: int = 0, maximum: int = LARGEST, *, whole: bool = False) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.whole = whole
        noun = "a number of whole seconds" if whole else "a number of seconds"
        self.expected = f'{noun} such as 90, "90s", "5m", "1h" or "1d"{_between(minimum, maximum)}'

    def read(self, value: object) -> object:
        if isinstance(value, str):
            return self.read_text(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError
        if not self.minimum <= value <= self.maximum:
            raise ValueError
        if not self.whole:
            return float(value)
        if value != int(value):
            raise ValueError
        return int(value)

    def read_text(self, text: str) -> object:
        return self.read(float(parse_quantity(text, SECONDS_PER_UNIT)))

    def toml(self, value: object) -> str:
        assert isinstance(value, int | float)
        return str(int(value)) if value == int(value) else repr(value)


class Switch(SettingType):
    """A boolean."""

    expected = "true or false"

    def read(self, value: object) -> object:
        if not isinstance(value, bool):
            raise ValueError
        return value

    def read_text(self, text: str) -> object:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise ValueError
        return word in _TRUE

    def toml(self, value: object) -> str:
        return "true" if value else "false"


class Choice(SettingType):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.expected = "one of " + ", ".join(words)

    def read(self, value: object) -> object:
        if not isinstance(value, str) or value.strip().lower() not in self.words:
            raise ValueError
        return value.strip().lower()

    def toml(self, value: object) -> str:
        return _quoted(value)


class FreeText(SettingType):
    """Visible ASCII without spaces, at most this many bytes, so that it fits into every protocol."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.expected = f"at most {longest} visible ASCII characters without spaces"

    def read(self, value: object) -> object:
        if not isinstance(value, str) or re.fullmatch(rf"[!-~]{{0,{self.longest}}}", value) is None:
            raise ValueError
        return value

    def toml(self, value: object) -> str:
        return _quoted(value)


class PythonName(SettingType):
    """A name in a Python module, written MODULE:NAME."""

    def __init__(self, *, empty: bool = False) -> None:
        self.empty = empty
        self.expected = "MODULE:NAME, or nothing" if empty else "MODULE:NAME"

    def read(self, value: object) -> object:
        if not isinstance(value, str) or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value) is None:
            if self.empty and value == "":
                return value
            raise ValueError
        return value

    def toml(self, value: object) -> str:
        return _quoted(value)


class FilePath(SettingType):
    """A path; with `empty` also the empty text, which then has its own meaning."""

    def __init__(self, *, empty: bool = False) -> None:
        self.empty = empty
        self.expected = "a path, or nothing" if empty else "a path"

    def read(self, value: object) -> object:
        if not isinstance(value, str | Path) or "\0" in str(value):
            raise ValueError
        if self.empty:
            return str(value)
        if not str(value):
            raise ValueError
        return Path(value)

    def toml(self, value: object) -> str:
        return _quoted(value)


class ListenUrls(SettingType):
    """One listening address or several: a list in TOML, separated by commas in text."""

    expected = "one or more URLs such as gearman://127.0.0.1:4730"

    def read(self, value: object) -> object:
        if isinstance(value, str):
            return self.read_text(value)
        if not isinstance(value, list | tuple):
            raise ValueError
        return self._read_all(value)

    def read_text(self, text: str) -> object:
        # A comma in an option is followed by no scheme.
        words = re.split(r",(?=\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|,|$))", text)
        return self._read_all([word.strip() for word in words if word.strip()])

    def _read_all(self, values: Iterable[object]) -> tuple[ListenUrl, ...]:
        urls: list[ListenUrl] = []
        for value in values:
            if not isinstance(value, str | ListenUrl):
                raise ValueError
            url = ListenUrl.parse(value) if isinstance(value, str) else value
            if url.port and url in urls:
                raise ValueError(f"{url} is there twice")
            urls.append(url)
        if not urls:
            raise ValueError
        return tuple(urls)

    def toml(self, value: object) -> str:
        assert isinstance(value, tuple)
        return "[" + ", ".join(_quoted(url) for url in value) + "]"


class RedactionRules(SettingType):
    """Rules what is hidden of payloads and results: a list in TOML, separated by commas in text."""

    expected = 'a list of GLOB (of functions) or GLOB:FIELD, such as ["payroll.*", "*:password"]'

    def read(self, value: object) -> object:
        if isinstance(value, str):
            return self.read_text(value)
        if not isinstance(value, list | tuple):
            raise ValueError
        for rule in value:
            if not isinstance(rule, str) or "\0" in rule or not all(rule.split(":", 1)):
                raise ValueError
        return tuple(value)

    def read_text(self, text: str) -> object:
        return self.read([word.strip() for word in text.split(",") if word.strip()])

    def toml(self, value: object) -> str:
        assert isinstance(value, tuple)
        return "[" + ", ".join(_quoted(rule) for rule in value) + "]"


class StoreUrl(SettingType):
    """The URL of the job store; empty: in the state directory."""

    expected = "sqlite:PATH, postgresql://USER@HOST/DATABASE, memory: or nothing"

    def read(self, value: object) -> object:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError
        scheme, colon, rest = value.partition(":")
        is_known = (scheme == "sqlite" and rest) or (scheme == "memory" and not rest) or _is_postgresql(scheme, rest)
        if value and not (colon and is_known):
            raise ValueError
        return value

    def toml(self, value: object) -> str:
        return _quoted(value)


class JobLogUrl(StoreUrl):
    """The URL of the job log; empty: beside the jobs, if these are in a file."""

    expected = "sqlite:PATH, postgresql://USER@HOST/DATABASE, off or nothing"

    def read(self, value: object) -> object:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError
        if value.strip().lower() in ("off", "none"):
            return "off"
        scheme, colon, rest = value.partition(":")
        if value and not (colon and ((scheme == "sqlite" and rest) or _is_postgresql(scheme, rest))):
            raise ValueError
        return value


def _is_postgresql(scheme: str, rest: str) -> bool:
    return scheme in ("postgresql", "postgres") and rest.startswith("//")


def _between(minimum: int, maximum: int) -> str:
    return f", {minimum} or more" if maximum == LARGEST else f", from {minimum} to {maximum}"


def _quoted(value: object) -> str:
    # A JSON string is a TOML basic string, but for DEL and lone surrogates, which are escaped or replaced here.
    text = str(value).encode("utf-8", "replace").decode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
