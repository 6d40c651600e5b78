"""Arguments and results on the wire."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear import App, ArgumentError, Job, JobGroup, ResultError
from switchgear.app.arguments import Arguments
from switchgear.app.type_hints import error_text

APP = App("gearman://127.0.0.1")


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Order:
    number: int
    tags: set[str]


class Shipment(msgspec.Struct):
    order: Order
    data: bytes


@dataclass
class Price:
    amount: float | None


class Model:
    """As pydantic's are, for whoever has it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.size == self.size

    def model_dump(self, mode: str) -> dict[str, int]:
        return {"size": self.size}

    @classmethod
    def model_validate(cls, value: dict[str, int]) -> Model:
        return cls(value["size"])


def arguments(function: Callable[..., Any]) -> Arguments[Any]:
    return Arguments(function, "f")


def job(handle: str) -> Job[Any]:
    return Job(APP, None, handle)


VALUES: dict[str, tuple[Any, Any]] = {
    "text": (str, "ä"),
    "nothing": (int | None, None),
    "float": (float, 1.5),
    "list": (list[int], [1, 2]),
    "set": (set[str], {"a"}),
    "tuple": (tuple[int, str], (1, "a")),
    "dict": (dict[int, str], {1: "a"}),
    "datetime": (datetime, datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    "date": (date, date(2030, 1, 2)),
    "timedelta": (timedelta, timedelta(hours=3)),
    "decimal": (Decimal, Decimal("1.10")),
    "uuid": (UUID, UUID(int=7)),
    "enum": (Colour, Colour.RED),
    "named tuple": (Point, Point(1, 2)),
    "dataclass": (Order, Order(7, {"a", "b"})),
    "struct with bytes": (Shipment, Shipment(Order(7, set()), b"\xff\0")),
    "path": (Path, Path("/a/b")),
    "optional path": (Path | None, Path("/a/b")),
    "model": (Model, Model(3)),
    "anything": (Any, {"a": [1, None, "x"]}),
}


@pytest.mark.parametrize(("kind", "value"), VALUES.values(), ids=VALUES)
def test_what_goes_in_comes_out(kind: Any, value: Any) -> None:
    def f(thing: Any, other: int = 0) -> Any: ...

    f.__annotations__ = {"thing": kind, "other": int, "return": kind}
    codec = arguments(f)
    assert codec.decode(codec.encode((value,), {})) == ((), {"thing": value})
    assert codec.decode_result(codec.encode_result(value)) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key != "$job"), inner),
        max_leaves=20,
    )
)
def test_anything_json_goes_through_without_hints(value: Any) -> None:
    def f(a, b=1): ...  # type: ignore[no-untyped-def]

    codec = arguments(f)
    assert codec.decode(codec.encode((value,), {})) == ((), {"a": value})


# --- the shape of the payload ---


def test_arguments_go_by_name_and_defaults_stay_at_home() -> None:
    def f(path: str, width: int = 128) -> None: ...

    codec = arguments(f)
    assert codec.encode(("a.png",), {}) == b'{"path":"a.png"}'
    assert codec.encode(("a.png", 64), {}) == b'{"path":"a.png","width":64}'
    assert codec.decode(b'{"path": "a.png"}') == ((), {"path": "a.png"})


def test_every_kind_of_parameter() -> None:
    def f(a: int, /, b: int = 2, *rest: float, flag: bool = False, **more: str) -> Any:
        return a, b, rest, flag, more

    codec = arguments(f)
    payload = codec.encode((1, 2, 3.5), {"flag": True, "x": "y"})
    assert payload == b'{"a":1,"b":2,"rest":[3.5],"flag":true,"x":"y"}'
    args, kwargs = codec.decode(payload)
    assert f(*args, **kwargs) == (1, 2, (3.5,), True, {"x": "y"})


def test_a_positional_only_default_before_others() -> None:
    def f(a: int = 1, b: int = 2, /, c: int = 3) -> Any:
        return a, b, c

    codec = arguments(f)
    args, kwargs = codec.decode(b'{"b": 5, "c": 6}')
    assert f(*args, **kwargs) == (1, 5, 6)


@pytest.mark.parametrize(
    ("payload", "called"),
    [
        (b"[1, 2, 3, 4]", (1, 2, (3, 4))),
        (b"[1]", (1, 2, ())),
        (b'{"a": 1, "b": 5}', (1, 5, ())),
        (b'{"a": 1, "rest": [7]}', (1, 2, (7,))),
        (b' {"a":1}\n', (1, 2, ())),
    ],
    ids=["array", "short array", "object", "rest by name", "white space"],
)
def test_other_languages_may_send(payload: bytes, called: Any) -> None:
    def f(a: int, b: int = 2, *rest: int) -> Any:
        return a, b, rest

    args, kwargs = arguments(f).decode(payload)
    assert f(*args, **kwargs) == called


def test_nothing_is_no_arguments() -> None:
    def f(a: int = 1) -> None: ...

    assert arguments(f).decode(b"") == ((), {})


def test_bytes_pass_untouched() -> None:
    def f(data: bytes) -> bytes: ...  # type: ignore[empty-body]

    codec = arguments(f)
    assert codec.encode((b"\0\xff{",), {}) == b"\0\xff{"
    assert codec.decode(b"\0\xff{") == ((b"\0\xff{",), {})
    assert codec.encode_result(b"\xff") == b"\xff"
    assert codec.decode_result(b"\xff") == b"\xff"


def test_bytes_beside_others_are_base64() -> None:
    def f(data: bytes, name: str) -> None: ...

    codec = arguments(f)
    assert codec.encode((b"\xff", "a"), {}) == b'{"data":"/w==","name":"a"}'
    assert codec.decode(codec.encode((b"\xff", "a"), {})) == ((), {"data": b"\xff", "name": "a"})


# --- what is wrong is said at once ---


def typed(path: str, width: int = 1, order: Order | None = None) -> str: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        ((3,), {}, "f: path: expected str, got int"),
        (("a", "b"), {}, "f: width: expected int, got str"),
        (("a",), {"order": {"number": 1, "tags": [2]}}, "f: order: expected str, got int at .tags[0]"),
        ((), {}, "f: missing a required argument: 'path'"),
        (("a",), {"height": 1}, "f: got an unexpected keyword argument 'height'"),
        (("a", 1, None, 4), {}, "f: too many positional arguments"),
        ((object(),), {}, "f: path: a value of type object cannot be written as JSON"),
        (("a", {"$job": 1}), {}, "f: width: '$job' is kept for jobs and cannot be a key"),
    ],
    ids=["type", "other type", "inside", "missing", "unknown", "too many", "unwritable", "reserved"],
)
def test_wrong_arguments_are_the_callers_error(args: Any, kwargs: Any, complaint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        arguments(typed).encode(args, kwargs)
    assert str(caught.value) == complaint
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b'{"path": 3}', "f: path: expected str, got int"),
        (b'{"width": 3}', "f: missing a required argument: 'path'"),
        (b'{"path": "a", "size": 3}', "f: there is no parameter size"),
        (b'["a", 1, null, 2]', "f: at most 3 positional arguments, got 4"),
        (b'"a"', "f: the payload is not a JSON object or array of arguments"),
        (b"a.png", "f: the payload is not a JSON object or array of arguments"),
        (b"\xff", "f: the payload is not a JSON object or array of arguments"),
        (b'{"path": "$job" "$job"}', "f: the payload is not JSON"),
    ],
    ids=["type", "missing", "unknown", "too many", "text", "no JSON", "no text", "broken"],
)
def test_a_strangers_payload(payload: bytes, complaint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        arguments(typed).decode(payload)
    assert str(caught.value).startswith(complaint)


def test_a_hint_that_json_cannot_be_read_by() -> None:
    def f(when: str | datetime) -> None: ...

    with pytest.raises(TypeError, match=r"f: the type hint of parameter when is not one that JSON can be read by"):
        arguments(f)


def test_a_hint_may_name_what_is_defined_later() -> None:
    def f(thing: Later) -> Later: ...  # type: ignore[empty-body]

    codec = arguments(f)
    assert codec.decode(codec.encode((Later(3),), {})) == ((), {"thing": Later(3)})


def test_a_parameter_by_the_name_of_more() -> None:
    def f(a: int, /, **more: int) -> None: ...

    with pytest.raises(ArgumentError, match="f: a is the name of a parameter and cannot be in more"):
        arguments(f).encode((1,), {"a": 2})


# --- results ---


@pytest.mark.parametrize(
    ("kind", "value", "complaint"),
    [
        (str, None, "the result of f: expected str, got null"),
        (bytes, "text", "the result of f: expected bytes, got str"),
        (Any, object(), "the result of f: a value of type object cannot be written as JSON"),
    ],
    ids=["type", "bytes", "unwritable"],
)
def test_a_result_that_is_not_what_the_task_says(kind: Any, value: Any, complaint: str) -> None:
    def f() -> Any: ...

    f.__annotations__ = {"return": kind}
    with pytest.raises(ResultError) as caught:
        arguments(f).encode_result(value)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [(Any, b"", None), (Any, b'{"a":1}', {"a": 1}), (Any, b"\xff", b"\xff"), (None, b"", None), (int, b"3", 3)],
    ids=["nothing", "JSON", "bytes", "none", "int"],
)
def test_results_of_other_workers(kind: Any, data: bytes, value: Any) -> None:
    def f() -> Any: ...

    f.__annotations__ = {"return": kind}
    assert arguments(f).decode_result(data) == value


def test_a_result_nobody_can_read_is_said_so() -> None:
    def f() -> int: ...  # type: ignore[empty-body]

    with pytest.raises(ResultError, match="the result of f: expected int, got str"):
        arguments(f).decode_result(b'"three"')


# --- jobs as arguments ---


def combine(first: int, others: list[int], by_name: dict[str, int] | None = None) -> int:
    return first + sum(others) + sum((by_name or {}).values())


def test_jobs_are_written_as_references_and_read_as_results() -> None:
    codec = arguments(combine)
    payload = codec.encode((job("H:1"), [job("H:2"), 5, job("H:1")]), {"by_name": {"x": job("H:3")}})
    assert json.loads(payload) == {
        "first": {"$job": "H:1"},
        "others": [{"$job": "H:2"}, 5, {"$job": "H:1"}],
        "by_name": {"x": {"$job": "H:3"}},
    }
    assert codec.references(payload) == ["H:1", "H:2", "H:3"]
    args, kwargs = codec.decode(payload, {"H:1": b"1", "H:2": b"20", "H:3": b"300"})
    assert combine(*args, **kwargs) == 327


def test_references_are_found_while_arguments_are_encoded() -> None:
    def simple(number: int, text: str = "", flag: bool = False) -> int:
        return number

    def nested(numbers: list[int], more: object = None) -> int:
        return len(numbers)

    def raw(data: bytes) -> bytes:
        return data

    one, other = job("H:h:1"), job("H:h:2")
    calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (simple, {"number": 1}),
        (simple, {"number": one}),
        (simple, {"number": one, "text": one, "flag": other}),
        (simple, {"number": 2, "text": '{"$job":"H:h:9"}'}),
        (simple, {"number": 3, "text": one, "flag": True}),
        (nested, {"numbers": [one, 1, other], "more": {"a": [one]}}),
        (nested, {"numbers": one, "more": other}),
        (raw, {"data": one}),
        (raw, {"data": b"bytes"}),
    ]
    for function, by_name in calls:
        codec = arguments(function)
        payload = codec.encode_bound(by_name)
        assert codec.encode_with_references(by_name) == (payload, codec.references(payload))
    with pytest.raises(ArgumentError, match="number"):
        arguments(simple).encode_with_references({"number": "text", "text": one})


def test_what_is_no_reference_is_checked_beside_one() -> None:
    with pytest.raises(ArgumentError, match="f: others: expected int, got str"):
        arguments(combine).encode((job("H:1"), ["x"]), {})


def test_a_result_of_another_type_is_found_by_the_worker() -> None:
    codec = arguments(combine)
    payload = codec.encode((job("H:1"), []), {})
    with pytest.raises(ArgumentError, match="f: first: expected int, got str"):
        codec.decode(payload, {"H:1": b'"x"'})


def test_keys_of_a_job_s_result_are_read_by_their_hint() -> None:
    def look(names: dict[int, str], job: int) -> None: ...

    codec = arguments(look)
    payload = codec.encode((job("H:1"), job("H:2")), {})
    assert codec.decode(payload, {"H:1": b'{"1":"a"}', "H:2": b"3"})[1] == {"names": {1: "a"}, "job": 3}
    with pytest.raises(ArgumentError) as caught:
        codec.decode(payload, {"H:1": b'{"x":"a"}', "H:2": b"3"})
    assert str(caught.value) == "f: names: expected int, got str as a key"


NOT_FINITE: dict[str, tuple[Any, Any]] = {
    "NaN": (float, math.nan),
    "infinity": (float, math.inf),
    "less than everything": (float | None, -math.inf),
    "without a hint": (Any, math.nan),
    "inside": (Any, {"a": [None, (1.0, math.nan)]}),
    "in an object": (Price, Price(math.nan)),
}


@pytest.mark.parametrize(("kind", "value"), NOT_FINITE.values(), ids=NOT_FINITE)
def test_what_is_no_number_is_not_turned_into_nothing(kind: Any, value: Any) -> None:
    def function(a: Any) -> Any: ...

    function.__annotations__ = {"a": kind, "return": kind}
    with pytest.raises(ArgumentError, match=r"^f: a: NaN and infinity cannot be written as JSON$"):
        arguments(function).encode((value,), {})
    with pytest.raises(ResultError, match=r"^the result of f: NaN and infinity cannot be written as JSON$"):
        arguments(function).encode_result(value)


@pytest.mark.parametrize(
    "value", [None, [None, 1.5], {"null": "null"}, {1: None}, Price(None), [Path("a"), None]], ids=repr
)
def test_nothing_is_still_nothing(value: Any) -> None:
    def function(a: Any) -> Any: ...

    assert b"null" in arguments(function).encode((value,), {})


def test_a_job_that_did_not_succeed_gives_none() -> None:
    codec = arguments(combine)
    assert codec.decode(codec.encode((job("H:1"), []), {}), {"H:1": None}) == ((), {"first": None, "others": []})


def test_bytes_of_a_job_stay_bytes() -> None:
    def load(path: str) -> bytes: ...  # type: ignore[empty-body]
    def size(data: bytes, names: list[bytes]) -> int: ...  # type: ignore[empty-body]
    def pack(data: bytes) -> bytes: ...  # type: ignore[empty-body]

    loading = APP.task(name="load")(load)
    loaded = Job(APP, loading, "H:1")
    codec = arguments(size)
    payload = codec.encode((loaded, [loaded]), {})
    assert codec.decode(payload, {"H:1": b"123"}) == ((), {"data": b"123", "names": [b"123"]})
    codec = arguments(pack)
    payload = codec.encode((loaded,), {})
    assert codec.references(payload) == ["H:1"]
    assert codec.decode(payload, {"H:1": b"\xff"}) == ((b"\xff",), {})


def test_a_group_is_the_list_of_its_results() -> None:
    codec = arguments(combine)
    group: JobGroup[Any] = JobGroup(APP, None, ["H:h:1", "H:h:2"])
    payload = codec.encode((0, group), {})
    assert codec.references(payload) == ["H:h:1", "H:h:2"]
    assert codec.decode(payload, {"H:h:1": b"1", "H:h:2": b"2"}) == ((), {"first": 0, "others": [1, 2]})


@dataclass
class Later:
    number: int


def test_what_json_says_of_itself_stays_as_it_is() -> None:
    assert error_text(ValueError("JSON is malformed: invalid character (byte 3)")).startswith("JSON is malformed")
    assert error_text(ValueError("Expected `int`, got `str`")) == "expected int, got str"


class Invoice:
    """Not a type for JSON."""


def pay(invoice: Invoice) -> None: ...


def test_the_name_of_a_class_keeps_its_capital_in_an_error() -> None:
    with pytest.raises(ArgumentError, match="Invoice cannot be read from JSON"):
        Arguments(pay, "pay").encode((5,), {})
