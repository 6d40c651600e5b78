"""Finding the app that a user names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchgear.app.worker.app_loader import AppNotFound, load_app

FILES = {
    "one.py": "from switchgear.app.app import App\napp = App('gearman://a')\nsame = app\nnumber = 7\n",
    "two.py": "from switchgear.app.app import App\na = App('gearman://a')\nb = App('gearman://b')\n",
    "none.py": "",
    "broken.py": "import math\n\ndef f():\n    return 1 / 0\n\nf()\n",
    "syntax.py": "def f(:\n",
    "needs.py": "import there_is_no_such_module_at_all\n",
    "quits.py": "import sys\nsys.exit('not today')\n",
    "package/__init__.py": "",
    "package/tasks.py": "from switchgear.app.app import App\n\nclass Config:\n    app = App('gearman://a')\n",
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with some modules, and nothing of it left behind."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in str(getattr(module, "__file__", None)) or name == "package":
            del sys.modules[name]


@pytest.mark.parametrize("target", ["one:app", "one", "two:a", "package.tasks:Config.app"])
def test_found(target: str) -> None:
    assert load_app(target).locations


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:app", "there is no module nowhere in"),
        ("package.nowhere:app", "there is no module package.nowhere in"),
        ("one:ap", "one has no ap; it has app, same"),
        ("one:number", "one:number is not a switchgear.App but a int"),
        ("none", "there is no switchgear.App in none"),
        ("two", "say which one: two:a, two:b"),
        ("one.py", "not of the form MODULE:APP.*did you mean one?"),
        ("package/tasks.py:app", "did you mean package.tasks?"),
        ("my-tasks.py", "cannot import a module called my-tasks: give it a name of letters, digits and _"),
        ("my-tasks:app", "cannot import a module called my-tasks:"),
        ("", "not of the form"),
        ("needs:app", "needs cannot be imported"),
        ("quits:app", "not today"),
        ("syntax:app", "SyntaxError"),
    ],
)
def test_not_found(target: str, words: str) -> None:
    with pytest.raises(AppNotFound, match=words):
        load_app(target)


def test_an_error_in_the_module_comes_with_the_users_part_of_the_traceback(project: Path) -> None:
    with pytest.raises(AppNotFound) as caught:
        load_app("broken:app")
    text = str(caught.value)
    assert text.startswith("broken cannot be imported:\nTraceback")
    assert "ZeroDivisionError" in text
    assert "importlib" not in text
    assert "loading.py" not in text
    assert caught.value.files == (str(project / "broken.py"),)


def test_a_file_with_a_syntax_error_is_named(project: Path) -> None:
    with pytest.raises(AppNotFound) as caught:
        load_app("syntax:app")
    assert str(project / "syntax.py") in caught.value.files
