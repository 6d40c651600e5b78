"""Every program of the tutorial, of the pages about the library and of the examples passes the strict type checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks_of
from tests.support.peers import require_node_script

ROOT = Path(__file__).parents[3]
# Pages that are one module each, block after block.
WHOLE_PAGES = ("howto/durable-tasks.md", "howto/hooks.md", "howto/python-api.md", "howto/workflows.md")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all programs."""
    place = tmp_path_factory.mktemp("programs")
    for block in blocks_of(DOCS / "tutorial.md"):
        if block.language == "python" and block.file_name is not None:
            (place / block.file_name).write_text(block.text)
    for page in WHOLE_PAGES:
        blocks = [block.text for block in blocks_of(DOCS / page) if block.language == "python"]
        (place / f"page_{Path(page).stem.replace('-', '_')}.py").write_text("\n".join(blocks))
    for example in (ROOT / "examples").glob("*.py"):
        (place / f"example_{example.name}").write_text(example.read_text())
    assert len(list(place.glob("*.py"))) > 15
    return place


def test_with_mypy(programs: Path) -> None:
    options = ["--strict", "--no-error-summary", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'samples'}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *sorted(path.name for path in programs.glob("*.py"))],
        cwd=programs,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_with_pyright(programs: Path) -> None:
    pyright = require_node_script("node_modules/pyright/index.js")
    done = subprocess.run(
        [*pyright, "--outputjson", "--pythonpath", sys.executable],
        cwd=programs,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    said = json.loads(done.stdout)["generalDiagnostics"]
    found = [(Path(note["file"]).name, note["range"]["start"]["line"] + 1, note["message"]) for note in said]
    assert [each for each, note in zip(found, said, strict=True) if note["severity"] == "error"] == []
