"""A server with TLS and identities at three listeners, for tests of clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from switchgear.access.access_file import AccessEntry, AccessList, write_access_file
from switchgear.access.tokens import digest_of
from switchgear.verbs.access import Role
from tests.support.certificates import Certificates
from tests.support.peers import require_program
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import eventually

TOKENS = {name: f"swg_{name}-0123456789abcdef0123456789abcdef" for name in ("mailer", "worker", "ops", "admin")}


def entry(name: str, role: Role, *functions: str, **more: Any) -> AccessEntry:
    return AccessEntry(
        name, frozenset({role}), functions, (f"sha256:{digest_of(TOKENS[name].encode()).hex()}",), **more
    )


def access_list() -> AccessList:
    entries = (
        entry("mailer", Role.SUBMIT, "mail.*"),
        entry("worker", Role.WORK),
        entry("ops", Role.OPERATE),
        entry("admin", Role.ADMIN, certificates=("CN=root",)),
    )
    return AccessList(identities={each.name: each for each in entries})


class Secured:
    """A server with TLS and identities at three listeners, beside an open one for `running_switchgear`."""

    def __init__(self, server: Server, certificates: Certificates, access: Path, ports: dict[str, int]) -> None:
        self.server = server
        self.certificates = certificates
        self.access = access
        self.ports = ports

    def url(self, scheme: str) -> str:
        return f"{scheme}://localhost:{self.ports[scheme]}"

    def curl(self, path: str, *arguments: str, token: str = "") -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        program = require_program("curl")
        headers = ["-H", f"Authorization: Bearer {token}"] if token else []
        command = [program, "-sS", "-w", "\n%{http_code}", "--cacert", str(self.certificates.authority), *headers]
        done = subprocess.run(
            [*command, *arguments, self.url("https") + path], capture_output=True, check=True, timeout=30
        )
        body, _, status = done.stdout.rpartition(b"\n")
        return int(status), json.loads(body) if body else None

    def redis(self, *words: str, token: str = "") -> str:
        program = require_program("redis-cli")
        command = [program, "--tls", "--cacert", str(self.certificates.authority), "-h", "localhost"]
        environ = {**os.environ, "REDISCLI_AUTH": token} if token else dict(os.environ)
        done = subprocess.run(
            [*command, "-p", str(self.ports["rediss"]), *words], env=environ, capture_output=True, timeout=30
        )
        return (done.stdout + done.stderr).decode().strip()

    def reload(self) -> None:
        """Let the server read its files again, and wait until it has."""
        before = self.server.output().count("configuration reloaded")
        self.server.process.send_signal(signal.SIGHUP)
        eventually(lambda: self.server.output().count("configuration reloaded") > before, "the server reloads")


@contextmanager
def running_secured(certificates: Certificates, directory: Path) -> Iterator[Secured]:
    """Such a server, with its access file in the directory."""
    access = directory / "access.toml"
    write_access_file(access, access_list())
    ports = {scheme: free_port() for scheme in ("gearmans", "https", "rediss")}
    listeners = []
    for scheme, ours in (("gearmans", "gearman"), ("https", "http"), ("rediss", "gearmonkey")):
        listeners += ["--listen", f"{ours}://{HOST}:{ports[scheme]}?{certificates.options()}"]
    with running_switchgear("--access-file", str(access), *listeners, options="?access=open") as server:
        yield Secured(server, certificates, access, ports)
