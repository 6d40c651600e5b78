"""What TLS costs, at our own listeners and at nginx's stream proxy in front of those without TLS.

    .venv/bin/python -m bench.tls                    20,000 jobs and 500 connections, best of three rounds
    .venv/bin/python -m bench.tls --jobs 100000

One connection submits jobs of 100 bytes, one at a time (`x1`) or 32 in one write (`x32`), over Gearman and over HTTP.
`connect` makes a connection for each job, with a full handshake.  `plain` is without TLS; `tls` is a listener with
`?tls=yes`; `nginx` is nginx (one worker process, Debian's stream module, the same certificate) that passes what it has
decrypted to the listener of `plain`.  What is measured is CPU time: of the server, and of nginx's processes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from bench.http_api import cpu_seconds_of, submit_all
from switchgear.bench.server import environment, listen_addresses

__all__ = ["STREAM_MODULE", "Measured", "measure_all", "nginx_program"]

JOBS: Final = 20_000
CONNECTIONS: Final = 500
WARM_JOBS: Final = 320
PEERS: Final = ("gearman", "http")
WAYS: Final = ("plain", "tls", "nginx")
START_SECONDS: Final = 20.0
STREAM_MODULE: Final = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
SERVER: Final = """\
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {place}/server.pem;
        ssl_certificate_key {place}/server.key;
        ssl_protocols TLSv1.3;
        ssl_session_tickets off;
        proxy_pass 127.0.0.1:{plain};
    }}
"""
NGINX: Final = """\
load_module {module};
daemon off;
worker_processes 1;
pid {place}/nginx.pid;
error_log {place}/nginx.log;
events {{ worker_connections 4096; }}
stream {{
{servers}}}
"""

Address = tuple[str, int]


class Measured(NamedTuple):
    """CPU time per job, in microseconds."""

    server_us: float
    nginx_us: float


def nginx_program() -> str:
    """Where nginx is; raises RuntimeError if it or its stream module is missing."""
    found = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if found is None or not STREAM_MODULE.exists():
        raise RuntimeError("nginx with its stream module is needed: apt-get install nginx-light libnginx-mod-stream")
    return found


def make_certificate(place: Path) -> None:
    """A certificate that signs itself, on the curve that most servers use."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-keyout", str(place / "server.key")]
    subprocess.run([*command, "-out", str(place / "server.pem")], check=True, capture_output=True)


@contextmanager
def running_server(place: Path) -> Iterator[tuple[subprocess.Popen[str], dict[tuple[str, str], Address]]]:
    """A server, and its addresses by protocol and way."""
    options = f"?tls=yes&cert={place}/server.pem&key={place}/server.key"
    urls = [f"{peer}://127.0.0.1:0{more}" for peer in PEERS for more in ("", options)]
    command = [sys.executable, "-m", "switchgear", "serve", "--store", "memory:", "--log-level", "error"]
    command += [word for url in urls for word in ("--listen", url)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            found = [urlsplit(url) for url in listen_addresses(process, len(urls))]
            names = [(peer, way) for peer in PEERS for way in ("plain", "tls")]
            yield process, {name: (url.hostname or "", url.port or 0) for name, url in zip(names, found)}
        finally:
            process.kill()


@contextmanager
def running_nginx(place: Path, plain: dict[str, Address]) -> Iterator[tuple[subprocess.Popen[str], dict[str, Address]]]:
    """nginx in front of these addresses, and its own."""
    ports = {peer: free_port() for peer in plain}
    servers = "".join(SERVER.format(port=ports[peer], place=place, plain=plain[peer][1]) for peer in plain)
    (place / "nginx.conf").write_text(NGINX.format(module=STREAM_MODULE, place=place, servers=servers))
    place.chmod(0o755)  # the worker process may be of another user
    command = [nginx_program(), "-p", str(place), "-e", str(place / "nginx.log"), "-c", str(place / "nginx.conf")]
    process = subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL)
    try:
        for port in ports.values():
            await_port(port, process, place / "nginx.log")
        yield process, {peer: ("127.0.0.1", port) for peer, port in ports.items()}
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def await_port(port: int, process: subprocess.Popen[str], log: Path) -> None:
    """Wait until somebody listens there; raises RuntimeError."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"nginx did not start: {log.read_text() if log.exists() else 'it says nothing'}")


def cpu_of_nginx(process: subprocess.Popen[str]) -> float:
    """The CPU time of nginx: of its first process and of those that it has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in (process.pid, *map(int, children)))


def client_context() -> ssl.SSLContext:
    """TLS 1.3, without looking at the certificate."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def measure_all(jobs: int, connections: int) -> dict[tuple[str, str, str], Measured]:
    """One round: by workload, protocol and way."""
    found: dict[tuple[str, str, str], Measured] = {}
    context = client_context()
    with tempfile.TemporaryDirectory(prefix="switchgear-tls-") as name:
        place = Path(name)
        make_certificate(place)
        with running_server(place) as (server, addresses):
            plain = {peer: addresses[peer, "plain"] for peer in PEERS}
            with running_nginx(place, plain) as (nginx, proxied):
                addresses |= {(peer, "nginx"): address for peer, address in proxied.items()}
                next_number = 0
                for workload, count in (("x1", jobs), ("x32", jobs), ("connect", connections)):
                    for peer in PEERS:
                        for way in WAYS:
                            tls = None if way == "plain" else context
                            numbers = range(next_number, next_number + count)
                            next_number += count + WARM_JOBS
                            submit_all(peer, addresses[peer, way], range(numbers.stop, next_number), 32, tls)
                            before = cpu_seconds_of(server), cpu_of_nginx(nginx)
                            submit(workload, peer, addresses[peer, way], numbers, tls)
                            after = cpu_seconds_of(server), cpu_of_nginx(nginx)
                            each = [(end - start) / count * 1e6 for start, end in zip(before, after)]
                            found[workload, peer, way] = Measured(*each)
    return found


def submit(workload: str, peer: str, address: Address, numbers: range, tls: ssl.SSLContext | None) -> None:
    if workload == "connect":
        for number in numbers:
            submit_all(peer, address, range(number, number + 1), 1, tls)
    else:
        submit_all(peer, address, numbers, int(workload[1:]), tls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    best: dict[tuple[str, str, str], Measured] = {}
    for _ in range(options.rounds):
        for key, measured in measure_all(options.jobs, options.connections).items():
            best[key] = min(measured, best.get(key, measured), key=sum)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    for (workload, peer, way), measured in best.items():
        total = sum(measured)
        ratio = total / sum(best[workload, peer, "plain"])
        split = f"{measured.server_us:7.1f} server + {measured.nginx_us:7.1f} nginx"
        print(f"{workload:8} {peer:8} {way:6} {split} = {total:7.1f} µs of CPU, {ratio:.2f} of plain")


if __name__ == "__main__":
    main()
