"""Our clients at listeners with TLS and identities: with a token, a client certificate, or neither."""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from switchgear import AsyncClient, Client, WmpManager, WmpWorker
from switchgear.cli.dashboard import login_code
from switchgear.client.address import HttpServerAddress
from switchgear.client.draft import AsyncDraftClient, AsyncDraftWorker, DraftClient, DraftWorker, JobType
from switchgear.client.draft.worker_flow import DraftTask, DraftWorkerObserver
from switchgear.client.gearmonkey import OPT_BLOCKING, AsyncGearMonkeyClient, GearMonkeyClient, GearMonkeyWorker
from switchgear.errors import ConfigError, ServerRefused, ServerUnreachable
from tests.cli.commands import Process
from tests.support.certificates import Certificates, make_certificates
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.system.secured_server import TOKENS, Secured, running_secured

LARGE = bytes(range(256)) * 4000  # many TLS records


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    certificates = make_certificates(tmp_path_factory.mktemp("tls"))
    with running_secured(certificates, tmp_path_factory.mktemp("access")) as server:
        yield server


@pytest.fixture
def certificates(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    """The files; the client trusts the authority, and has no identity yet."""
    monkeypatch.setenv("SWITCHGEAR_TLS_CA", str(secured.certificates.authority))
    return secured.certificates


@pytest.fixture
def as_root(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has a certificate."""
    monkeypatch.setenv("SWITCHGEAR_TLS_CERT", str(certificates.certificate("root")))
    monkeypatch.setenv("SWITCHGEAR_TLS_KEY", str(certificates.key("root")))


# --- the 2005 draft ---


@contextmanager
def draft_worker(url: str) -> Iterator[None]:
    worker = DraftWorker(url, {"draft.shout": lambda task: task.args.upper()})
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(DEADLINE_SECONDS)


@pytest.mark.usefixtures("as_root")
def test_client_and_worker_of_the_draft(secured: Secured) -> None:
    url = secured.url("gearmans")
    with draft_worker(url), DraftClient(url) as client:
        for payload in (b"hello", b"", LARGE):
            record = client.submit("draft.shout", payload, job_type=JobType.SYNC_WAIT)
            assert client.wait(record, DEADLINE_SECONDS) == (0, payload.upper())
        record = client.submit("draft.shout", b"asked for")
        stored = pickle.loads(pickle.dumps(record))
        assert client.wait(record, DEADLINE_SECONDS) == (0, b"ASKED FOR")
    with DraftClient(url) as client:  # another process, which has stored the record
        assert client.complete(stored) == (0, b"ASKED FOR")


@pytest.mark.usefixtures("as_root")
def test_client_and_worker_of_the_draft_for_asyncio(secured: Secured) -> None:
    async def shout(task: DraftTask) -> bytes:
        return task.args.upper()

    async def check() -> None:
        url = secured.url("gearmans")
        worker = AsyncDraftWorker(url, {"draft.shout": shout})
        working = asyncio.create_task(worker.run())
        async with AsyncDraftClient(url) as client:
            for payload in (b"hello", LARGE):
                record = await client.submit("draft.shout", payload, job_type=JobType.SYNC_WAIT)
                assert await client.wait(record, DEADLINE_SECONDS) == (0, payload.upper())
        worker.stop()
        await working

    asyncio.run(check())


@pytest.mark.usefixtures("certificates")
def test_without_a_certificate_a_client_of_the_draft_is_anonymous(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHGEAR_TOKEN", TOKENS["mailer"])  # the draft has no packet for it
    with DraftClient(secured.url("gearmans")) as client, pytest.raises(ServerRefused, match="anonymous"):
        client.submit("mail.send", b"")


async def submit_async(url: str) -> None:
    async with AsyncDraftClient(url) as client:
        await client.submit("f", b"")


def test_a_client_of_the_draft_verifies_the_server(secured: Secured) -> None:
    url = secured.url("gearmans")
    with DraftClient(url) as client, pytest.raises(ServerUnreachable, match=r"cannot connect .*TLS: .*certificate"):
        client.submit("f", b"")
    with pytest.raises(ServerUnreachable, match=r"cannot connect .*TLS: .*certificate"):
        asyncio.run(submit_async(url))


@pytest.mark.usefixtures("certificates")
def test_a_server_without_tls(secured: Secured) -> None:
    url = f"gearmans://localhost:{secured.server.port}"
    with DraftClient(url) as client, pytest.raises(ServerUnreachable, match="cannot connect"):
        client.submit("f", b"")
    with pytest.raises(ServerUnreachable, match="cannot connect"):
        asyncio.run(submit_async(url))


def test_a_client_that_forgot_to_encrypt_is_told(secured: Secured) -> None:
    gearman = f"gearman://localhost:{secured.ports['gearmans']}"
    with Client(gearman) as client, pytest.raises(ServerRefused, match="this port speaks TLS"):
        client.control("functions")

    async def control() -> None:
        async with AsyncClient(gearman) as client:
            await client.control("functions")

    with pytest.raises(ServerRefused, match="this port speaks TLS"):
        asyncio.run(control())
    with (
        Client(f"http://localhost:{secured.ports['https']}") as client,
        pytest.raises(ServerUnreachable, match=r"400 Bad Request \(This port speaks TLS: use https"),
    ):
        client.control("functions")


def test_files_for_tls_are_checked_first(secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    monkeypatch.setenv("SWITCHGEAR_TLS_CA", str(authority))
    with pytest.raises(ConfigError, match="SWITCHGEAR_TLS_CA"):
        DraftClient(secured.url("gearmans"))
    authority.write_bytes(secured.certificates.authority.read_bytes())
    problems: list[str] = []

    class Observer(DraftWorkerObserver):
        def disconnected(self, address: object, problem: str, retry_seconds: float) -> None:
            problems.append(problem)

    worker = DraftWorker(secured.url("gearmans"), {"f": lambda task: b""}, observer=Observer())
    authority.unlink()  # a worker that lost its connection tries again, until the file is there
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        eventually(lambda: any("SWITCHGEAR_TLS_CA" in each for each in problems), "the worker says what is wrong")
    finally:
        worker.stop()
        thread.join(DEADLINE_SECONDS)


# --- switchgear trace ---


@contextmanager
def tracing(secured: Secured) -> Iterator[tuple[Process, str]]:
    process = Process(secured.server, "trace", "--port", "0", "--server", secured.url("gearmans"))
    try:
        line = process.until("listening on")
        assert secured.url("gearmans") in line
        yield process, line.split()[2].rstrip(",")
    finally:
        process.close()


@pytest.mark.usefixtures("certificates")
def test_trace_passes_a_client_on_with_its_own_token(secured: Secured) -> None:
    with tracing(secured) as (process, url):
        with Client(url, token=TOKENS["mailer"]) as client:
            handle = client.submit("mail.send", b"hello", background=True).handle
        shown = [process.until(word) for word in ("AUTHENTICATE ", "AUTHENTICATED", "SUBMIT_JOB_BG", "JOB_CREATED")]
        assert "AUTHENTICATE (a token, not shown)" in shown[0]
        assert '"mailer"' in shown[1]
        assert handle in shown[-1]
        process.until("closed")  # although TLS cannot end one direction alone


def test_trace_identifies_itself(secured: Secured, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_TOKEN", TOKENS["mailer"])
    with tracing(secured) as (process, url):
        monkeypatch.delenv("SWITCHGEAR_TOKEN")
        with Client(url) as client:  # has no token, as clients of others
            client.submit("mail.send", b"hello", background=True)
            with pytest.raises(ServerRefused, match="mailer may not use"):
                client.submit("resize", b"hello", background=True)
        assert "AUTHENTICATE" not in process.until("closed")
    monkeypatch.setenv("SWITCHGEAR_TOKEN", "swg_wrong")
    with tracing(secured) as (process, url):
        monkeypatch.delenv("SWITCHGEAR_TOKEN")
        with Client(url) as client, pytest.raises(ServerUnreachable):
            client.submit("mail.send", b"hello", background=True)
        assert "No identity has this token" in process.until("No identity")
    monkeypatch.setenv("SWITCHGEAR_TLS_CERT", str(certificates.certificate("root")))
    monkeypatch.setenv("SWITCHGEAR_TLS_KEY", str(certificates.key("root")))
    with tracing(secured) as (_, url), Client(url) as client:
        client.submit("resize", b"hello", background=True)


def test_trace_verifies_the_server(secured: Secured) -> None:
    with tracing(secured) as (process, url):
        with Client(url) as client, pytest.raises(ServerUnreachable):
            client.submit("mail.send", b"hello", background=True)
        assert "TLS: " in process.until("certificate")


# --- GearMonkey ---


@contextmanager
def monkey_worker(url: str, function: str) -> Iterator[None]:
    worker = GearMonkeyWorker(url, lambda data: data.upper())
    worker.accept(function)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(DEADLINE_SECONDS)


async def run_async(url: str, function: str) -> bytes | None:
    async with AsyncGearMonkeyClient(url) as client:
        job_id = await client.run(function, b"hello", options=OPT_BLOCKING, timeout=DEADLINE_SECONDS)
        return (await client.get(function, job_id)).output


@pytest.mark.usefixtures("certificates")
def test_gearmonkey_with_tokens(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"gearmonkeys://localhost:{secured.ports['rediss']}"
    monkeypatch.setenv("SWITCHGEAR_TOKEN", TOKENS["worker"])
    with monkey_worker(url, "mail.shout"):
        monkeypatch.setenv("SWITCHGEAR_TOKEN", TOKENS["mailer"])
        with GearMonkeyClient(url) as client:
            job_id = client.run("mail.shout", LARGE, options=OPT_BLOCKING, timeout=DEADLINE_SECONDS)
            assert client.get("mail.shout", job_id).output == LARGE.upper()
            with pytest.raises(ServerRefused, match="NOPERM"):
                client.run("resize", b"hello")
        assert asyncio.run(run_async(url, "mail.shout")) == b"HELLO"
        monkeypatch.delenv("SWITCHGEAR_TOKEN")
        by_password = f"rediss://:{TOKENS['mailer']}@localhost:{secured.ports['rediss']}"
        assert asyncio.run(run_async(by_password, "mail.shout")) == b"HELLO"
    with GearMonkeyClient(url) as client, pytest.raises(ServerRefused, match="NOAUTH"):
        client.run("mail.shout", b"hello")
    monkeypatch.setenv("SWITCHGEAR_TOKEN", "swg_wrong-token")
    with GearMonkeyClient(url) as client, pytest.raises(ServerRefused) as caught:
        client.run("mail.shout", b"hello")
    assert "wrong-token" not in str(caught.value)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("scheme", ["rediss", "gearmonkeys"])
def test_gearmonkey_with_a_certificate(secured: Secured, scheme: str) -> None:
    url = f"{scheme}://localhost:{secured.ports['rediss']}"
    with monkey_worker(url, "shout"):
        assert asyncio.run(run_async(url, "shout")) == b"HELLO"


def test_gearmonkey_verifies_the_server(secured: Secured) -> None:
    place = f"localhost:{secured.ports['rediss']}"
    for scheme in ("rediss", "gearmonkeys"):
        with GearMonkeyClient(f"{scheme}://{place}") as client, pytest.raises(ServerUnreachable, match="certificate"):
            client.run("shout", b"hello")


# --- switchgear dashboard ---


def test_the_dashboard_is_opened_with_a_login_code(
    secured: Secured, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setenv("SWITCHGEAR_TOKEN", TOKENS["ops"])
    process = Process(secured.url("gearmans"), "dashboard")
    url = f"https://127.0.0.1:{secured.ports['https']}/"
    assert process.until("http") == f"{url}\n"
    assert process.exit_code() == 0
    address, _, code = opened.read_text().partition("#code=")
    assert address == url
    assert TOKENS["ops"] not in code
    status, begun = secured.curl("/v1/session", "-X", "POST", token=code)
    assert (status, begun["identity"]) == (200, "ops")
    assert secured.curl("/v1/session", "-X", "POST", token=code)[0] == 401
    for action in ("make login code", "use login code"):
        assert action in secured.server.output()
    assert code not in secured.server.output()
    monkeypatch.delenv("SWITCHGEAR_TOKEN")
    monkeypatch.setenv("SWITCHGEAR_TLS_CERT", str(certificates.certificate("root")))
    monkeypatch.setenv("SWITCHGEAR_TLS_KEY", str(certificates.key("root")))
    assert Process(secured.url("gearmans"), "dashboard").exit_code() == 0
    code = opened.read_text().partition("#code=")[2]
    assert secured.curl("/v1/session", "-X", "POST", token=code)[1]["identity"] == "admin"


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", b"HTTP/1.1 404 no\r\n\r\n", b"x", b""]
)
def test_something_else_answers_the_request_for_a_code(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_TOKEN", TOKENS["ops"])
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ServerUnreachable) as caught:
            login_code(HttpServerAddress.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/"))
        thread.join(DEADLINE_SECONDS)
    assert TOKENS["ops"] not in str(caught.value)


# --- the server as a worker of another one ---


def test_forwarding_with_a_token_or_a_certificate(secured: Secured, tmp_path: Path) -> None:
    files = secured.certificates
    token_file = tmp_path / "token"
    token_file.write_text(TOKENS["worker"] + "\n")
    source = f"gearman-worker://localhost:{secured.ports['gearmans']}?tls=yes&ca_file={files.authority}"
    by_certificate = f"&cert_file={files.certificate('root')}&key_file={files.key('root')}"
    for function, options in (("by.token", f"&token_file={token_file}"), ("by.certificate", by_certificate)):
        front = WmpManager("wmp://127.0.0.1:0", other_addresses=[source + options])
        with (
            front,
            WmpWorker(front.address, {function: lambda job: job.payload.upper()}),
            Client(f"gearman://127.0.0.1:{secured.server.port}", timeout_seconds=DEADLINE_SECONDS) as client,
        ):
            assert client.submit(function, LARGE).wait(DEADLINE_SECONDS) == LARGE.upper()


@pytest.mark.parametrize("has_authority", [True, False])
def test_forwarding_that_is_not_let_in(
    secured: Secured, has_authority: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "swg_wrong-0123456789abcdef0123456789abcdef"
    token_file = tmp_path / "token"
    token_file.write_text(wrong)
    source = f"gearman-worker://localhost:{secured.ports['gearmans']}?tls=yes&token_file={token_file}"
    complaint = "No identity has this token" if has_authority else "TLS: "
    front = WmpManager(
        "wmp://127.0.0.1:0",
        other_addresses=[f"{source}&ca_file={secured.certificates.authority}" if has_authority else source],
    )
    with front, WmpWorker(front.address, {"f": lambda job: b""}):
        eventually(lambda: complaint in caplog.text, "the log says why")
    assert wrong not in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("?tls=yes&ca_file=/nowhere", "ca_file: /nowhere: No such file"),
        ("?tls=yes&cert_file=/nowhere", "cert_file: /nowhere: No such file"),
        ("?token_file=/nowhere", "token file /nowhere: No such file"),
    ],
)
def test_mistakes_in_the_address_of_the_other_server(options: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WmpManager("wmp://127.0.0.1:0", other_addresses=[f"gearman-worker://127.0.0.1:1{options}"]).start()


def test_a_token_is_not_sent_to_another_machine_without_tls(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKENS["worker"])
    source = f"gearman-worker://192.0.2.1:4730?token_file={tmp_path / 'token'}"
    with pytest.raises(ConfigError, match="the token is not sent"):
        WmpManager("wmp://127.0.0.1:0", other_addresses=[source]).start()
