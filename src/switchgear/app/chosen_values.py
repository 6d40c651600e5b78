"""`ChosenValues`: the unique key, key and label of a job, which its task may choose from the job's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from switchgear.app.arguments import Arguments
from switchgear.app.references import to_json
from switchgear.app.task_options import TaskOptions
from switchgear.errors import ArgumentError
from switchgear.job_options import JOB_OPTION_NAMED

__all__ = ["ChosenValues", "short_key", "shortened_label"]

_CHOOSING_OPTIONS: Final = ("unique", "key", "label")
_KEY_BYTES: Final = 64  # what servers take of a unique key; longer ones are hashed
_DIGEST_BYTES: Final = 16


class ChosenValues:
    """What the options `unique`, `key` and `label` of a task are for certain arguments."""

    def __init__(
        self, name: str, arguments: Arguments[Any], settings: TaskOptions, previous: ChosenValues | None = None
    ) -> None:
        """`previous` has the values for other options of the same task, and has checked those that are the same.

        Raises TypeError if a callable among the options cannot be called with arguments of the task.
        """
        self._name = name
        self._arguments = arguments
        self._settings = settings
        # The arguments that the callable of each option is given; None: all of them.
        self._wanted: dict[str, list[str] | None] = {
            option: previous._wanted[option]
            if previous is not None and getattr(previous._settings, option) is getattr(settings, option)
            else self._wanted_arguments(option)
            for option in _CHOOSING_OPTIONS
        }

    def _wanted_arguments(self, option: str) -> list[str] | None:
        choose = getattr(self._settings, option)
        if not callable(choose):
            return None
        names = self._arguments.signature.parameters
        takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values())
        wanted: list[str] | None = []
        for parameter in inspect.signature(choose).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                wanted = None  # all of them
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if wanted is not None:
                wanted.append(parameter.name)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(
                    f"{self._name}: {option} is called with arguments by name, but has positional-only ones"
                )
            if parameter.default is parameter.empty and parameter.name not in names and not takes_more:
                raise TypeError(
                    f"{self._name}: {option} wants {parameter.name}, but the task has the parameters "
                    f"{', '.join(names) or '(none)'}"
                )
        return wanted

    def unique_key(self, by_name: Mapping[str, Any]) -> bytes:
        """The unique key of a job with these arguments; empty if it has none."""
        unique = self._settings.unique
        if not unique:
            return b""
        if unique is True:
            if self._arguments.takes_bytes:
                return blake2b(self._arguments.encode_bound(by_name), digest_size=_DIGEST_BYTES).hexdigest().encode()
            return blake2b(self._canonical(by_name), digest_size=_DIGEST_BYTES).hexdigest().encode()
        chosen = self.chosen("unique", by_name)
        return b"" if chosen is None else short_key(chosen)

    def _canonical(self, by_name: Mapping[str, Any]) -> bytes:
        """All arguments in one encoding, whether or not defaults were given explicitly."""
        values: dict[str, Any] = {}
        for name, value in sorted(self._arguments.with_defaults(by_name).items()):
            try:
                values[name] = to_json(value, is_sorted=True).decode()
            except (TypeError, ValueError):
                continue  # a default that only Python can express; arguments that were given have been checked
        return to_json(values)

    def chosen(self, option: str, by_name: Mapping[str, Any]) -> Any:
        """The value of an option for these arguments."""
        choose = getattr(self._settings, option)
        if not callable(choose):
            return choose
        known = self._arguments.with_defaults(by_name)
        wanted = self._wanted[option]
        return choose(**(known if wanted is None else {name: known[name] for name in wanted if name in known}))


def shortened_label(label: Any) -> str:
    """A label as servers take it: its beginning, if it is long.

    >>> shortened_label(17), len(shortened_label("x" * 1000))
    ('17', 256)
    """
    text = str(label).replace("\0", "").encode(errors="replace")[: JOB_OPTION_NAMED["label"].most]
    return text.decode(errors="ignore")


def short_key(chosen: Any) -> bytes:
    """A key as servers take it: the chosen value if it is short and printable, else a hash of it.

    >>> short_key("a.png"), short_key(17), short_key(("a", 1))
    (b'a.png', b'17', b'["a",1]')
    >>> len(short_key("x" * 1000))
    32
    """
    if isinstance(chosen, str):
        key = chosen.encode(errors="surrogatepass")
    elif isinstance(chosen, bytes):
        key = chosen
    else:
        try:
            key = to_json(chosen, is_sorted=True)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"a key cannot be made of {chosen!r}: {error}") from error
    # A dash means something else to servers, and what is not text cannot be shown.
    if 0 < len(key) <= _KEY_BYTES and b"\0" not in key and key != b"-" and _is_text(key):
        return key
    return blake2b(key, digest_size=_DIGEST_BYTES).hexdigest().encode()


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
