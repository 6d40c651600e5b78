"""Describes the machine and the software of a measurement."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from importlib import metadata
from pathlib import Path

from switchgear import version

__all__ = ["build", "describe", "file_system_of"]


def build() -> str:
    """Whether the hot modules run compiled: "compiled" or "pure"."""
    return version.BUILD


def describe(directory: Path) -> dict[str, str]:
    """The processor, memory, system and versions; `directory` is where databases are kept."""
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in _installed(("uvloop", "pyzmq", "msgspec")))
    load = f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "measured": time.strftime("%Y-%m-%d"),
        "switchgear": f"{version.VERSION} ({build()})",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": f"{libraries}, SQLite {sqlite3.sqlite_version}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "load at the start": load,
        "file system": file_system_of(directory),
    }


def _installed(names: tuple[str, ...]) -> list[str]:
    there = {distribution.metadata["Name"] for distribution in metadata.distributions()}
    return [name for name in names if name in there]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def file_system_of(directory: Path) -> str:
    """The type of the file system of a path, because a sync costs nothing in memory."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    place = directory.resolve()
    best, kind = Path("/"), "unknown"
    for line in mounts:
        _, point, name = line.split()[:3]
        mounted = Path(point.encode().decode("unicode_escape"))
        if place.is_relative_to(mounted) and len(mounted.parts) >= len(best.parts):
            best, kind = mounted, name
    return kind
