"""TLS and identities of a real server, with clients of other people: curl, redis-cli, gear, openssl s_client."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from switchgear import App
from switchgear.access.access_file import AccessEntry, AccessList, read_access_file, write_access_file
from switchgear.access.tokens import digest_of
from switchgear.client import Client
from switchgear.errors import ServerRefused, ServerUnreachable
from switchgear.protocols.gearman_draft.codec import DraftDecoder, packet
from switchgear.protocols.gearman_draft.messages import Packet
from switchgear.verbs.access import Role
from tests.support.certificates import Certificates, make_certificates
from tests.support.peers import require_gear, require_program
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import eventually
from tests.system.secured_server import TOKENS, Secured, running_secured

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "tls-and-access.md"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secured(certificates: Certificates, tmp_path: Path) -> Iterator[Secured]:
    with running_secured(certificates, tmp_path) as server:
        yield server


@pytest.fixture
def trusted(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_TLS_CA", str(certificates.authority))


def test_curl_with_tokens_and_certificates(secured: Secured) -> None:
    assert secured.curl("/livez") == (200, {"live": True})
    assert secured.curl("/v1/session") == (200, {"identity": "anonymous", "roles": [], "functions": []})
    submit = ("--data-binary", "hello")
    assert secured.curl("/v1/functions/mail.send/jobs", *submit)[0] == 401
    assert secured.curl("/v1/functions/mail.send/jobs", *submit, token="swg_wrong")[0] == 401
    assert secured.curl("/v1/functions/mail.send/jobs", *submit, token=TOKENS["mailer"])[0] == 201
    assert secured.curl("/v1/functions/resize/jobs", *submit, token=TOKENS["mailer"])[0] == 403
    assert secured.curl("/v1/functions", token=TOKENS["mailer"])[0] == 403
    keys = ("--cert", str(secured.certificates.certificate("root")), "--key", str(secured.certificates.key("root")))
    status, who = secured.curl("/v1/session", *keys)
    assert (status, who["identity"], who["functions"]) == (200, "admin", [])


def test_redis_cli(secured: Secured) -> None:
    assert secured.redis("PING") == "PONG"
    assert secured.redis("INCR", "uid:mail.send").startswith("NOAUTH ")
    assert secured.redis("INCR", "uid:mail.send", token=TOKENS["mailer"]).isdigit()
    assert "NOPERM" in secured.redis("INCR", "uid:resize", token=TOKENS["mailer"])
    assert "WRONGPASS" in secured.redis("INCR", "uid:mail.send", token="swg_wrong")


def test_the_library_over_https(secured: Secured, trusted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    url = secured.url("https")
    with App(url, token=TOKENS["mailer"]) as app:
        job = app.task(name="mail.send")(print).submit()
        assert job.status().state == "ready"
        with pytest.raises(ServerRefused, match="NOT_ALLOWED"):
            job.cancel()
        with pytest.raises(ServerRefused, match="NOT_ALLOWED"):
            app.task(name="other")(print).submit()
    with Client(url, token=TOKENS["ops"]) as client:
        assert client.control("cancel", handle=job.handle)["cancelled"] == [job.handle]
    with Client(url, token="wrong") as client, pytest.raises(ServerUnreachable, match="does not accept the token"):
        client.control("server")
    with Client(url) as client, pytest.raises(ServerRefused, match="AUTHENTICATION_REQUIRED"):
        client.control("server")
    monkeypatch.setenv("SWITCHGEAR_TLS_CERT", str(secured.certificates.certificate("root")))
    monkeypatch.setenv("SWITCHGEAR_TLS_KEY", str(secured.certificates.key("root")))
    with Client(url) as client:
        assert client.control("server")["version"]
    monkeypatch.delenv("SWITCHGEAR_TLS_CA")
    with Client(url) as client, pytest.raises(ServerUnreachable, match=r"TLS: .*certificate"):
        client.control("server")


def test_openssl_s_client(secured: Secured) -> None:
    program = require_program("openssl")
    files = ("-cert", str(secured.certificates.certificate("root")), "-key", str(secured.certificates.key("root")))
    place = f"localhost:{secured.ports['gearmans']}"
    command = [
        program,
        "s_client",
        "-quiet",
        "-verify_return_error",
        "-CAfile",
        str(secured.certificates.authority),
        *files,
    ]
    with subprocess.Popen([*command, "-connect", place], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        peer.stdin.write(b"version\n")
        peer.stdin.flush()
        answer = peer.stdout.readline()
        peer.kill()
    assert answer.startswith(b"OK switchgear-")


def draft_answer(secured: Secured, request: bytes, *, has_certificate: bool) -> Packet:
    """The answer of the secured Gearman listener to one packet of the 2005 draft."""
    files = secured.certificates
    context = ssl.create_default_context(cafile=str(files.authority))
    if has_certificate:
        context.load_cert_chain(files.certificate("root"), files.key("root"))
    decoder = DraftDecoder(1000)
    with (
        socket.create_connection((HOST, secured.ports["gearmans"]), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(request)
        while not (packets := decoder.feed(connection.recv(1000))):
            pass
    kind, _ = packets[0]
    return Packet(kind)


def test_the_2005_draft_knows_certificates(secured: Secured) -> None:
    create = packet(Packet.JOB_CREATE_REQ, b"mail.send\0\0\0\1hello")
    assert draft_answer(secured, create, has_certificate=True) is Packet.JOB_CREATE_RES
    assert draft_answer(secured, create, has_certificate=False) is Packet.ERROR


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # gear is older than its Python
def test_the_library_gear_with_a_client_certificate(secured: Secured) -> None:
    gear = require_gear()
    files = secured.certificates
    client = gear.Client()
    client.addServer(
        "localhost",
        secured.ports["gearmans"],
        str(files.key("root")),
        str(files.certificate("root")),
        str(files.authority),
    )
    client.waitForServer()
    job = gear.Job(b"mail.send", b"hello")
    client.submitJob(job, background=True)
    eventually(lambda: bool(job.handle), "the job has a handle")
    client.shutdown()


@pytest.mark.usefixtures("trusted")
def test_our_own_clients(secured: Secured) -> None:
    url = secured.url("gearmans")
    with Client(url, token=TOKENS["mailer"]) as client:
        handle = client.submit("mail.send", b"hello", background=True).handle
        with pytest.raises(ServerRefused, match="mailer may not use the function resize"):
            client.submit("resize", b"", background=True)
        with pytest.raises(ServerRefused, match="needs the role operate"):
            client.control("pause", function="mail.send")
    with Client(url) as client, pytest.raises(ServerRefused, match="anonymous"):
        client.submit("mail.send", b"hello", background=True)
    with Client(url, token="swg_wrong") as client, pytest.raises(ServerRefused, match="No identity has this token"):
        client.submit("mail.send", b"hello", background=True)
    with Client(url, token=TOKENS["ops"]) as client:
        assert client.control("job", handle=handle)["payload"] == "hello"


@pytest.mark.usefixtures("trusted")
def test_an_app_and_its_worker(secured: Secured, tmp_path: Path) -> None:
    url = secured.url("gearmans")
    (tmp_path / "tasks.py").write_text(
        "from switchgear import App\n"
        f"app = App({url!r})\n"
        "@app.task(name='mail.double')\n"
        "def double(number: int) -> int:\n"
        "    return 2 * number\n"
    )
    (tmp_path / "token").write_text(TOKENS["worker"] + "\n")
    command = [sys.executable, "-m", "switchgear", "worker", "tasks:app", "--token-file", "token"]
    worker = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        from switchgear import App

        app = App(url, token=TOKENS["mailer"])

        @app.task(name="mail.double")
        def double(number: int) -> int:
            return 2 * number

        with app:
            assert double.submit(21).result(timeout=30) == 42
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


def test_a_certificate_of_another_authority_is_not_trusted(secured: Secured) -> None:
    with Client(secured.url("gearmans")) as client, pytest.raises(ServerUnreachable, match="certificate"):
        client.submit("f", b"", background=True)


def test_handshakes_are_limited_in_number_and_time(certificates: Certificates) -> None:
    port = free_port()
    limits = ["--set", "limits.tls_handshakes=2", "--set", "limits.tls_handshake_seconds=1"]
    listener = f"gearman://{HOST}:{port}?{certificates.options(client_ca=False)}"
    with running_switchgear("--listen", listener, *limits) as server:
        silent = [socket.create_connection((HOST, port), timeout=30) for _ in range(2)]
        silent[0].sendall(b"\x16\x03\x01")  # the beginning of a handshake
        eventually(lambda: connections(server) >= 2, "the server has accepted both")
        with socket.create_connection((HOST, port), timeout=30) as third, suppress(ConnectionResetError):
            assert third.recv(1) == b""  # at once: two handshakes are not complete
        for connection in silent:
            with connection, suppress(ConnectionResetError):
                assert connection.recv(1) == b""  # after a second
        eventually(lambda: server.output().count("it took longer than 1 s") == 2, "the log says why")
        assert "2 TLS handshakes are not complete" in server.output()
        context = ssl.create_default_context(cafile=str(certificates.authority))
        with context.wrap_socket(socket.create_connection((HOST, port)), server_hostname="localhost") as connection:
            connection.sendall(b"version\n")
            assert connection.recv(100).startswith(b"OK ")


def connections(server: Server) -> int:
    with Client(f"gearman://{HOST}:{server.port}") as client:
        return sum(listener["connections"] for listener in client.control("server")["listeners"][1:])


def test_long_answers_and_half_closed_connections_over_tls(certificates: Certificates) -> None:
    port = free_port()
    listener = f"gearman://{HOST}:{port}?{certificates.options(client_ca=False)}"
    payload = os.urandom(9_000_000)
    with running_switchgear("--listen", listener):
        context = ssl.create_default_context(cafile=str(certificates.authority))
        plain = socket.create_connection((HOST, port))
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            packet = b"\0REQ" + (16).to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload  # ECHO_REQ
            connection.sendall(packet)
            received = bytearray()
            while len(received) < len(packet):
                piece = connection.recv(1 << 20)
                assert piece
                received += piece
            assert received[12:] == payload
            connection.sendall(b"version\n")
            assert connection.recv(100).startswith(b"OK ")
            connection.unwrap()


def test_the_last_answer_over_tls_arrives_though_more_was_sent(secured: Secured) -> None:
    """The server hangs up after QUIT, and discards what follows without calling it a broken handshake."""
    context = ssl.create_default_context(cafile=str(secured.certificates.authority))
    plain = socket.create_connection((HOST, secured.ports["rediss"]))
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(b"QUIT\r\n")
        assert connection.recv(100) == b"+OK\r\n"
        with suppress(OSError):
            connection.sendall(b"PING\r\n" * 1000)
        with suppress(OSError):
            assert connection.recv(100) == b""
    assert secured.redis("PING") == "PONG"
    assert "failed in its handshake" not in secured.server.output()


def test_curve_keys_are_identities(tmp_path: Path) -> None:
    import zmq
    import zmq.auth

    for name in ("server", "client", "reader", "stranger"):
        zmq.auth.create_certificates(tmp_path, name)
    keys = {
        name: zmq.auth.load_certificate(tmp_path / f"{name}.key_secret") for name in ("client", "reader", "stranger")
    }
    server_key, _ = zmq.auth.load_certificate(tmp_path / "server.key")
    roles = {"client": Role.SUBMIT, "reader": Role.READ}
    entries = {
        name: AccessEntry(name, frozenset({role}), curve_keys=(keys[name][0].decode(),)) for name, role in roles.items()
    }
    access = tmp_path / "access.toml"
    write_access_file(access, AccessList(identities=entries))
    front, back = free_port(), free_port()
    more = ["--listen", f"pingpong://{HOST}:{front}?workers={back}", "--access-file", str(access)]
    curve = ["--set", f"zeromq.curve_key_file={tmp_path / 'server.key_secret'}"]
    with running_switchgear(*more, *curve, options="?access=open") as server, zmq.Context() as context:

        def asked(name: str) -> zmq.Socket[bytes]:
            sock = context.socket(zmq.REQ)
            sock.linger = 0
            sock.curve_publickey, sock.curve_secretkey = keys[name]
            sock.curve_serverkey = server_key
            sock.connect(f"tcp://{HOST}:{front}")
            sock.send(b"job")
            return sock

        with asked("reader") as reader:
            assert reader.poll(30_000)
            answer = reader.recv_multipart()
            assert b"a request needs the role submit, which reader does not have" in b" ".join(answer)
        with asked("stranger"):
            complaint = "its key belongs to no identity"
            eventually(lambda: complaint in server.output(), "the stranger is refused")
        with asked("client"), Client(f"gearman://{HOST}:{server.port}") as client:
            eventually(lambda: [f["total"] for f in client.control("functions")] == [1], "its job is there")


def test_in_gearmands_place(certificates: Certificates, tmp_path: Path) -> None:
    """With --ssl-ca-file, only clients with a certificate of the authority can connect."""
    port = free_port()
    flags = [f"--listen={HOST}", f"--port={port}", "--log-file=stderr", f"--pid-file={tmp_path / 'pid'}", "--ssl"]
    files = [f"--ssl-certificate={certificates.certificate('server')}", f"--ssl-key={certificates.key('server')}"]
    command = [
        sys.executable,
        "-m",
        "switchgear",
        "gearmand",
        *flags,
        *files,
        f"--ssl-ca-file={certificates.authority}",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
        try:
            eventually(lambda: (tmp_path / "pid").exists(), "the server listens")
            context = ssl.create_default_context(cafile=str(certificates.authority))
            context.load_cert_chain(certificates.certificate("root"), certificates.key("root"))
            with context.wrap_socket(socket.create_connection((HOST, port)), server_hostname="localhost") as connection:
                connection.sendall(b"version\n")
                assert connection.recv(100).startswith(b"OK ")
            stranger = ssl.create_default_context(cafile=str(certificates.authority))
            plain = socket.create_connection((HOST, port))
            answer = b""
            with suppress(OSError), stranger.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(b"version\n")
                answer = connection.recv(100)
            assert answer == b""
        finally:
            server.terminate()


def test_plain_text_at_a_tls_port(secured: Secured) -> None:
    with socket.create_connection((HOST, secured.ports["gearmans"])) as connection:
        connection.sendall(b"version\n")
        assert b"OK" not in connection.recv(100)
    complaint = "failed in its handshake: it does not speak TLS"
    eventually(lambda: complaint in secured.server.output(), "the server says so")


@pytest.mark.parametrize(
    ("scheme", "data", "answer"),
    [
        ("https", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        ("gearmans", b"\0REQ\0\0\0\x10\0\0\0\x02hi", b"\0RES\0\0\0\x13"),
        ("gearmans", b"status\r\n", b"ERR FOREIGN_PROTOCOL this+port+speaks+TLS\r\n"),
        ("rediss", b"*1\r\n$4\r\nPING\r\n", b"-ERR this port speaks TLS, not Redis\r\n"),
    ],
)
def test_a_peer_that_forgot_to_encrypt_is_told_in_its_protocol(
    secured: Secured, scheme: str, data: bytes, answer: bytes
) -> None:
    with socket.create_connection((HOST, secured.ports[scheme]), timeout=30) as connection:
        connection.sendall(data)
        told = b"".join(iter(lambda: connection.recv(1000), b""))
    assert told.startswith(answer)
    assert b"TLS" in told


def test_a_peer_that_does_not_hang_up_after_the_goodbye_is_disconnected(certificates: Certificates) -> None:
    port = free_port()
    listener = f"gearman://{HOST}:{port}?{certificates.options(client_ca=False)}"
    with running_switchgear("--listen", listener) as server:
        context = ssl.create_default_context(cafile=str(certificates.authority))
        plain = socket.create_connection((HOST, port), timeout=30)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"no such command\n")
            assert connection.recv(1000).startswith(b"ERR")
            assert connection.recv(1000) == b""  # the goodbye; the peer keeps its side open
            eventually(lambda: connections(server) == 0, "the server has closed the connection")
        assert "Traceback" not in server.output()


def test_a_removed_identity_is_disconnected(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=str(secured.certificates.authority))
    plain = socket.create_connection((HOST, secured.ports["rediss"]))
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(f"AUTH {TOKENS['mailer']}\r\n".encode())
        assert connection.recv(100) == b"+OK\r\n"
        known = read_access_file(secured.access)
        left = {name: each for name, each in known.identities.items() if name != "mailer"}
        write_access_file(secured.access, AccessList(identities=left))
        secured.reload()
        assert connection.recv(100) == b""
    assert "AUTH failed: WRONGPASS" in secured.redis("INCR", "uid:mail.send", token=TOKENS["mailer"])


def test_a_bad_file_keeps_the_old_one(secured: Secured) -> None:
    secured.access.write_text("[identities.mailer]\nroles = ['everything']\n")
    secured.reload()
    assert "there is no role 'everything'" in secured.server.output()
    assert secured.redis("INCR", "uid:mail.send", token=TOKENS["mailer"]).isdigit()
    secured.access.write_text("")
    secured.access.chmod(0o644)
    secured.reload()
    assert "other users have access to it" in secured.server.output()
    assert secured.redis("INCR", "uid:mail.send", token=TOKENS["mailer"]).isdigit()


def test_a_new_certificate_is_used_after_a_reload(secured: Secured, tmp_path: Path) -> None:
    def serial() -> Any:
        context = ssl.create_default_context(cafile=str(secured.certificates.authority))
        plain = socket.create_connection((HOST, secured.ports["https"]))
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            found = connection.getpeercert()
        assert found is not None
        return found["serialNumber"]

    before = serial()
    secured.certificates.make("server", "localhost")
    assert serial() == before
    secured.reload()
    assert serial() != before


def test_a_bad_certificate_does_not_keep_a_removed_identity(secured: Secured) -> None:
    """Whoever revokes a token must not depend on the program that renews certificates."""
    certificate = secured.certificates.certificate("server")
    whole = certificate.read_text()
    certificate.write_text("half of a certificate")
    write_access_file(secured.access, AccessList())
    secured.reload()
    certificate.write_text(whole)
    assert "AUTH failed: WRONGPASS" in secured.redis("INCR", "uid:mail.send", token=TOKENS["mailer"])
    shown = secured.server.output()
    assert shown.count("not reloaded, the old certificate and key stay in use") == 3  # one for each listener
    assert "access file not reloaded" not in shown


def test_secrets_are_never_shown(secured: Secured) -> None:
    secured.redis("INCR", "uid:mail.send", token=TOKENS["mailer"])
    secured.redis("INCR", "uid:resize", token=TOKENS["mailer"])
    secured.curl("/v1/functions/resize/jobs", "--data-binary", "x", token=TOKENS["mailer"])
    wrong = "swg_wrong-0123456789abcdef0123456789abcdef"
    secured.curl("/v1/functions/resize/jobs", "--data-binary", "x", token=wrong)
    secured.redis("AUTH", wrong)
    secured.redis("ATUH", TOKENS["mailer"])  # the answer repeats it to its sender, and the log does not
    secured.curl(f"/v1/functions/{wrong}/jobs", "--data-binary", "x", token=TOKENS["mailer"])
    shown = [secured.server.output()]
    for path in ("/v1/server", "/v1/workers", "/v1/functions", "/v1/session"):
        shown.append(json.dumps(secured.curl(path, token=TOKENS["admin"])[1]))
    command = [sys.executable, "-m", "switchgear"]
    environ = {**os.environ, "SWITCHGEAR_ACCESS_FILE": str(secured.access), "SWITCHGEAR_TOKEN": TOKENS["admin"]}
    for words in (
        ["config", "show"],
        ["access", "list"],
        ["access", "check"],
        ["functions", "--server", "gearman://10.0.0.1"],
    ):
        done = subprocess.run([*command, *words], env=environ, capture_output=True, text=True, timeout=30)
        shown.append(done.stdout + done.stderr)
    assert "the token is not sent to gearman://10.0.0.1:4730, which is not encrypted" in shown[-1]
    shown.append(Path(f"/proc/{secured.server.pid}/cmdline").read_text())
    for text in shown:
        for token in (*TOKENS.values(), wrong):
            assert token not in text
            assert digest_of(token.encode()).hex() not in text
            assert token[4:] not in text


def test_the_commands_of_the_manual(tmp_path: Path) -> None:
    for program in ("openssl", "curl", "redis-cli"):
        require_program(program)
    script = "set -e\n" + "\n".join(re.findall(r"```bash\n(.*?)```", HOWTO.read_text(), re.S))
    ports = {str(port): str(free_port()) for port in (4730, 4740, 6380)}
    script = re.sub("|".join(ports), lambda found: ports[found[0]], script)
    script = script.replace("gearmans://localhost", f"gearmans://localhost:{ports['4730']}")
    ready = f"until curl -sf --cacert ca.pem https://localhost:{ports['4740']}/livez; do sleep 0.1; done"
    assert script.count("access=token' &") == 1
    script = script.replace("access=token' &", f"access=token' &\nserver=$!\ntrap 'kill $server' EXIT\n{ready}")
    script = script.replace("kill -HUP $!", "kill -HUP $server")
    script += "until grep -q 'access file reloaded' server.log; do sleep 0.1; done\n"
    script += f"! redis-cli -e --tls --cacert ca.pem -p {ports['6380']} AUTH $(cat mailer.token)\n"
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mailer: submit, for mail.*" in done.stdout


@pytest.mark.parametrize("scheme", ["gearmans", "https"])
def test_a_request_that_no_patience_would_help_fails_at_once(
    secured: Secured, trusted: None, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    url, patience = secured.url(scheme), 1000
    with (
        App(url, token="swg_wrong", connect_seconds=patience) as app,
        pytest.raises(ServerUnreachable, match="the server does not accept the token"),
    ):
        app.task(name="mail.send")(print).submit()
    if scheme == "gearmans":
        with (
            App(url.replace("gearmans", "gearman"), connect_seconds=patience) as app,
            pytest.raises(ServerUnreachable, match="this port speaks TLS, not Gearman"),
        ):
            app.task(name="mail.send")(print).submit()
    monkeypatch.delenv("SWITCHGEAR_TLS_CA")
    with (
        App(url, connect_seconds=patience) as app,
        pytest.raises(ServerUnreachable, match=r"TLS: .*certificate"),
    ):
        app.task(name="mail.send")(print).submit()
