"""Arguments and results of types that JSON does not know."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray

from switchgear import App, register_type
from switchgear.app import type_codecs
from switchgear.errors import ArgumentError
from switchgear.testing import in_memory


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_codecs, "_registered", {})


@pytest.fixture
def app() -> App:
    return App("gearman://127.0.0.1:1")


def test_a_type_of_ones_own(app: App) -> None:
    register_type(Fraction, str, Fraction)

    @app.task(name="half")
    def half(number: Fraction, others: list[Fraction]) -> dict[str, Fraction]:
        return {"half": number / 2, "sum": sum(others, Fraction(0))}

    with in_memory(app):
        result = half.submit(Fraction(1, 3), [Fraction(1, 2), Fraction(1, 4)]).result()
    assert result == {"half": Fraction(1, 6), "sum": Fraction(3, 4)}


def test_a_derived_class_is_read_as_the_registered_one(app: App) -> None:
    class Exact(Fraction):
        pass

    register_type(Fraction, str, Fraction)

    @app.task(name="same")
    def same(number: Fraction) -> Fraction:
        return number

    with in_memory(app):
        assert same.submit(Exact(1, 3)).result() == Fraction(1, 3)


def test_a_type_that_nobody_registered(app: App) -> None:
    @app.task(name="any")
    def anything(value: Any) -> None: ...

    with in_memory(app), pytest.raises(ArgumentError, match="object cannot be written as JSON"):
        anything.submit(object())


def test_only_classes_are_registered() -> None:
    with pytest.raises(TypeError, match="takes a class"):
        register_type("Fraction", str, Fraction)  # type: ignore[arg-type]


ARRAYS = [
    numpy.arange(12, dtype="<i4").reshape(3, 4),
    numpy.array([[1.5, float("nan")], [float("inf"), -0.0]]),
    numpy.zeros((0, 3), dtype="complex128"),
    numpy.array("2026-01-02", dtype="datetime64[D]"),
    numpy.arange(12).reshape(3, 4).T[::2],
    numpy.array([b"ab", b"c"]),
    numpy.array([(1, 2.5)], dtype=[("a", "<i2"), ("b", ">f8")]),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_arrays_of_numpy(app: App, array: NDArray[Any]) -> None:
    @app.task(name="same_array")
    def same_array(array: numpy.ndarray) -> NDArray[Any]:
        array.setflags(write=True)
        return array

    with in_memory(app):
        result = same_array.submit(array).result()
    assert result.dtype == array.dtype
    numpy.testing.assert_array_equal(result, array)


def test_numbers_of_numpy(app: App) -> None:
    @app.task(name="double")
    def double(number: numpy.float32, count: int) -> float:
        assert isinstance(number, numpy.float32)
        return float(number) * count

    with in_memory(app):
        assert double.submit(numpy.float32(1.5), numpy.int64(2)).result() == 3.0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        {"dtype": "<i4", "shape": [3], "data": "AAAA"},
        {"dtype": "|O", "shape": [1], "data": "AAAAAAAAAAA="},
        {"dtype": "<i4", "shape": [-1], "data": "AAAAAA=="},
        {"dtype": "no type", "shape": [1], "data": ""},
        {"dtype": [["a"]], "shape": [1], "data": ""},
        {"dtype": [["a", "<i4", ["x"]]], "shape": [1], "data": ""},
        {"dtype": "<i4", "shape": [1], "data": "not base64!"},
        {"dtype": "<i4", "shape": [1]},
        [1, 2],
    ],
)
def test_data_of_strangers_is_no_array(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        type_codecs.decode_by_type(numpy.ndarray, value)
