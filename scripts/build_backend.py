"""Builds the package with setuptools, and asks for mypyc only where its output can be compiled."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

# pip asks the backend before it reads which Python the package requires, and prints all that the backend prints.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"Switchgear requires Python 3.11 or later, and this is {sys.version.split()[0]}.")

import tomllib

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
    "why_not_compiled",
]

MYPYC = "mypy>=2.4,<3"

# What every compiled module needs: the headers, and to be linked as a library that Python loads.
SMALL_MODULE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "small", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_small(void) { return PyModule_Create(&module); }
"""


def get_requires_for_build_wheel(config_settings: dict[str, str | list[str] | None] | None = None) -> list[str]:
    """What has to be installed to build a wheel here."""
    requires = build_meta.get_requires_for_build_wheel(config_settings)
    return requires if _why_no_c() else [*requires, MYPYC, *_dependencies()]


def _dependencies() -> list[str]:
    """What the package needs to run: its types are what the compiler has to know of it."""
    with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
        found: list[str] = tomllib.load(file)["project"]["dependencies"]
    return found


def why_not_compiled() -> str:
    """Why the package is built without compiled modules, or nothing if it is built with them."""
    return _why_no_c() or ("" if find_spec("mypyc") is not None else "mypyc is not installed")


def _why_no_c() -> str:
    if os.environ.get("SWITCHGEAR_PURE", "") not in ("", "0"):
        return "SWITCHGEAR_PURE is set"
    named = os.environ.get("CC", sysconfig.get_config_var("CC") or "cc")
    try:
        compiler = shlex.split(named)[0]
    except (IndexError, ValueError):  # nothing but spaces, or a quote that is not closed
        return f"there is no C compiler (CC is {named!r})"
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's header files are not installed"
    return _why_no_module(named)


def _why_no_module(named: str) -> str:
    """Compile a small module just as setuptools compiles any: a program of the right name need not be able to."""
    from distutils.ccompiler import new_compiler  # setuptools' own, once that is imported
    from distutils.errors import CCompilerError, DistutilsError
    from distutils.sysconfig import customize_compiler

    with tempfile.TemporaryDirectory(prefix="switchgear-build-") as folder:
        source = Path(folder, "small.c")
        source.write_text(SMALL_MODULE)
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            include_dirs = [sysconfig.get_path("include"), sysconfig.get_path("platinclude")]
            objects = compiler.compile([str(source)], output_dir=folder, include_dirs=include_dirs)
            compiler.link_shared_object(objects, str(Path(folder, "small.so")))
        except ValueError as error:
            return f"the options of the C compiler cannot be read: {error}"
        except (CCompilerError, DistutilsError, OSError):  # it has said itself what it does not like
            return f"the C compiler ({named}) cannot make a small module"
    return ""
