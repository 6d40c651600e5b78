"""`Redaction`: hides payloads and results in the answers of the HTTP API, as the setting `http.redact` says.

A rule is `GLOB` or `GLOB:FIELD`.  The first hides all that jobs of such functions carry and give; the second the values
of this field in JSON, at any depth, whatever the case of its letters.  Whatever cannot be searched for fields is hidden
as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from fnmatch import translate
from re import Pattern, compile
from typing import Any, Final

from switchgear.json_bytes import bytes_of, told

__all__ = ["MARK", "Redaction"]

MARK: Final = "[redacted]"  # stands for what is hidden

# A longer text is hidden as a whole: to search it would take the event loop too long.
MOST_SEARCHED_BYTES: Final = 64 * 1024
BYTES_PER_ROW: Final = 200  # what a row of a list costs beside its payload, about, as if it were text
# Functions whose rules are remembered; then they are forgotten, because names come from peers.
MOST_REMEMBERED: Final = 1_000


class FunctionRules:
    """What is hidden of the jobs of one function."""

    def __init__(self) -> None:
        self.hides_all = False
        self.fields: set[str] = set()  # casefolded

    @property
    def is_empty(self) -> bool:
        """Whether neither whole payloads nor single fields are hidden."""
        return not self.hides_all and not self.fields


class Redaction:
    """Which payloads and results a server hides, by the rules of `http.redact`."""

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules: list[tuple[Pattern[str], str]] = []  # globs, and fields; an empty one stands for everything
        for rule in rules:
            glob, _, name = rule.partition(":")
            self._rules.append((compile(translate(glob)), name.casefold()))
        self._by_function: dict[bytes, FunctionRules] = {}

    def concerns(self, function: bytes) -> bool:
        """Whether something of this function's jobs is hidden."""
        return not self._rules_of(function).is_empty

    def redacted(self, function: bytes, data: bytes) -> bytes | None:
        """A payload or result as it may be shown; `None` if nothing of it may."""
        rules = self._rules_of(function)
        if rules.is_empty or not data:
            return data
        if rules.hides_all or len(data) > MOST_SEARCHED_BYTES:
            return None
        try:
            return FieldHider(rules.fields).shown(data)
        except (ValueError, RecursionError):
            return None

    def shown_answer(self, answer: Any, *, keeps_result: bool) -> Generator[bool, Any, Any]:
        """The answer of a verb as it may be shown, in steps: a job or a schedule, or a list of them."""
        if not isinstance(answer, list):
            return self._shown_row(answer, keeps_result=keeps_result)
        shown: list[Any] = []
        searched_bytes = 0
        for row in answer:
            if isinstance(row, dict) and "payload" in row:
                searched_bytes += len(row["payload"]) + BYTES_PER_ROW
                if searched_bytes > MOST_SEARCHED_BYTES:
                    searched_bytes = 0
                    yield False
            shown.append(self._shown_row(row, keeps_result=keeps_result))
        return shown

    def _shown_row(self, row: Any, *, keeps_result: bool) -> Any:
        if not isinstance(row, dict) or ("payload" not in row and "result" not in row) or "function" not in row:
            return row
        function = bytes_of(row["function"], "function")
        shown_row = row
        for name in ("payload", "result"):
            if name not in row or (keeps_result and name == "result"):
                continue
            data = bytes_of(row[name], name)
            shown = self.redacted(function, data)
            if shown is not data:
                text = MARK if shown is None else told(shown)
                shown_row = {**shown_row, name: text, "redacted": True}
        return shown_row

    def _rules_of(self, function: bytes) -> FunctionRules:
        known = self._by_function.get(function)
        if known is None:
            known = FunctionRules()
            text = function.decode("utf-8", "surrogateescape")
            for pattern, name in self._rules:
                if pattern.match(text) is None:
                    continue
                if name:
                    known.fields.add(name)
                else:
                    known.hides_all = True
            if len(self._by_function) >= MOST_REMEMBERED:
                self._by_function = {}
            self._by_function[function] = known
        return known


class FieldHider:
    """Puts the mark in place of the values of fields while JSON is read."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.has_hidden = False

    def shown(self, data: bytes) -> bytes:
        """The JSON without the values of these fields; the same object if there are none. Raises ValueError."""
        value = json.loads(data.decode(), object_pairs_hook=self.shown_object)
        if not self.has_hidden:
            return data
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def shown_object(self, members: list[tuple[str, Any]]) -> dict[str, Any]:
        """The object with these members, in which the values of hidden fields are replaced."""
        shown: dict[str, Any] = {}
        for name, value in members:
            is_hidden = name.casefold() in self.names
            if is_hidden or name in shown:  # an earlier member of the same name is dropped, and all that is in it
                self.has_hidden = True
            shown[name] = MARK if is_hidden else value
        return shown
