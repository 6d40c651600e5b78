"""Builds the package with setuptools, and asks for mypyc only where its output can be compiled."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path

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


def get_requires_for_build_wheel(config_settings: dict[str, str | list[str] | None] | None = None) -> list[str]:
    """What has to be installed to build a wheel here."""
    requires = build_meta.get_requires_for_build_wheel(config_settings)
    return requires if _why_no_c() else [*requires, MYPYC]


def why_not_compiled() -> str:
    """Why the package is built without compiled modules, or nothing if it is built with them."""
    return _why_no_c() or ("" if find_spec("mypyc") is not None else "mypyc is not installed")


def _why_no_c() -> str:
    if os.environ.get("SWITCHGEAR_PURE", "") not in ("", "0"):
        return "SWITCHGEAR_PURE is set"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's header files are not installed"
    return ""
