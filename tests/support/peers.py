"""Programs of other people that tests need: a missing one is a skip at home and a failure in CI."""

from __future__ import annotations

import os
import shutil
from glob import glob
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

DEBIAN_PACKAGE = {
    "cc": "gcc libc6-dev",
    "gearmand": "gearman-job-server",
    "gearman": "gearman-tools",
    "gearadmin": "gearman-tools",
    "initdb": "postgresql",
    "pgbouncer": "pgbouncer",
    "postgres": "postgresql",
    "redis-cli": "redis-tools",
    "openssl": "openssl",
    "curl": "curl",
    "nginx": "nginx-light",
    "node": "nodejs",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
}

NODE_FOLDER = Path(__file__).parents[1] / "interop" / "node"

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


def require_node_script(name: str, folder: Path = NODE_FOLDER) -> list[str]:
    """The command that runs a script of ours, or of others, with the libraries that it uses."""
    node = require_program("node")
    if not (folder / "node_modules").is_dir() or not (folder / name).exists():
        _is_missing(f"libraries for Node are not installed: npm ci --prefix {folder}")
    return [node, str(folder / name)]


def require_c_library(header: str, package: str) -> None:
    """Fail or skip unless the headers of a C library are installed."""
    require_file(Path("/usr/include", header), package)


def require_file(path: Path, package: str) -> None:
    """Fail or skip unless a file of a Debian package is installed."""
    if not path.exists():
        _is_missing(f"{path} is not installed: apt install {package}")


def _is_missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
