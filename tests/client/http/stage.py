"""Real servers with an HTTP listener, other things that speak HTTP, and nginx in front of a server."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.http_client import HttpClient
from tests.support.peers import require_program
from tests.support.servers import HOST, Server, free_port, running_switchgear
from tests.support.waiting import eventually

NGINX = """
daemon off;
user root;
worker_processes 1;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    client_max_body_size 64m;
    keepalive_timeout 1s;
    server {{
        listen {host}:{port};
        location /tools/gear/ {{ proxy_pass http://{host}:{target}/; }}
    }}
}}
"""


@dataclass(frozen=True)
class HttpServer:
    """A server, and the port of its HTTP listener."""

    server: Server
    http_port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    @property
    def gearman_url(self) -> str:
        return f"gearman://{HOST}:{self.server.port}"


@contextmanager
def running_http_server(*args: str, store: str = "memory:", port: int = 0) -> Iterator[HttpServer]:
    port = port or free_port()
    with running_switchgear("--listen", f"http://{HOST}:{port}", *args, store=store) as server:
        yield HttpServer(server, port)


@contextmanager
def running_nginx(target: int, place: Path) -> Iterator[str]:
    """The URL of a server behind nginx, under a path."""
    port = free_port()
    configuration = place / "nginx.conf"
    configuration.write_text(NGINX.format(place=place, host=HOST, port=port, target=target))
    with subprocess.Popen([require_program("nginx"), "-c", str(configuration)], stderr=subprocess.PIPE) as nginx:
        try:
            eventually(lambda: answers(port), "nginx answers")
            yield f"http://{HOST}:{port}/tools/gear"
        finally:
            nginx.terminate()


def answers(port: int) -> bool:
    client = HttpClient(f"http://{HOST}:{port}")
    try:
        return client.call("GET", "/tools/gear/livez").status in (200, 502)
    except OSError:
        return False
    finally:
        client.close()


@contextmanager
def speaking(status: int, body: bytes = b"", **headers: str) -> Iterator[str]:
    """The URL of something that answers every request alike."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - a name of the standard library

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
