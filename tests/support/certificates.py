"""Certificates for tests, made by openssl: an authority, a server's and clients'."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.peers import require_program

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """The files in one directory; `key` and `certificate` are of a name."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    def certificate(self, name: str) -> Path:
        return self.directory / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def make(self, name: str, subject: str = "", days: int = 30) -> None:
        """A certificate of the authority, for a client or for `localhost`."""
        request = self.directory / f"{name}.csr"
        self._openssl(
            "req", *_KEY, "-keyout", str(self.key(name)), "-out", str(request), "-subj", f"/CN={subject or name}"
        )
        names = self.directory / "names"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        signing = ("-CA", str(self.authority), "-CAkey", str(self.key("ca")), "-CAcreateserial", "-days", str(days))
        more = ("-extfile", str(names)) if name.startswith("server") else ()
        self._openssl("x509", "-req", "-in", str(request), *signing, *more, "-out", str(self.certificate(name)))
        self.key(name).chmod(0o600)

    def _openssl(self, *arguments: str) -> None:
        program = require_program("openssl")
        subprocess.run([program, *arguments], check=True, capture_output=True)

    def options(self, *, client_ca: bool = True) -> str:
        """The options of a listening URL."""
        text = f"tls=yes&cert={self.certificate('server')}&key={self.key('server')}"
        return f"{text}&client_ca={self.authority}" if client_ca else text


def make_certificates(directory: Path) -> Certificates:
    """An authority, and the certificates of `server` and of the client `root`."""
    made = Certificates(directory)
    arguments = ("req", "-x509", *_KEY, "-keyout", str(made.key("ca")), "-out", str(made.authority), "-days", "30")
    made._openssl(*arguments, "-subj", "/CN=Test authority")
    made.make("server", "localhost")
    made.make("root")
    return made
