"""The archives that are made of the package, with and without a C compiler.

Compiling takes more than a minute, so the compiled wheel is the one that `make compiled` has made for the tests.
"""

from __future__ import annotations

import os
import shutil
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
BUILD_SMALL_MODULE = f"""
import runpy, sys
sys.argv = ["setup.py", "--name"]
command = runpy.run_path({str(ROOT / "setup.py")!r})["ParallelBuild"]
sys.argv = ["setup.py", "build_ext", "--build-lib", "lib", "--build-temp", "temp"]
from setuptools import Extension, setup
setup(name="small", ext_modules=[Extension("small", ["small.c"])], cmdclass={{"build_ext": command}})
"""


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
        ({"CC": ""}, "there is no C compiler (CC is '')"),
        ({"CC": " "}, "there is no C compiler (CC is ' ')"),
        ({"CC": "cc 'O2"}, 'there is no C compiler (CC is "cc \'O2")'),
    ],
)
def test_it_is_said_why_nothing_is_compiled(
    variables: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWITCHGEAR_PURE", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert build_backend.why_not_compiled() == reason
    assert not [name for name in build_backend.get_requires_for_build_wheel() if name.startswith("mypy")]


@pytest.fixture
def working_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that makes a small module, with nothing said about it in variables."""
    for name in ("CC", "CFLAGS", "LDSHARED", "SWITCHGEAR_PURE"):
        monkeypatch.delenv(name, raising=False)
    reason = build_backend.why_not_compiled()
    if reason:
        pytest.skip(reason)


@pytest.mark.usefixtures("working_compiler")
@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"CC": "false"}, "the C compiler (false) cannot make a small module"),
        ({"CC": "cc --no-such-option"}, "the C compiler (cc --no-such-option) cannot make a small module"),
        ({"CC": "cc", "LDSHARED": "false"}, "the C compiler (cc) cannot make a small module"),
        ({"CFLAGS": '"'}, "the options of the C compiler cannot be read: "),
    ],
)
def test_a_compiler_that_does_not_work_is_none(
    variables: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert build_backend.why_not_compiled().startswith(reason)


@pytest.mark.usefixtures("working_compiler")
def test_where_it_can_be_compiled_the_build_asks_for_mypyc() -> None:
    assert [name for name in build_backend.get_requires_for_build_wheel() if name.startswith("mypy")]


@pytest.mark.usefixtures("working_compiler")
def test_what_was_compiled_with_other_options_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "small.c").write_text(build_backend.SMALL_MODULE)

    def compiled_at_ns(options: str) -> int:
        shutil.rmtree(tmp_path / "lib", ignore_errors=True)  # as before every wheel
        environ = {**os.environ, "CFLAGS": options}
        subprocess.run(
            [sys.executable, "-c", BUILD_SMALL_MODULE], cwd=tmp_path, env=environ, check=True, capture_output=True
        )
        return (tmp_path / "temp" / "small.o").stat().st_mtime_ns

    first = compiled_at_ns("-DONE")
    assert compiled_at_ns("-DONE") == first
    assert compiled_at_ns("-DTWO") > first


def test_what_an_earlier_build_has_left_is_not_packed(
    tmp_path: Path, unpacked_sources: Path, without_compiler: dict[str, str]
) -> None:
    for name in ("build/lib/switchgear/deleted.py", "build/lib/0123__mypyc.so", "build/lib/switchgear/engine/old.so"):
        file = unpacked_sources / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    interrupted = unpacked_sources / "build" / f"bdist.{sysconfig.get_platform()}" / "wheel" / "half.py"
    interrupted.parent.mkdir(parents=True)
    interrupted.touch()
    wheel = build("wheel", unpacked_sources, tmp_path / "wheel", without_compiler)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "switchgear/engine/engine.py" in names
    assert not [name for name in names if name.endswith((".so", "deleted.py", "half.py"))]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [".venv/bin"],
        [".venv/bin", "build/compiled", "more"],
        [".venv/bin", "build"],
        [".venv/bin", "build/"],
        [".venv/bin", "build/.."],
        [".venv/bin", "build/a/../../src"],
        [".venv/bin", "{elsewhere}"],
        [".venv/bin", "{elsewhere}", "with a space/build/compiled"],
    ],
)
def test_the_script_that_unpacks_the_wheel_deletes_nothing_but_its_own(arguments: list[str], tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.touch()
    words = [word.format(elsewhere=tmp_path) for word in arguments]
    done = subprocess.run([ROOT / "scripts" / "build-compiled", *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: scripts/build-compiled BIN build/NAME\n")
    assert precious.exists()


def test_the_script_that_unpacks_the_wheel_says_that_there_is_no_pip() -> None:
    command = [str(ROOT / "scripts" / "build-compiled"), "no-such-place", "build/never-made"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "build-compiled: there is no no-such-place/pip in the checkout\n")


def test_make_gives_whole_paths_to_what_it_runs_in_a_checkout_with_a_space(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    (checkout / "Makefile").symlink_to(ROOT / "Makefile")
    (checkout / "pyproject.toml").touch()
    done = subprocess.run(
        ["make", "--dry-run", "unit", "bench", "bench-docs"], cwd=checkout, capture_output=True, text=True, check=True
    )
    assert 'scripts/build-compiled ".venv/bin" "build/compiled"' in done.stdout
    assert done.stdout.count(f'PYTHONPATH="{checkout}/build/compiled" ') == 3


def test_what_is_compiled_is_built_beside_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler reads the types of other packages, and a build of its own has none of them by itself."""
    monkeypatch.setenv("SWITCHGEAR_PURE", "0")
    required = build_backend.get_requires_for_build_wheel()
    assert any(requirement.startswith("mypy>=") for requirement in required)
    for package in ("msgspec", "pyzmq", "cronsim", "librt"):
        assert any(requirement.startswith(package) for requirement in required)
