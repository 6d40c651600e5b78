"""The registry of protocols: each declares itself once, and everything that lists protocols agrees with it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import switchgear
from switchgear import protocol_registry
from switchgear.cli.demo_addresses import SCHEME_OF
from switchgear.cli.demo_submitters import SUBMITTERS as DEMO_SUBMITTERS
from switchgear.cli.demo_workers import WORKERS as DEMO_WORKERS
from switchgear.config import Config, ListenUrl
from switchgear.errors import ConfigError
from switchgear.protocol_registry import (
    ListenerKind,
    ProtocolPlugin,
    built_in_protocols,
    find_protocol,
    load_factory,
    protocol_named,
)
from switchgear.protocols.session_factory import SessionFactory, TcpSessionFactory, ZeromqSessionFactory
from tests.matrix.sides import SUBMITTERS, WORKERS

ROOT = Path(__file__).parents[1]
PACKAGE = Path(switchgear.__file__).parent
PROTOCOLS = list(built_in_protocols().values())
LISTENED = [protocol for protocol in PROTOCOLS if not protocol.is_outgoing]
BASE_OF_KIND = {
    ListenerKind.TCP: TcpSessionFactory,
    ListenerKind.ZEROMQ: ZeromqSessionFactory,
    ListenerKind.OUTGOING: SessionFactory,
}

# Folders of `protocols/` without a listener of their own.
WITHOUT_LISTENER = {
    "gearman_draft",  # spoken at Gearman's listeners
    "zmtp",  # what ZeroMQ's protocols are carried by
}


def scheme_of(protocol: ProtocolPlugin) -> str:
    return protocol.scheme


def titles(protocols: list[ProtocolPlugin]) -> set[str]:
    return {page.title for protocol in protocols for page in protocol.pages}


def test_every_folder_of_a_protocol_declares_it() -> None:
    folders = {path.parent.name for path in (PACKAGE / "protocols").glob("*/__init__.py")}
    declared = {protocol.factory.split(".")[2] for protocol in LISTENED}
    assert folders == declared | WITHOUT_LISTENER


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=scheme_of)
def test_a_factory_is_of_its_kind(protocol: ProtocolPlugin) -> None:
    if protocol.extra:
        pytest.importorskip(protocol.extra)
    assert issubclass(load_factory(protocol), BASE_OF_KIND[protocol.kind])


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=scheme_of)
def test_the_default_of_every_option_can_be_read(protocol: ProtocolPlugin) -> None:
    url = ListenUrl(protocol.scheme, "127.0.0.1", protocol.default_port)
    for name, option in protocol.options.items():
        assert str(url.option(name)) == (f"{float(option.default)}" if option.kind == "seconds" else option.default)


def test_no_two_protocols_have_one_scheme_or_port() -> None:
    assert len({protocol.scheme for protocol in PROTOCOLS}) == len(PROTOCOLS)
    assert len({protocol.default_port for protocol in LISTENED}) == len(LISTENED)


def test_a_server_listens_for_every_protocol_by_default() -> None:
    assert [(url.scheme, url.port) for url in Config().listen] == [
        (protocol.scheme, protocol.default_port) for protocol in LISTENED
    ]


def test_submitters_and_workers_of_every_protocol_are_tried_with_each_other() -> None:
    python = {"Python API", "Python API, HTTP"}
    assert {side.title for side in SUBMITTERS.values()} == python | titles([p for p in PROTOCOLS if p.can_submit])
    assert {side.title for side in WORKERS.values()} == python | titles([p for p in PROTOCOLS if p.can_work])


def test_the_demo_shows_every_protocol_that_is_listened_for() -> None:
    python = {"Python API"}
    assert set(DEMO_SUBMITTERS) == python | titles([p for p in LISTENED if p.can_submit])
    assert set(DEMO_WORKERS) == python | titles([p for p in LISTENED if p.can_work])
    assert SCHEME_OF.keys() == set(DEMO_SUBMITTERS) | set(DEMO_WORKERS)


def readme_rows() -> dict[str, list[str]]:
    """The rows of README's table of protocols, by the default address of each."""
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "README.md").read_text().splitlines()]
    return {cells[1].strip("`"): cells for cells in rows if len(cells) == 3 and "://" in cells[1]}


def test_the_table_in_the_readme_has_the_protocols_in_order() -> None:
    assert list(readme_rows()) == [f"{p.scheme}://127.0.0.1:{p.default_port}" for p in LISTENED]


@pytest.mark.parametrize("protocol", LISTENED, ids=scheme_of)
def test_a_row_of_the_readme_says_what_the_registry_says(protocol: ProtocolPlugin) -> None:
    what, _, summary = readme_rows()[f"{protocol.scheme}://127.0.0.1:{protocol.default_port}"]
    assert re.findall(r"\]\(([^)]*)\)", what) == [page.path for page in protocol.pages]
    assert summary.startswith(protocol.summary)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=scheme_of)
def test_every_page_is_there(protocol: ProtocolPlugin) -> None:
    assert protocol.pages
    for page in protocol.pages:
        assert (ROOT / page.path).is_file(), page.path


def test_a_server_for_gearman_imports_no_other_protocol_and_neither_zeromq_nor_redis() -> None:
    program = """if True:
        import asyncio, sys
        from switchgear.config import Config, ListenUrl
        from switchgear.net.service import Service
        def on_listening():
            names = [name.split(".") for name in sys.modules if name.startswith("switchgear.protocols.")]
            folders = {parts[2] for parts in names if len(parts) > 3 and not parts[3].endswith("plugin")}
            print(sorted(folders), [name for name in ("zmq", "redis", "nacl") if name in sys.modules])
            service.request_stop(graceful=False)
        async def main():
            global service
            config = Config(store="memory:", listen=(ListenUrl("gearman", "127.0.0.1", 0),))
            service = Service(config, on_listening=on_listening)
            await service.run()
        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['gearman', 'gearman_draft'] []"


# --- protocols of other packages ---


PLUGIN_MODULE = """
from switchgear.protocol_registry import ListenerKind, ProtocolPlugin, UrlOption
LINE = ProtocolPlugin(
    "line", "line", 4747, ListenerKind.TCP, "nowhere:Factory", "a test", options={"speed": UrlOption("1", "of it")}
)
NOT_A_PLUGIN = 7
"""


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that registers some protocols."""
    (tmp_path / "line_protocol.py").write_text(PLUGIN_MODULE)
    info = tmp_path / "line_protocol-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: line-protocol\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[switchgear.protocols]\n"
        "line = line_protocol:LINE\n"
        "number = line_protocol:NOT_A_PLUGIN\n"
        "absent = line_protocol:ABSENT\n"
        "gearman = line_protocol:LINE\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    protocol_registry._find_entry_point.cache_clear()
    yield
    protocol_registry._find_entry_point.cache_clear()


@pytest.mark.usefixtures("other_package")
def test_another_package_can_add_a_protocol() -> None:
    url = ListenUrl.parse("line://127.0.0.1?speed=3")
    assert (url.port, url.option("speed")) == (4747, "3")
    with pytest.raises(ValueError, match="has the unknown option sped; did you mean speed"):
        ListenUrl.parse("line://127.0.0.1?sped=3")
    assert all(url.scheme != "line" for url in Config().listen)  # only if a URL names it


@pytest.mark.usefixtures("other_package")
def test_a_protocol_of_this_package_cannot_be_replaced() -> None:
    assert protocol_named("gearman").default_port == 4730


@pytest.mark.usefixtures("other_package")
@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("number", "line-protocol registers line_protocol:NOT_A_PLUGIN, which is not the protocol number"),
        ("absent", "the protocol absent of the package line-protocol cannot be loaded: AttributeError"),
    ],
)
def test_a_package_that_registers_something_else_is_named(scheme: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_protocol(scheme)


def test_nobody_has_this_scheme() -> None:
    assert find_protocol("telepathy") is None
    with pytest.raises(LookupError, match="no protocol has the scheme telepathy"):
        protocol_named("telepathy")
