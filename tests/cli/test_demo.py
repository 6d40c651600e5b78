"""`serve --demo`: a job from every submitter to every worker."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import zmq.auth

from switchgear.cli import demo as demo_module
from switchgear.cli.demo import Demo
from switchgear.cli.demo_addresses import FUNCTION, DemoAddresses, with_demo_listeners
from switchgear.cli.demo_submitters import SUBMITTERS
from switchgear.cli.demo_workers import WORKERS, Do
from switchgear.client import Client
from switchgear.config import Config, ListenUrl
from switchgear.errors import ServerUnreachable
from switchgear.protocol_registry import built_in_protocols
from tests.support.servers import HOST
from tests.support.waiting import DEADLINE_SECONDS

ALL = tuple(name for name, protocol in built_in_protocols().items() if not protocol.is_outgoing)
GEARMAN = {"Gearman", "2005 draft", "Python API"}  # what is spoken at a Gearman listener
TICK = "✓"


class Shown:
    """What a server with a demo has printed until it was over."""

    def __init__(self, lines: list[str]) -> None:
        self.listening = [line.split()[-1] for line in lines if line.startswith("listening on ")]
        self.said = [line for line in lines if line.startswith("demo: ")]
        self.last = self.said[-1]
        first = next((place for place, line in enumerate(lines) if line.startswith("demo: a job from")), len(lines))
        table = [line for line in lines[first + 1 :] if not line.startswith("demo: ")]
        self.columns = re.split(r" {2,}", table[0].strip()) if table else []
        self.rows = {name: cells.split() for name, cells in (re.split(r" {2,}", row, maxsplit=1) for row in table[1:])}


@contextmanager
def demo_server(*urls: str, flags: tuple[str, ...] = (), **environment: str) -> Iterator[Shown]:
    """A real server, when its demo is over; it has to end well when it is told to."""
    listeners = [f"--listen={url}" for url in urls]
    command = [sys.executable, "-m", "switchgear", "serve", "--demo", "--store=memory:", "--log-level=error"]
    server = subprocess.Popen(
        [*command, *listeners, *flags],
        env={"PYTHONPATH": str(Path(demo_module.__file__).parents[2]), "PYTHONIOENCODING": "utf-8"} | environment,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    with server:
        try:
            assert server.stdout is not None
            lines: list[str] = []
            while not lines or not re.match(r"demo: (\d+ of \d+ jobs|nothing to show)", lines[-1]):
                line = server.stdout.readline()
                assert line, f"it ended too early, after {lines}"
                lines.append(line.rstrip("\n"))
            yield Shown(lines)
        finally:
            server.terminate()
            assert server.wait(DEADLINE_SECONDS) == 0


def free(scheme: str) -> str:
    return f"{scheme}://{HOST}:0" + ("?workers=0" if scheme == "pingpong" else "")


# --- with a server ---


@pytest.mark.system
def test_every_pair_has_a_tick() -> None:
    with demo_server(*map(free, ALL)) as shown:
        assert shown.columns == list(WORKERS)
        assert shown.rows == {submitter: [TICK] * len(WORKERS) for submitter in SUBMITTERS}
        jobs = len(SUBMITTERS) * len(WORKERS)
        assert re.fullmatch(rf"demo: {jobs} of {jobs} jobs came back in [0-9.]+ s; serving until Ctrl-C", shown.last)


@pytest.mark.system
def test_the_demo_takes_nobodys_jobs_and_leaves_none_behind() -> None:
    mine = ["--listen=pingpong://127.0.0.1:0?workers=0&function=mine", "--listen=dwork://127.0.0.1:0?function=mine"]
    with demo_server(free("gearman"), flags=tuple(mine)) as shown, Client(shown.listening[0]) as client:
        counts = {line.split("\t")[0]: line.split("\t")[1:3] for line in client.admin("status")}
        assert counts.get(FUNCTION) == ["0", "0"]
        assert set(counts) <= {FUNCTION, "mine"}
        assert shown.rows["PING/PONG"] == shown.rows["dwork"] == [TICK] * len(shown.columns)


@pytest.mark.system
@pytest.mark.parametrize(
    ("schemes", "rows", "columns"),
    [
        (("gearman",), GEARMAN, GEARMAN),
        (("gearman", "wmp"), GEARMAN, {*GEARMAN, "WMP"}),
        (("pingpong", "dwork"), {"PING/PONG", "dwork"}, {"PING/PONG", "dwork"}),
        (("gearmonkey",), {"GearMonkey"}, {"GearMonkey"}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_only_what_is_spoken_is_shown(schemes: tuple[str, ...], rows: set[str], columns: set[str]) -> None:
    with demo_server(*map(free, schemes)) as shown:
        assert set(shown.rows) == rows
        assert set(shown.columns) == columns
        assert all(cells == [TICK] * len(columns) for cells in shown.rows.values())


@pytest.mark.system
def test_where_nobody_can_submit_there_is_nothing_to_show() -> None:
    with demo_server(free("wmp")) as shown:
        assert shown.last == "demo: nothing to show: there is no listener for those who submit jobs"


@pytest.mark.system
def test_a_terminal_without_ticks_is_given_words() -> None:
    with demo_server(free("gearmonkey"), PYTHONIOENCODING="ascii") as shown:
        assert shown.rows == {"GearMonkey": ["ok"]}


@pytest.mark.system
@pytest.mark.parametrize("knows_clients", [False, True], ids=["whoever-has-the-key", "only-known-keys"])
def test_encrypted_listeners(tmp_path: Path, knows_clients: bool) -> None:
    zmq.auth.create_certificates(tmp_path, "server")
    flags = [f"--set=zeromq.curve_key_file={tmp_path / 'server.key_secret'}"]
    if knows_clients:
        (tmp_path / "clients").mkdir()
        flags.append(f"--set=zeromq.curve_clients_dir={tmp_path / 'clients'}")
    with demo_server(free("pingpong"), free("gearmonkey"), flags=tuple(flags)) as shown:
        if knows_clients:
            assert shown.rows == {"GearMonkey": [TICK]}
            assert shown.said[0].startswith("demo: without PING/PONG, WMP and dwork")
        else:
            assert shown.rows == {"PING/PONG": [TICK, TICK], "GearMonkey": [TICK, TICK]}


# --- without one ---


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], str]:
    """What a demo prints, with submitters that do not wait long."""
    monkeypatch.setattr(demo_module, "JOB_SECONDS", 0.1)

    def said(addresses: list[str]) -> str:
        Demo(Config())(addresses)
        return capsys.readouterr().out

    return said


def test_what_fails_has_a_cross_and_a_reason(say: Callable[[list[str]], str]) -> None:
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))
        port = nobody.getsockname()[1]
        output = say([f"gearman://{HOST}:{port}"])
    assert "\nGearman     ✗        ✗           ✗\n2005 draft  ✗        ✗           ✗\n" in output
    assert re.search(rf"demo: .*Gearman to Gearman, .*: cannot connect to gearman://{HOST}:{port}", output)
    assert "demo: 0 of " in output


def test_a_wrong_result_is_a_failure(say: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[Do] = []

    def submit(addresses: DemoAddresses, payload: bytes, timeout_seconds: float) -> bytes:
        workers[0](payload)
        return b"nonsense"

    def work(addresses: DemoAddresses, do: Do) -> nullcontext[None]:
        workers.append(do)
        return nullcontext()

    monkeypatch.setitem(SUBMITTERS, "GearMonkey", submit)
    monkeypatch.setitem(WORKERS, "GearMonkey", work)
    assert "demo: GearMonkey to GearMonkey: came back as b'nonsense'\n" in say([f"gearmonkey://{HOST}:1"])


def test_it_matters_who_has_done_it(say: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUBMITTERS, "GearMonkey", lambda addresses, payload, timeout_seconds: payload[::-1])
    monkeypatch.setitem(WORKERS, "GearMonkey", lambda addresses, do: nullcontext())
    assert "demo: GearMonkey to GearMonkey: another worker has done it\n" in say([f"gearmonkey://{HOST}:1"])


def test_a_worker_that_cannot_begin_fails_its_column(
    say: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worker(addresses: DemoAddresses, do: Callable[[bytes], bytes]) -> None:
        raise ServerUnreachable("it is not there")

    monkeypatch.setitem(WORKERS, "GearMonkey", worker)
    assert "demo: GearMonkey to GearMonkey: it is not there\n" in say([f"gearmonkey://{HOST}:1"])


# --- its places ---


def test_listeners_for_one_function_get_one_for_the_demo() -> None:
    config = with_demo_listeners(Config())
    assert [str(url) for url in config.listen[len(Config().listen) :]] == [
        f"pingpong://127.0.0.1:0?workers=0&function={FUNCTION}",
        f"dwork://127.0.0.1:0?function={FUNCTION}",
    ]
    only_gearman = Config(listen=(ListenUrl("gearman", HOST, 4730),))
    assert with_demo_listeners(only_gearman) == only_gearman


def test_places_are_read_from_what_the_server_says() -> None:
    addresses = DemoAddresses.of(
        [
            "gearman://0.0.0.0:4730",
            "gearman://[::]:4730",
            "wmp://127.0.0.1:5714?identity=me",
            "pingpong://127.0.0.1:5562?workers=5563",
            "dwork://127.0.0.1:6125",
            "gearmonkey://[::]:6380",
            "redis://elsewhere:6379/0",
            f"pingpong://127.0.0.1:1001?workers=1002&function={FUNCTION}",
            f"dwork://127.0.0.1:1003?function={FUNCTION}",
        ]
    )
    assert addresses.at("gearman") == "gearman://127.0.0.1:4730"
    assert addresses.at("wmp") == "wmp://127.0.0.1:5714"
    assert addresses.at("pingpong") == "pingpong://127.0.0.1:1001"
    assert addresses.at("pingpong", "workers") == "pingpong://127.0.0.1:1002"
    assert addresses.at("dwork") == "dwork://127.0.0.1:1003"
    assert addresses.at("gearmonkey") == "gearmonkey://[::1]:6380"
    assert not addresses.speaks("redis")
