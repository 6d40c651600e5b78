"""A web node of the site: `python -m examples.livejournal.outside.node NAME DESCRIPTOR`.

It is handed a socket that listens already.  Whoever connects while it is being restarted is not refused, but waits.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

__all__: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"node": sys.argv[1], "pid": os.getpid()}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until a signal ends it."""
    listener = socket.socket(fileno=int(sys.argv[2]))
    server = HTTPServer(listener.getsockname(), _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


if __name__ == "__main__":
    main()
