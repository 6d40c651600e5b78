"""Encodes the arguments and results of tasks as payloads, and decodes them, by type hints.

The payload is a JSON object of the arguments by name; arguments that were not given are not sent, so that the worker's
defaults count.  `*rest` is an array under the name `rest`; what goes into `**more` stands beside the others.  Programs
in other languages may send an array instead, which is read as positional arguments, or nothing at all.

A function whose only parameter is annotated `bytes` is given the payload untouched.

A job as an argument, also inside of lists, dicts and objects, is `{"$job": "HANDLE"}`: the worker is given that job's
result in its place.  If that result is bytes it is `{"$job": "HANDLE", "bytes": true}`, since bytes are not JSON.

An array of `{"$job": "HANDLE", "failed": "TASK"}` stands for the failure of the first of these jobs that failed.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from switchgear.app.injection import injected_parameters
from switchgear.app.references import (
    ENCODER,
    REFERENCE,
    Reference,
    encode_unusual,
    is_failure_reference,
    is_reference,
    refuse_false_references,
    replace_references,
)
from switchgear.app.type_codecs import decode_by_type
from switchgear.app.type_hints import Hint, error_text, read_result
from switchgear.errors import ArgumentError, ResultError

__all__ = ["Arguments"]

R = TypeVar("R")

_FAILED_KEY: Final = b'"failed":'
_OBJECT_OR_ARRAY: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
# Values of these types, under a hint of the same type, are read as they were written; there is no need to try.
_SIMPLE: Final = frozenset({bool, int, str})
_REFERENCE_TEXT: Final = b'"$job"'  # as any encoder writes it
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _refuse_not_finite(value: Any, data: bytes) -> None:
    """Raise ValueError for NaN and infinity, which the encoder would write as null.

    A second look, and only at what has a null in it, so that others pay nothing for it.
    """
    if value is None or b"null" not in data:
        return
    try:
        json.dumps(msgspec.to_builtins(value, enc_hook=encode_unusual), allow_nan=False)
    except ValueError:
        raise ValueError("NaN and infinity cannot be written as JSON") from None


class Arguments(Generic[R]):
    """Writes and reads the arguments and the result of one function."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.name = name
        self.injected = injected_parameters(function)  # a worker gives these, and they are no arguments
        signature = inspect.signature(function)
        self.signature = signature.replace(
            parameters=[each for each in signature.parameters.values() if each.name not in self.injected]
        )
        self._function = function
        self._parameters = dict(self.signature.parameters)
        for parameter in self._parameters.values():
            if parameter.name == REFERENCE:
                raise TypeError(f"{name}: {REFERENCE} cannot be the name of a parameter")
        kinds = {parameter.kind: parameter.name for parameter in self._parameters.values()}
        self._rest = kinds.get(inspect.Parameter.VAR_POSITIONAL)
        self._more = kinds.get(inspect.Parameter.VAR_KEYWORD)
        # Most are, and binding the arguments of these is far faster than Python does it for all.
        self._is_simple = kinds.keys() <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._required = {name for name, parameter in self._parameters.items() if parameter.default is parameter.empty}
        self._has_optional = len(self._required) < len(self._parameters)
        self._hints: dict[str, Hint] | None = None
        self._takes_bytes = False
        self._whole: msgspec.json.Decoder[msgspec.Struct] | None = None  # reads all arguments at once, if it can
        self._result: Hint
        self.check_reference: Callable[[Reference], None] = lambda reference: None  # may refuse it by a ValueError
        try:
            self._resolve()
        except NameError:
            pass  # a hint names something that the module defines further down; looked at again when it is needed

    @property
    def injected_kinds(self) -> dict[str, Any]:
        """The types of the parameters that a worker provides."""
        hints = typing.get_type_hints(self._function) if self.injected else {}
        return {name: hints.get(name, Any) for name in self.injected}

    def _resolve(self) -> dict[str, Hint]:
        """Read the type hints; late, when all names in them are defined."""
        if self._hints is None:
            kinds = typing.get_type_hints(self._function, include_extras=True)
            hints = {name: self._hint(kinds.get(name, Any), f"parameter {name}") for name in self._parameters}
            self._result = self._hint(kinds.get("return", Any), "the result")
            is_lone = len(hints) == 1 and not self._rest and not self._more
            self._takes_bytes = is_lone and next(iter(hints.values())).kind is bytes
            self._whole = self._whole_decoder(hints) if self._is_simple else None
            self._hints = hints
        return self._hints

    def _hint(self, kind: Any, of_what: str) -> Hint:
        try:
            return Hint(kind)
        except TypeError as error:
            text = f"{self.name}: the type hint of {of_what} is not one that JSON can be read by: {error}"
            raise TypeError(text) from None

    def _whole_decoder(self, hints: Mapping[str, Hint]) -> msgspec.json.Decoder[msgspec.Struct] | None:
        """A decoder for a JSON object of exactly these arguments.  What it refuses is decoded one by one, for the
        message."""
        required = [(name, hint.kind) for name, hint in hints.items() if name in self._required]
        try:
            optional = [
                (name, hint.kind | msgspec.UnsetType, msgspec.UNSET)
                for name, hint in hints.items()
                if name not in self._required
            ]
            fields: list[Any] = [*required, *optional]
            whole = msgspec.defstruct("Whole", fields, forbid_unknown_fields=True, gc=False)
            return msgspec.json.Decoder(whole, dec_hook=decode_by_type)
        except (TypeError, ValueError):  # names or types that do not go together
            return None

    @property
    def takes_bytes(self) -> bool:
        """Whether the payload is the only argument, as bytes without JSON."""
        self._resolve()
        return self._takes_bytes

    @property
    def gives_bytes(self) -> bool:
        """Whether the result is sent as bytes without JSON."""
        self._resolve()
        return self._result.kind is bytes

    # --- arguments out ---

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The payload; raises ArgumentError, which is a TypeError, if these are not arguments of the function."""
        return self.encode_bound(self.bind(args, kwargs))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name: `rest` is a tuple, and what goes into `**more` stands beside the others."""
        if self._is_simple and len(args) <= len(self._parameters):
            by_name = dict(zip(self._parameters, args))
            if not any(name in by_name or name not in self._parameters for name in kwargs):
                by_name.update(kwargs)
                if self._required <= by_name.keys():
                    return by_name
        # Python's own message says what is wrong with them.
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}: {error}") from None
        by_name = bound.arguments
        if self._more:
            more = by_name.pop(self._more, {})
            for name in more:
                if name in self._parameters:
                    raise ArgumentError(f"{self.name}: {name} is the name of a parameter and cannot be in {self._more}")
            by_name |= more
        return by_name

    def encode_bound(self, by_name: Mapping[str, Any]) -> bytes:
        """The payload for arguments by name, as `bind` returns them."""
        hints = self._resolve()
        if self.takes_bytes:
            return self._raw(by_name)
        if self._is_simple and all(type(value) is hints[name].kind in _SIMPLE for name, value in by_name.items()):
            try:
                return ENCODER.encode(by_name)
            except (TypeError, ValueError, OverflowError):
                pass  # found again below, where it is known which one it is
        written: dict[str, msgspec.Raw] = {}
        for name, value in by_name.items():
            try:
                data = ENCODER.encode(value)
                _refuse_not_finite(value, data)
                if _REFERENCE_TEXT in data:
                    refuse_false_references(value, data, self.check_reference)
                else:
                    self._read(hints, name, data)  # what a worker will do
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                raise ArgumentError(f"{self.name}: {name}: {error}") from error
            written[name] = msgspec.Raw(data)
        return ENCODER.encode(written)

    def encode_with_references(self, by_name: Mapping[str, Any]) -> tuple[bytes, list[str]]:
        """The payload for arguments by name, and what `references` finds in it."""
        written: dict[str, Any] = {}
        handles: dict[str, None] = {}
        if self._is_simple and not self.takes_bytes:
            hints = self._resolve()
            for name, value in by_name.items():
                if type(value) is hints[name].kind in _SIMPLE:
                    written[name] = value
                elif isinstance(value, Reference):
                    reference = self._checked(name, value)
                    if not isinstance(reference, dict):
                        break
                    written[name] = reference
                    handles[reference[REFERENCE]] = None
                else:
                    break
            else:
                try:
                    return ENCODER.encode(written), list(handles)
                except (TypeError, ValueError, OverflowError):
                    pass  # found again below, where it is known which one it is
        payload = self.encode_bound(by_name)
        return payload, self.references(payload)

    def _checked(self, name: str, reference: Reference) -> Any:
        """What stands for the reference in a payload; raises ArgumentError if it cannot be there."""
        try:
            self.check_reference(reference)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{self.name}: {name}: {error}") from error
        return reference.as_reference()

    def _raw(self, by_name: Mapping[str, Any]) -> bytes:
        value = next(iter(by_name.values()), b"")
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        (name,) = self._parameters
        if isinstance(value, Reference):
            try:
                self.check_reference(value)
            except ValueError as error:
                raise ArgumentError(f"{self.name}: {name}: {error}") from None
            return ENCODER.encode(value)
        raise ArgumentError(f"{self.name}: {name}: expected bytes, got {type(value).__qualname__}")

    def with_defaults(self, by_name: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by name, with defaults for those that were not given."""
        defaults = {
            name: parameter.default
            for name, parameter in self._parameters.items()
            if parameter.default is not parameter.empty
        }
        return defaults | dict(by_name)

    # --- arguments in ---

    def references(self, payload: bytes) -> list[str]:
        """Handles of the jobs whose results are wanted as arguments, in order, each once."""
        if _REFERENCE_TEXT not in payload or (self.takes_bytes and not is_reference(payload)):
            return []
        found: dict[str, None] = {}
        replace_references(self._plain(payload), lambda handle, raw: found.setdefault(handle), found)
        return list(found)

    def failure_references(self, payload: bytes) -> dict[str, str]:
        """Handles of the jobs whose failures are wanted as arguments, with the names of their tasks."""
        found: dict[str, Any] = {}
        if _FAILED_KEY in payload and _REFERENCE_TEXT in payload:
            replace_references(self._plain(payload), lambda handle, raw: None, found, is_for_failures=True)
        return {handle: name for handle, name in found.items() if name is not None}

    def decode(
        self,
        payload: bytes,
        results: Mapping[str, bytes | None] | None = None,
        failures: Mapping[str, Any] | None = None,
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments; `results` are those of the jobs that `references` named, None for a job
        that has none because it did not succeed, and `failures` those of `failure_references`.  Raises
        ArgumentError."""
        hints = self._resolve()
        has_references = _REFERENCE_TEXT in payload
        if self._takes_bytes:
            if not (has_references and is_reference(payload)):
                return (payload,), {}
            handle = self._plain(payload)[REFERENCE]
            return ((results or {}).get(handle),), {}
        if self._whole is not None and not has_references:
            try:
                arguments = msgspec.structs.asdict(self._whole.decode(payload))
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                pass  # an array, nothing at all, or a mistake, which is put in words below
            else:
                if self._has_optional:
                    arguments = {name: value for name, value in arguments.items() if value is not msgspec.UNSET}
                return (), arguments
        if has_references:
            read = self._read_with_references(payload, results or {}, failures or {})
        else:
            read = {}
            for name, data in self._by_name(self._open(payload)).items():
                try:
                    read[name] = self._read(hints, name, data)
                except (TypeError, ValueError) as error:
                    raise ArgumentError(f"{self.name}: {name}: {error}") from error
        return self._call(read)

    def _open(self, payload: bytes) -> dict[str, msgspec.Raw] | list[msgspec.Raw]:
        if not payload.strip():
            return {}
        try:
            opened: dict[str, msgspec.Raw] | list[msgspec.Raw] = _OBJECT_OR_ARRAY.decode(payload)
            return opened
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            text = f"{self.name}: the payload is not a JSON object or array of arguments: {error_text(error)}"
            raise ArgumentError(text) from error

    def _plain(self, payload: bytes) -> Any:
        try:
            return msgspec.json.decode(payload)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ArgumentError(f"{self.name}: the payload is not JSON: {error_text(error)}") from error

    def _by_name(self, given: dict[str, Any] | list[Any]) -> dict[str, Any]:
        """Arguments by name, with an array for `*rest` as one of them."""
        if isinstance(given, list):
            names = [parameter.name for parameter in self._parameters.values() if parameter.kind in _POSITIONAL]
            by_name = dict(zip(names, given))
            surplus = given[len(names) :]
            if surplus and self._rest is None:
                raise ArgumentError(f"{self.name}: at most {len(names)} positional arguments, got {len(given)}")
            if surplus and self._rest is not None:
                is_raw = isinstance(surplus[0], msgspec.Raw)
                by_name[self._rest] = msgspec.Raw(ENCODER.encode(surplus)) if is_raw else surplus
            given = by_name
        self._refuse_wrong_names(given)
        return given

    def _refuse_wrong_names(self, given: Mapping[str, Any]) -> None:
        if self._more is None:
            for name in given:
                if name not in self._parameters:
                    raise ArgumentError(f"{self.name}: there is no parameter {name}")
        for name, parameter in self._parameters.items():
            if parameter.default is parameter.empty and name not in given and name not in (self._rest, self._more):
                raise ArgumentError(f"{self.name}: missing a required argument: {name!r}")

    def _read(self, hints: Mapping[str, Hint], name: str, data: bytes | msgspec.Raw) -> Any:
        if name == self._rest:
            return tuple(hints[name].read(item) for item in msgspec.json.decode(data, type=list[msgspec.Raw]))
        return self._hint_for(hints, name).read(data)

    def _hint_for(self, hints: Mapping[str, Hint], name: str) -> Hint:
        hint = hints.get(name)
        if hint is not None and name != self._more:
            return hint
        assert self._more is not None
        return hints[self._more]

    def _read_with_references(
        self, payload: bytes, results: Mapping[str, bytes | None], failures: Mapping[str, Any]
    ) -> dict[str, Any]:
        hints = self._resolve()

        def result_of(handle: str, raw: bool) -> Any:
            data = results.get(handle)
            if data is None or raw:
                return data
            try:
                return msgspec.json.decode(data)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                return data  # it is not JSON

        given = self._plain(payload)
        if not isinstance(given, dict | list):
            raise ArgumentError(f"{self.name}: the payload is not a JSON object or array of arguments")
        read: dict[str, Any] = {}
        for name, value in self._by_name(given).items():
            if is_failure_reference(value):
                read[name] = next((failures[one[REFERENCE]] for one in value if one[REFERENCE] in failures), None)
                continue
            value = replace_references(value, result_of)
            try:
                if name == self._rest:
                    read[name] = tuple(hints[name].convert(item) for item in value)
                else:
                    # A job that runs although a predecessor failed gets None for its result.
                    read[name] = None if value is None else self._hint_for(hints, name).convert(value)
            except (TypeError, ValueError) as error:
                raise ArgumentError(f"{self.name}: {name}: {error}") from error
        return read

    def _call(self, read: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments for calling the function."""
        if self._rest is None and not any(p.kind is p.POSITIONAL_ONLY for p in self._parameters.values()):
            return (), read
        positional: list[Any] = []
        for name, parameter in self._parameters.items():
            if parameter.kind not in _POSITIONAL:
                break
            if name in read:
                positional.append(read.pop(name))
            elif parameter.kind is parameter.POSITIONAL_ONLY or read.get(self._rest or ""):
                positional.append(parameter.default)
            else:
                break  # those after it have defaults too, or are given by name
        positional.extend(read.pop(self._rest, ()) if self._rest else ())
        return tuple(positional), read

    # --- results ---

    def encode_result(self, value: Any) -> bytes:
        """The bytes of a result; raises ResultError if it is not of the type that the function declares."""
        self._resolve()
        hint = self._result
        if isinstance(value, bytes | bytearray | memoryview) and hint.kind in (bytes, Any):
            return bytes(value)
        try:
            if hint.kind is bytes:
                raise TypeError(f"expected bytes, got {type(value).__qualname__}")
            data = ENCODER.encode(value)
            if type(value) not in _SIMPLE or type(value) is not hint.kind:
                _refuse_not_finite(value, data)
                hint.read(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ResultError(f"the result of {self.name}: {error}") from error
        return data

    def decode_result(self, data: bytes) -> R:
        """The result by the function's hint; without one, bytes that are not JSON stay bytes.  Raises ResultError."""
        self._resolve()
        return typing.cast(R, read_result(self._result, data, self.name))
