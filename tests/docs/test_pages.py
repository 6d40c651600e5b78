"""What the documentation shows is what happens: its code and commands are run, and their output is compared."""

from __future__ import annotations

import http
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Command, blocks_of, commands_of, matches
from tests.docs.running import Reader

# Pages of which also the commands are run.
WITH_COMMANDS = ("howto/http.md", "tutorial.md")
# Pages about other protocols, whose clients have tests of their own.
ELSEWHERE = (
    "howto/add-a-protocol.md",
    "howto/dwork.md",
    "howto/gearmonkey.md",
    "howto/job-log.md",
    "howto/shell-jobs.md",
)


def pages_with_python() -> list[str]:
    """Every page that shows Python."""
    pages = sorted([*DOCS.glob("*.md"), *DOCS.glob("howto/*.md")])
    names = [page.relative_to(DOCS).as_posix() for page in pages if "```python" in page.read_text(encoding="utf-8")]
    return [name for name in names if name not in ELSEWHERE]


@pytest.mark.system
@pytest.mark.parametrize("page", sorted({*pages_with_python(), *WITH_COMMANDS}))
def test_a_page_shows_what_happens(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("SWITCHGEAR_URL", raising=False)
    Reader(DOCS / page, tmp_path, does_commands=page in WITH_COMMANDS).read()


PAGE = """\
# A page

```python
print(1)
```

```text
1
```

Words.

<!-- run: skip because it is dear -->
```python
# dear.py
buy()
```

```console
$ echo a \\
    b
a b
$ true
```
"""


def test_a_page_is_read_block_by_block(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    first, second, third = blocks_of(tmp_path / "page.md")
    assert (first.text, first.line, first.output, first.is_skipped) == ("print(1)\n", 4, "1\n", False)
    assert (second.file_name, second.is_skipped, second.output) == ("dear.py", True, None)
    assert commands_of(third) == [Command("echo a \\\n    b", "a b\n"), Command("true", "")]


@pytest.mark.parametrize(
    ("expected", "seen", "is_so"),
    [
        ("a\n", "a\n", True),
        ("a", "b", False),
        ("a", "a\nb", False),
        ("a ... c", "a b\nb c", True),
        ("took 3 ms", "took 12.5 s", True),
        ("NAME  AGE\nx     1 s", "NAME   AGE\nx      110 ms", True),
        ("(1)", "1", False),
    ],
)
def test_output_is_compared_but_for_what_varies(expected: str, seen: str, is_so: bool) -> None:
    assert matches(expected, seen) is is_so


def test_a_page_named_like_a_module_of_python_does_not_replace_it(tmp_path: Path) -> None:
    page = tmp_path / "http.md"
    page.write_text("```python\nimport http.client\n```\n")
    Reader(page, tmp_path, does_commands=False).read()
    assert sys.modules["http"] is http
