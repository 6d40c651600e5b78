"""Every target: its kept inputs pass, new ones are tried for a moment, and a defect would be noticed."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from fuzz.inputs import ROOT, corpus_of, regressions_of
from fuzz.runner import Failure, fuzz
from fuzz.targets import TARGETS
from switchgear.version import BUILD

# With as many targets as there are, this is half a minute.  `make fuzz` has more time.
SECONDS = 0.3 if os.environ.get("BRIEF_TESTS") else 0.8
# A different part of what could be tried each day, and the same for all who look for what failed today.
MOST_CORPUS_BYTES = 3_000_000
# Its session is a stand-in, which compiled code does not accept.
ONLY_UNCOMPILED = {"cluster-commands"}


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_kept_passes_and_so_does_what_is_made_of_it(name: str) -> None:
    if name in ONLY_UNCOMPILED and BUILD == "compiled":
        pytest.skip("this target is tried without compiled modules")
    target = TARGETS[name]
    finding = fuzz(target, SECONDS, 0, seed=zlib.crc32(name.encode()))
    assert finding.runs >= len(corpus_of(target)) + len(regressions_of(target))


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_has_a_corpus(name: str) -> None:
    assert corpus_of(TARGETS[name])


def test_the_kept_files_belong_to_targets_and_are_small() -> None:
    for kind in ("corpus", "regressions"):
        folders = [path.name for path in (ROOT / kind).iterdir() if path.is_dir()] if (ROOT / kind).is_dir() else []
        assert set(folders) <= TARGETS.keys()
    files = [path for kind in ("corpus", "regressions") for path in (ROOT / kind).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_CORPUS_BYTES


def test_the_same_seed_makes_the_same_inputs() -> None:
    kinds = {fuzz(TARGETS["gearman-codec"], 1e9, 400, seed=7).kinds for _ in range(2)}
    assert len(kinds) == 1


def test_an_input_that_fails_is_made_shorter_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuzz import runner
    from fuzz.target import Target, must

    monkeypatch.setattr(runner, "FAILURES", tmp_path)
    target = Target("broken", lambda data: must(b"bug" not in data, "found"), ())
    with pytest.raises(Failure, match="python -m fuzz broken") as caught:
        fuzz(target, 1.0, 10, 1, [b"some words before the bug and some behind it"])
    assert caught.value.data == b"bug"
    assert caught.value.path.read_bytes() == b"bug"
    assert caught.value.path.parent == tmp_path / "broken"
