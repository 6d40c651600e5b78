"""Types survive the decorator: type checkers know arguments and results, and refuse what does not fit.

mypy and pyright are asked the same questions.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peers import require_node_script

ROOT = Path(__file__).parents[3]
# Not named as programs, since neither the linter nor a check of all types should read them.
RIGHT = Path(__file__).with_name("right.py.txt")
WRONG = Path(__file__).with_name("wrong.py.txt")

REVEALED = """
bare                      Task[[path: str, width: int =], str]
bare("a")                 str
bare.submit("a", width=3) Job[str]
bare.submit("a").result() str
dressed.submit("a")       Job[list[int]]
coroutine.submit(3)       Job[float]
...result(3)              dict[str, float]
scheduled.submit()        Job[int]
stacked.submit(number=3)  Job[int]
bare.options(...).submit  Job[str]
bare.job("H:h:1")         Job[str]
bare.submit_many([...])   JobGroup[str]
list(bare.map(["a"]))     list[str]
job.as_argument           int
jobs.as_argument          list[int]
total.submit(...)         Job[int]
group(...).submit()       JobGroup[int]
chain(...)                Chain[Job[int]]
app.job("H:h:1")          Job[Any]
bare.s("a", 3)            Signature[str]
bare.s(3)                 Signature[str]
bare.si("a")              Signature[str]
bare.starmap(...)         list[str]
bare.map(...)             list[str]
bare.chunks(...)          JobGroup[list[str]]
stacked | bare            Job[str]
stacked & stacked         JobGroup[int]
chain(group, total)       Job[int]
g.job(total(...))         Job[int]
g.add(coroutine.s())      float
g.add(group(...))         list[int]
g.job(coroutine(3))       Job[float]
await coroutine(3)        float
await submit_async(3)     Job[float]
await submit(3)           float
await (await ...)         str
[... amap(["a"])]         list[str]
status.state              str
"""


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str]]]:
    """What mypy has to say, by sample: line and text."""
    place = tmp_path_factory.mktemp("samples")
    for sample in (RIGHT, WRONG):
        (place / sample.stem).write_text(sample.read_text())
    options = ["--strict", "--no-error-summary", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'samples'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, RIGHT.stem, WRONG.stem],
        cwd=place,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    found: dict[str, list[tuple[int, str]]] = {RIGHT.name: [], WRONG.name: []}
    for file, line, text in re.findall(r"^(\w+\.py):(\d+): (.*)$", done.stdout, re.M):
        found[f"{file}.txt"].append((int(line), text))
    return found


def test_a_type_checker_knows_arguments_and_results(notes: dict[str, list[tuple[int, str]]]) -> None:
    revealed = [re.sub(r"\bswitchgear\.app\.\w+\.|\bbuiltins\.", "", text) for _, text in notes[RIGHT.name]]
    assert revealed == [f'note: Revealed type is "{kind}"' for kind in expected_types()]


def expected_types() -> list[str]:
    return [re.split(r"\s{2,}|(?<=\)) (?=\S+\[|str)", line)[-1] for line in REVEALED.strip().splitlines()]


def test_a_type_checker_refuses_what_does_not_fit(notes: dict[str, list[tuple[int, str]]]) -> None:
    complained = {
        (line, code) for line, text in notes[WRONG.name] for code in re.findall(r"error: .*(\[[\w-]+\])$", text)
    }
    assert complained == expected_complaints()


def expected_complaints() -> set[tuple[int, str]]:
    return {
        (number, code)
        for number, text in enumerate(WRONG.read_text().splitlines(), 1)
        for code in re.findall(r"# (\[[\w-]+\])$", text)
    }


def test_another_type_checker_says_the_same(tmp_path: Path) -> None:
    for sample in (RIGHT, WRONG):
        (tmp_path / sample.stem).write_text(sample.read_text())
    pyright = require_node_script("node_modules/pyright/index.js")
    command = [*pyright, "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, RIGHT.stem, WRONG.stem], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    said = json.loads(done.stdout)["generalDiagnostics"]
    revealed = [re.search(r' is "(.*)"$', note["message"]) for note in said if note["severity"] == "information"]
    kinds = [match[1] for match in revealed if match is not None]
    assert kinds[1:] == expected_types()[1:]  # the first they write differently
    complained = {
        (Path(note["file"]).name, note["range"]["start"]["line"] + 1) for note in said if note["severity"] == "error"
    }
    assert complained == {(WRONG.stem, line) for line, _ in expected_complaints()}
