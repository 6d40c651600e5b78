"""The version of the package, and whether the running modules are compiled."""

from importlib.util import find_spec

__all__ = ["BUILD", "VERSION"]

VERSION = "0.1.0"


def _build() -> str:
    """Whether the engine is compiled, which stands for all compiled modules: they are built together or not at all."""
    spec = find_spec("switchgear.engine.engine")
    is_source = spec is None or spec.origin is None or spec.origin.endswith((".py", ".pyc"))
    return "pure" if is_source else "compiled"


BUILD = _build()  # "compiled" or "pure"
