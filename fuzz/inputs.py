"""The files of a target: its corpus, its regressions, and inputs that failed and were not looked at yet."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from fuzz.target import Target

__all__ = ["FAILURES", "ROOT", "WORKING", "corpus_of", "kept_inputs", "regressions_of", "saved"]

# Where this is compiled (see campaign.py), the corpus is a link to that of the checkout.
ROOT: Final = (Path(__file__).parent / "corpus").resolve().parent
WORKING: Final = ROOT.parent / "build" / "fuzz"  # what is found on the way; not kept in the repository
FAILURES: Final = WORKING / "failures"


def corpus_of(target: Target) -> list[Path]:
    """Inputs that reach different parts of the reader."""
    return _files(ROOT / "corpus" / target.name)


def regressions_of(target: Target) -> list[Path]:
    """Inputs that once failed."""
    return _files(ROOT / "regressions" / target.name)


def kept_inputs(target: Target) -> list[bytes]:
    """Both."""
    return [path.read_bytes() for path in (*corpus_of(target), *regressions_of(target))]


def saved(folder: Path, data: bytes) -> Path:
    """Write an input under a name made from its contents."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha1(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
