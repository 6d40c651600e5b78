"""Import rules: a module knows the layers below its own, and neighbours do not know each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import switchgear

ROOT = Path(switchgear.__file__).parent

# From the bottom up.  Packages of one layer do not know each other, unless the package is the same.
LAYERS = (
    ("tags",),
    (
        *(
            "backoff",
            "errors",
            "json_bytes",
            "lazily",
            "log_format",
            "memory",
            "numbers",
            "partitions",
            "policy",
            "resources",
            "states",
            "text",
            "trace_context",
            "units",
        ),
        "toml_file",
        "version",
    ),
    ("protocol_registry", "postgresql", "dashboard"),
    ("model", "config", "timetable", "job_options", "refusals", "verbs"),
    ("engine", "access"),
    ("protocols", "storage", "joblog", "telemetry"),
    ("net",),
    ("client",),
    ("app", "hosting", "forwarding"),
    ("testing", "contrib", "compat", "bench"),
    ("cli",),
)
LAYER_OF = {package: number for number, packages in enumerate(LAYERS) for package in packages}

# What the engine must not touch, since commands and the time are all that may go into it.
IMPURE = {
    "asyncio", "datetime", "logging", "os", "pathlib", "random", "secrets", "select", "signal", "socket", "sqlite3",
    "subprocess", "sys", "threading", "time", "uuid", "uvloop", "zmq",
}  # fmt: skip

# What all protocols share: the modules that lie beside their folders.
SHARED = {path.stem for path in (ROOT / "protocols").glob("*.py")}

# The 2005 draft has no listener of its own: it is spoken where Gearman is.
NEIGHBOURS = {("switchgear.protocols.gearman.listener", "gearman_draft")}

MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "switchgear")
    return found


def module_name(path: Path) -> str:
    return ".".join(("switchgear", *path.relative_to(ROOT).with_suffix("").parts))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_only_from_below(path: Path) -> None:
    own = package_of(module_name(path))
    for imported in imports_of(path):
        if not imported.startswith("switchgear."):
            continue
        other = package_of(imported)
        if other == own:
            continue
        assert LAYER_OF[other] < LAYER_OF[own], f"{module_name(path)} imports {imported}"


@pytest.mark.parametrize("path", [p for p in MODULES if package_of(module_name(p)) == "protocols"], ids=module_name)
def test_protocols_do_not_know_each_other(path: Path) -> None:
    own = module_name(path).split(".")[2]
    for imported in imports_of(path):
        parts = imported.split(".")
        if parts[:2] == ["switchgear", "protocols"] and len(parts) > 2:
            known = parts[2] == own or parts[2] in SHARED or (module_name(path), parts[2]) in NEIGHBOURS
            assert known, f"{module_name(path)} imports {imported}"


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if package_of(module_name(p)) in ("engine", "model", "states", "errors")],
    ids=module_name,
)
def test_the_engine_is_pure(path: Path) -> None:
    touched = {name.split(".")[0] for name in imports_of(path)} & IMPURE
    assert not touched, f"{module_name(path)} imports {touched}"


def test_every_package_is_in_a_layer() -> None:
    packages = {package_of(module_name(path)) for path in MODULES}
    assert packages <= LAYER_OF.keys()
