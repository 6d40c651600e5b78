"""The pictures of modules in the documents follow the imports."""

from __future__ import annotations

from tests.support.modules_page import PAGE, modules_page, reduced


def test_the_pictures_are_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == modules_page(), "docs/modules.md is out of date; run make modules"


def test_arrows_that_follow_from_others_are_left_out() -> None:
    assert reduced({"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}) == {
        "a": {"b"},
        "b": {"c"},
        "c": {"d"},
        "d": set(),
    }


def test_a_circle_keeps_its_arrows() -> None:
    assert reduced({"a": {"b"}, "b": {"a", "c"}, "c": set()}) == {"a": {"b"}, "b": {"a", "c"}, "c": set()}
