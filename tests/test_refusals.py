"""The table of refusals: each reason has an answer in each protocol."""

from __future__ import annotations

import pytest

from switchgear import refusals
from switchgear.errors import CycleRefused, Refused
from switchgear.protocols.dwork.messages import QueryType
from switchgear.protocols.gearman.session import REFUSAL_CODES, refusal_code
from switchgear.protocols.gearmonkey.session import REFUSAL_WORDS
from switchgear.refusals import REFUSALS

REASONS = [getattr(refusals, name) for name in refusals.__all__ if name.startswith("REFUSED_")]


def test_each_reason_has_a_row() -> None:
    assert sorted(REFUSALS) == sorted(REASONS)
    assert CycleRefused(["a", "b"]).reason in REFUSALS


@pytest.mark.parametrize("reason", REASONS)
def test_each_protocol_has_an_answer(reason: str) -> None:
    row = REFUSALS[reason]
    assert refusal_code(Refused(reason, "")) == REFUSAL_CODES[reason] == row.gearman.encode()
    assert REFUSAL_WORDS[reason] == row.gearmonkey
    assert QueryType[row.dwork.upper()] in (QueryType.ERROR, QueryType.EXIT)
    assert row.meaning


def test_only_a_server_that_shuts_down_sends_dwork_workers_away() -> None:
    assert [reason for reason, row in REFUSALS.items() if row.dwork == "Exit"] == ["draining"]
