"""Whatever reads bytes of strangers is in the table of fuzz targets."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import switchgear
from fuzz.targets import TARGETS

PACKAGE = Path(switchgear.__file__).parent
COVERED = {module for target in TARGETS.values() for module in target.covers}

# What a module has that reads a stranger's bytes: one of these functions or methods.
READERS = {"receive", "receive_message", "feed", "unpack", "unreachable"}
READING_VERBS = ("decode", "parse_", "read_", "split_", "on_")


# Modules whose reads are reads of the store.
READS_THE_STORE = {"protocols.context"}


def reads(path: Path) -> bool:
    """Whether a module defines a codec, a session or a handler."""
    if module_name(path) in READS_THE_STORE:
        return False
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and (
            node.name in READERS or node.name.lstrip("_").startswith(READING_VERBS)
        ):
            return True
    return False


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


MODULES = sorted(path for path in (PACKAGE / "protocols").rglob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("path", [path for path in MODULES if reads(path)], ids=module_name)
def test_a_codec_or_session_has_a_target(path: Path) -> None:
    assert module_name(path) in COVERED


def test_every_protocol_has_a_codec_and_a_session() -> None:
    folders = {path.parent.name for path in MODULES} - {"protocols"}
    for folder in folders:
        targets = [name for name, target in TARGETS.items() if any(f"protocols.{folder}." in m for m in target.covers)]
        assert any(name.endswith("-session") for name in targets), folder
        assert any(not name.endswith("-session") for name in targets), folder


CLIENT_FOLDERS = sorted(path.parent.name for path in (PACKAGE / "client").glob("*/__init__.py"))


@pytest.mark.parametrize("folder", CLIENT_FOLDERS)
def test_every_client_has_a_target(folder: str) -> None:
    targets = [name for name, target in TARGETS.items() if any(f"client.{folder}." in m for m in target.covers)]
    assert any(name.endswith(("-client", "-worker")) for name in targets)


@pytest.mark.parametrize(
    "module",
    ["net.connections.zmtp_listener", "net.owners.messages", "access.access_file", "app.payloads.codec"],
)
def test_readers_outside_the_protocols_have_a_target(module: str) -> None:
    assert module in COVERED


@pytest.mark.parametrize("module", sorted(COVERED))
def test_what_a_target_covers_is_there(module: str) -> None:
    assert PACKAGE.joinpath(*module.split(".")).with_suffix(".py").is_file()
