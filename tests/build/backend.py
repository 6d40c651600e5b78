"""The backend that builds the package, which is no part of it."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_SPEC = spec_from_file_location("build_backend", Path(__file__).parents[2] / "scripts" / "build_backend.py")
assert _SPEC is not None
assert _SPEC.loader is not None
build_backend = module_from_spec(_SPEC)
sys.modules["build_backend"] = build_backend
_SPEC.loader.exec_module(build_backend)
