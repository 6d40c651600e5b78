"""Long output is written in portions of bounded size, and arrives whole and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from switchgear.net.connections.long_output import LongOutput


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 50))
def test_portions_are_full_and_in_order(pieces: list[bytes], most_bytes: int) -> None:
    output = LongOutput()
    output.add(pieces, sum(map(len, pieces)))
    taken: list[bytes] = []
    while output.size:
        portion = b"".join(output.take(most_bytes))
        assert len(portion) == most_bytes or not output.size
        taken.append(portion)
    assert b"".join(taken) == b"".join(pieces)


def test_everything_can_be_taken_at_once() -> None:
    output = LongOutput()
    output.add([b"abc", b"defg"], 7)
    assert output.take(4) == [b"abc", b"d"]
    output.add([b"h"], 1)
    assert output.size == 4
    assert output.take_all() == [b"efg", b"h"]
    assert output.size == 0
    assert output.take(10) == []
