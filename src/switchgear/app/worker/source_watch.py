"""`SourceWatch`: detects changed source files of a program, for `switchgear worker --reload`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["SourceWatch"]


class SourceWatch:
    """Watches the files of all loaded modules below a directory, and given further files.

    Installed packages are left out, even those in a virtual environment below the directory.
    """

    def __init__(self, root: str, more: Iterable[str] = ()) -> None:
        self._root = Path(root).resolve()
        self._more = tuple(more)
        self._seen: dict[str, int] = {}
        self.changes()

    def changes(self) -> list[str]:
        """The files that were changed or removed since they were first seen."""
        for file in self._files():
            self._seen.setdefault(file, _modified_ns(file))
        return sorted(file for file, seen_ns in self._seen.items() if _modified_ns(file) != seen_ns)

    def _files(self) -> list[str]:
        loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        return [file for file in (*loaded, *self._more) if isinstance(file, str) and self._is_ours(file)]

    def _is_ours(self, file: str) -> bool:
        path = Path(file)
        if path.suffix != ".py" or "site-packages" in path.parts:
            return False
        return self._root in Path(os.path.abspath(path)).parents


def _modified_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0
