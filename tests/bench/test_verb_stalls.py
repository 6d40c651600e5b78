"""The measurement of stalls uses every verb of operators, or says why it does not."""

from __future__ import annotations

import asyncio

import pytest

from bench.verb_stalls import LEFT_OUT, measure
from switchgear.verbs.table import VERBS


def test_every_verb_is_measured_or_left_out_for_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    run = asyncio.Handle._run
    try:
        asyncio.run(measure("memory:", jobs=200, queues=90, keys=0, workers=0))
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert not [line for line in lines if "Error" in line]
    measured = {line.split("`")[1] for line in lines}
    assert measured | LEFT_OUT.keys() == VERBS.keys()
    assert not measured & LEFT_OUT.keys()
