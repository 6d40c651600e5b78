"""The archives that are made of the package, with and without a C compiler.

Compiling takes a minute, so the compiled wheel is the one that `make compiled` has made for the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.build.backend import build_backend

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / "build" / "compiled-wheel"
BUILD = "import build_backend; print(build_backend.build_{kind}({place!r}))"


@pytest.fixture
def without_compiler(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has none."""
    nothing = tmp_path / "bin"
    nothing.mkdir()
    unwanted = ("CC", "PYTHONPATH", "SWITCHGEAR_PURE")
    return {**{name: value for name, value in os.environ.items() if name not in unwanted}, "PATH": str(nothing)}


def build(kind: str, root: Path, place: Path, environ: dict[str, str]) -> Path:
    """Let the package's own backend make an archive, as pip does."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(kind=kind, place=str(place))],
        cwd=root,
        env={**environ, "PYTHONPATH": str(root / "scripts")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place / done.stdout.splitlines()[-1]


@pytest.fixture
def unpacked_sources(tmp_path: Path, without_compiler: dict[str, str]) -> Path:
    """What the archive of sources has in it.  It is made of a copy, so that nothing is left in the checkout."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "scripts", "src"):
        (copy / name).symlink_to(ROOT / name)
    (copy / "src").unlink()
    subprocess.run(["/bin/cp", "-r", ROOT / "src", copy / "src"], check=True)
    archive = build("sdist", copy, tmp_path / "sdist", without_compiler)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / archive.name.removesuffix(".tar.gz")


def test_without_a_compiler_the_archive_of_sources_makes_a_pure_wheel_that_runs(
    tmp_path: Path, unpacked_sources: Path, without_compiler: dict[str, str]
) -> None:
    wheel = build("wheel", unpacked_sources, tmp_path / "wheel", without_compiler)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", ".pyd", ".c"))]
    environment = tmp_path / "environment"
    venv.create(environment)
    python = environment / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(command, env=without_compiler, check=True)
    # Its dependencies are those of the tests, found without what makes a checkout importable.
    environ = {**without_compiler, "PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(
        [environment / "bin" / "switchgear", "version", "--verbose"], env=environ, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert ", pure (Python 3." in lines[0]
    assert lines[-1].split()[1].startswith(str(environment))


def test_with_a_compiler_the_wheel_has_the_modules_in_both_forms() -> None:
    wheels = list(WHEELS.glob("*.whl"))
    if not wheels and os.environ.get("EXPECT_BUILD") != "compiled":
        pytest.skip("`make compiled` has not been run")
    (wheel,) = wheels
    assert wheel.name.endswith("_" + sysconfig.get_platform().rpartition("-")[2] + ".whl")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    compiled = {name.removesuffix(suffix) for name in names if name.startswith("switchgear/") and name.endswith(suffix)}
    assert {"switchgear/engine/engine", "switchgear/net/hub", "switchgear/protocols/gearman/session"} <= compiled
    assert {f"{name}.py" for name in compiled} <= names
    assert not [name for name in names if name.endswith((".c", ".h"))]


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"SWITCHGEAR_PURE": "1"}, "SWITCHGEAR_PURE is set"),
        ({"CC": "no-such-compiler -O2"}, "there is no C compiler (no-such-compiler)"),
    ],
)
def test_it_is_said_why_nothing_is_compiled(
    variables: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert build_backend.why_not_compiled() == reason
    assert not [name for name in build_backend.get_requires_for_build_wheel() if name.startswith("mypy")]


def test_where_it_can_be_compiled_the_build_asks_for_mypyc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", sys.executable)  # some program; nothing is compiled here
    monkeypatch.delenv("SWITCHGEAR_PURE", raising=False)
    if "header" in build_backend.why_not_compiled():
        pytest.skip("Python's header files are not installed")
    assert [name for name in build_backend.get_requires_for_build_wheel() if name.startswith("mypy")]
