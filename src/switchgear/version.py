"""The version of the package, and whether the running modules are compiled."""

import os
from importlib.machinery import EXTENSION_SUFFIXES

__all__ = ["BUILD", "VERSION"]

VERSION = "0.1.0"


def _build() -> str:
    """Whether the engine is compiled, which stands for all compiled modules: they are built together or not at all.

    Its file is looked for, because importing it would load the whole shared library into programs that only submit.
    """
    engine = os.path.join(os.path.dirname(__file__), "engine", "engine")
    return "compiled" if any(os.path.exists(engine + suffix) for suffix in EXTENSION_SUFFIXES) else "pure"


BUILD = _build()  # "compiled" or "pure"
