"""How each kind of setting is written, read and shown.

A value comes in one of two ways: as text (the environment, the command line) or already typed (a TOML file, Python).
A kind reads both, says what it expects in words that fit after "expected", and writes the value as TOML.  A reader
that cannot raises ValueError; its text, if there is any, says more than the general expectation would.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from switchgear.config.listen import ListenUrl

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "Choice",
    "FilePath",
    "JobLogUrl",
    "Kind",
    "ListenUrls",
    "PythonName",
    "Seconds",
    "Size",
    "StoreUrl",
    "Switch",
    "Text",
    "WholeNumber",
]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# SQLite and most wire formats end here; nobody means more.
LARGEST = 2**63 - 1

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
}
_TIME_UNITS = {
    "": Decimal(1),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
}
_QUANTITY = re.compile(r"([+-]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9][0-9_]*", re.ASCII)
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class Kind(ABC):
    """One kind of value."""

    expected: str

    @abstractmethod
    def read(self, value: object) -> object:
        """The value of something already typed."""

    def read_text(self, text: str) -> object:
        """The value of a piece of text."""
        return self.read(text)

    @abstractmethod
    def toml(self, value: object) -> str:
        """The value as TOML."""


class WholeNumber(Kind):
    """A count."""

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
        number, unit = _quantity(text)
        if unit not in _SIZE_UNITS:
            raise ValueError
        size = number * _SIZE_UNITS[unit]
        if size != int(size):
            raise ValueError
        return super().read(int(size))

    def toml(self, value: object) -> str:
        assert isinstance(value, int)
        for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
            if value and value % size == 0:
                return f'"{value // size}{unit}"'
        return str(value)


class Seconds(Kind):
    """A time span; `whole` for those that the system takes in whole seconds only."""

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
        number, unit = _quantity(text)
        if unit not in _TIME_UNITS:
            raise ValueError
        return self.read(float(number * _TIME_UNITS[unit]))

    def toml(self, value: object) -> str:
        assert isinstance(value, int | float)
        return str(int(value)) if value == int(value) else repr(value)


class Switch(Kind):
    """Yes or no."""

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


class Choice(Kind):
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


class Text(Kind):
    """Visible ASCII without spaces, at most so many bytes: it has to fit into other people's protocols."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.expected = f"at most {longest} visible ASCII characters without spaces"

    def read(self, value: object) -> object:
        if not isinstance(value, str) or re.fullmatch(rf"[!-~]{{0,{self.longest}}}", value) is None:
            raise ValueError
        return value

    def toml(self, value: object) -> str:
        return _quoted(value)


class PythonName(Kind):
    """Something in a Python module, written MODULE:NAME."""

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


class FilePath(Kind):
    """A path.  `empty` says whether the empty text is one too, with a meaning of its own."""

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


class ListenUrls(Kind):
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


class StoreUrl(Kind):
    """Where jobs are kept.  Empty: in the state directory."""

    expected = "sqlite:PATH, memory: or nothing"

    def read(self, value: object) -> object:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError
        scheme, colon, rest = value.partition(":")
        if value and not (colon and ((scheme == "sqlite" and rest) or (scheme == "memory" and not rest))):
            raise ValueError
        return value

    def toml(self, value: object) -> str:
        return _quoted(value)


class JobLogUrl(StoreUrl):
    """Where the job log is written.  Empty: beside the jobs, if these are in a file."""

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


def _quantity(text: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError
    return Decimal(match[1]), match[2].lower()


def _quoted(value: object) -> str:
    # A JSON string is a TOML basic string, but for DEL and lone surrogates, which are escaped or replaced here.
    text = str(value).encode("utf-8", "replace").decode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
