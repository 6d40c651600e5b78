"""Programs of other people that tests need: a missing one is a skip at home and a failure in CI."""

from __future__ import annotations

import os
import shutil
from glob import glob
from types import ModuleType
from typing import NoReturn

import pytest

DEBIAN_PACKAGE = {
    "gearmand": "gearman-job-server",
    "gearman": "gearman-tools",
    "gearadmin": "gearman-tools",
    "initdb": "postgresql",
    "postgres": "postgresql",
}

# Debian puts servers where an ordinary user's PATH does not look.
_MORE_PLACES = ":".join(["/usr/sbin:/usr/local/sbin:/sbin", *sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True)])


def require_program(name: str) -> str:
    """The path of an installed program."""
    found = shutil.which(name) or shutil.which(name, path=_MORE_PLACES)
    if found is None:
        package = DEBIAN_PACKAGE.get(name, name)
        _is_missing(f"{name} is not installed: apt install {package}")
    return found


def require_gear() -> ModuleType:
    """PyPI's ``gear``, a client and worker library written by OpenStack."""
    try:
        import gear
    except ImportError:
        _is_missing("the library gear is not installed: pip install gear")
    module: ModuleType = gear
    return module


def _is_missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
