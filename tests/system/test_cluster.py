"""Several servers on one PostgreSQL: any of them is reached, and when the owner ends, another one goes on."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest

from switchgear import App
from switchgear.access.access_file import AccessEntry, AccessList, write_access_file
from switchgear.access.tokens import digest_of
from switchgear.app.worker.background_worker import start_background
from switchgear.client.gearman.blocking import Client
from switchgear.errors import ClientError, ServerRefused, SwitchgearError
from switchgear.verbs.access import Role
from tests.support import waiting
from tests.support.certificates import make_certificates
from tests.support.postgres import Cluster, running_postgres, running_standby
from tests.support.proxy import cuttable
from tests.support.servers import HOST, answers_version, free_port

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("postgresql"), pytest.mark.timeout(240)]

LEASE_SECONDS = 1.0
# Three servers and a database start and restart here, on a machine that may have other work.
PATIENCE_SECONDS = 60.0

eventually = partial(waiting.eventually, within_seconds=PATIENCE_SECONDS)


class Node:
    """One server of a cluster, started again and again at the same address."""

    def __init__(self, name: str, store: str, place: Path, *settings: str, options: str = "", host: str = HOST) -> None:
        """`host` and `options` are those of the Gearman listener."""
        self.name = name
        self.store = store
        self.place = place
        self.port, self.pingpong_port, self.workers_port = (free_port() for _ in range(3))
        self._log = place / f"{name}.log"
        self._command = [sys.executable, "-m", "switchgear", "serve", "--store", store, "--joblog", "off"]
        self._command += ["--listen", f"gearman://{host}:{self.port}{options}", "--allow-remote"]
        self._command += ["--listen", f"pingpong://{HOST}:{self.pingpong_port}?workers={self.workers_port}"]
        for setting in ("cluster.enabled=true", f"cluster.name={name}", f"cluster.lease_seconds={LEASE_SECONDS}"):
            self._command += ["--set", setting]
        for setting in settings:
            self._command += ["--set", setting]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_and_wait(self) -> None:
        self.start()
        eventually(lambda: answers_version(self.port), f"{self.name} answers")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def output(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def says(self, text: str) -> bool:
        return text in self.output()

    def client(self) -> Client:
        return Client(f"gearman://{HOST}:{self.port}")

    def nodes(self) -> dict[str, str]:
        """The role of each node, as seen through this one."""
        with self.client() as client:
            return {node["name"]: node["role"] for node in client.control("nodes")}


@pytest.fixture
def database(postgres: Cluster) -> str:
    return postgres.new_url()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def nodes(database: str, tmp_path: Path) -> Iterator[list[Node]]:
    made = [Node(name, database, tmp_path, "cluster.allow_async=true") for name in ("ada", "bob", "cleo")]
    with ExitStack() as stack:
        for node in made:
            stack.callback(node.end)
        yield made


def owner_of(nodes: list[Node]) -> Node:
    def look() -> Node | None:
        for node in nodes:
            try:
                roles = node.nodes()
            except (SwitchgearError, OSError):
                continue
            for each in nodes:
                if roles.get(each.name) == "owner":
                    return each
        return None

    found = eventually(look, "a node owns the jobs")
    assert found is not None
    return found


def test_any_node_is_reached_and_sees_the_same(nodes: list[Node]) -> None:
    for node in nodes:
        node.start_and_wait()
    handles = set()
    for node in nodes:
        with node.client() as client:
            handles.add(client.submit("f", node.name.encode(), background=True).handle)
    assert len({handle.rpartition(":")[0] for handle in handles}) == 1  # one prefix
    eventually(lambda: len(nodes[2].nodes()) == 3, "all nodes are listed")
    assert sorted(nodes[1].nodes().values()) == ["owner", "standby", "standby"]
    for node in nodes:
        with node.client() as client:
            assert len(client.control("jobs")["jobs"]) == 3


def test_the_owner_knows_who_is_behind_a_standby(nodes: list[Node]) -> None:
    """Here a client that comes from an address of this machine that is not a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has only loopback addresses")
        own_host = str(probe.getsockname()[0])
    ada, bob = (
        Node(node.name, node.store, node.place, "cluster.allow_async=true", host="0.0.0.0") for node in nodes[:2]
    )
    with ExitStack() as stack:
        for node in (ada, bob):
            stack.callback(node.end)
            node.start_and_wait()
        with socket.create_connection((own_host, bob.port)) as client, Client(f"gearman://{HOST}:{ada.port}") as asking:
            host, port = client.getsockname()
            client.sendall(b"version\n")
            assert client.recv(100).startswith(b"OK")
            addresses = {connection["address"] for connection in asking.control("connections")["connections"]}
            assert f"{host}:{port}" in addresses


def test_a_graceful_stop_hands_over_at_once(nodes: list[Node]) -> None:
    nodes[0].start_and_wait()
    nodes[1].start_and_wait()
    with nodes[1].client() as client:
        handle = client.submit("f", b"1", background=True).handle
    began_s = time.monotonic()
    nodes[0].signal(signal.SIGTERM)
    assert nodes[0].wait() == 0
    eventually(lambda: owner_of(nodes[1:2]) is nodes[1], "the other node owns the jobs")
    assert time.monotonic() - began_s < 20
    with nodes[1].client() as client:
        assert [job["handle"] for job in client.control("jobs")["jobs"]] == [handle]
    assert "this node (bob) owns the jobs from now on" in nodes[1].output()


def test_a_frozen_owner_is_replaced_and_says_nothing_more(nodes: list[Node]) -> None:
    nodes[0].start_and_wait()
    nodes[1].start_and_wait()
    with nodes[0].client() as client:
        client.submit("f", b"1", background=True)
    nodes[0].signal(signal.SIGSTOP)
    assert owner_of(nodes[1:2]) is nodes[1]
    with nodes[1].client() as client:
        assert len(client.control("jobs")["jobs"]) == 1
    nodes[0].signal(signal.SIGCONT)
    assert nodes[0].wait() == 75
    assert "another server has taken over" in nodes[0].output()


def test_nothing_acknowledged_is_lost_in_any_takeover(nodes: list[Node]) -> None:
    """Clients submit at all nodes, while owners are killed and frozen."""
    for node in nodes:
        node.start_and_wait()
    acknowledged: list[str] = []
    stop = threading.Event()
    threads = [threading.Thread(target=submit_on, args=(node, acknowledged, stop), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for fault in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP):
        wait_for_more(acknowledged, nodes)
        owner = owner_of(nodes)
        owner.signal(fault)
        if fault is signal.SIGSTOP:
            wait_for_more(acknowledged, nodes)  # from another node
            owner.signal(signal.SIGCONT)
            assert owner.wait() == 75
        else:
            owner.wait()
        owner.start()
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    stored = handles_at(owner_of(nodes))
    assert len(acknowledged) > 100
    assert not set(acknowledged) - stored


def test_the_library_follows_its_jobs_through_takeovers(nodes: list[Node]) -> None:
    """An app and its worker know the nodes, and neither is told that the owner was killed or stopped."""
    for node in nodes:
        node.start_and_wait()
    url = "+".join(f"{HOST}:{node.port}" for node in nodes)
    with App(f"gearman://{url}", connect_seconds=60) as app:
        release = threading.Event()

        @app.task(name="wait")
        def wait(number: int) -> int:
            release.wait(60)
            return number

        jobs = [wait.submit(number) for number in range(20)]
        with start_background(app, 4, functions=["wait"]) as worker:
            eventually(lambda: worker.connected, "the worker is connected")
            for fault in (signal.SIGKILL, signal.SIGTERM):
                owner = owner_of(nodes)
                owner.signal(fault)
                owner.wait()
                owner.start()
                jobs.append(wait.submit(len(jobs)))
            release.set()
            assert [job.result(PATIENCE_SECONDS) for job in jobs] == list(range(22))


def owner_name(database: str) -> str:
    """The node that owns the jobs, as the database says."""
    with psycopg.connect(database) as connection:
        ((name,),) = connection.execute(b"SELECT name FROM sg_lease").fetchall()
        return str(name).removeprefix("node ").partition(",")[0]


def wait_for_more(acknowledged: list[str], nodes: list[Node]) -> None:
    """More submissions than can be on their way are acknowledged."""
    before = len(acknowledged)
    try:
        eventually(lambda: len(acknowledged) > before + 20, "submissions are acknowledged")
    except AssertionError as error:
        raise AssertionError("\n".join(node.output() for node in nodes)) from error


def submit_on(node: Node, acknowledged: list[str], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            with node.client() as client:
                while not stop.is_set():
                    acknowledged.append(client.submit("f", b"x", background=True).handle)
        except (ClientError, SwitchgearError, OSError, TimeoutError):
            stop.wait(0.05)


def handles_at(node: Node) -> set[str]:
    handles: set[str] = set()
    before = 0
    with node.client() as client:
        while before is not None:
            page = client.control("jobs", limit=1000, before_id=before)
            handles |= {job["handle"] for job in page["jobs"]}
            before = page["next_before_id"]
    return handles


def test_an_owner_that_is_cut_off_from_the_database_is_replaced(
    postgres: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It acknowledges nothing meanwhile, and ends when it finds out."""
    with cuttable(postgres.port) as network:
        far = postgres.new_url(network.port)
        near = far.replace(f":{network.port}/", f":{postgres.port}/")
        ada = Node("ada", far, tmp_path, "cluster.allow_async=true")
        bob = Node("bob", near, tmp_path, "cluster.allow_async=true")
        for node in (ada, bob):
            request.addfinalizer(node.end)
            node.start_and_wait()
        with ada.client() as client:
            kept = client.submit("f", b"1", background=True).handle
        network.go_away()
        impatient = Client(f"gearman://{HOST}:{ada.port}", timeout_seconds=2 * LEASE_SECONDS)
        with impatient, pytest.raises((ClientError, SwitchgearError)):
            impatient.submit("f", b"2", background=True)
        assert owner_of([bob]) is bob
        with bob.client() as client:
            later = client.submit("f", b"3", background=True).handle
        network.come_back()
        assert ada.wait() == 75
        assert {kept, later} == handles_at(bob)


def test_a_node_that_is_started_again_does_not_pass_connections_on_to_itself(
    nodes: list[Node], database: str, stack: ExitStack
) -> None:
    """It was the owner, and until its lease has ended it is the owner still, at the same address."""
    ada = nodes[0]
    ada.start_and_wait()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(b"UPDATE sg_lease SET process = ''")  # as if nobody could see that it has ended
    ada.end()
    ada.start()
    eventually(lambda: ada.output().count("standing by") == 1, "it stands by")
    peers = [stack.enter_context(socket.create_connection((HOST, ada.port))) for _ in range(3)]
    for peer in peers:
        peer.settimeout(PATIENCE_SECONDS)
        peer.sendall(b"version\n")
    with suppress(OSError):  # they wait for an owner, or are closed when there is one
        peers[0].recv(100)
    eventually(lambda: answers_version(ada.port), "it has taken over")
    assert ada.process is not None
    assert len(list(Path(f"/proc/{ada.process.pid}/fd").iterdir())) < 100


def test_a_standby_that_is_cut_off_from_the_owner(nodes: list[Node], database: str, stack: ExitStack) -> None:
    """Its connections end.  It does not take over, since the owner is alive, and serves again afterwards."""
    ada, bob, _ = nodes
    ada.start_and_wait()
    network = stack.enter_context(cuttable(ada.port))
    with psycopg.connect(database, autocommit=True) as connection:
        ports = (str(ada.port), str(network.port))
        connection.execute(b"UPDATE sg_lease SET address = replace(address, %s, %s)", ports)
    bob.start_and_wait()
    with socket.create_connection((HOST, bob.port)) as peer:
        peer.sendall(b"version\n")
        assert peer.recv(100).startswith(b"OK")
        network.go_away()
        peer.settimeout(PATIENCE_SECONDS)
        assert peer.recv(100) == b""
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < 2 * LEASE_SECONDS:  # in which a node could take over
        assert owner_name(database) == "ada"
    with ada.client() as client:
        handle = client.submit("f", b"1", background=True).handle
    network.come_back()
    eventually(lambda: answers_version(bob.port), "the standby serves again")
    assert handles_at(bob) == {handle}


def test_tls_and_tokens_from_end_to_end_through_a_standby(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby cannot read what it passes on, and the owner tells who is there."""
    certificates = make_certificates(tmp_path)
    token = "swg_mailer-0123456789abcdef0123456789abcdef"
    digests = (f"sha256:{digest_of(token.encode()).hex()}",)
    mailer = AccessEntry("mailer", frozenset({Role.SUBMIT}), ("mail.*",), digests)
    write_access_file(tmp_path / "access.toml", AccessList(identities={"mailer": mailer}))
    settings = ("cluster.allow_async=true", f"access.file={tmp_path / 'access.toml'}")
    options = f"?{certificates.options(client_ca=False)}"
    made = [Node(name, database, tmp_path, *settings, options=options) for name in ("ada", "bob")]
    monkeypatch.setenv("SWITCHGEAR_TLS_CA", str(certificates.authority))
    with ExitStack() as stack:
        for node, sign in zip(made, ("owns the jobs", "standing by")):
            stack.callback(node.end)
            node.start()
            eventually(partial(node.says, sign), f"{node.name} is there")
        with Client(f"gearmans://localhost:{made[1].port}", token=token) as client:
            assert client.submit("mail.send", b"1", background=True).handle
            with pytest.raises(ServerRefused, match="mailer"):
                client.submit("resize", b"1", background=True)
        with (
            Client(f"gearmans://localhost:{made[1].port}", token="swg_wrong") as client,
            pytest.raises(SwitchgearError),
        ):
            client.submit("mail.send", b"1", background=True)


def test_without_a_synchronous_standby_it_does_not_start(database: str, tmp_path: Path) -> None:
    node = Node("ada", database, tmp_path)
    node.start()
    try:
        assert node.wait() == 2
    finally:
        node.end()
    assert "synchronous_standby_names is empty in PostgreSQL: if its primary fails" in node.output()


def test_a_cluster_needs_postgresql(tmp_path: Path) -> None:
    node = Node("ada", f"sqlite:{tmp_path}/jobs.db", tmp_path)
    node.start()
    try:
        assert node.wait() == 2
    finally:
        node.end()
    assert "nodes share their jobs in PostgreSQL" in node.output()


def test_nothing_acknowledged_is_lost_when_the_database_fails_over(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The primary is killed, and its synchronous standby goes on; nodes need no setting for it but both hosts."""
    with running_postgres() as primary, running_standby(primary) as standby:
        store = f"postgresql://switchgear@{HOST}:{primary.port},{HOST}:{standby.port}/postgres"
        store += "?target_session_attrs=read-write"
        made = [Node(name, store, tmp_path) for name in ("ada", "bob")]
        for node in made:
            request.addfinalizer(node.end)
            node.start_and_wait()
        acknowledged: list[str] = []
        stop = threading.Event()
        threads = [threading.Thread(target=submit_on, args=(node, acknowledged, stop), daemon=True) for node in made]
        for thread in threads:
            thread.start()
        wait_for_more(acknowledged, made)
        primary.stop(signal.SIGKILL)
        standby.promote()
        wait_for_more(acknowledged, made)
        owner = owner_of(made)
        owner.signal(signal.SIGKILL)  # and a takeover on the new primary
        wait_for_more(acknowledged, made)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        stored = handles_at(owner_of([node for node in made if node is not owner]))
        assert len(acknowledged) > 60
        assert not set(acknowledged) - stored


def test_a_restart_of_the_database(tmp_path: Path) -> None:
    with running_postgres() as cluster:
        store = cluster.new_url()
        made = [Node(name, store, tmp_path, "cluster.allow_async=true") for name in ("ada", "bob")]
        try:
            for node in made:
                node.start_and_wait()
            with made[1].client() as client:
                client.submit("f", b"1", background=True)
            cluster.stop(signal.SIGQUIT)
            cluster.start()

            def submits() -> bool:
                try:
                    with made[1].client() as client:
                        client.submit("f", b"2", background=True)
                except (ClientError, SwitchgearError, OSError, TimeoutError):
                    return False
                return True

            eventually(submits, "a submission is accepted again")
            assert len(handles_at(made[0])) == 2
        finally:
            for node in made:
                node.end()
